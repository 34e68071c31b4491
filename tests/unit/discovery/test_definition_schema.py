"""The published schemas of definitions and namespaces have the fields of their decoders."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from apiext.catalog.builtin import namespaces
from apiext.catalog.builtin.open_api import definition_schema, namespace_schema
from apiext.catalog.builtin.resources import builtin_resources
from apiext.catalog.served import Catalog
from apiext.crd import types as go
from apiext.discovery import openapi_v2, openapi_v3, types
from apiext.go_types.sources import digest
from apiext.go_types.tables import types_of
from apiext.go_types.typed import List, Struct

VERSION = "1.37"
SCHEMA = types_of("apiextensions").table["JSONSchemaProps"]["model"]
META = {"apiVersion", "kind", "metadata"}


def differences(struct: Struct, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of fields that only one of the two has."""
    properties = schema.get("properties", {})
    fields = {name: field for name, field in struct.fields.items() if path or name not in META}
    yield from (f"{path}.{name}" for name in fields.keys() ^ properties.keys())
    for name in fields.keys() & properties.keys():
        kind: Any = fields[name].type
        below = properties[name]
        if isinstance(kind, List):
            kind, below = kind.item, below["items"]
        if isinstance(kind, Struct) and "allOf" not in below:
            yield from differences(kind, below, f"{path}.{name}")


@pytest.mark.rows("CRD-001", "OAS-011")
def test_published_definition_schema_has_fields_of_decoder() -> None:
    assert list(differences(go.V1, definition_schema("v1"))) == []
    assert list(differences(go.V1BETA1, definition_schema("v1beta1"))) == []
    assert list(differences(namespaces.TYPE, namespace_schema())) == []


@pytest.mark.rows("OAS-011")
def test_published_json_schema_props_has_fields_of_decoder() -> None:
    schema = go.V1.fields["spec"].type.fields["versions"].type.item.fields["schema"].type  # type: ignore[attr-defined]
    props = schema.fields["openAPIV3Schema"].type
    assert types.data().own[SCHEMA]["properties"].keys() == props.fields.keys()
    rule = types.data().own[SCHEMA.replace("JSONSchemaProps", "ValidationRule")]
    assert rule["properties"].keys() == props.fields["x-kubernetes-validations"].type.item.fields.keys()


def catalog() -> Catalog:
    found = Catalog()
    for resource in builtin_resources():
        found = found.with_resource(resource)
    return found


@pytest.mark.rows("OAS-002", "OAS-011")
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_v3_definition_schema_refers_to_json_schema_props(version: str) -> None:
    found = openapi_v3.document(catalog(), f"apis/apiextensions.k8s.io/{version}", VERSION)
    assert found is not None
    schemas = orjson.loads(found.body)["components"]["schemas"]
    spec = schemas[f"{SCHEMA.rpartition('.v1.')[0]}.{version}.CustomResourceDefinition"]["properties"]["spec"]
    inside = spec["properties"]["versions"]["items"]["properties"]["schema"]["properties"]["openAPIV3Schema"]
    assert inside["allOf"] == [{"$ref": f"#/components/schemas/{SCHEMA}"}]
    assert schemas[SCHEMA]["properties"]["not"]["allOf"] == inside["allOf"]
    assert ("validation" in spec["properties"]) is (version == "v1beta1")


@pytest.mark.rows("OAS-001", "OAS-005")
def test_v2_definition_schema_refers_to_json_schema_props() -> None:
    definitions = orjson.loads(openapi_v2.document(catalog(), VERSION).body)["definitions"]
    spec = definitions[SCHEMA.replace("JSONSchemaProps", "CustomResourceDefinition")]["properties"]["spec"]
    inside = spec["properties"]["versions"]["items"]["properties"]["schema"]["properties"]["openAPIV3Schema"]
    assert inside["$ref"] == f"#/definitions/{SCHEMA}"
    assert definitions[SCHEMA]["properties"]["not"]["$ref"] == f"#/definitions/{SCHEMA}"


def test_openapi_digest_is_stable() -> None:
    assert digest() == digest()
    assert len(digest()) == 32
