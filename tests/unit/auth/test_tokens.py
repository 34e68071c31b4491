"""Tokens of service accounts."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from apiext.auth import secret_tokens
from apiext.auth.authentication import BadCredential, Credentials
from apiext.auth.bound_objects import Account, BadToken, BoundObject, Record
from apiext.auth.signing import encoded, verifiers_of
from apiext.auth.tokens import Tokens
from apiext.auth.user import User

ISSUER = "https://kubernetes.default.svc"
ACCOUNT = Account("default", "sa", "u1")
FORGED = "go-jose/go-jose: error in cryptographic primitive"
pytestmark = pytest.mark.rows("AUT-001")


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def create_tokens(file: Path, issuers: list[str], **more: Any) -> Tokens:
    """Return the Tokens of a server in which the service account exists."""
    return Tokens(file, issuers, find=lambda resource, namespace, name: Record("u1"), **more)


def user_of(tokens: Tokens, token: str, audiences: list[str] | None = None) -> tuple[User, list[str]] | None:
    """Return the user and audiences of a token, None if it is invalid."""
    try:
        return tokens.user(token, audiences or [])
    except BadToken:
        return None


def error_text(tokens: Tokens, token: str, audiences: list[str] | None = None) -> str:
    """Return the error of a token of this server, empty if the token is valid."""
    try:
        assert tokens.user(token, audiences or []) is not None
    except BadToken as error:
        return str(error)
    return ""


@pytest.fixture
def tokens(tmp_path: Path, clock: Clock) -> Tokens:
    return create_tokens(tmp_path / "pki" / "accounts.key", [ISSUER], clock=clock)


def part(token: str, number: int) -> dict[str, Any]:
    text = token.split(".")[number]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found


def test_token_authenticates_its_account_until_expiry(tokens: Tokens, clock: Clock) -> None:
    token, until, _ = tokens.issue(ACCOUNT, 600)
    assert until == clock.now + 600
    assert part(token, 0)["alg"] == "ES256"
    assert part(token, 1)["sub"] == "system:serviceaccount:default:sa"
    found = user_of(tokens, token)
    assert found is not None
    user, audiences = found
    assert (user.name, user.uid, audiences) == ("system:serviceaccount:default:sa", "u1", [ISSUER])
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated")
    clock.now += 661
    assert user_of(tokens, token) is None


EARLY, LATE, AHEAD = (
    f"service account token {text}" for text in ("is not valid yet", "has expired", "is issued in the future")
)


@pytest.mark.parametrize(
    ("later", "changed", "fault"),
    [
        (-2, {}, ""),  # the clock of the server is behind
        (-60, {}, ""),
        (-61, {}, EARLY),
        (600, {}, ""),
        (601, {}, ""),
        (660, {}, ""),
        (660.5, {}, LATE),
        (-60, {"nbf": None}, ""),
        (-61, {"nbf": None}, AHEAD),
        (-61, {"nbf": 5}, AHEAD),
        (-3600, {"nbf": None, "iat": None}, ""),
        (10**9, {"exp": None}, ""),
        (0, {"nbf": 1_000_061, "exp": 5}, EARLY),
        (0, {"iat": 1_000_061, "exp": 5}, LATE),
        (0, {"iat": 1_000_060.9}, ""),
    ],
)
def test_clocks_may_differ_by_a_minute(
    kept_token: Kept, clock: Clock, later: float, changed: dict[str, Any], fault: str
) -> None:
    """The checks of go-jose's jwt.Claims.Validate, in its order; absent claims are valid."""
    claims = part(kept_token.tokens.issue(ACCOUNT, 600)[0], 1) | changed
    token = kept_token.sign({name: value for name, value in claims.items() if value is not None})
    clock.now += later
    assert error_text(kept_token.tokens, token) == fault


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("value", ["5", True, [], {}])
def test_token_with_non_numeric_time_is_invalid(kept_token: Kept, claim: str, value: Any) -> None:
    token = kept_token.sign(part(kept_token.tokens.issue(ACCOUNT, 600)[0], 1) | {claim: value})
    assert user_of(kept_token.tokens, token) is None


