"""Tokens of service accounts and secrets that are not yet in the cache.

Another server has stored them.
"""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from apiext.auth.authentication import Credentials
from apiext.auth.bound_objects import Account, BoundObject, Record
from apiext.auth.tokens import Tokens
from tests.unit.http.support import COLLECTION, Shelf, connected, on_uvloop, serving
from tests.unit.http.test_audit import Kept, auditor

pytestmark = pytest.mark.rows("AUT-001", "RV-017")

ONE = f"{COLLECTION}/a?resourceVersion=0"
ACCOUNT = Account("default", "sa", "u1")
KEPT = "kept"


class Late:
    """Tokens of a server whose cache is older than the store until the cache is updated.

    ``looks`` counts these updates.
    """

    def __init__(self, file: Path, *names: str) -> None:
        self.tokens = Tokens(file, ["https://issuer"], find=lambda *of: self.cache.get(of[2]))
        self.tokens.fresh = self.look
        self.cache: dict[str, Record] = {"other": Record("u1")}
        self.kept = self.tokens.secret_token(ACCOUNT, KEPT)
        token = base64.b64encode(self.kept.encode()).decode()
        records = {"sa": Record("u1"), "s": Record("u2"), KEPT: Record("u3", token=token)}
        self.store = {name: records[name] for name in names}
        self.looks = 0

    async def look(self) -> None:
        """Update the cache."""
        self.looks += 1
        self.cache.update(self.store)

    def token(self, kind: str) -> str:
        """Return a token bound to an object."""
        tokens = self.tokens
        if kind == KEPT:
            return self.kept
        if kind == "forged":
            head, claims, signature = tokens.issue(ACCOUNT, 600).token.split(".")
            return f"{head}.{claims}.{signature[::-1]}"
        given = Account("default", "other", "u1") if kind == "known" else ACCOUNT
        seconds = -61 if kind == "over" else 600
        audiences = ["elsewhere"] if kind == "elsewhere" else []
        bound = {"secret": BoundObject("s", "u2")} if kind == "bound" else {}
        return tokens.issue(given, seconds, audiences, bound).token


@pytest.mark.parametrize("audited", [False, True], ids=["silent", "audited"])
@pytest.mark.parametrize(
    ("kind", "stored", "code", "looks"),
    [
        ("account", "sa", 200, 1),
        ("bound", "sa s", 200, 1),
        ("bound", "sa", 401, 1),
        ("kept", "sa kept", 200, 1),
        ("account", "", 401, 1),
        ("known", "sa", 200, 0),
        ("forged", "sa", 401, 0),
        ("over", "sa", 401, 0),
        ("elsewhere", "sa", 401, 0),
    ],
)
def test_cache_is_updated_once_before_own_token_is_refused(
    audited: bool, kind: str, stored: str, code: int, looks: int, tmp_path: Path
) -> None:
    @on_uvloop
    async def ask() -> None:
        late, shelf, kept = Late(tmp_path / "key", *stored.split()), Shelf(), Kept()
        shelf.put("a")
        known, token = Credentials({}, late.tokens), late.token(kind)
        telling = auditor(kept) if audited else None
        async with (
            serving(shelf, authenticator=known, auditor=telling) as server,
            connected(server) as client,
        ):
            assert (await client.ask("GET", ONE, Authorization=f"Bearer {token}")).code == code
            assert late.looks == looks
            attempts = server.telemetry.authentications
            counts = [attempts.slot(result).value for result in ("success", "error")]
            assert counts == ([1, 0] if code == 200 else [0, 1]), "each request is one attempt"
        if audited:
            assert kept.stages == (["RequestReceived", "ResponseComplete"] if code == 200 else ["ResponseStarted"])
        if code == 200 and kind != "known":
            assert [call.user.name for call in shelf.calls] == ["system:serviceaccount:default:sa"]

    ask()
