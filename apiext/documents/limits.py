"""Limits of documents."""

# Bytes of a request body. Beyond: 413. Upstream: MaxRequestBodyBytes.
MAX_BODY = 3 * 1024 * 1024
# Levels of nested objects and arrays in a request body; orjson cannot encode more than 254. Beyond: 400. Upstream:
# 10,000.
MAX_DEPTH = 250
# Opening brackets of a JSON document, also in strings. An object or array takes 64 bytes of memory or more. Beyond:
# 400.
MAX_CONTAINERS = 400_000
# Aliases of a YAML body. Beyond: 400.
MAX_YAML_ALIASES = 1_000
# Nodes of a YAML body with expanded aliases, half a second of work. Beyond: 400.
MAX_YAML_NODES = 250_000
# Operations of a client's JSON patch. Beyond: 413. Upstream: maxJSONPatchOperations.
MAX_JSON_PATCH_OPERATIONS = 10_000
# Array elements that the insertions and removals of one JSON patch shift. Beyond: 422.
MAX_JSON_PATCH_MOVED = 10_000_000_000
# Bytes that one JSON patch copies. Beyond: 422. Upstream: JSONPatchMaxCopyBytes.
MAX_JSON_PATCH_COPY = 3 * 1024 * 1024
# Characters of an object key in the path of an error. Beyond: the key is cut.
MAX_PATH_NAME = 1_024
# Values that one step of a column's JSONPath selects in one object. Beyond: the cell of this column is empty in the row
# of the object.
JSONPATH_VALUES = 100_000
# Values that the JSONPaths of all columns visit in one object, 0.3 seconds of work. The limit is divided equally among
# the columns whose JSONPath is more than field names. Beyond: the cell of a column that exceeds its part is empty.
JSONPATH_WORK = 2_000_000
