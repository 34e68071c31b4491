"""The resource namespaces (NSP-001…006)."""

from typing import Any

from apiext.catalog.builtin import core
from apiext.catalog.builtin.open_api import namespace_schema
from apiext.catalog.columns import BUILTIN_AGE, NAME
from apiext.catalog.compile import storage_version_hash
from apiext.catalog.endpoints import SUBRESOURCE_VERBS, embed_all, project_all
from apiext.catalog.merge_types import go_merge_type
from apiext.catalog.served import (
    Column,
    Endpoint,
    Model,
    Names,
    Published,
    ServedResource,
    ServedVersion,
    Shaping,
    Traits,
    Validation,
)
from apiext.catalog.typed import typed_codec
from apiext.documents.document import Document, View, clone
from apiext.go_types import typed
from apiext.go_types.tables import types_of
from apiext.managedfields.fieldset import EMPTY
from apiext.managedfields.schemas import lazily
from apiext.meta.fields import Errors, FieldError, invalid, item
from apiext.meta.objectmeta import CHANGE, WHOLE
from apiext.meta.syntax import dns1123_label, qualified_name

KIND = "Namespace"
FINALIZER = "kubernetes"
NAME_LABEL = "kubernetes.io/metadata.name"
VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
TYPE = types_of("namespace").root(KIND)


def namespaces_resource() -> ServedResource:
    """Return the resource namespaces."""
    versions = {"v1": _v1()}
    return ServedResource("", "namespaces", False, versions, "v1", builtin=True, all_versions=versions)


def default(document: Document) -> Document:
    """Set the defaults of a namespace in place, and return the namespace.

    The defaults are the label NAME_LABEL, and the phase (NSP-002).
    """
    metadata = document["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), NAME_LABEL: metadata["name"]}
    document["status"] = {**document["status"], "phase": _phase(document) or "Active"}
    return document


def _decode(document: Document) -> tuple[Document, list[str]]:
    decoded, unknown = typed.decode(TYPE, document)
    return default(decoded), unknown


def _read(stored: View) -> Document:
    decoded: Document = typed.decode(TYPE, stored)[0]
    return default(decoded)


def _prepare(new: Document, old: View | None) -> Document:
    if old is not None:
        new["spec"], new["status"] = clone(old.get("spec") or {}), clone(old.get("status") or {})
        return new
    finalizers = list((new.get("spec") or {}).get("finalizers") or ())
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    new["spec"], new["status"] = {"finalizers": finalizers}, {"phase": "Active"}
    return default(new)


def _keeping(part: str) -> Any:
    def prepare(new: Document, old: View | None) -> Document:
        assert old is not None, "this endpoint has no create"
        return {**new, part: clone(old.get(part) or {})}

    return prepare


def _endpoints(model: Model) -> dict[str, Endpoint]:
    show, take = project_all, embed_all
    of_spec, of_status = {"f:spec": EMPTY}, {"f:status": EMPTY}
    return {
        "": Endpoint("", VERBS, model, show, take, _prepare, reset=of_status, metadata_checks=(WHOLE, CHANGE)),
        "status": Endpoint("status", SUBRESOURCE_VERBS, model, show, take, _keeping("spec"), reset=of_spec),
        "finalize": Endpoint("finalize", ("update",), model, show, take, _keeping("status"), reset=of_status),
    }


def _validate(new: View, old: View | None) -> list[FieldError]:
    errors = Errors()
    for index, name in enumerate((new.get("spec") or {}).get("finalizers") or ()):
        # upstream: the field of an error has an index only in an update
        path = item("spec.finalizers", index) if old is not None else "spec.finalizers"
        errors += (invalid(path, name, fault) for fault in qualified_name(name))
        if "/" not in name and name not in core.STANDARD_FINALIZERS:
            errors.append(invalid(path, name, core.UNQUALIFIED))
    return errors


def _validate_status(new: View, old: View | None) -> list[FieldError]:
    deleting = bool((new.get("metadata") or {}).get("deletionTimestamp"))
    wanted, state = ("Terminating", "not empty") if deleting else ("Active", "empty")
    phase = _phase(new)
    if phase == wanted:
        return []
    return [invalid("status.Phase", phase, f"may only be '{wanted}' if `deletionTimestamp` is {state}")]


def _phase(document: View) -> str:
    return (document.get("status") or {}).get("phase") or ""


def _v1() -> ServedVersion:
    model = Model(
        "v1",
        KIND,
        _decode,
        typed=True,
        columns=(
            NAME,
            Column("Status", "string", description="The status of the namespace", cell=_phase),
            BUILTIN_AGE,
        ),
        schema=namespace_schema,
        merge_type=lazily(lambda: go_merge_type(TYPE)),
        empty={**typed.decode(TYPE, {})[0], "apiVersion": "v1", "kind": KIND},
        merge_keys={"status.conditions": "type"},
    )
    return ServedVersion(
        Names("", "v1", "namespaces", KIND, "NamespaceList", namespaced=False),
        model,
        typed_codec("v1", KIND, read=_read, own=dict, write=dict, same=True),
        _endpoints(model),
        Shaping(complete=lambda document: _decode(document)[0], named=default),
        Validation(_validate, _validate_status, names=dns1123_label, metadata=core.finalizer_errors),
        Published(
            singular="namespace",
            short_names=("ns",),
            verbs=VERBS,
            storage_version_hash=storage_version_hash("", "v1", KIND),
            selectable={
                "metadata.name": lambda document: str((document.get("metadata") or {}).get("name", "")),
                "status.phase": _phase,
            },
        ),
        Traits(unconditional=True, returns_deleted=True),
    )
