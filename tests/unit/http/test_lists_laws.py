"""Every way of writing a list has the same content as its document."""

from typing import Any

import orjson
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from apiext.documents.encoding import decode_yaml
from apiext.http import lists, protobuf
from apiext.http.negotiation import JSON, PROTOBUF, YAML, Wanted
from apiext.http.representations import OF_LISTS, Subject
from apiext.storage.store import Entry
from apiext.verbs.call import Page
from tests.unit.http.support import NAMESPACES, endpoint, version

pytestmark = pytest.mark.rows("SRV-018", "TAB-001", "PAR-001", "NEG-005")

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=8)
SPECS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def page(specs: list[Any], kind: str, api: str) -> Page:
    entries = [
        Entry(
            "d",
            f"n{number}",
            number + 1,
            orjson.dumps(
                {"apiVersion": api, "kind": kind, "metadata": {"name": f"n{number}", "uid": "u"}, "spec": {"x": spec}}
            ),
        )
        for number, spec in enumerate(specs)
    ]
    return Page(9, entries=entries, token="more" if specs else "", remaining=len(specs) or None)


def documents(asked: Page, subject: Subject) -> list[Any]:
    return [orjson.loads(entry.view(subject.served.codec.view)) for entry in asked.entries or ()]


@pytest.mark.parametrize("encoding", [JSON, YAML])
@pytest.mark.parametrize("indent", [False, True])
@pytest.mark.parametrize("typed", [False, True])
@given(st.lists(SPECS, max_size=4))
@example(["=", "_1", ".1_"])  # upstream quotes these, as some parsers read them as other types
async def test_encoded_list_equals_its_document(encoding: str, indent: bool, typed: bool, specs: list[Any]) -> None:
    served = NAMESPACES if typed else version()
    subject = Subject(served, endpoint(), Wanted(encoding, pretty=indent))
    asked = page(specs, served.names.kind, served.names.api_version)
    reply = await lists.reply(subject, asked)
    raw = b"".join(reply.parts)
    found = orjson.loads(raw) if encoding == JSON else decode_yaml(raw)[0]
    metadata: dict[str, Any] = {"resourceVersion": "9"}
    metadata |= {"continue": "more", "remainingItemCount": len(specs)} if specs else {} if typed else {"continue": ""}
    items = documents(asked, subject)
    if typed:
        items = [{name: item[name] for name in item if name not in {"apiVersion", "kind"}} for item in items]
    expected = {
        "apiVersion": served.names.api_version,
        "kind": served.names.list_kind,
        "metadata": metadata,
        "items": items,
    }
    assert found == expected
    if encoding == JSON and indent:
        assert raw == orjson.dumps(found, option=orjson.OPT_INDENT_2)
    else:
        assert raw.endswith(b"\n")
    assert reply.content_type == encoding


@pytest.mark.parametrize("kind", ["Table", "PartialObjectMetadataList"])
@pytest.mark.parametrize("encoding", [JSON, YAML])
@pytest.mark.parametrize("indent", [False, True])
@given(st.lists(st.integers(0, 9), max_size=3))
async def test_encoded_table_and_metadata_list_equal_their_document(
    kind: str, encoding: str, indent: bool, specs: list[int]
) -> None:
    subject = Subject(version(), endpoint(), Wanted(encoding, kind, "v1", indent))
    asked = page(specs, "Widget", "example.com/v1")
    raw = b"".join((await lists.reply(subject, asked)).parts)
    found = orjson.loads(raw) if encoding == JSON else yaml.load(raw, yaml.CSafeLoader)
    assert found == OF_LISTS[kind](subject, documents(asked, subject), lists.metadata_of(asked))


@given(st.lists(st.integers(0, 9), max_size=3))
async def test_protobuf_list_contains_all_items(specs: list[int]) -> None:
    asked = page(specs, "Namespace", "v1")
    subject = Subject(NAMESPACES, endpoint(), Wanted(PROTOBUF))
    found = protobuf.decode(b"".join((await lists.reply(subject, asked)).parts))
    assert [item["metadata"]["name"] for item in found.get("items", [])] == [f"n{i}" for i in range(len(specs))]
    assert found["metadata"]["resourceVersion"] == "9"
    subject = Subject(NAMESPACES, endpoint(), Wanted(PROTOBUF, "PartialObjectMetadataList", "v1"))
    partial = protobuf.decode(b"".join((await lists.reply(subject, asked)).parts))
    assert (partial["kind"], len(partial.get("items", []))) == ("PartialObjectMetadataList", len(specs))


async def test_long_lists_are_split_into_pieces() -> None:
    subject = Subject(version(), endpoint(), Wanted())
    reply = await lists.reply(subject, page(list(range(1000)), "Widget", "example.com/v1"))
    assert 10 < len(reply.parts) < 100
    assert len(orjson.loads(b"".join(reply.parts))["items"]) == 1000


MANAGED = st.lists(
    st.fixed_dictionaries(
        {"manager": TEXT | st.just('],"name":"')},
        optional={
            "fieldsV1": st.dictionaries(
                TEXT | st.just('k:{"name":"],"}'), st.just({}) | st.just({"f": [], "name": "", "uid": "u"}), max_size=2
            )
        },
    ),
    max_size=2,
)
METADATA = st.fixed_dictionaries(
    {"name": TEXT},
    optional={
        "annotations": st.dictionaries(TEXT, st.sampled_from(('"resourceVersion":"5","uid":"', '"}', "}", ",")) | TEXT),
        "ownerReferences": st.lists(st.fixed_dictionaries({"uid": TEXT, "resourceVersion": st.just("5")}), max_size=2),
        "resourceVersion": st.sampled_from(("5", "6")),
        "selfLink": TEXT,
        "uid": st.sampled_from(('"}', '\\"}', "u")) | TEXT,
    },
)


@given(METADATA, st.dictionaries(TEXT, METADATA | SPECS, max_size=2), st.booleans(), st.none() | MANAGED)
def test_metadata_cut_from_bytes_equals_the_object_metadata(
    metadata: dict[str, Any], others: dict[str, Any], sort: bool, managed: list[Any] | None
) -> None:
    served = version()
    if managed is not None:  # views have a resourceVersion, too
        metadata |= {"resourceVersion": "5", "managedFields": managed}
    document = {"apiVersion": served.names.api_version, "kind": served.names.kind, "metadata": metadata} | {
        name: other for name, other in others.items() if name not in {"apiVersion", "kind", "metadata"}
    }
    view = orjson.dumps(document, option=orjson.OPT_SORT_KEYS if sort else 0)
    found = lists.metadata_cutter(served)(view, 5)
    if found is not None:
        text, shown = found
        assert orjson.loads(text) == metadata
        assert shown["metadata"].items() <= metadata.items()
        assert metadata.keys() - shown["metadata"].keys() <= {"managedFields"}
    elif sort and not others and set(metadata) == {"name", "resourceVersion", "uid"}:
        assert metadata["resourceVersion"] != "5" or '"' in metadata["uid"]
