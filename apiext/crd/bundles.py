"""CA bundles of webhooks: whether Go can read one of the certificates in them, and in which words it says that not."""

import base64
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_PEM = re.compile(
    rb"^-----BEGIN (?P<type>[^\n]*)-----[ \t\r]*\n(?P<body>(?:(?!-----BEGIN ).*\n)*?)-----END (?P=type)-----[ \t\r]*$",
    re.MULTILINE,
)
_CURVES = ("secp224r1", "secp256r1", "secp384r1", "secp521r1")
_ELLIPTIC = "1.2.840.10045.2.1"
_SEQUENCE, _INTEGER, _BITS, _OCTETS, _ALL = 0x30, 0x02, 0x03, 0x04, 0xA3
_EXTENSIONS = {  # the values of extensions that Go reads: their tag, and what is said when it is another
    b"\x55\x1d\x0e": (_OCTETS, "subject key identifier"),
    b"\x55\x1d\x0f": (_BITS, "key usage"),
    b"\x55\x1d\x11": (_SEQUENCE, "subject alternative names"),
    b"\x55\x1d\x13": (_SEQUENCE, "basic constraints"),
    b"\x55\x1d\x1e": (_SEQUENCE, "NameConstraints extension"),
    b"\x55\x1d\x1f": (_SEQUENCE, "CRL distribution points"),
    b"\x55\x1d\x20": (_SEQUENCE, "certificate policies"),
    b"\x55\x1d\x21": (_SEQUENCE, "policy mappings extension"),
    b"\x55\x1d\x23": (_SEQUENCE, "authority key identifier"),
    b"\x55\x1d\x24": (_SEQUENCE, "policy constraints extension"),
    b"\x55\x1d\x25": (_SEQUENCE, "extended key usages"),
    b"\x55\x1d\x36": (_INTEGER, "inhibit any policy extension"),
    b"\x2b\x06\x01\x05\x05\x07\x01\x01": (_SEQUENCE, "authority info access"),
}


def bundle_fault(bundle: str) -> str:
    """Return why a CA bundle (base64 of PEM) cannot be used, empty when one of its certificates can (CRD-037)."""
    data = base64.b64decode(bundle)
    fault, end = "", 0
    for block in _PEM.finditer(data):
        with_headers = b":" in block["body"].partition(b"\n")[0]
        try:
            body = b"" if with_headers else base64.b64decode(b"".join(block["body"].split()), validate=True)
        except ValueError:
            continue  # no block for Go: it goes on behind it
        end = block.end()
        if with_headers or block["type"] != b"CERTIFICATE":
            continue
        told = _certificate_fault(body)
        if not told:
            return ""
        fault = fault or f"failed to parse certificate: x509: {told}"
    rest = data[end:].partition(b"\n")[2] if end else data  # of a block's last line Go takes the end, too
    if not fault:
        fault = "unable to parse bytes as PEM block" if rest else "no valid certificate authority data seen"
    return fault if data else ""


def _certificate_fault(der: bytes) -> str:
    from cryptography import x509  # late: few definitions have a bundle, and the import takes long

    try:
        certificate = x509.load_der_x509_certificate(der)
    except ValueError:
        return "malformed certificate"
    if certificate.public_key_algorithm_oid.dotted_string == _ELLIPTIC and not _is_on_known_curve(certificate):
        return "unsupported elliptic curve"
    for identifier, value in _extensions(certificate.tbs_certificate_bytes):
        tag, name = _EXTENSIONS.get(identifier, (0, ""))
        if tag and (value[:1] != bytes((tag,)) or not _is_whole(value)):
            return f"invalid {name}"
    return ""


def _is_on_known_curve(certificate: "Certificate") -> bool:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = certificate.public_key()
    except (UnsupportedAlgorithm, ValueError):
        return False
    return isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES


def _extensions(tbs: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield identifier and value of each extension of a certificate that was read already."""
    for tag, part in _parts(_content(tbs)):
        if tag == _ALL:
            for _, extension in _parts(_content(part)):
                fields = [value for _, value in _parts(extension)]
                yield fields[0], fields[-1]  # whether it is critical may stand between them


def _parts(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of the DER values that follow each other."""
    at = 0
    while at < len(content):
        begin, end = _span(content, at)
        yield content[at], content[begin:end]
        at = end


def _content(value: bytes) -> bytes:
    begin, end = _span(value, 0)
    return value[begin:end]


def _is_whole(value: bytes) -> bool:
    return len(value) > 1 and _span(value, 0)[1] <= len(value)


def _span(value: bytes, at: int) -> tuple[int, int]:
    """Return where the content of the DER value at a place begins and ends."""
    size, begin = value[at + 1], at + 2
    if size & 0x80:
        more = begin + (size & 0x7F)
        size, begin = int.from_bytes(value[begin:more]), more
    return begin, begin + size
