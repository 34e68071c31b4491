"""Memory is promised to requests before their bodies are decoded, and one user gets a share (http.memory)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from apiext import limits
from apiext.auth.user import User
from apiext.http.memory import STRATEGIC, Memory, weight
from apiext.http.negotiation import JSON, PROTOBUF, YAML
from apiext.meta.fields import Errors, FieldError, required
from apiext.meta.status import StatusError
from apiext.storage.room import Room


@dataclass
class Request:
    user: User
    promised: int = 0


def refused(memory: Memory, request: Request, size: int) -> int:
    with pytest.raises(StatusError) as error:
        memory.hold(request, size)
    return error.value.code


def test_a_user_gets_a_share_and_all_get_what_there_is() -> None:
    memory = Memory(Room([]), total=1_000)
    first, second, other = Request(User("a")), Request(User("a")), Request(User("b"))
    memory.hold(first, 700)
    assert refused(memory, second, 100) == 429, "the share of the user"
    assert refused(memory, other, 400) == 429, "all that there is"
    memory.hold(other, 300)
    assert refused(memory, second, 800) == 413, "it never fits"
    memory.hold(first, 200)
    memory.hold(second, 500)
    assert (memory.promised, second.promised) == (1_000, 500)
    for request in (first, second, other):
        memory.hold(request, 0)
    assert memory.promised == 0
    memory.hold(second, 750)


def test_what_was_refused_changes_nothing() -> None:
    memory = Memory(Room([]), total=1_000)
    request = Request(User("a"))
    memory.hold(request, 300)
    assert refused(memory, request, 900) == 413
    assert (memory.promised, request.promised) == (300, 300)


def test_workers_share_the_memory() -> None:
    one, of_four = Memory(Room([])), Memory(Room([]), workers=4)
    assert of_four.total == one.total // 4


@pytest.mark.parametrize(
    ("raw", "encoding", "least"),
    [
        (b"[" + b"{}," * 1_000 + b"{}]", JSON, 1_000 * 1_000),
        (b"[" + b"{}," * 1_000 + b"{}]", STRATEGIC, 1_000 * 5_000),
        (b"x:\n" + b"- a\n" * 1_000, YAML, 1_000 * 500),
        (b"\x0a\x00" * 1_000, PROTOBUF, 1_000 * 1_000),
        (b"x" * 1_000_000, JSON, 1_000_000),
        (b"a: &a [b]\nc: [*a]", YAML, limits.MAX_YAML_NODES * 500),
    ],
)
async def test_what_a_body_weighs(raw: bytes, encoding: str, least: int) -> None:
    assert least <= await weight(raw, encoding) <= 20 * least


async def test_a_long_text_weighs_little() -> None:
    assert await weight(b'{"a":"' + b"x" * limits.MAX_BODY + b'"}', JSON) < 32 * 1024 * 1024


def test_no_more_errors_are_made_than_are_told() -> None:
    made = 0

    def errors(count: int) -> Iterator[FieldError]:
        nonlocal made
        for number in range(count):
            made += 1
            yield required(f"spec.ports[{number}]")

    found = Errors(errors(1_000_000))
    found += errors(1_000_000)
    found.append(required("last"))
    assert len(found) == limits.MAX_FIELD_ERRORS + 1
    assert made <= limits.MAX_FIELD_ERRORS + 3
    assert [str(error) for error in found[:2]] == [
        "spec.ports[0]: Required value",
        "spec.ports[1]: Required value",
    ]
