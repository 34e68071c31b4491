"""Limits of KMS plug-ins."""

# Seconds for which /readyz uses a successful Status call. Beyond: the server calls Status again. Upstream:
# kmsPluginHealthzPositiveTTL.
KMS_TTL = 20.0
# Seconds for which /readyz uses a failed Status call, and for which the server does not retry a failed decryption of a
# data key. Beyond: the server calls the plug-in again. Upstream: kmsPluginHealthzNegativeTTL.
KMS_TTL_FAILED = 3.0
# Seconds for which a data key encrypts new values after the last Status response with its key id. Beyond: writes fail.
# Upstream: kmsv2PluginWriteDEKSourceMaxTTL.
KMS_WRITES = 180.0
# Bytes of a key id. Beyond: the server refuses the response of the plug-in. Upstream: KeyIDMaxSize.
KMS_KEY_ID = 1024
# Bytes of an encrypted data key. Beyond: the server refuses the response of the plug-in. Upstream:
# encryptedDEKSourceMaxSize.
KMS_SOURCE = 1024
# Bytes of the annotations in a response of a plug-in. Beyond: the server refuses the response. Upstream:
# annotationsMaxSize.
KMS_ANNOTATIONS = 32 * 1024
# Bytes of a response of a plug-in. Beyond: the call fails. Upstream: gRPC's maximum.
KMS_ANSWER = 4 * 1024 * 1024
# Characters of an error message of a plug-in. Beyond: the message is truncated.
KMS_TEXT = 1024
# Decrypted data keys of a provider in memory. Beyond: the oldest key is evicted. Upstream: no limit, but keys are
# evicted after a day.
KMS_KEYS = 10_000
# Concurrent Decrypt calls of a provider. Beyond: further calls wait.
KMS_CALLS = 16
# Key ids in metrics. Beyond: the least recently used key id is removed. Upstream: cacheSize.
KMS_LABELS = 100
