"""What OpenAPI documents share: the data file of parameters and types, and the names of models (OAS-006, OAS-011)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from apiext.catalog.served import ServedVersion
from apiext.documents.document import Document, View
from apiext.documents.encoding import decode_yaml

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
OBJECT_META = f"{META}.ObjectMeta"
LIST_META = f"{META}.ListMeta"
STATUS = f"{META}.Status"
DELETE_OPTIONS = f"{META}.DeleteOptions"
PATCH = f"{META}.Patch"
SCALE = "io.k8s.api.autoscaling.v1.Scale"
_BUILTIN = {
    "": "io.k8s.api.core",
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
    "admissionregistration.k8s.io": "io.k8s.api.admissionregistration",
}
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
API_VERSION = (
    "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized "
    "schemas to the latest internal value, and may reject unrecognized values. More info: "
    f"{_CONVENTIONS}#resources"
)
KIND = (
    "Kind is a string value representing the REST resource this object represents. Servers may infer this from the "
    "endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: "
    f"{_CONVENTIONS}#types-kinds"
)
METADATA = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"
LIST_METADATA = f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds"
EMBEDDED_API_VERSION = (
    f"apiVersion defines the versioned schema of this representation of an object. More info: {_CONVENTIONS}#resources"
)
EMBEDDED_KIND = (
    f"kind is a string value representing the type of this object. In CamelCase. More info: {_CONVENTIONS}#types-kinds"
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter; ``shared`` is the name under which OpenAPI v2 lists it once, empty when it is written out."""

    name: str
    place: str
    type: str
    description: str
    required: bool = False
    shared: str = ""


@dataclass(frozen=True, slots=True)
class Data:
    """The data file: parameters by key, and the shared types in OpenAPI v3 form by model name."""

    parameters: Mapping[str, Parameter]
    schemas: Mapping[str, View]


@cache
def data() -> Data:
    """Return the contents of ``openapi.yaml``, read once."""
    document, _ = decode_yaml((Path(__file__).parent / "openapi.yaml").read_bytes())
    parameters = {
        key: Parameter(
            key.partition(" ")[0],
            found["in"],
            found["type"],
            found["description"],
            found.get("required", False),
            found.get("shared", ""),
        )
        for key, found in document["parameters"].items()
    }
    return Data(parameters, document["schemas"])


def model_name(served: ServedVersion, kind: str) -> str:
    """Return the name of a kind's model: reversed group, version, kind (OAS-006); never that of a shared type."""
    if served.typed and served.group in _BUILTIN:
        return f"{_BUILTIN[served.group]}.{served.version}.{kind}"
    name = ".".join([*reversed(served.group.split(".")), served.version, kind])
    return f"{name}_v2" if name in data().schemas else name


def shared_types(*, scale: bool) -> Mapping[str, View]:
    """Return the shared types that every group-version needs, those of Scale only when asked for."""
    return {name: schema for name, schema in data().schemas.items() if scale or not name.startswith(SCALE)}


def in_v2(schema: View) -> Document:
    """Return a shared type in OpenAPI v2 form: plain references, no defaults."""
    return {key: _v2_value(key, value) for key, value in schema.items() if key != "default"}


def _v2_value(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: _v2_property(found) for name, found in value.items()}
    if key in ("items", "additionalProperties"):
        return _v2_property(value)
    return value


def _v2_property(schema: View) -> Document:
    only = schema.get("allOf", ())
    if len(only) == 1 and "$ref" in only[0]:
        kept = {"description": schema["description"]} if "description" in schema else {}
        return kept | {"$ref": _v2_reference(only[0]["$ref"])}
    if "$ref" in schema:
        return {"$ref": _v2_reference(schema["$ref"])}
    return in_v2(schema)


def _v2_reference(reference: str) -> str:
    return reference.replace("#/components/schemas/", "#/definitions/")
