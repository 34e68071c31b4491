"""Turn exceptions into responses; no other module does this."""

import logging

from aiohttp.http_exceptions import LineTooLong

from apiext.catalog.converted import NeedsConversion
from apiext.catalog.stored import Unreadable, WrongVersion
from apiext.http import limits
from apiext.http.exchange import Exchange, Reply
from apiext.http.responses import status_reply
from apiext.meta import limits as meta_limits
from apiext.meta import status
from apiext.meta.status import StatusError
from apiext.storage.store import StoreError
from apiext.verbs.errors import as_status

log = logging.getLogger(__name__)

PANIC = "This request caused apiserver to panic. Look in the logs for details."


def status_of(error: Exception) -> StatusError | None:
    """Return the StatusError of an expected exception, None for a bug."""
    if isinstance(error, StatusError):
        return error
    if isinstance(error, StoreError):
        return as_status(error)
    if isinstance(error, WrongVersion | NeedsConversion):
        return status.unknown(unreadable(error))
    if isinstance(error, Unreadable):
        return status.internal(error.named)
    return None


def refusal(exchange: Exchange, error: Exception) -> Reply:
    """Turn an exception into a response."""
    found = status_of(error)
    if isinstance(error, WrongVersion):  # as upstream, the response does not name the object, so the log must
        log.warning("request %s: %s %s: %s", exchange.audit_id, exchange.method, exchange.path, error.named)
    if found is None:  # a bug must not close the connection
        log.error("request %s failed: %s %s", exchange.audit_id, exchange.method, exchange.path, exc_info=error)
        found = StatusError(500, "InternalError", PANIC)
    return status_reply(exchange, found)


def unreadable(error: WrongVersion | NeedsConversion) -> str:
    """Return the message of the 500 for an object that cannot be shown in the requested version.

    See VER-008, VER-011.
    """
    if isinstance(error, WrongVersion):
        return str(error)
    kind, version = error.document.get("kind"), error.document.get("apiVersion")
    return f"conversion webhook for {version}, Kind={kind} failed: its answer was not kept"


class HeadTooLong(Exception):
    """A request head of more than limits.MAX_HEAD bytes."""


def unparsed(code: int, error: BaseException | None) -> StatusError:
    """Return the StatusError for an invalid head, or a request that failed outside its handler.

    ``code`` is the code from aiohttp. It is below 500 for an invalid head.
    """
    if isinstance(error, LineTooLong):
        return StatusError(431, "BadRequest", f"a line of the request head is longer than {meta_limits.MAX_LINE} bytes")
    if isinstance(error, HeadTooLong):
        return StatusError(431, "BadRequest", f"the request head is longer than {limits.MAX_HEAD} bytes")
    if error is not None and "Too many headers" in str(error):  # aiohttp has no class for this error
        return StatusError(431, "BadRequest", f"the request has more than {limits.MAX_HEADERS} header fields")
    if code < 500:
        return StatusError(400, "BadRequest", "the request is not valid HTTP")
    return StatusError(code, "InternalError", "Internal error occurred: the connection failed")
