"""The serving certificate: renewed in time, and loaded again when its files have changed, without a restart."""

import asyncio
import logging
import os
import ssl

from apiext.auth.serving import ServingCertificate
from apiext.trust import load_pair

# Seconds between looks at the files of the serving certificate.
CERTIFICATE_LOOK_EVERY = 2.0

log = logging.getLogger(__name__)


class Renewal:
    """Looks every CERTIFICATE_LOOK_EVERY seconds whether a certificate is due, or its files have changed.

    Connections that are open keep what they have.
    """

    def __init__(self, context: ssl.SSLContext, certificate: ServingCertificate) -> None:
        self._context = context
        self._certificate = certificate
        self._files = certificate.files
        self._seen = self._stamps()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look now, and from now on."""
        self._look()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CERTIFICATE_LOOK_EVERY, self._look)
        self._certificate.renew()
        found = self._stamps()
        if found == self._seen:
            return
        self._seen = found
        try:
            # a pair that does not fit would spoil the context in use
            load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *self._files)
            load_pair(self._context, *self._files)
            self._certificate.reload()
        except (OSError, ValueError) as error:
            log.warning(
                "no usable certificate in %s: %s; the last one is still shown", " and ".join(self._files), error
            )

    def _stamps(self) -> list[tuple[int, int, int]]:
        found = []
        for file in self._files:
            try:
                status = os.stat(file)
            except OSError:
                continue
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return found
