"""Limits of schemas and validation."""

# Characters of all paths of unknown fields of one object, in an error or in warnings. Beyond: further paths are left
# out.
MAX_UNKNOWN_TEXT = 1024 * 1024
# Bytes that defaults add to one object. Beyond: 400.
MAX_DEFAULTED = 8 * 1024 * 1024
# Bytes that defaults of nested fields add to the default of an object or array. Beyond: the complete default is not
# cached, and the server completes it again for each object.
MAX_KEPT_DEFAULT = 16 * 1024
# Validations of values against branches of allOf, anyOf, oneOf and not, for one object. Beyond: 422.
MAX_VALIDATION_STEPS = 500_000
# Instructions of the compiled patterns of one schema (compiling them takes 0.5 seconds and 8 MB). Beyond: the
# definition is refused.
MAX_PATTERN_PROGRAMS = 500_000
# String bytes times pattern instructions for one object (matching them takes 2 seconds). Beyond: 422.
MAX_PATTERN_STEPS = 1_000_000_000
# Characters of an error inside allOf, anyOf, oneOf or not that count as one step of MAX_VALIDATION_STEPS. Beyond: the
# error counts as several steps.
STEP_TEXT = 256
# Rules of one schema (compiling them takes half a second and 20 MB). Beyond: the definition is refused.
MAX_RULES = 2_000
# CEL cost units of all rules of one object. Beyond: 422. Upstream: RuntimeCELCostBudget.
OBJECT_BUDGET = 10_000_000
# Characters of the expressions of one schema (compiling them takes a second and 50 MB). Beyond: the definition is
# refused.
MAX_RULE_TEXT = 400_000
# AST nodes that macros copy in the rules of one schema (copying them takes 3 seconds and 80 MB). Beyond: the definition
# is refused.
MAX_RULE_COPIES = 100_000
# Characters of a mail address with its name and comments. Beyond: the address is invalid.
MAX_MAIL = 65_536
# Nesting depth of objects and arrays in a schema. Beyond: the definition is refused.
MAX_SCHEMA_NESTING = 240
# CEL cost units of an object's rules on the event loop (they take 4 ms). Beyond: a thread evaluates the rules again.
LOOP_UNITS = 10_000
# Bytes of the compiled patterns in the cache. Beyond: the oldest pattern is evicted.
PATTERN_BYTES = 128 * 1024 * 1024
# Fields of an object whose shape (names and types of fields) is cached. Beyond: the shape is not cached.
SHAPE_MEMBERS = 256