def test_token_is_valid_only_for_its_audiences(tokens: Tokens) -> None:
    token, *_ = tokens.issue(ACCOUNT, 600, ["elsewhere", "nearby"])
    assert user_of(tokens, token) is None
    found = user_of(tokens, token, ["nearby", "nowhere"])
    assert found is not None
    assert found[1] == ["nearby"]


def test_foreign_or_malformed_tokens_are_invalid(tokens: Tokens, tmp_path: Path, clock: Clock) -> None:
    token, *_ = tokens.issue(ACCOUNT, 600)
    head, claims, signature = token.split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    other = create_tokens(tmp_path / "other.key", [ISSUER], clock=clock).issue(ACCOUNT, 600)[0]
    bad = ["", "x", "..", f"{head}.{claims}.", f"{none}.{claims}.", f"{head}.{claims[:-2]}.{signature}", other, "ü.ü.ü"]
    for text in [*bad, f"{head}.{claims}.{signature[:-4]}AAAA", "a" * 9000 + ".b.c", f"{head}.bm8.{signature}"]:
        assert user_of(tokens, text) is None, text
    again = create_tokens(tmp_path / "pki" / "accounts.key", [ISSUER], clock=clock)
    assert user_of(again, token) is not None, "the key is kept"
    assert user_of(create_tokens(tmp_path / "pki" / "accounts.key", ["https://other"], clock=clock), token) is None


def test_token_is_invalid_after_account_deletion(tmp_path: Path, clock: Clock) -> None:
    there = {"sa": Record("u1")}
    tokens = Tokens(tmp_path / "key", [ISSUER], find=lambda resource, namespace, name: there.get(name), clock=clock)
    credentials = Credentials({"static": User("joe")}, tokens)
    token, *_ = tokens.issue(ACCOUNT, 600)
    found = credentials.authenticate(f"Bearer {token}", None)
    assert found is not None
    assert found.name == "system:serviceaccount:default:sa"
    there.clear()
    with pytest.raises(BadCredential):
        credentials.authenticate(f"Bearer {token}", None)
    assert credentials.authenticate("Bearer static", None) == User("joe")


DAY = "1970-01-12T13:4{}:00Z"  # {} = 0: 400 seconds before the clock's time; 6: 40 seconds
GONE = "service account token has been invalidated"


@pytest.mark.parametrize(
    ("account", "secret", "fault"),
    [
        (Record("u1"), Record("u2"), ""),
        (None, Record("u2"), 'serviceaccounts "sa" not found'),
        (Record("u3"), None, "service account UID (u3) does not match claim (u1)"),
        (Record("u1", DAY.format(6)), Record("u2"), ""),
        (Record("u1", DAY.format(0)), Record("u2"), "service account default/sa has been deleted"),
        (Record("u1"), None, GONE),
        (Record("u1"), Record("u2", DAY.format(6)), ""),
        (Record("u1"), Record("u2", DAY.format(0)), GONE),
        (Record("u1"), Record("u3"), "secret UID (u3) does not match service account secret ref claim (u2)"),
    ],
)
def test_token_bound_to_a_secret_needs_secret_and_account(
    tmp_path: Path, clock: Clock, account: Any, secret: Any, fault: str
) -> None:
    there = {("serviceaccounts", "default", "sa"): account, ("secrets", "default", "s"): secret}
    tokens = Tokens(tmp_path / "key", [ISSUER], find=lambda *of: there[of], clock=clock)
    token, *_ = tokens.issue(ACCOUNT, 600, bound={"secret": BoundObject("s", "u2")})
    assert part(token, 1)["kubernetes.io"]["secret"] == {"name": "s", "uid": "u2"}
    assert error_text(tokens, token) == fault


def test_error_texts_of_invalid_tokens(tokens: Tokens, clock: Clock) -> None:
    token, *_ = tokens.issue(ACCOUNT, 600, ["a", 'b"'])
    text = 'token audiences ["a" "b\\""] is invalid for the target audiences ["https://kubernetes.default.svc"]'
    assert error_text(tokens, token) == text
    clock.now -= 61
    assert error_text(tokens, token, ["a"]) == EARLY
    clock.now += 61 + 661
    assert error_text(tokens, token, ["a"]) == LATE
    clock.now -= 661
    head, claims, signature = token.split(".")
    other = encoded(json.dumps({"alg": "ES256", "kid": "x"}).encode()).decode()
    assert error_text(tokens, f"{other}.{claims}.{signature}") == "invalid signature, no keys found"
    assert error_text(tokens, f"{head}.{claims}.{signature[:-4]}AAAA") == FORGED
    assert error_text(tokens, f"{head}.{claims}.") == FORGED


