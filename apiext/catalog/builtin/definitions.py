"""The resource customresourcedefinitions (CRD-001, UPD-004…012)."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from apiext.catalog.builtin.functions import slow_until_imported
from apiext.catalog.builtin.open_api import definition_schema
from apiext.catalog.columns import CREATED_AT, NAME
from apiext.catalog.endpoints import SUBRESOURCE_VERBS, embed_all, project_all
from apiext.catalog.merge_types import go_merge_type
from apiext.catalog.selectable import selectable_fields
from apiext.catalog.served import (
    Codec,
    Column,
    Endpoint,
    Model,
    Names,
    Published,
    ServedResource,
    ServedVersion,
    Shaping,
    Validation,
    Work,
)
from apiext.catalog.typed import typed_codec
from apiext.crd import decoding, empties, encoding, types
from apiext.crd.conditions import is_true
from apiext.crd.definition import ESTABLISHED, GROUP, KIND, PLURAL
from apiext.documents.document import Document, View, clone
from apiext.documents.equality import same
from apiext.go_types import typed
from apiext.managedfields.fieldset import EMPTY
from apiext.managedfields.schemas import lazily
from apiext.meta.fields import FieldError

_V1BETA1_DEPRECATED = (
    "apiextensions.k8s.io/v1beta1 CustomResourceDefinition is deprecated in v1.16+, unavailable in v1.22+; use"
    " apiextensions.k8s.io/v1 CustomResourceDefinition"
)
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def definitions_resource(*, v1beta1: bool) -> ServedResource:
    """Return the resource customresourcedefinitions; v1 is always served."""
    versions = {"v1": _v1()}
    if v1beta1:
        versions["v1beta1"] = _v1beta1()
    return ServedResource(GROUP, PLURAL, False, versions, "v1", builtin=True, all_versions=versions)


def _empty_status() -> Document:
    return {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": None}


def _with_storage_version(status: View, spec: View) -> Document:
    """Return the status with the storage version added to storedVersions (UPD-006)."""
    stored = list(status.get("storedVersions") or ())
    written = next((version["name"] for version in spec.get("versions") or () if version["storage"]), None)
    if written is not None and written not in stored:
        stored.append(written)
    return {**status, "storedVersions": stored or None}


def _prepare(new: Document, old: View | None) -> Document:
    metadata = new.setdefault("metadata", {})
    if old is None:
        new["status"] = _with_storage_version(_empty_status(), new["spec"])
        metadata["generation"] = 1
        return new
    before = old["metadata"].get("generation", 0)
    changed = not same(new["spec"], old["spec"]) and not same(empties.without_empty(new)["spec"], old["spec"])
    metadata["generation"] = before + changed
    new["status"] = _with_storage_version(clone(old.get("status") or _empty_status()), new["spec"])
    return new


def _prepare_status(new: Document, old: View | None) -> Document:
    assert old is not None, "the status endpoint has no create"
    # upstream: the status endpoint also writes metadata, except the generation (UPD-008)
    metadata = {**new.get("metadata", {}), "generation": old["metadata"].get("generation", 0)}
    kept = {**new, "metadata": metadata, "spec": clone(old["spec"])}
    status = new.get("status") or _empty_status()
    # upstream: reads fill in an empty storedVersions
    #
    # So a write of the status without storedVersions stores the list that reads show: the name of the storage version.
    if not status.get("storedVersions"):
        kept["status"] = _with_storage_version(status, old["spec"])
    return kept


def _endpoints(model: Model) -> dict[str, Endpoint]:
    return {
        "": Endpoint("", VERBS, model, project_all, embed_all, _prepare, reset={"f:status": EMPTY}),
        "status": Endpoint(
            "status", SUBRESOURCE_VERBS, model, project_all, embed_all, _prepare_status, reset={"f:spec": EMPTY}
        ),
    }


def _at(*path: str) -> Callable[[View], Any]:
    """Return a function that returns the string at a path, empty without a value."""

    def cell(document: View) -> Any:
        value: Any = document
        for name in path:
            value = (value or {}).get(name)
        return value or ""

    return cell


def _served_versions(document: View) -> str:
    served = [version for version in (document.get("spec") or {}).get("versions") or () if version.get("served")]
    return ",".join(sorted(f"{one['name']}(storage)" if one.get("storage") else one["name"] for one in served))


def _short_names(document: View) -> str:
    return ",".join(((document.get("spec") or {}).get("names") or {}).get("shortNames") or ())


_COLUMNS = (
    NAME,
    Column("Scope", "string", description="Cluster/Namespaced", cell=_at("spec", "scope")),
    Column("Versions", "string", description="Served versions", cell=_served_versions),
    CREATED_AT,
    Column("Group", "string", description="API group", priority=1, cell=_at("spec", "group")),
    Column("Kind", "string", description="CustomResource kind", priority=1, cell=_at("spec", "names", "kind")),
    Column("ShortNames", "string", description="Short names", priority=1, cell=_short_names),
    Column(
        "Established",
        "boolean",
        description="Established status",
        priority=1,
        cell=lambda document: is_true(document, ESTABLISHED),
    ),
)


# --- validation; the first write of a definition imports it (decision 36) ---


def _validate(new: View, old: View | None) -> list[FieldError]:
    from apiext.crd import validation

    return validation.validate(new, old)


def _validate_v1beta1(new: View, old: View | None) -> list[FieldError]:
    from apiext.crd import validation

    return validation.validate_v1beta1(new, old)


def _validate_status(new: View, old: View | None) -> list[FieldError]:
    from apiext.crd import validation

    return validation.validate_status(new, old)


def _warnings(new: View, old: View | None) -> list[str]:
    from apiext.crd import warnings

    return warnings.warnings(new, old)


def _stored_form_warnings(new: View, old: View | None) -> list[str]:
    from apiext.crd import warnings

    return warnings.stored_form_warnings(new, old)


# --- versions ---


def _v1() -> ServedVersion:
    codec = typed_codec(
        encoding.V1,
        KIND,
        read=encoding.from_storage,
        own=encoding.from_stored_form,
        write=encoding.to_storage,
        same=False,
    )
    return _version(
        "v1",
        codec,
        types.V1,
        decoding.decode_v1,
        Validation(_validate, _validate_status, warnings=_warnings),
        internal=lambda document: encoding.from_stored_form(encoding.to_storage(document)),
    )


def _v1beta1() -> ServedVersion:
    codec = typed_codec(
        encoding.V1BETA1,
        KIND,
        read=lambda stored: encoding.to_storage(encoding.from_storage(stored)),
        own=dict,
        write=lambda document: {**document, "apiVersion": encoding.V1BETA1},
        same=False,
    )
    return _version(
        "v1beta1",
        codec,
        types.V1BETA1,
        decoding.decode_v1beta1,
        Validation(_validate_v1beta1, _validate_status, warnings=_stored_form_warnings),
        deprecation=_V1BETA1_DEPRECATED,
    )


def _printed(encode: Callable[[Document], bytes]) -> Callable[[Document], bytes]:
    """Return an encoder that omits empty fields, as Go does."""

    def printed(document: Document) -> bytes:
        raw = encode(document)
        return encode(empties.without_empty(document)) if empties.may_hold_empty(raw) else raw

    return printed


def _version(
    version: str,
    codec: Codec,
    go: typed.Struct,
    decode: Callable[[Document], tuple[Document, list[str]]],
    validate: Validation,
    *,
    internal: Callable[[Document], Document] = lambda document: document,
    deprecation: str = "",
) -> ServedVersion:
    printed, api_version = _printed(codec.encode), f"{GROUP}/{version}"
    model = Model(
        api_version,
        KIND,
        decode,
        typed=True,
        columns=_COLUMNS,
        schema=lambda: definition_schema(version),
        merge_type=lazily(lambda: go_merge_type(go)),
        empty={**typed.decode(go, {})[0], "apiVersion": api_version, "kind": KIND},
        custom_decoded=lambda document: typed.custom_decoded(go, document),
    )
    return ServedVersion(
        Names(GROUP, version, PLURAL, KIND, f"{KIND}List", namespaced=False),
        model,
        replace(codec, encode=printed, to_store=printed),
        _endpoints(model),
        Shaping(complete=lambda document: decode(document)[0], internal=internal),
        validate,
        Published(
            singular="customresourcedefinition",
            short_names=("crd", "crds"),
            categories=("api-extensions",),
            verbs=VERBS,
            deprecation_warning=deprecation,
            selectable=selectable_fields((), namespaced=True),
        ),
        work=Work(slow=slow_until_imported("apiext.crd.validation")),
    )
