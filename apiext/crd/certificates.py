"""Parse certificates (X.509 in DER) like Go's crypto/x509, with its error texts.

The checks run in Go's order. Existing libraries for certificates are stricter or more lenient in some checks, and may
change with each release.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

_BOOLEAN, _INTEGER, _BITS, _OCTETS, _NULL, _OID = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06
_UTC_TIME, _GENERAL_TIME, _SEQUENCE, _SET = 0x17, 0x18, 0x30, 0x31
_VERSION, _ISSUER_ID, _SUBJECT_ID, _EXTENSIONS = 0xA0, 0x81, 0x82, 0xA3

_RSA = "1.2.840.113549.1.1.1"
_ELLIPTIC = "1.2.840.10045.2.1"
_WITHOUT_PARAMETERS = {"1.3.101.112": "Ed25519", "1.3.101.110": "X25519"}
_CURVES = frozenset(("1.3.132.0.33", "1.2.840.10045.3.1.7", "1.3.132.0.34", "1.3.132.0.35"))  # P-224, 256, 384, 521
_ED25519_SIZE = 32

_READ_EXTENSIONS: Mapping[str, tuple[int, str]] = {  # identifier → (tag of the value, name of the extension in errors)
    "2.5.29.14": (_OCTETS, "subject key identifier"),
    "2.5.29.15": (_BITS, "key usage"),
    "2.5.29.17": (_SEQUENCE, "subject alternative names"),
    "2.5.29.19": (_SEQUENCE, "basic constraints"),
    "2.5.29.30": (_SEQUENCE, "NameConstraints extension"),
    "2.5.29.31": (_SEQUENCE, "CRL distribution points"),
    "2.5.29.32": (_SEQUENCE, "certificate policies"),
    "2.5.29.33": (_SEQUENCE, "policy mappings extension"),
    "2.5.29.35": (_SEQUENCE, "authority key identifier"),
    "2.5.29.36": (_SEQUENCE, "policy constraints extension"),
    "2.5.29.37": (_SEQUENCE, "extended key usages"),
    "2.5.29.54": (_INTEGER, "inhibit any policy extension"),
    "1.3.6.1.5.5.7.1.1": (_SEQUENCE, "authority info access"),
}


class Malformed(Exception):
    """The error of a certificate that Go refuses.

    The text is Go's, without the prefix ``x509: ``.
    """


class _Der:
    """A reader of a sequence of DER elements."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def empty(self) -> bool:
        """Return whether no element is left."""
        return self.at >= len(self.data)

    def peek(self) -> int:
        """Return the tag of the next element, or -1 at the end."""
        return -1 if self.empty else self.data[self.at]

    def any(self, fault: str) -> tuple[int, bytes]:
        """Return (tag, content) of the next element.

        Raise Malformed(fault) if it is missing or invalid.
        """
        data, at = self.data, self.at
        if len(data) < at + 2 or data[at] & 0x1F == 0x1F:  # Go refuses tags of several bytes
            raise Malformed(fault)
        size, begin = data[at + 1], at + 2
        if size & 0x80:
            more = size & 0x7F
            size, begin = int.from_bytes(data[begin : begin + more]), begin + more
            shortest = size >= 0x80 and size >> 8 * (more - 1) if 1 <= more <= 4 and len(data) >= begin else 0
            if not shortest:
                raise Malformed(fault)
        if len(data) < begin + size:
            raise Malformed(fault)
        self.at = begin + size
        return data[at], data[begin : begin + size]

    def take(self, tag: int, fault: str) -> bytes:
        """Return the content of the next element. Raise Malformed(fault) unless it has this tag."""
        if self.peek() != tag:
            raise Malformed(fault)
        return self.any(fault)[1]

    def inside(self, tag: int, fault: str) -> "_Der":
        """Return a reader of the content of the next element.

        Raise Malformed(fault) unless it has this tag.
        """
        return _Der(self.take(tag, fault))

    def optional(self, tag: int, fault: str) -> "_Der | None":
        """Return a reader of the content of the next element if it has this tag, else None."""
        return self.inside(tag, fault) if self.peek() == tag else None

    def integer(self, fault: str) -> int:
        """Return an INTEGER, which must have the shortest encoding."""
        content = self.take(_INTEGER, fault)
        padded = len(content) > 1 and content[0] in (0, 0xFF) and (content[0] ^ content[1]) < 0x80
        if not content or padded:
            raise Malformed(fault)
        return int.from_bytes(content, signed=True)

    def identifier(self, fault: str) -> str:
        """Return an OBJECT IDENTIFIER as numbers with dots between them."""
        content = self.take(_OID, fault)
        if not content or content[-1] & 0x80:
            raise Malformed(fault)
        numbers: list[int] = []
        number, size = 0, 0
        for byte in content:
            if (size == 0 and byte == 0x80) or number >= 1 << 24:
                raise Malformed(fault)
            number, size = number << 7 | byte & 0x7F, size + 1
            if not byte & 0x80:
                numbers.append(number)
                number = size = 0
        first = min(numbers[0] // 40, 2)
        return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))

    def bits(self, fault: str) -> bytes:
        """Return the bytes of a BIT STRING; the bits that pad its last byte must be 0."""
        content = self.take(_BITS, fault)
        padding = content[0] if content else 8
        if padding > 7 or (padding and (len(content) == 1 or content[-1] & ((1 << padding) - 1))):
            raise Malformed(fault)
        return content[1:]