@pytest.mark.parametrize(
    ("audience", "counts"),
    [
        (ISSUER, True),
        ([ISSUER], True),
        (f"{ISSUER}.evil.example", False),
        ("", False),
        ({ISSUER: True}, False),
        ([5, ISSUER], False),
        (5, False),
        (None, False),
    ],
    ids=str,
)
def test_audience_claim_may_be_a_string(tokens: Tokens, audience: Any, counts: bool) -> None:
    claims = {**part(tokens.issue(ACCOUNT, 600)[0], 1), "aud": audience}
    signed = b".".join(encoded(json.dumps(it).encode()) for it in ({"alg": "ES256"}, claims))
    token = (signed + b"." + encoded(tokens.signer().sign(signed))).decode()
    found = user_of(tokens, token)
    assert (found is not None and found[1]) == (counts and [ISSUER])


NODE, POD = BoundObject("n", "u5"), BoundObject("p", "u4")
KEYS = "authentication.kubernetes.io/"
BONDS = [
    ({"pod": POD}, {"pods/default/p": "u4"}, ""),
    ({"pod": POD}, {}, GONE),
    ({"pod": POD}, {"pods/default/p": "u9"}, "pod UID (u9) does not match service account pod ref claim (u4)"),
    ({"pod": POD, "node": NODE}, {"pods/default/p": "u4"}, ""),  # the node may be deleted
    ({"pod": POD, "node": BoundObject("n", "")}, {"pods/default/p": "u4"}, ""),
    ({"node": NODE}, {"nodes//n": "u5"}, ""),
    ({"node": NODE}, {}, GONE),
    ({"node": NODE}, {"nodes//n": "u9"}, "node UID (u9) does not match service account node ref claim (u5)"),
]


@pytest.mark.parametrize(("bound", "there", "fault"), BONDS)
def test_a_token_is_bound_to_a_pod_or_node(
    tmp_path: Path, clock: Clock, bound: dict[str, BoundObject], there: dict[str, str], fault: str
) -> None:
    records = {"serviceaccounts/default/sa": Record("u1"), **{place: Record(uid) for place, uid in there.items()}}
    tokens = Tokens(tmp_path / "key", [ISSUER], find=lambda *of: records.get("/".join(of)), clock=clock)
    token, *_ = tokens.issue(ACCOUNT, 600, bound=bound)
    assert error_text(tokens, token) == fault
    if not fault:
        found = tokens.user(token)
        assert found is not None
        names = {
            (f"{KEYS}{claim}-{word}", getattr(one, word)) for claim, one in bound.items() for word in ("name", "uid")
        }
        given = {(name, value) for name, (value,) in found[0].extra if not name.endswith("credential-id")}
        assert given == {(name, value) for name, value in names if value}


def test_missing_or_invalid_signing_key_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        create_tokens(tmp_path / "missing", [ISSUER]).check()
    (tmp_path / "bad").write_text("no key")
    with pytest.raises(ValueError, match="PEM"):
        create_tokens(tmp_path / "bad", [ISSUER]).check()


def write_key(file: Path, key: Any) -> Path:
    """Write a private key to a file; return the file."""
    form = serialization.PrivateFormat.TraditionalOpenSSL
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return file


