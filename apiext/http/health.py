"""/livez, /readyz and /healthz: checks and form of the responses (HLT-… of BEHAVIOUR.md)."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from apiext.http.exchange import Query, Reply
from apiext.http.responses import TEXT
from apiext.text.quotes import go_quote

ENDPOINTS = ("healthz", "livez", "readyz")
_SYNCED = "poststarthook/crd-informer-synced"
_NO_SNIFF = ("X-Content-Type-Options", "nosniff")

Probe = Callable[[], str]
"""Returns an error, empty if the check passes. A probe runs for each request, so it must only read state."""


class Check(Struct, frozen=True):
    """A named probe, and the endpoints that run it."""

    name: str
    probe: Probe
    endpoints: Sequence[str] = ENDPOINTS


class Health:
    """The checks of a server in the order of their lines in a response.

    The check ``shutdown`` makes /readyz fail during a shutdown.
    """

    def __init__(self, checks: Sequence[Check] = ()) -> None:
        self.shutting_down = False
        self._checks = [
            Check("ping", lambda: ""),
            Check("log", lambda: ""),
            *checks,
            Check("shutdown", lambda: "process is shutting down" if self.shutting_down else "", ("readyz",)),
        ]

    def of(self, endpoint: str) -> list[Check]:
        """Return the checks of an endpoint."""
        return [check for check in self._checks if endpoint in check.endpoints]

    def starting(self) -> bool:
        """Report whether stored definitions are not served yet, so that a 404 would be wrong.

        See ERR-03.
        """
        return any(check.name == _SYNCED and bool(check.probe()) for check in self._checks)

    def paths(self) -> list[str]:
        """Return the paths of all endpoints and checks."""
        return [
            path
            for endpoint in ENDPOINTS
            for path in (f"/{endpoint}", *(f"/{endpoint}/{check.name}" for check in self.of(endpoint)))
        ]

    def answer(self, endpoint: str, name: str, query: Query) -> Reply | None:
        """Return the response of an endpoint or of one of its checks; None for an unknown check."""
        if name:
            return self._single(endpoint, name)
        excluded = set(query.get("exclude", ()))
        lines: list[str] = []
        failed = False
        for check in self.of(endpoint):
            if check.name in excluded:
                excluded.discard(check.name)
                lines.append(f"[+]{check.name} excluded: ok\n")
            elif check.probe():
                lines.append(f"[-]{check.name} failed: reason withheld\n")
                failed = True
            else:
                lines.append(f"[+]{check.name} ok\n")
        if excluded:
            names = ",".join(go_quote(name) for name in sorted(excluded))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
        if failed:
            return _text(500, "".join(lines) + f"{endpoint} check failed\n")
        if "verbose" in query:
            return _text(200, "".join(lines) + f"{endpoint} check passed\n")
        return _text(200, "ok")

    def _single(self, endpoint: str, name: str) -> Reply | None:
        for check in self.of(endpoint):
            if check.name == name:
                fault = check.probe()
                if fault:
                    return _text(500, f"internal server error: {fault}\n")
                # upstream: only texts that may quote a client have X-Content-Type-Options
                # So the response for a single check that passes does not have this header.
                return Reply(200, TEXT, (b"ok",))
        return None


def _text(code: int, body: str) -> Reply:
    return Reply(code, TEXT, (body.encode(),), [_NO_SNIFF])


def version_document(version: str) -> Mapping[str, str]:
    """Return the /version document of an emulated Kubernetes version such as ``v1.35.0``.

    See DIS-109.
    """
    major, minor, *_ = (*version.removeprefix("v").split("."), "0")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(max(int(minor) - 1, 0)),
        "gitVersion": version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "go1.25",
        "compiler": "python",
        "platform": "linux/amd64",
    }
