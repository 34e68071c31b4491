"""Media types of objects and of patches, for negotiation and for OpenAPI."""

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
ENCODINGS = (JSON, YAML, PROTOBUF)
STREAMS = (f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")
PATCH_TYPES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
TYPED_PATCH_TYPES = (*PATCH_TYPES[:2], "application/strategic-merge-patch+json", PATCH_TYPES[2])
