"""A body that is read once more."""

import pytest

from apiext.http.resources import BODIES, JSON, YAML
from apiext.verbs.call import Body


@pytest.mark.rows("SRV-015")
@pytest.mark.parametrize(("kind", "raw"), [(YAML, b"a: {b: 1}\n"), (JSON, b'{"a": {"b": 1}}')])
def test_a_body_is_read_again_as_it_was_sent(kind: str, raw: bytes) -> None:
    first = Body({"a": {}}, ["twice"], kind, raw, BODIES[kind])
    again = first.again()
    assert (again.document, again.duplicates, again.raw) == ({"a": {"b": 1}}, ["twice"], raw)
