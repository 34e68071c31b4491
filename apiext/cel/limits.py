"""Limits of the CEL engine."""

# Characters of a regular expression. Beyond: the expression or its evaluation fails.
MAX_PATTERN = 10_000
# Calls whose overloads are cached. Beyond: the cache is emptied.
MAX_RESOLVED = 20_000
# Elements that lists.range makes. Beyond: the evaluation fails. Upstream: defaultMaxRangeSize.
MAX_RANGE = 1_000_000
# Absolute value of the exponent of a quantity. Beyond: the evaluation fails.
MAX_EXPONENT = 1_000
# Digits of a quantity. Beyond: the evaluation fails.
MAX_DIGITS = 4_000
# Digits after the point that a format asks for. Beyond: the evaluation fails.
MAX_PRECISION = 10_000
# Characters of one formatted text. Beyond: the evaluation fails.
MAX_TEXT = 1_000_000
# Elements that one evaluation reads or makes, about two seconds. Beyond: the evaluation fails.
MOST = 5_000_000
# Elements of the values that one mutation makes. Beyond: the evaluation fails.
MADE = 500_000
# Elements of work without allocation of all evaluations under one limit, about a second. Beyond: the evaluation
# fails.
MOST_TIME = 2_500_000
# Characters of an expression. Beyond: 422. Upstream: expressionSizeCodePointLimit.
MAX_CHARACTERS = 100_000
# Bytes of a source line below an error. Beyond: the error has no line. Upstream: maxSnippetLength.
MAX_SNIPPET = 16_384
# Errors of one expression. Beyond: the rest is left out. Upstream: maxErrorsToReport.
MAX_REPORTED = 100
# Tokens that the parser skips after a syntax error. Beyond: it stops. Upstream: errorRecoveryTokenLookaheadLimit.
MAX_SKIPPED = 256
# Syntax errors after which the parser continues. Beyond: the parser stops. Upstream: errorRecoveryLimit.
MAX_RECOVERIES = 30
# Configurations that the parser tries for one decision after a syntax error. Beyond: it stops.
MAX_LOOKAHEAD = 100_000
# Nested rules of one decision after a syntax error. Beyond: the decision ignores them.
MAX_STACK = 40
# Types within a type. Beyond: 422.
MAX_PARTS = 20_000
# Characters of the Python code of an expression, 30 ms to compile. Beyond: the interpreter evaluates it.
MAX_SOURCE = 131_072
# Nested loops of the Python code of an expression. Beyond: the interpreter evaluates it.
MAX_LOOPS = 18
# Nested expressions. Beyond: 422. Upstream: maxRecursionDepth.
MAX_NESTING = 250
# Nodes that macros repeat in one expression, 0.6 seconds. Beyond: 422.
MAX_COPIED = 20_000