@pytest.mark.parametrize(
    ("key", "algorithm", "shown"),
    [
        (rsa.generate_private_key(65537, 2048), "RS256", {"kty": "RSA", "e": "AQAB"}),
        (ec.generate_private_key(ec.SECP256R1()), "ES256", {"kty": "EC", "crv": "P-256"}),
        (ec.generate_private_key(ec.SECP384R1()), "ES384", {"kty": "EC", "crv": "P-384"}),
        (ec.generate_private_key(ec.SECP521R1()), "ES512", {"kty": "EC", "crv": "P-521"}),
    ],
    ids=["RSA", "256", "384", "521"],
)
def test_provided_key_signs_tokens(
    tmp_path: Path, clock: Clock, key: Any, algorithm: str, shown: dict[str, str]
) -> None:
    tokens = create_tokens(write_key(tmp_path / "sa-signer.key", key), [ISSUER], clock=clock)
    token, *_ = tokens.issue(ACCOUNT, 600)
    assert part(token, 0)["alg"] == algorithm
    assert user_of(tokens, token) is not None
    assert user_of(tokens, token[:-4] + "AAAA") is None
    web_key = tokens.signer().web_key()
    assert web_key.items() >= (shown | {"use": "sig", "alg": algorithm, "kid": part(token, 0)["kid"]}).items()
    members = {"RSA": "use kty kid alg n e", "EC": "use kty kid crv alg x y"}[shown["kty"]]  # upstream's order
    assert " ".join(web_key) == members


def test_unsupported_curve_is_refused(tmp_path: Path) -> None:
    file = write_key(tmp_path / "odd.key", ec.generate_private_key(ec.SECP256K1()))
    with pytest.raises(ValueError, match="must be 256, 384, or 521"):
        create_tokens(file, [ISSUER]).check()


ALL = [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1()),
       ec.generate_private_key(ec.SECP384R1())]  # fmt: skip


def public(key: Any) -> bytes:
    found: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return found


def certificate(key: Any) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sa")])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(1))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("key", ALL, ids=["RSA", "256", "384"])
@pytest.mark.parametrize("form", ["public", "private", "certificate"])
def test_tokens_of_former_keys_are_valid(tmp_path: Path, clock: Clock, key: Any, form: str) -> None:
    old = create_tokens(write_key(tmp_path / "old.key", key), [ISSUER], clock=clock)
    token, *_ = old.issue(ACCOUNT, 600)
    assert user_of(create_tokens(tmp_path / "new.key", [ISSUER], clock=clock), token) is None
    file = tmp_path / "former.pem"
    other = ec.generate_private_key(ec.SECP521R1())
    text = {"public": public, "certificate": certificate, "private": lambda _: (tmp_path / "old.key").read_bytes()}
    file.write_bytes(b"notes\n" + public(other) + b"-----BEGIN NOTE-----\nYQ==\n-----END NOTE-----\n" + text[form](key))
    former = verifiers_of(file)
    assert [it.algorithm for it in former] == ["ES512", old.signer().algorithm]
    new = create_tokens(tmp_path / "new.key", [ISSUER], clock=clock, former=former)
    assert user_of(new, token) is not None
    assert user_of(new, token[:-4] + "AAAA") is None
    assert [it.key_id for it in new.verifiers] == [it.key_id for it in (*former, new.signer())]
    again = create_tokens(tmp_path / "old.key", [ISSUER], clock=clock, former=former)
    assert [it.key_id for it in again.verifiers] == [it.key_id for it in former], "a key twice"


def test_token_with_unknown_key_id_is_invalid(tmp_path: Path, clock: Clock) -> None:
    tokens = create_tokens(tmp_path / "key", [ISSUER], clock=clock)
    claims = tokens.issue(ACCOUNT, 600)[0].split(".")[1].encode()
    for key_id, counts in ((None, True), ("", True), ("other", False), (7, False), ({}, False)):
        head = {"alg": "ES256"} if key_id is None else {"alg": "ES256", "kid": key_id}
        signed = encoded(json.dumps(head).encode()) + b"." + claims
        token = (signed + b"." + encoded(tokens.signer().sign(signed))).decode()
        assert (user_of(tokens, token) is not None) is counts, key_id


def test_tokens_of_each_configured_issuer_are_valid(tmp_path: Path, clock: Clock) -> None:
    old = create_tokens(tmp_path / "key", [ISSUER], clock=clock)
    token, *_ = old.issue(ACCOUNT, 600)
    new = create_tokens(tmp_path / "key", ["https://new", ISSUER], clock=clock)
    assert user_of(new, token) is not None
    assert new.audiences == ("https://new", ISSUER)
    assert part(new.issue(ACCOUNT, 600)[0], 1)["iss"] == "https://new"


