"""Histograms of rule compilation, rule evaluation and ratcheting, under upstream's names.

See CEL-019.
"""

from apiext.telemetry import HistogramFamily

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets, in seconds: Prometheus' default buckets."""

RATCHETING_SECONDS = tuple(1e-5 * 4**power for power in range(10))

# These are module variables, since the code that evaluates rules has no telemetry object.
COMPILATION = HistogramFamily(
    "apiserver_cel_compilation_duration_seconds", "CEL compilation time in seconds.", (), SECONDS
)
EVALUATION = HistogramFamily(
    "apiserver_cel_evaluation_duration_seconds", "CEL evaluation time in seconds.", (), SECONDS
)
RATCHETING = HistogramFamily(
    "apiextensions_apiserver_validation_ratcheting_seconds",
    "Time for comparison of old to new for the purposes of CRDValidationRatcheting during an UPDATE in seconds.",
    (),
    RATCHETING_SECONDS,
)
compilations = COMPILATION.slot()
"""Compilation times: one observation for all rules of one schema node."""
evaluations = EVALUATION.slot()
"""Evaluation times: one observation for all rules of one schema node on one value."""
comparisons = RATCHETING.slot()
"""Ratcheting times: one observation each time that a new value with an error is compared with its old value."""
