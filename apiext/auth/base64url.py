"""Base64 for URLs without padding, as tokens and their keys have it (RFC 7515)."""

import base64


def encoded(raw: bytes) -> bytes:
    """Return bytes in base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def decoded(text: bytes) -> bytes:
    """Return the bytes of such a text; raises binascii.Error."""
    return base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
