"""Limits of authentication and authorization."""

# Pairs of user and namespace whose roles are cached. Beyond: the cache is cleared.
GRANTS_CACHED = 4096
# Bytes of the name and groups of a user whose roles are cached. Beyond: each request looks the roles up.
GRANT_BYTES = 8 * 1024
# Rules of a role for one resource that are searched one by one. Beyond: the rules are indexed.
RULES_LISTED = 16
# Bytes of roles and bindings decoded in one iteration of the event loop. Beyond: a task decodes the rest later.
FOLLOW_INLINE = 16 * 1024
# Bytes of a role or binding decoded on the event loop. Beyond: a thread decodes it.
FOLLOW_THREAD = 64 * 1024
# Comparisons of the rules that a written role or binding grants with those of its writer. Beyond: 403.
PERMISSION_COMPARISONS = 4_000_000
# Single permissions, such as one verb on one resource, that a written role or binding grants: they are compared with
# those of its writer. Beyond: 403. Upstream: no limit.
PERMISSIONS_COMPARED = 16_384
# Bytes of an existing kubeconfig file that a starting server may replace as its own. Beyond: the start fails.
OWN_KUBECONFIG = 1024 * 1024
# Characters of a service account token. Beyond: 401.
MAX_TOKEN = 8 * 1024
# Cached service account tokens whose signature was verified. Beyond: the oldest is evicted.
TOKENS_CACHED = 1_024
