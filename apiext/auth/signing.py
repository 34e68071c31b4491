"""Keys that sign and verify tokens: algorithms, signatures, JSON web keys.

See RFC 7515, 7517, 7518.
"""

import hashlib
import re
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from msgspec import Struct

from apiext.auth.base64url import encoded
from apiext.system import files
from apiext.system.certificates import read_certificates, read_private_key, unwarned

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
_PEM = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)


class Curve(Struct, frozen=True):
    """The signature algorithm of an elliptic curve.

    ``half`` is the size of each half of a signature in bytes.
    """

    algorithm: str
    name: str
    digest: hashes.HashAlgorithm
    half: int


_CURVES = {
    "secp256r1": Curve("ES256", "P-256", hashes.SHA256(), 32),
    "secp384r1": Curve("ES384", "P-384", hashes.SHA384(), 48),
    "secp521r1": Curve("ES512", "P-521", hashes.SHA512(), 66),
}


class Verifier:
    """Verifies signatures with a public key.

    The constructor raises ValueError for a key on a curve that tokens do not use.
    """

    def __init__(self, key: PublicKey) -> None:
        self._public = key
        self._curve: Curve | None = None
        if isinstance(key, ec.EllipticCurvePublicKey):
            self._curve = _CURVES.get(key.curve.name)
            if self._curve is None:
                raise ValueError("unknown private key curve, must be 256, 384, or 521")  # upstream's text
        self.algorithm = self._curve.algorithm if self._curve is not None else "RS256"
        raw = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.key_id = encoded(hashlib.sha256(raw).digest()).decode()

    def is_signed(self, text: bytes, signature: bytes) -> bool:
        """Report whether a signature of a text is by the private key of this public key."""
        public = self._public
        try:
            if isinstance(public, rsa.RSAPublicKey):
                public.verify(signature, text, padding.PKCS1v15(), hashes.SHA256())
            else:
                assert self._curve is not None
                r, s = int.from_bytes(signature[: self._curve.half]), int.from_bytes(signature[self._curve.half :])
                public.verify(utils.encode_dss_signature(r, s), text, ec.ECDSA(self._curve.digest))
        except (InvalidSignature, ValueError):
            return False
        return True

    def web_key(self) -> dict[str, str]:
        """Return the key as a JSON web key, with the fields in the order of upstream's library."""
        public = self._public
        if isinstance(public, rsa.RSAPublicKey):
            numbers = public.public_numbers()
            kind, parts = {"kty": "RSA"}, {"n": _number(numbers.n), "e": _number(numbers.e)}
        else:
            assert self._curve is not None
            point, size = public.public_numbers(), self._curve.half
            kind = {"kty": "EC", "crv": self._curve.name}
            parts = {"x": _number(point.x, size), "y": _number(point.y, size)}
        head = {"use": "sig", "kty": kind.pop("kty"), "kid": self.key_id}
        return head | kind | {"alg": self.algorithm} | parts


class Signer(Verifier):
    """Signs with a private key, and verifies its own signatures."""

    def __init__(self, key: PrivateKey) -> None:
        super().__init__(key.public_key())
        self._private = key

    def sign(self, text: bytes) -> bytes:
        """Return the signature of a text."""
        if isinstance(self._private, rsa.RSAPrivateKey):
            return self._private.sign(text, padding.PKCS1v15(), hashes.SHA256())
        assert self._curve is not None
        r, s = utils.decode_dss_signature(self._private.sign(text, ec.ECDSA(self._curve.digest)))
        return r.to_bytes(self._curve.half) + s.to_bytes(self._curve.half)


def verifiers_of(file: Path) -> list[Verifier]:
    """Return the verifiers of the keys in a PEM file; raise OSError and ValueError.

    The file contains public keys, private keys or certificates. As in upstream (client-go/util/keyutil), other blocks
    of the file are ignored.
    """
    found = [key for block in _PEM.finditer(file.read_bytes()) if (key := _public(block[1], block[0])) is not None]
    if not found:
        raise ValueError("data does not contain any valid RSA or ECDSA public keys")  # upstream's text
    return [Verifier(key) for key in found]


def _public(label: bytes, block: bytes) -> PublicKey | None:
    """Return the public key of a PEM block; None if it has no key that can sign tokens."""
    key: object = None
    with suppress(ValueError, UnsupportedAlgorithm), unwarned():
        if label == b"CERTIFICATE":
            key = read_certificates(block)[0].public_key()
        elif label.endswith(b"PRIVATE KEY"):
            key = read_private_key(block).public_key()
        elif label.endswith(b"PUBLIC KEY"):
            key = serialization.load_pem_public_key(block)
    return key if isinstance(key, PublicKey) else None


def signer_of(file: Path) -> Signer:
    """Return the signer of a PEM file; create the file if it does not exist.

    Raises OSError and ValueError.
    """
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(file, _new_key())
    found = read_private_key(file.read_bytes())
    if not isinstance(found, PrivateKey):
        raise ValueError(f"{file}: tokens are signed with an EC or RSA key")  # noqa: TRY004 - the file is invalid, not an argument
    return Signer(found)


def _new_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _number(value: int, size: int = 0) -> str:
    return encoded(value.to_bytes(size or (value.bit_length() + 7) // 8)).decode()
