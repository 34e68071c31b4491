"""Validate the CA bundles of webhooks as Go does, with its error texts."""

import base64
import re

from apiext.crd.certificates import Malformed, check_certificate

_PEM = re.compile(
    rb"^-----BEGIN (?P<type>[^\n]*)-----[ \t\r]*\n(?P<body>(?:(?!-----BEGIN ).*\n)*?)-----END (?P=type)-----[ \t\r]*$",
    re.MULTILINE,
)


def is_blank(bundle: str) -> bool:
    """Return whether a CA bundle (base64) is empty or contains only white space."""
    try:
        return not base64.b64decode(bundle).strip()
    except ValueError:
        return False


def bundle_fault(bundle: str) -> str:
    """Return the reason why a CA bundle (base64 of PEM) is invalid, or an empty string.

    See CRD-037. A bundle is valid if it is empty, or if Go can parse one of its certificates.
    """
    try:
        data = base64.b64decode(bundle)
    except ValueError:
        return "illegal base64 data"  # the decoder of definitions already rejects such a bundle
    fault, end = "", 0
    for block in _PEM.finditer(data):
        with_headers = b":" in block["body"].partition(b"\n")[0]
        try:
            body = b"" if with_headers else base64.b64decode(b"".join(block["body"].split()), validate=True)
        except ValueError:
            continue  # Go does not accept this as a PEM block, and searches for the next block
        end = block.end()
        if with_headers or block["type"] != b"CERTIFICATE":
            continue
        try:
            check_certificate(body)
        except Malformed as error:
            fault = fault or f"failed to parse certificate: x509: {error}"
        else:
            return ""
    rest = data[end:].partition(b"\n")[2] if end else data  # Go also skips the rest of a block's last line
    if not fault:
        fault = "unable to parse bytes as PEM block" if rest else "no valid certificate authority data seen"
    return fault if data else ""