@pytest.mark.parametrize("text", [b"", b"no key", public(ec.generate_private_key(ec.SECP256R1()))[:-40]])
def test_key_file_without_public_keys_is_an_error(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "bad.pem").write_bytes(text)
    with pytest.raises(ValueError, match="does not contain any valid RSA or ECDSA public keys"):
        verifiers_of(tmp_path / "bad.pem")  # upstream: ignores other PEM blocks of the file (client-go/util/keyutil)


# --- tokens in secrets ---


class Kept:
    """A server with one account and one secret with a token; it records uses of the token."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self.tokens = Tokens(file, [ISSUER], find=lambda *of: self.there.get(of), clock=clock)
        self.token = self.tokens.secret_token(ACCOUNT, "s")
        self.used: list[tuple[str, str, str]] = []
        self.tokens.used = lambda *of: self.used.append(of)
        self.there: dict[tuple[str, str, str], Record | None] = {}
        self.put(Record("u1"), Record("u2"))

    def put(self, account: Record | None, secret: Record | None) -> None:
        """Store the account and the secret; a secret without a token gets the account's token."""
        if secret is not None and not secret.token:
            secret = replace(secret, token=base64.b64encode(self.token.encode()).decode())
        self.there = {("serviceaccounts", "default", "sa"): account, ("secrets", "default", "s"): secret}

    def sign(self, claims: Any, **head: Any) -> str:
        """Return a signed token with these claims."""
        signer = self.tokens.signer()
        parts = ({"alg": signer.algorithm, "kid": signer.key_id, **head}, claims)
        signed = b".".join(encoded(json.dumps(part).encode()) for part in parts)
        return (signed + b"." + encoded(signer.sign(signed))).decode()


@pytest.fixture
def kept_token(tmp_path: Path, clock: Clock) -> Kept:
    return Kept(tmp_path / "key", clock)


def test_secret_token_authenticates_and_records_its_use(kept_token: Kept, clock: Clock) -> None:
    tokens, token = kept_token.tokens, kept_token.token
    assert part(token, 1) == {
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": "s",
        "kubernetes.io/serviceaccount/service-account.name": "sa",
        "kubernetes.io/serviceaccount/service-account.uid": "u1",
        "sub": "system:serviceaccount:default:sa",
    }
    found = tokens.user(token)
    assert found is not None
    assert (found[0].name, found[0].uid, found[0].extra, found[1]) == (
        "system:serviceaccount:default:sa",
        "u1",
        (),
        [ISSUER],
    )
    assert kept_token.used == [("default", "s", "u2")]
    kept_token.put(Record("u1"), Record("u2", used="1970-01-12"))
    clock.now += 3600
    assert error_text(tokens, token) == ""
    assert len(kept_token.used) == 1
    clock.now += 86400
    assert error_text(tokens, token) == ""
    assert len(kept_token.used) == 2
    kept_token.put(Record("u1"), Record("u2", used="1970-01-14"))
    assert error_text(tokens, token) == ""
    assert len(kept_token.used) == 2, "a server on the other side of midnight has written it"
    kept_token.put(Record("u1"), Record("u2", used="1970-01-15"))
    assert error_text(tokens, token) == ""
    assert len(kept_token.used) == 3
    text = 'token audiences ["https://kubernetes.default.svc"] is invalid for the target audiences ["x"]'
    assert error_text(tokens, token, ["x"]) == text


MARKED = (
    "the token in secret default/s for service account default/sa has been marked invalid. Use tokens from the "
    "TokenRequest API or manually created secret-based tokens, or remove the "
    "'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token"
)


@pytest.mark.parametrize(
    ("account", "secret", "fault"),
    [
        (Record("u1"), Record("other"), ""),
        (Record("u1"), None, "Token has been invalidated"),
        (Record("u1"), Record("u2", DAY.format(6)), "Token has been invalidated"),
        (Record("u1"), Record("u2", token="eHg="), "Token does not match server's copy"),
        (None, Record("u2"), 'serviceaccounts "sa" not found'),
        (Record("u1", DAY.format(6)), Record("u2"), "ServiceAccount default/sa has been deleted"),
        (Record("u3"), Record("u2"), "ServiceAccount UID (u3) does not match claim (u1)"),
        (Record("u1"), Record("u2", invalid="2026-01-01"), MARKED),
    ],
)
def test_secret_token_errors_by_account_and_secret(
    kept_token: Kept, account: Record | None, secret: Record | None, fault: str
) -> None:
    kept_token.put(account, secret)
    assert error_text(kept_token.tokens, kept_token.token) == fault
    uid = secret.uid if secret is not None else ""
    assert kept_token.used == [("default", "s", uid)] * (fault in ("", MARKED))


