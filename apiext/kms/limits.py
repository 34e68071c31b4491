"""Limits of key management plug-ins."""

# Seconds for which /readyz uses a good Status. Beyond: another call. Upstream: kmsPluginHealthzPositiveTTL.
KMS_TTL = 20.0
# Seconds for which /readyz uses a failed Status, and reads use a failed decryption of a data key. Beyond: another call.
# Upstream: kmsPluginHealthzNegativeTTL.
KMS_TTL_FAILED = 3.0
# Seconds for which a data key encrypts without a good Status. Beyond: writes fail. Upstream:
# kmsv2PluginWriteDEKSourceMaxTTL.
KMS_WRITES = 180.0
# Bytes of a key id. Beyond: the plug-in's answer is refused. Upstream: KeyIDMaxSize.
KMS_KEY_ID = 1024
# Bytes of an encrypted data key. Beyond: the plug-in's answer is refused. Upstream: encryptedDEKSourceMaxSize.
KMS_SOURCE = 1024
# Bytes of a plug-in's annotations. Beyond: its answer is refused. Upstream: annotationsMaxSize.
KMS_ANNOTATIONS = 32 * 1024
# Bytes of a plug-in's answer. Beyond: the call fails. Upstream: gRPC's maximum.
KMS_ANSWER = 4 * 1024 * 1024
# Characters of a plug-in's error message. Beyond: it is cut.
KMS_TEXT = 1024
# Decrypted data keys of a provider in memory. Beyond: the oldest is evicted. Upstream: a day, without a limit.
KMS_KEYS = 10_000
# Decrypt calls at a time. Beyond: calls wait.
KMS_CALLS = 16
# Key ids in metrics. Beyond: the least recently used one is removed. Upstream: cacheSize.
KMS_LABELS = 100
