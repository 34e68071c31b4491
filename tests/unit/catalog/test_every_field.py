"""No field of a built-in kind is lost.

Go types, protobuf, the store, OpenAPI and server-side apply keep each field of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from apiext.catalog.builtin import namespaces
from apiext.catalog.builtin.resources import builtin_resources
from apiext.catalog.served import ServedResource, ServedVersion
from apiext.crd import types as definition_types
from apiext.go_types.rows import rows
from apiext.go_types.tables import types_of
from apiext.go_types.typed import GoType, List, Map, Special, Struct
from apiext.http import protobuf
from apiext.managedfields import manager
from apiext.managedfields.fieldset import EMPTY, FieldSet
from apiext.managedfields.manager import Writer
from apiext.managedfields.types import Type

METADATA: Mapping[str, Any] = {  # without selfLink, which servers clear
    "name": "a",
    "generateName": "a-",
    "namespace": "n",
    "uid": "u",
    "resourceVersion": "7",
    "generation": 3,
    "creationTimestamp": "2026-11-21T03:05:11Z",
    "deletionTimestamp": "2026-11-22T03:05:11Z",
    "deletionGracePeriodSeconds": 5,
    "labels": {"k": "v"},
    "annotations": {"k": "w"},
    "ownerReferences": [
        {"apiVersion": "v1", "kind": "K", "name": "o", "uid": "w", "controller": True, "blockOwnerDeletion": True}
    ],
    "finalizers": ["example.com/f"],
    "managedFields": [
        {
            "manager": "m",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-11-21T03:05:11Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {}},
            "subresource": "status",
        }
    ],
}
VALUES: Mapping[str, Any] = {
    "string": "x",
    "bool": True,
    "int64": 2**40,
    "int32": 5,
    "float64": 1.5,
    "[]uint8": "eA==",
    "v1.Time": "2026-11-21T03:05:11Z",
    "v1.MicroTime": "2026-11-21T03:05:11.724683Z",
    "v1.JSON": {"a": [1, "x", None]},
    "runtime.RawExtension": {"a": [1, "x"]},
    "intstr.IntOrString": "http",
    "resource.Quantity": "100Mi",
    "v1.ObjectMeta": METADATA,
}
LEAF = {"type": "string", "maxLength": 3}
UNIONS: Mapping[str, tuple[Any, ...]] = {
    "JSONSchemaPropsOrArray": (LEAF, [LEAF, {"type": "integer"}]),
    "JSONSchemaPropsOrBool": (LEAF, True, False),
    "JSONSchemaPropsOrStringArray": (LEAF, ["a", "b"]),
}
VARIANTS = max(map(len, UNIONS.values()))
WRITE_ONLY = {("v1", "Secret", "stringData"): "it is merged into data"}


class Kind(NamedTuple):
    """A kind under test: its version, its struct, and whether its objects are stored."""

    version: ServedVersion
    struct: Struct
    stored: bool


def _kinds() -> Iterator[Kind]:
    structs: dict[tuple[str, str], Struct] = {
        ("v1", "Namespace"): namespaces.TYPE,
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): definition_types.V1,
        ("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition"): definition_types.V1BETA1,
    }
    for row in rows():
        for one in row.all_versions():
            structs[one.api_version, one.kind] = types_of(one.types).root(one.kind)
    for resource in builtin_resources(enabled=lambda _, on: True):
        for version in resource.versions.values():
            yield Kind(version, structs[version.names.api_version, version.names.kind], not resource.review)


RESOURCES: list[ServedResource] = builtin_resources(enabled=lambda _, on: True)
KINDS = list(_kinds())
EACH = pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=f"{kind.version.names.api_version}.{kind.version.names.kind}") for kind in KINDS]
)


def value_of(of: GoType, variant: int, above: tuple[str, ...] = ()) -> Any:
    """Return a value with every field of a type; a struct within itself has few fields."""
    if isinstance(of, List):
        return [value_of(of.item, variant, above)]
    if isinstance(of, Map):
        return {"k": value_of(of.item, variant, above)}
    if isinstance(of, Struct):
        if of.name in above:
            return LEAF
        # protobuf messages have no apiVersion and kind there
        within = above and (of.name == "DeleteOptions" or {"apiVersion", "kind", "metadata"} <= of.fields.keys())
        fields = {name: field for name, field in of.fields.items() if not (within and name in ("apiVersion", "kind"))}
        return {name: value_of(field.type, variant, (*above, of.name)) for name, field in fields.items()}
    if isinstance(of, Special):
        values = UNIONS[of.go.rpartition(".")[2]]
        return values[variant % len(values)]
    found = VALUES.get(of.go, "x")  # string types of Go
    return 80 if of.go == "intstr.IntOrString" and variant else found


def full(kind: Kind, variant: int) -> dict[str, Any]:
    """Return an object with every field."""
    version = kind.version
    body: dict[str, Any] = value_of(kind.struct, variant)
    return {**body, "apiVersion": version.names.api_version, "kind": version.names.kind}


def lost(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Yield the paths with other values than those expected; additional fields are allowed."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for name, below in wanted.items():
            yield from lost(below, found.get(name), f"{path}.{name}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (left, right) in enumerate(zip(wanted, found, strict=True)):
            yield from lost(left, right, f"{path}[{index}]")
    elif wanted != found or (wanted is True) != (found is True):
        yield f"{path}: {wanted!r} became {found!r}"


def _expected(kind: Kind, variant: int) -> dict[str, Any]:
    body = full(kind, variant)
    version = kind.version
    for api_version, name, field in WRITE_ONLY:
        if (version.names.api_version, version.names.kind) == (api_version, name):
            del body[field]
    return body


@EACH
@pytest.mark.parametrize("variant", range(VARIANTS))
@pytest.mark.rows("NEG-003", "ETC-003")
def test_every_field_survives_json_protobuf_and_the_store(kind: Kind, variant: int) -> None:
    version, body, wanted = kind.version, full(kind, variant), _expected(kind, variant)
    document, unknown = version.model.normalize(body)
    assert unknown == []
    assert list(lost(wanted, document)) == []
    again, unknown = version.model.normalize(dict(document))
    assert (again, unknown) == (document, [])
    if protobuf.has_message(version.names.api_version, version.names.kind):
        read = protobuf.decode(protobuf.encode(body))  # as a client sends it
        assert list(lost(body, read)) == []
        assert version.model.normalize(read)[0] == document, "a PUT in protobuf is the PUT in JSON"
        read, _ = version.model.normalize(protobuf.decode(protobuf.encode(document)))
        assert list(lost(document, read)) == []
    else:
        assert version.names.api_version == "apiextensions.k8s.io/v1beta1", "upstream has no protobuf of it"
    if kind.stored and version.names.api_version != "apiextensions.k8s.io/v1beta1":  # its two forms exclude each other
        stored = {**document, "metadata": {**document["metadata"], "resourceVersion": ""}}
        assert list(lost({**wanted, "metadata": METADATA}, version.codec.decode(version.codec.encode(stored), 7))) == []


class OneVersion:
    """A resource of one version."""

    def __init__(self, of: Type) -> None:
        self._of = of

    def type_of(self, api_version: str) -> Type:
        """Return the type."""
        return self._of

    def reset(self, api_version: str) -> FieldSet:
        """Return the fields that the endpoint resets: none."""
        return EMPTY

    def convert(self, document: Any, api_version: str) -> Any:
        """Return the document, which is of the only version."""
        return document


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=f"{kind.version.names.api_version}.{kind.version.names.kind}")
        for kind in KINDS
        if kind.stored
    ],
)
@pytest.mark.parametrize("variant", range(VARIANTS))
@pytest.mark.rows("SSA-019")
def test_every_field_can_be_applied(kind: Kind, variant: int) -> None:
    version = kind.version
    body = {**_expected(kind, variant), "metadata": {"name": "a", "labels": {"k": "v"}}}
    writer = Writer(
        OneVersion(version.model.merge_type()),
        version.names.api_version,
        version.names.kind,
        "m",
        "",
        "2026-01-01T00:00:00Z",
    )
    empty = dict(version.model.empty)
    applied, changed = manager.apply(writer, empty, body, empty, force=False)
    assert changed
    assert list(lost(body, applied)) == []
    _, changed = manager.apply(writer, applied, body, empty, force=False)
    assert not changed, "the same configuration again"


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        pytest.param(resource, name, id=f"{resource.resource}/{name}")
        for resource in RESOURCES
        for name, endpoint in resource.versions[resource.storage_version].endpoints.items()
        if name and endpoint.review
    ],
)
@pytest.mark.rows("NEG-003")
def test_every_field_of_a_review_subresource_is_preserved(resource: ServedResource, name: str) -> None:
    endpoint = resource.versions[resource.storage_version].endpoints[name]
    accepted = next(below["accepts"] for row in rows() for below in row.subresources if below["name"] == name)
    model = endpoint.model
    body = {
        **value_of(types_of(accepted["types"]).root(accepted["kind"]), 0),
        "apiVersion": model.api_version,
        "kind": model.kind,
    }
    document, unknown = model.normalize(body)
    assert (unknown, list(lost(body, document))) == ([], [])
    assert list(lost(body, protobuf.decode(protobuf.encode(body)))) == []
