"""A body that is decoded again, and the warnings of a call."""

from time import process_time

import pytest

from apiext.auth.user import User
from apiext.catalog.builtin.kinds import kinds
from apiext.http.resources import BODIES, JSON, YAML
from apiext.verbs.call import Body, Call


@pytest.mark.rows("SRV-015")
@pytest.mark.parametrize(("kind", "raw"), [(YAML, b"a: {b: 1}\n"), (JSON, b'{"a": {"b": 1}}')])
def test_body_is_decoded_again_from_raw_bytes(kind: str, raw: bytes) -> None:
    first = Body({"a": {}}, ["twice"], kind, raw, BODIES[kind])
    again = first.again()
    assert (again.document, again.duplicates, again.raw) == ({"a": {"b": 1}}, ["twice"], raw)


@pytest.mark.rows("WRI-013")
def test_many_warnings_are_deduplicated_in_linear_time() -> None:
    version = next(iter(kinds()[0].versions.values()))
    call = Call("create", version, kinds()[0], version.endpoints[""], None, "", {}, User("me"))
    notes = [f'unknown field "metadata.b{number}"' for number in range(40_000)]
    began = process_time()
    call.warn(["first", *notes])
    call.warn([*notes, "last"])
    assert process_time() - began < 2, "a thousand times as long where each is looked for among all"
    assert call.warnings == ["first", *notes, "last"]
