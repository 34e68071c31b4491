"""Limits of the CEL engine."""

# Characters of a regular expression, also of ``pattern`` in a schema. Beyond: it is invalid.
MAX_PATTERN = 10_000
# Calls whose overloads the cache of one ``Base`` (see base.py) contains. Beyond: the cache is cleared.
MAX_RESOLVED = 20_000
# Elements of the list that lists.range returns. Beyond: the evaluation fails. Upstream: defaultMaxRangeSize.
MAX_RANGE = 1_000_000
# Absolute value of the exponent of a quantity. Beyond: the quantity is invalid.
MAX_EXPONENT = 1_000
# Characters of a quantity. Beyond: the quantity is invalid.
MAX_DIGITS = 4_000
# Digits after the decimal point in a format, 3 in ``%.3f``. Beyond: the evaluation fails.
MAX_PRECISION = 10_000
# Characters of one formatted text. Beyond: the evaluation fails.
MAX_TEXT = 1_000_000
# Elements that one evaluation reads or creates (about two seconds). Beyond: the evaluation fails.
MAX_ELEMENTS = 5_000_000
# Elements that the application of one mutation of an admission policy creates. Beyond: the evaluation fails.
MAX_CREATED = 500_000
# Work without allocation (see effort.py), in elements (about a second). It is the sum of all evaluations that share a
# Limit object (see limit.py). Beyond: the evaluation fails.
MAX_WORK = 2_500_000
# Characters of an expression. Beyond: 422. Upstream: expressionSizeCodePointLimit.
MAX_CHARACTERS = 100_000
# Bytes of the source line that an error quotes. Beyond: the error quotes no line. Upstream: maxSnippetLength.
MAX_SNIPPET = 16_384
# Errors of one expression in a message. Beyond: the message has only the number of the rest. Upstream:
# maxErrorsToReport.
MAX_REPORTED = 100
# Tokens that the parser skips after one syntax error. Beyond: parsing ends. Upstream: errorRecoveryTokenLookaheadLimit.
MAX_SKIPPED = 256
# Syntax errors after which the parser continues. Beyond: the parser stops. Upstream: errorRecoveryLimit.
MAX_RECOVERIES = 30
# Parser states that the parser follows at one token, to choose an alternative of the grammar after a syntax error (see
# ``close`` in recovery.py). Beyond: the parser ignores the rest.
MAX_LOOKAHEAD = 100_000
# Depth of nested grammar rules that the parser follows to choose an alternative after a syntax error. Beyond: it
# ignores deeper rules.
MAX_STACK = 40
# Types in one type, at all depths; ``list(int)`` has two. Beyond: 422.
MAX_PARTS = 20_000
# Characters of the Python code of an expression (30 ms to compile). Beyond: the interpreter evaluates the expression.
MAX_SOURCE = 131_072
# Depth of nested loops in the Python code of an expression. Beyond: the interpreter evaluates the expression.
MAX_LOOPS = 18
# Nesting depth of an expression. Beyond: 422. Upstream: maxRecursionDepth.
MAX_NESTING = 250
# AST nodes that macros copy in one expression (0.6 seconds). Beyond: 422.
MAX_COPIED = 20_000
