"""Limits of admission plug-ins."""

# Bytes of JSON of a mutation by a policy, and of the mutated object. Beyond: the mutation fails, and the failurePolicy
# decides whether the write is denied.
MAX_MUTATED = 6 * 1024 * 1024
# Warnings that admission adds to a write. Beyond: the server drops further warnings.
MAX_WARNINGS_ADDED = 64
# Combinations of operation, resource and subresource for which a plug-in caches the webhooks or policies that may
# match. Beyond: the cache is cleared.
WRITES_MATCHED = 4_096
# Cached descriptions of the kind and resource of a write, for AdmissionReviews. Beyond: the least recently used is
# evicted.
FORMS_SEEN = 256
# CEL cost units of one evaluation on the event loop. Beyond: the server evaluates the expression again, in a thread.
ADMISSION_CEL_INLINE = 5_000
# Nodes of an expression whose code is generated on the event loop (5 milliseconds). Beyond: a thread generates it.
ADMISSION_CODE_INLINE = 400
# CEL cost units of the match conditions of one webhook or policy for one write. Beyond: the evaluation fails, and the
# failurePolicy decides whether the write is denied. Upstream: RuntimeCELCostBudgetMatchConditions.
ADMISSION_CONDITIONS = 2_500_000
# CEL cost units of all validations of a policy for one parameter, of all its audit annotations, or of one mutation.
# Beyond: the evaluation fails, and the failurePolicy decides whether the write is denied. Upstream:
# RuntimeCELCostBudget.
ADMISSION_EXPRESSIONS = 10_000_000
# Bytes of the result of a messageExpression. Beyond: the server ignores the result. Upstream:
# MaxEvaluatedMessageExpressionSizeBytes.
ADMISSION_MESSAGE = 5 * 1024
# UTF-8 bytes of an audit annotation of a policy. Beyond: the annotation is truncated. Upstream:
# maxAuditAnnotationValueLength.
ADMISSION_ANNOTATION = 10 * 1024
# Failed validations in one audit annotation. Beyond: the rest is omitted. Upstream: maxValidationFailures.
ADMISSION_FAILURES = 50
# Combinations of group, version and resource in the rules of a policy. For the kind of each, the server checks the
# types of the policy's expressions. Beyond: the server does not check further combinations.
ADMISSION_TYPES = 2_000
# Parameter objects of one binding for one write. Beyond: the failurePolicy decides whether the write is denied.
ADMISSION_PARAMS = 1_000
# Webhooks with a rate limit of their own for log lines about denials. Beyond: all rate limits start anew.
WEBHOOKS_LOGGED = 1_000
# Tries to find the default service account of a pod. Beyond: a 403. Upstream: 10.
DEFAULT_ACCOUNT_TRIES = 10
# Tries to charge the quotas of a write, if other writers change these quotas at the same time. Beyond: a 409.
# Upstream: 4.
QUOTA_TRIES = 10
# Seconds in which another server should store an object after it charged a quota. Beyond: the quota controller may
# count the usage without this charge.
QUOTA_SETTLES = 1.0
# Pods that are checked against a new pod security level of their namespace. Beyond: a warning names the number of
# checked pods. Upstream: defaultNamespaceMaxPodsToCheck.
PODS_CHECKED = 3_000
# Seconds for checking pods against a new pod security level. Beyond: a warning names the number of checked pods.
# Upstream: defaultNamespacePodCheckTimeout.
PODS_CHECKED_WAIT = 1.0
