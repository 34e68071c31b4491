"""Memory is reserved for requests before decoding, and each user gets a share (http.memory)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from apiext.auth.user import User
from apiext.documents import limits as documents_limits
from apiext.http.memory import APPLY, ITEMS, STRATEGIC, WHOLE, Memory, Prices, weight
from apiext.http.negotiation import JSON, PROTOBUF, YAML
from apiext.meta import limits as meta_limits
from apiext.meta.fields import Errors, FieldError, required
from apiext.meta.status import StatusError
from apiext.storage.free_memory import FreeMemory


@dataclass
class Request:
    user: User
    promised: int = 0


def refusal_code(memory: Memory, request: Request, size: int) -> int:
    with pytest.raises(StatusError) as error:
        memory.hold(request, size)
    return error.value.code


def test_memory_is_limited_per_user_and_in_total() -> None:
    memory = Memory(FreeMemory([]), total=1_000)
    first, second, other = Request(User("a")), Request(User("a")), Request(User("b"))
    memory.hold(first, 700)
    assert refusal_code(memory, second, 100) == 429, "the share of the user"
    assert refusal_code(memory, other, 400) == 429, "all that there is"
    memory.hold(other, 300)
    assert refusal_code(memory, second, 800) == 413, "it never fits"
    memory.hold(first, 200)
    memory.hold(second, 500)
    assert (memory.promised, second.promised) == (1_000, 500)
    for request in (first, second, other):
        memory.hold(request, 0)
    assert memory.promised == 0
    memory.hold(second, 750)


def test_refused_requests_reserve_no_memory() -> None:
    memory = Memory(FreeMemory([]), total=1_000)
    request = Request(User("a"))
    memory.hold(request, 300)
    assert refusal_code(memory, request, 900) == 413
    assert (memory.promised, request.promised) == (300, 300)


def test_workers_share_the_memory() -> None:
    one, of_four = Memory(FreeMemory([])), Memory(FreeMemory([]), workers=4)
    assert of_four.total == one.total // 4


def json_list(item: str, count: int) -> bytes:
    """Return a list of items; N is replaced by the number of each."""
    return f"[{','.join(item.replace('N', f'{number:x}') for number in range(count))}]".encode()


@pytest.mark.parametrize(
    ("item", "count", "encoding", "prices", "measured"),
    [
        ('{"name":"pN","port":12345}', 65_000, JSON, ITEMS, 164),
        ('{"name":"pN","port":12345},{"port":12345,"protocol":"TCP"}', 45_000, STRATEGIC, ITEMS, 603),
        ('"N":""', 240_000, JSON, ITEMS, 159),
        ('{"k":"N"}', 190_000, JSON, ITEMS, 303),
        ('"N"', 370_000, JSON, ITEMS, 221),
        ('"N":{}', 190_000, APPLY, WHOLE, 188),
        ("{}", 390_000, JSON, ITEMS, 103),
        ('{"a":1}', 330_000, JSON, WHOLE, 248),
        ('{"k":"N"}', 190_000, JSON, WHOLE, 124),
        ('"N":""', 240_000, JSON, WHOLE, 111),
        ('"N"', 370_000, JSON, WHOLE, 62),
        ("{}", 390_000, JSON, WHOLE, 59),
        ("1", 1_400_000, JSON, WHOLE, 41),
    ],
)
async def test_body_weight_covers_the_measured_memory(
    item: str, count: int, encoding: str, prices: Prices, measured: int
) -> None:
    """Estimates cover ``measured``, the peak of a new server in MiB (docs/decisions/0030)."""
    found = await weight(json_list(item, count), encoding, prices) / 2**20
    assert measured <= found <= 2.3 * measured


@pytest.mark.parametrize(
    ("raw", "encoding", "least"),
    [
        (b"x:\n" + b"- a\n" * 1_000, YAML, 1_000 * 500),
        (b"- " * 200 + b"a", YAML, 200 * 500),
        (b"\x0a\x00" * 1_000, PROTOBUF, 1_000 * 500),
        (b"x" * 1_000_000, JSON, 1_000_000),
        (b"a: &a [b]\nc: [*a]", YAML, documents_limits.MAX_YAML_NODES * 500),
    ],
)
async def test_body_weight_of_each_encoding_is_within_bounds(raw: bytes, encoding: str, least: int) -> None:
    assert least <= await weight(raw, encoding) <= 20 * least


async def test_body_over_the_container_limit_has_a_bounded_weight() -> None:
    most = documents_limits.MAX_CONTAINERS * 1_000
    assert await weight(b"\x0a\x00" * 1_400_000, PROTOBUF) < most
    assert await weight(b"- a\n" * 700_000, YAML) < most


async def test_long_string_has_a_small_weight() -> None:
    assert await weight(b'{"a":"' + b"x" * documents_limits.MAX_BODY + b'"}', JSON) < 32 * 1024 * 1024


def test_validation_errors_are_generated_up_to_the_limit() -> None:
    made = 0

    def errors(count: int) -> Iterator[FieldError]:
        nonlocal made
        for number in range(count):
            made += 1
            yield required(f"spec.ports[{number}]")

    found = Errors(errors(1_000_000))
    found += errors(1_000_000)
    found.append(required("last"))
    assert len(found) == meta_limits.MAX_FIELD_ERRORS + 1
    assert made <= meta_limits.MAX_FIELD_ERRORS + 3
    assert [str(error) for error in found[:2]] == [
        "spec.ports[0]: Required value",
        "spec.ports[1]: Required value",
    ]
