"""Documents in the representations that requests accept."""

from typing import Any

import orjson
import pytest

from apiext.http.negotiation import JSON, Wanted
from apiext.http.representations import PARTIAL, Subject, document_reply
from apiext.meta import status
from tests.unit.http.support import endpoint, version

pytestmark = pytest.mark.rows("PAR-001", "TAB-001")


def convert(document: dict[str, Any], kind: str) -> Any:
    reply = document_reply(Subject(version(), endpoint(), Wanted(JSON, kind, "v1")), document)
    return orjson.loads(b"".join(reply.parts))


@pytest.mark.parametrize("wanted", ["Table", PARTIAL])
def test_custom_kinds_named_like_builtin_kinds_are_converted(wanted: str) -> None:
    for kind in ("Widget", "Status", "DeleteOptions", "Table", "List"):
        assert (
            convert({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "a"}}, wanted)["kind"] == wanted
        )


@pytest.mark.parametrize("wanted", ["Table", PARTIAL])
def test_status_is_not_converted(wanted: str) -> None:
    assert convert(status.success({"name": "a"}), wanted) == status.success({"name": "a"})
