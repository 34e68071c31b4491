"""A hostile webhook's responses do not fill the memory or delay other clients.

The memory is that of the server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from apiext.conformance.support.admission_webhook import Exchange, Raw, in_another_process, page
from apiext.conformance.support.waiting import until
from tests.hostile.harness import Victim, at_once

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MAPS = "/api/v1/namespaces/default/configmaps?dryRun=All"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
pytestmark = pytest.mark.rows("ADM-008")


def without_end(before: bytes, again: bytes) -> Raw:
    """Return a response that continues until the server closes the connection."""

    def act(exchange: Exchange) -> None:
        with contextlib.suppress(OSError):
            exchange.wfile.write(before)
            while True:
                exchange.wfile.write(again)
        exchange.close_connection = True

    return Raw(act)


TRAILER = without_end(CHUNKED + b"2\r\n{}\r\n0\r\n", b"x" * 0x10000)
TINY = without_end(CHUNKED, b"1\r\n \r\n" * 10_000)
CONTINUE = without_end(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 3_000)
HEAD = without_end(b"HTTP/1.1 200 OK\r\n", b"x" * 10)
OBJECTS = page(200, b'{"response": {"other": [' + b"{}," * 2_500_000 + b"{}]}}")
STATUS = page(400, b'{"kind": "Status", "other": [' + b"{}," * 2_500_000 + b"{}]}")
ANSWERS = {"trailer": TRAILER, "tiny": TINY, "continue": CONTINUE, "head": HEAD, "objects": OBJECTS, "status": STATUS}
Place = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """A webhook with a response for each path."""
    with in_another_process(**{name: (lambda _, said=said: said) for name, said in ANSWERS.items()}) as found:
        yield found


@pytest.mark.parametrize("name", ANSWERS)
def test_hostile_webhook_response_does_not_block_the_server(victim: Victim, place: Place, name: str) -> None:
    api, what = victim.api, {"metadata": {"name": "m"}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    hook = {
        "name": "a.example.com", "clientConfig": place(f"/{name}"), "rules": [rule], "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
    }  # fmt: skip
    api.post(HOOKS, {"metadata": {"name": name}, "webhooks": [hook]}).expect(201)
    with victim.attacked():
        until(lambda: api.post(MAPS, what).status == 500, "the webhook counts")
        answers = at_once(4, lambda _: api.post(MAPS, what))
    for answer in answers:
        assert answer.status == 500
        assert "failed calling webhook" in answer.json["message"]
    api.delete(f"{HOOKS}/{name}").expect(200)
    until(lambda: api.post(MAPS, what).status == 201, "the webhook counts no more")
