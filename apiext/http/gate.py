"""What filters share: who may do what, how much runs at a time, until when, and where it is counted."""

import asyncio
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from apiext.audit.auditor import Auditor
from apiext.auth.authentication import Authenticator, BadCredential, Doubtful
from apiext.auth.authorization import Authorizer, is_public
from apiext.auth.user import ANONYMOUS, User
from apiext.config import RequestConfig
from apiext.http import front_page
from apiext.http.exchange import Exchange, Labels
from apiext.http.pages import Judge
from apiext.meta import status
from apiext.meta.uids import Uids
from apiext.telemetry import STRETCH, Distribution, Gone, Slot, Telemetry

if TYPE_CHECKING:
    from apiext.auth.proxies import Proxies

Counters = tuple[Slot, Distribution, Distribution | None]
_SIZED = frozenset(("GET", "LIST"))

_LOOK_EVERY = 0.25  # seconds between looks at the deadlines


_IDS = Uids()


def is_open(exchange: Exchange) -> bool:
    """Report whether a request needs neither credentials nor a right: health, or the page for browsers."""
    return is_public(exchange.path) or front_page.is_wanted(exchange)


def audit_id(given: str) -> str:
    """Return the id of a request: the client's when it is short and printable, else a new one."""
    if given and len(given) <= 64 and given.isascii() and given.isprintable():
        return given
    return _IDS.next()


class Deadlines:
    """The requests that must be over by some time, looked at four times a second: a timer each would cost more."""

    __slots__ = ("_loop", "_timer", "_until")

    def __init__(self) -> None:
        self._until: dict[asyncio.Task[Any], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, until: float) -> asyncio.Task[Any]:
        """Cancel the running task soon after ``until`` (loop time) unless it is removed before; returns the task."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # kept, since each look asks the system for the process
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._until[task] = until
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_EVERY, self._look)
        return task

    def remove(self, task: asyncio.Task[Any]) -> bool:
        """Forget a task; False when its time was over and it was cancelled."""
        return self._until.pop(task, None) is not None

    def end(self, now: float = math.inf) -> None:
        """Cancel the tasks whose time is over at ``now``: all, unless told otherwise."""
        for task in [task for task, until in self._until.items() if until <= now]:
            del self._until[task]
            task.cancel()

    def _look(self) -> None:
        assert self._loop is not None
        self.end(self._loop.time())
        self._timer = self._loop.call_later(_LOOK_EVERY, self._look) if self._until else None


class Gate(Struct, eq=False):
    """What the filters need: who may do what, how much at a time, and where it is counted."""

    authenticator: Authenticator
    authorizer: Authorizer
    telemetry: Telemetry
    anonymous: bool = False
    requests: RequestConfig = RequestConfig()
    auditor: Auditor | None = None
    proxies: "Proxies | None" = None
    pages: Judge | None = None  # refuses what pages in a browser must not do
    deadlines: Deadlines = field(default_factory=Deadlines)
    running: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    _counters: dict[Any, Counters] = field(default_factory=dict)
    _authenticated: Slot = field(default_factory=Slot)  # of ``telemetry``

    def __post_init__(self) -> None:
        self._authenticated = self.telemetry.authentications.slot("success")

    def counters(self, labels: Labels, dry_run: str, code: int) -> Counters:
        """Return where a request is counted: the counter, its duration, the size of its answer if it is a read."""
        key = (labels, dry_run, code)
        found = self._counters.get(key)
        if found is None:
            telemetry, verb, rest = self.telemetry, labels.verb, labels[1:]
            found = self._counters[key] = (
                telemetry.requests.slot(verb, dry_run, *rest, str(code)),
                telemetry.seconds.slot(verb, dry_run, *rest),
                telemetry.sizes.slot(*labels) if verb in _SIZED or not labels.resource else None,
            )
            if not dry_run and verb != "WATCH":  # upstream: those have no objective
                telemetry.sli_seconds.share(found[1], *labels)
        return found

    def forget(self, gone: Gone) -> Iterator[None]:
        """Forget where requests for resources that are gone are counted, and what was counted; yields now and then.

        Where comes first: else who counts meanwhile would add to a number that nobody shows.
        """
        for number, key in enumerate(tuple(self._counters)):
            if gone(key[0].group, key[0].resource):
                self._counters.pop(key, None)
            if not (number + 1) % STRETCH:
                yield
        yield
        yield from self.telemetry.forget(gone)

    def user(self, authorization: str, certificate_user: User | None, exchange: Exchange) -> User:
        """Return who sends a request; 401 for a wrong credential, or for none where one is needed (AUT-002).

        Raises Doubtful.
        """
        try:
            found = self.authenticator.authenticate(authorization, certificate_user)
        except Doubtful:
            raise
        except BadCredential as error:
            raise self.refused() from error
        if found is None:
            if not self.anonymous and not is_open(exchange):
                self.telemetry.authentications.slot("failure").value += 1
                raise status.unauthorized()
            found = ANONYMOUS
        self._authenticated.value += 1
        return found

    def refused(self) -> status.StatusError:
        """Count a credential that is not valid, and return its 401."""
        self.telemetry.authentications.slot("error").value += 1
        return status.unauthorized()
