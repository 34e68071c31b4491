"""The serving certificate of a running server: renewal, and warnings before expiry.

Only the server's own certificate is renewed.
"""

import logging
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from msgspec import Struct

from apiext.telemetry import Family

log = logging.getLogger(__name__)

RENEW_BEFORE = timedelta(days=30)
_WARN_BEFORE = {"serving": RENEW_BEFORE, "authority": timedelta(days=90)}
_DAY = timedelta(days=1)


class Serving(Struct, frozen=True):
    """The files of a serving certificate.

    ``ca`` are the certificates (PEM) with which clients verify the serving certificate. ``authority`` is the
    certificate file of the server's own authority, which also signs user certificates. ``authority_ends`` is the expiry
    of this authority. Both are unset if flags configure the serving certificate. ``ends`` is the expiry of the serving
    certificate, or None if only OpenSSL can read it.
    """

    certificate: Path
    key: Path
    ca: bytes
    ends: datetime | None
    authority: str = ""
    authority_ends: datetime | None = None

    @property
    def renew_at(self) -> datetime:
        """The time at which the server's own certificate or authority must be replaced."""
        return min(end for end in (self.ends, self.authority_ends) if end is not None) - RENEW_BEFORE


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


class ServingCertificate:
    """The current serving certificate.

    ``load`` renews the server's own certificate if this is due, and then reads the certificate. ``reload`` calls each
    function in ``changed`` with the new value. If ``renews`` is true, ``renew`` calls ``load`` when the certificate is
    due, and logs warnings; else it does nothing. ``family`` is the metric of the expiry of the serving certificate and
    of the server's own authority.
    """

    def __init__(
        self, load: Callable[[], Serving], *, renews: bool = True, clock: Callable[[], datetime] = now
    ) -> None:
        self.changed: list[Callable[[Serving], None]] = []
        self.family = Family(
            "apiext_certificate_expiration_timestamp_seconds",
            "gauge",
            "Expiration of the serving certificate or of the server's certificate authority, as Unix time.",
            ("certificate",),
        )
        self._load = load
        self._renews = renews
        self._clock = clock
        self._warned: dict[str, date] = {}
        self.current = load()
        self._measure()

    @property
    def files(self) -> tuple[str, str]:
        """The paths of certificate and key."""
        return str(self.current.certificate), str(self.current.key)

    def renew(self) -> None:
        """Replace the server's own certificate if it is due, and warn of a coming expiry.

        Each warning is logged at most once a day.
        """
        found, at = self.current, self._clock()
        if not self._renews:
            return
        if found.authority and at >= found.renew_at:
            try:
                self._load()
                return  # http/tls.py notices the changed files and calls ``reload``
            except (OSError, ValueError) as error:
                self._warn("renewal", at, f"{found.certificate} cannot be renewed: {error}")
        for name, end in self._ends():
            if end - at < _WARN_BEFORE[name]:
                self._warn(name, at, _warning(name, found, end, at))

    def reload(self) -> None:
        """Read the changed files, and call the functions in ``changed``.

        Raises OSError and ValueError.
        """
        self.current = self._load()
        self._measure()
        for call in self.changed:
            call(self.current)

    def fault(self) -> str:
        """Return an error once the serving certificate has expired, else an empty string.

        No client can verify an expired certificate.
        """
        end = self.current.ends
        return f"the serving certificate has expired at {end}" if end is not None and self._clock() > end else ""

    def _ends(self) -> list[tuple[str, datetime]]:
        found = self.current
        ends = (("serving", found.ends), ("authority", found.authority_ends))
        return [(name, end) for name, end in ends if end is not None]

    def _measure(self) -> None:
        for name, end in self._ends():
            self.family.slot(name).value = int(end.timestamp())

    def _warn(self, name: str, at: datetime, text: str) -> None:
        if self._warned.get(name) != at.date():
            self._warned[name] = at.date()
            log.warning("%s", text)


def _warning(name: str, found: Serving, end: datetime, at: datetime) -> str:
    left = f"expires at {end}, in {(end - at) // _DAY} days" if end > at else f"has expired at {end}"
    if name == "authority":
        return f"the authority in {found.authority} {left}: the server replaces it {RENEW_BEFORE.days} days before"
    return f"the serving certificate in {found.certificate} {left}: a new file is loaded without a restart"
