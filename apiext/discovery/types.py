"""Parts that OpenAPI documents share: parameters, types, and the names of models.

See OAS-006, OAS-011.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct

from apiext.catalog.served import ServedVersion
from apiext.documents.document import Document, View
from apiext.documents.encoding import decode_yaml
from apiext.go_types.tables import model_files

TITLE = "Generic API Server"
"""The title of documents of built-in kinds and of the server itself, as recorded from upstream."""
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
OBJECT_META = f"{META}.ObjectMeta"
LIST_META = f"{META}.ListMeta"
STATUS = f"{META}.Status"
DELETE_OPTIONS = f"{META}.DeleteOptions"
PATCH = f"{META}.Patch"
WATCH_EVENT = f"{META}.WatchEvent"
TEXT = "string"
"""The name of the model for a response that is plain text."""
SCALE = "io.k8s.api.autoscaling.v1.Scale"
_PACKAGES = {  # group → Go package, if the name of the package does not follow the usual rule
    "": "io.k8s.api.core",
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
    "apiregistration.k8s.io": "io.k8s.kube-aggregator.pkg.apis.apiregistration",
}
_RESERVED = (
    "io.k8s.api.",
    "io.k8s.apimachinery.pkg.",
    "io.k8s.apiextensions-apiserver.pkg.",
    "io.k8s.kube-aggregator.pkg.",
)
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


class Parameter(Struct, frozen=True):
    """A parameter of OpenAPI operations.

    ``shared`` is the name of the parameter in the shared parameters of OpenAPI v2, "" if it is not shared. ``options``
    is a kind such as PodExecOptions, if the parameter belongs to requests for pods/exec and similar subresources, else
    "".
    """

    name: str
    place: str
    type: str
    description: str
    required: bool = False
    shared: str = ""
    options: str = ""


class Data(Struct, frozen=True):
    """The content of the data files.

    ``parameters`` is key → parameter. ``schemas`` is name of the model → type in OpenAPI v3 form, for types that all
    groups use. ``own`` is the same for the types that only some documents need. ``digest`` changes with the files.
    """

    parameters: Mapping[str, Parameter]
    schemas: Mapping[str, View]
    own: Mapping[str, View]
    digest: str


@cache
def data() -> Data:
    """Return the content of ``openapi.yaml`` and ``openapi_own.yaml``. Read the files only once."""
    texts = [(Path(__file__).parent / name).read_bytes() for name in ("openapi.yaml", "openapi_own.yaml")]
    document, own = (decode_yaml(text)[0] for text in texts)
    parameters = {
        key: Parameter(
            key.partition(" ")[0],
            found["in"],
            found["type"],
            found["description"],
            found.get("required", False),
            found.get("shared", ""),
            key.partition(" of ")[2],
        )
        for key, found in document["parameters"].items()
    }
    return Data(parameters, document["schemas"], own["schemas"], hashlib.blake2b(b"".join(texts)).hexdigest())


def model_name(served: ServedVersion, kind: str) -> str:
    """Return the name of the model of a kind: reversed group, version, kind (OAS-006).

    The model of a built-in kind is named after its Go package. If the name of a custom model begins like these names,
    it gets the suffix ``_v2`` (OAS-011).
    """
    if served.model.typed:
        return typed_model_name(served.names.group, served.names.version, kind)
    name = ".".join([*reversed(served.names.group.split(".")), served.names.version, kind])
    return f"{name}_v2" if name.startswith(_RESERVED) else name


def typed_model_name(group: str, version: str, kind: str) -> str:
    """Return the name of the model of a built-in kind."""
    package = _PACKAGES.get(group) or f"io.k8s.api.{group.partition('.')[0]}"
    return f"{package}.{version}.{kind}"


def shared_types(*, scale: bool) -> Mapping[str, View]:
    """Return name → type, for the types that every group and version needs.

    If ``scale``, include the types of Scale.
    """
    return {name: schema for name, schema in data().schemas.items() if scale or not name.startswith(SCALE)}


def own_types(models: Iterable[str]) -> dict[str, Document]:
    """Return the types of ``openapi_own.yaml`` with these names: name → type.

    Include the types to which they refer. Ignore names that are not in this file.
    """
    found: dict[str, Document] = {}
    todo = [name for name in models if name in data().own]
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = dict(data().own[name])
            todo += referred_to(found[name])
    return dict(sorted(found.items()))


def referred_to(value: Any) -> list[str]:
    """Return the names of the types of ``openapi_own.yaml`` to which a schema refers."""
    text = orjson.dumps(value)
    return [name for name in data().own if f'/{name}"'.encode() in text]


_MODEL = re.compile(rb'"#/components/schemas/(io\.k8s\.[^"]+)"')


def models_in(value: Any) -> set[str]:
    """Return the names of the models of built-in kinds to which a schema refers."""
    files = model_files()
    return {name for found in _MODEL.findall(orjson.dumps(value)) if (name := found.decode()) in files}


def in_v2(schema: View) -> Document:
    """Return a shared type in OpenAPI v2 form.

    The result has references without allOf, and no defaults. A union of types becomes a string.
    """
    if "oneOf" in schema:
        return {**{key: value for key, value in schema.items() if key != "oneOf"}, "type": "string"}
    return {key: _v2_value(key, value) for key, value in schema.items() if key != "default"}


def _v2_value(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: _v2_property(found) for name, found in value.items()}
    if key in ("items", "additionalProperties"):
        return _v2_property(value)
    return value


def _v2_property(schema: View) -> Document:
    return reference_in_v2(schema) or in_v2(schema)


_BESIDE_REFERENCE = ("description", "x-kubernetes-map-type", "x-kubernetes-patch-strategy")


def reference_in_v2(schema: View) -> Document | None:
    """Return the OpenAPI v2 form of a schema that is a reference.

    The form has the description, map type and patch strategy of the field, too. Return None for any other schema.
    """
    only = list(schema.get("allOf") or ())
    target = only[0].get("$ref") if len(only) == 1 else schema.get("$ref")
    if target is None:
        return None
    kept = {key: schema[key] for key in _BESIDE_REFERENCE if key in schema}
    return kept | {"$ref": _v2_reference(target)}


def _v2_reference(reference: str) -> str:
    return reference.replace("#/components/schemas/", "#/definitions/")