def check_certificate(der: bytes) -> None:
    """Raise Malformed for a certificate that Go refuses.

    Two checks are more lenient than in Go. This function parses only the outermost element of an extension. Of the
    parameters and the value of an elliptic key, it checks only the curve.
    """
    whole = _Der(der)
    certificate = whole.inside(_SEQUENCE, "malformed certificate")
    body = certificate.inside(_SEQUENCE, "malformed tbs certificate")
    version = _version(body)
    if body.integer("malformed serial number") < 0:
        raise Malformed("negative serial number")
    algorithm = body.take(_SEQUENCE, "malformed signature algorithm identifier")
    if certificate.take(_SEQUENCE, "malformed algorithm identifier") != algorithm:
        raise Malformed("inner and outer signature algorithm identifiers don't match")
    _algorithm(_Der(algorithm))
    _check_name(body.inside(_SEQUENCE, "malformed issuer"))
    validity = body.inside(_SEQUENCE, "malformed validity")
    _check_time(validity)
    _check_time(validity)
    _check_name(body.inside(_SEQUENCE, "malformed issuer"))  # Go reports the same text for the subject
    _check_key(body.inside(_SEQUENCE, "malformed spki"))
    if version > 1:
        body.optional(_ISSUER_ID, "malformed issuerUniqueID")
        body.optional(_SUBJECT_ID, "malformed subjectUniqueID")
    if version > 2:
        extensions = body.optional(_EXTENSIONS, "malformed extensions")
        if extensions is not None:
            _check_extensions(extensions.inside(_SEQUENCE, "malformed extensions"))
    certificate.bits("malformed signature")
    if not whole.empty:
        raise Malformed("trailing data")


def _version(body: _Der) -> int:
    """Return the version: 1, 2 or 3."""
    fault = "malformed version"
    given = body.optional(_VERSION, fault)
    number = given.integer(fault) if given is not None else 0
    if number < 0 or (given is not None and not given.empty):
        raise Malformed(fault)
    if number > 2:
        raise Malformed("invalid version")
    return number + 1


def _algorithm(element: _Der) -> tuple[str, bytes]:
    """Return (identifier of an algorithm, its undecoded parameters)."""
    identifier, begin = element.identifier("malformed OID"), element.at
    if not element.empty:
        element.any("malformed parameters")
    return identifier, element.data[begin : element.at]


def _check_name(name: _Der) -> None:
    fault = "invalid RDNSequence"
    while not name.empty:
        attributes = name.inside(_SET, fault)
        while not attributes.empty:
            attribute = attributes.inside(_SEQUENCE, f"{fault}: invalid attribute")
            attribute.identifier(f"{fault}: invalid attribute type")
            tag, value = attribute.any(f"{fault}: invalid attribute value")
            wrong = _STRINGS[tag](value) if tag in _STRINGS else f"unsupported string type: {tag}"
            if wrong:
                raise Malformed(f"{fault}: invalid attribute value: {wrong}")


def _utf8_fault(value: bytes) -> str:
    try:
        value.decode()
    except UnicodeDecodeError:
        return "invalid UTF-8 string"
    return ""


def _bmp_fault(value: bytes) -> str:
    units = [int.from_bytes(value[at : at + 2]) for at in range(0, len(value), 2)]
    units = units[:-1] if units and not units[-1] else units
    odd = any(0xD800 <= one <= 0xDFFF or 0xFDD0 <= one <= 0xFDEF or one >= 0xFFFE for one in units)
    return "invalid BMPString" if len(value) % 2 or odd else ""