PREFIX = "kubernetes.io/serviceaccount/"


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({f"{PREFIX}namespace": ""}, "namespace claim is missing"),
        ({f"{PREFIX}secret.name": None}, "secretName claim is missing"),
        ({f"{PREFIX}service-account.name": ""}, "serviceAccountName claim is missing"),
        ({f"{PREFIX}service-account.uid": None}, "serviceAccountUID claim is missing"),
        ({"sub": "", f"{PREFIX}namespace": ""}, "sub claim is missing"),
        ({"sub": "joe"}, "sub claim is invalid"),
        ({"sub": "system:serviceaccount:default:other"}, "sub claim is invalid"),
        ({f"{PREFIX}namespace": 5}, "json: cannot unmarshal number into Go value of type string"),
        ({"more": "x"}, "Token does not match server's copy"),
        ({"aud": f"{ISSUER}.x"},
         'token audiences ["https://kubernetes.default.svc.x"] is invalid for the target audiences '
         '["https://kubernetes.default.svc"]'),
        ({"aud": ["x"]},
         'token audiences ["x"] is invalid for the target audiences ["https://kubernetes.default.svc"]'),
    ],
)  # fmt: skip
def test_secret_token_with_invalid_claims_is_refused(kept_token: Kept, changed: dict[str, Any], fault: str) -> None:
    claims = {**secret_tokens.claims_of(ACCOUNT, "s"), **changed}
    token = kept_token.sign({name: value for name, value in claims.items() if value is not None})
    assert error_text(kept_token.tokens, token) == fault
    assert kept_token.used == []


def test_secret_token_ignores_its_exp_claim(kept_token: Kept) -> None:
    kept_token.token = kept_token.sign({**secret_tokens.claims_of(ACCOUNT, "s"), "exp": 5, "aud": ["x"]})
    kept_token.put(Record("u1"), Record("u2"))
    assert error_text(kept_token.tokens, kept_token.token, ["x"]) == ""


TIMES = {"exp", "iat", "nbf"}
PLACES = [
    ("aud",), ("exp",), ("iat",), ("iss",), ("jti",), ("nbf",), ("sub",), ("kubernetes.io",),
    ("kubernetes.io", "namespace"), ("kubernetes.io", "serviceaccount"), ("kubernetes.io", "serviceaccount", "name"),
    ("kubernetes.io", "serviceaccount", "uid"), ("kubernetes.io", "secret"), ("kubernetes.io", "secret", "name"),
    ("kubernetes.io", "secret", "uid"),
]  # fmt: skip
ODD = [None, True, 5, 1e308, -1, "", "x", "\ud800".encode("utf-16", "surrogatepass").decode("latin-1"), [], ["x"], {},
       {"name": []}, [[]]]  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=".".join)
@pytest.mark.parametrize("found", [Record("u1"), None], ids=["found", "not found"])
def test_claims_of_any_type_cause_no_internal_error(
    kept_token: Kept, place: tuple[str, ...], found: Record | None
) -> None:
    """A holder of the signing key may write any claims; none may cause an internal error."""
    tokens = kept_token.tokens

    def find(resource: str, namespace: str, name: str) -> Record | None:
        assert (type(resource), type(namespace), type(name)) == (str, str, str)
        return found

    tokens._find = find
    good = part(tokens.issue(ACCOUNT, 600, bound={"secret": BoundObject("s", "u1")})[0], 1)
    for odd in ODD:
        claims = json.loads(json.dumps(good))
        within = claims
        for name in place[:-1]:
            within = within[name]
        within[place[-1]] = odd
        user = user_of(tokens, kept_token.sign(claims))
        if user is not None:
            assert type(odd) is str or place[0] in TIMES or (place[-1], odd) == ("secret", None), odd
        without = json.loads(json.dumps(claims))
        within = without
        for name in place[:-1]:
            within = within[name]
        del within[place[-1]]
        user_of(tokens, kept_token.sign(without))
