"""Base64 for URLs without padding, the encoding of JSON web tokens and keys (RFC 7515)."""

import base64


def encoded(raw: bytes) -> bytes:
    """Encode bytes in base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def decoded(text: bytes) -> bytes:
    """Decode base64 for URLs without padding; raises binascii.Error."""
    return base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