def _pattern(allowed: bytes, name: str) -> Callable[[bytes], str]:
    matches = re.compile(allowed).fullmatch
    return lambda value: "" if matches(value) else f"invalid {name}"


# tag → function that returns the error of an invalid string, or an empty string
_STRINGS: Mapping[int, Callable[[bytes], str]] = {
    0x0C: _utf8_fault,
    0x12: _pattern(rb"[0-9 ]*", "NumericString"),
    0x13: _pattern(rb"[A-Za-z0-9 '()+,\-./:=?*&]*", "PrintableString"),
    0x14: lambda value: "",
    0x16: _pattern(rb"[\x00-\x7f]*", "IA5String"),
    0x1E: _bmp_fault,
}
_TIMES: Mapping[int, tuple[str, int, str]] = {  # tag → (pattern, digits of the year, name in errors)
    _UTC_TIME: (r"\d{10}(\d\d)?(Z|[+-](?!0000)[01]\d[0-5]\d)", 2, "UTCTime"),
    _GENERAL_TIME: (r"\d{14}(Z|[+-](?!0000)[01]\d[0-5]\d)", 4, "GeneralizedTime"),
}


def _check_time(times: _Der) -> None:
    tag = times.peek()
    if tag not in _TIMES:
        raise Malformed("unsupported time format")
    pattern, digits, name = _TIMES[tag]
    fault = f"malformed {name}"
    text = times.take(tag, fault).decode("latin-1")
    if not re.fullmatch(pattern, text, re.ASCII):
        raise Malformed(fault)
    year = int(text[:digits]) or 2000  # Go has a year 0, which Python lacks; 2000 is a leap year like 0
    if digits == len("YY"):
        year = 2000 + year % 100  # Go uses 1950 to 1999 for 50 to 99; the same years of both centuries are leap years
    numbers = [int(one) for one in re.findall(r"\d\d", re.split(r"[Z+-]", text[digits:])[0])]
    month, day, hour, minute, second = (*numbers, 0)[:5]
    try:
        datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise Malformed(fault) from None


def _check_key(info: _Der) -> None:
    fault = "malformed public key algorithm identifier"
    algorithm, parameters = _algorithm(info.inside(_SEQUENCE, fault))
    key = info.bits("malformed subjectPublicKey")
    if algorithm == _RSA:
        _check_rsa_key(parameters, key)
    elif algorithm == _ELLIPTIC:
        curve = _Der(parameters).identifier("invalid ECDSA parameters")
        if curve not in _CURVES:
            raise Malformed("unsupported elliptic curve")
    elif (name := _WITHOUT_PARAMETERS.get(algorithm)) is not None:
        if parameters:
            raise Malformed(f"{name} key encoded with illegal parameters")
        if name == "Ed25519" and len(key) != _ED25519_SIZE:
            raise Malformed("wrong Ed25519 public key size")


def _check_rsa_key(parameters: bytes, key: bytes) -> None:
    if parameters != bytes((_NULL, 0)):
        raise Malformed("RSA key missing NULL parameters")
    numbers = _Der(key).inside(_SEQUENCE, "invalid RSA public key")
    modulus = numbers.integer("invalid RSA modulus")
    exponent = numbers.integer("invalid RSA public exponent")
    if exponent.bit_length() > 63:
        raise Malformed("invalid RSA public exponent")
    if modulus <= 0:
        raise Malformed("RSA modulus is not a positive number")
    if exponent <= 0:
        raise Malformed("RSA public exponent is not a positive number")


def _check_extensions(extensions: _Der) -> None:
    found: dict[str, bytes] = {}
    while not extensions.empty:
        extension = extensions.inside(_SEQUENCE, "malformed extension")
        identifier = extension.identifier("malformed extension OID field")
        critical = "malformed extension critical field"
        if extension.peek() == _BOOLEAN and extension.take(_BOOLEAN, critical) not in (b"\x00", b"\xff"):
            raise Malformed(critical)
        value = extension.take(_OCTETS, "malformed extension value field")
        if identifier in found:
            raise Malformed(f'certificate contains duplicate extension with OID "{identifier}"')
        found[identifier] = value
    for identifier, value in found.items():
        tag, name = _READ_EXTENSIONS.get(identifier, (0, ""))
        if tag:
            _Der(value).take(tag, f"invalid {name}")
