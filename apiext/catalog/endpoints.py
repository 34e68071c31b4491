"""Endpoints of custom and built-in resources: the object itself, its status, and its scale.

See SRV-004…010.
"""

from apiext.catalog.accessors import AccessorError, nested, split_path, with_nested
from apiext.catalog.columns import SCALE_COLUMNS
from apiext.catalog.merge_types import go_merge_type
from apiext.catalog.served import ALL_VERBS, Endpoint, Model
from apiext.documents.document import Document, View, clone
from apiext.documents.equality import same
from apiext.go_types import typed
from apiext.go_types.scalars import METADATA
from apiext.go_types.typed import INT32, Field, Struct, Text
from apiext.managedfields.fieldset import EMPTY
from apiext.managedfields.schemas import lazily
from apiext.meta.fields import FieldError, invalid

SUBRESOURCE_VERBS = ("get", "patch", "update")
# Replicas of the Scale from which a patch or apply of an object without replicas starts (see with_replicas). ``embed``
# refuses a Scale that still has this number.
_UNSET_REPLICAS = -(2**31)  # upstream: in a patch, the Scale of an object without replicas has this number
_MAX_INT32 = 2**31 - 1


def project_all(stored: View) -> View:
    """Return the stored object: the ``project`` of endpoints where clients see the whole object."""
    return stored


def embed_all(existing: View, shown: View) -> Document:
    """Return the given object: the ``embed`` of endpoints where clients write the whole object."""
    return shown if isinstance(shown, dict) else dict(shown)


def main(model: Model, status_subresource: bool, verbs: tuple[str, ...] = ALL_VERBS) -> Endpoint:
    """Return the endpoint of an object itself (SRV-004, SRV-005)."""

    def prepare(new: Document, old: View | None) -> Document:
        metadata = new.setdefault("metadata", {})
        if old is None:
            if status_subresource:
                new.pop("status", None)
            metadata["generation"] = 1
            return new
        if status_subresource:
            new.pop("status", None)
            if "status" in old:
                new["status"] = clone(old["status"])
        _count_change(new, old)
        return new

    reset = {"f:status": EMPTY} if status_subresource else EMPTY
    return Endpoint("", verbs, model, project_all, embed_all, prepare, reset=reset)


def _count_change(new: Document, old: View) -> None:
    before = old.get("metadata", {}).get("generation", 0)
    new["metadata"]["generation"] = before + (not same_content(new, old))


def same_content(new: View, old: View) -> bool:
    """Report whether two objects are equal, ignoring metadata."""
    if len(new) != len(old):
        return False
    for name, value in new.items():
        if name == "metadata":
            continue
        if name not in old:
            return False
        before = old[name]
        if value is not before and (value != before or not (value.__class__ is str or same(value, before))):
            return False  # != is fastest, but it ignores types: 1 == 1.0
    return True


def status(model: Model) -> Endpoint:
    """Return the status endpoint of an object; it changes only status and managedFields.

    See SRV-005.
    """

    def prepare(new: Document, old: View | None) -> Document:
        assert old is not None, "the status endpoint has no create"
        kept = {name: value for name, value in old.items() if name != "status"}
        kept["metadata"] = _with_managed_fields(old.get("metadata", {}), new.get("metadata", {}))
        if "status" in new:
            kept["status"] = new["status"]
        return kept

    reset = {"f:metadata": EMPTY, "f:spec": EMPTY}
    return Endpoint("status", SUBRESOURCE_VERBS, model, project_all, embed_all, prepare, reset=reset)


def _with_managed_fields(metadata: View, new: View) -> Document:
    kept = {name: value for name, value in metadata.items() if name != "managedFields"}
    if "managedFields" in new:
        kept["managedFields"] = new["managedFields"]
    return kept


def scale(settings: View, *, status_subresource: bool = True) -> Endpoint:
    """Return the scale endpoint: an autoscaling/v1 Scale to read and write the replicas.

    See SRV-007, SRV-008. As in upstream, a write increases the generation as a write of the object itself does. If the
    object has no replicas in its spec, a get returns a 500, and admission plug-ins receive a Scale without replicas. A
    patch or apply then changes a Scale whose replicas are the lowest int32 (see with_replicas).
    """
    spec_path, status_path = settings["specReplicasPath"], settings["statusReplicasPath"]
    spec_fields, status_fields = split_path(spec_path), split_path(status_path)
    selector_path = settings.get("labelSelectorPath") or ""
    selector_fields = split_path(selector_path) if selector_path else ()

    def project(stored: View) -> View:
        metadata = stored.get("metadata", {})
        shown: Document = {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {name: metadata[name] for name in _SCALE_METADATA if metadata.get(name)},
            "spec": _replicas(nested(stored, spec_fields, int) or 0, omit_zero=True),
            "status": _replicas(nested(stored, status_fields, int) or 0, omit_zero=False),
        }
        selector = nested(stored, selector_fields, str) if selector_fields else None
        if selector:
            shown["status"]["selector"] = selector
        return shown

    def embed(existing: View, shown: View) -> Document:
        replicas = (shown.get("spec") or {}).get("replicas", 0)
        if replicas == _UNSET_REPLICAS:
            raise ValueError(f'the spec replicas field "{spec_path}" cannot be empty')
        return with_nested(existing, spec_fields, replicas)

    def prepare(new: Document, old: View | None) -> Document:
        assert old is not None, "the scale endpoint has no create"
        return main_prepare(new, old)

    def unreadable(stored: View) -> str:
        try:
            missing = nested(stored, spec_fields, int) is None
            project(stored)
        except AccessorError as error:
            return str(error)
        return f'Internal error occurred: the spec replicas field "{spec_path}" does not exist' if missing else ""

    main_prepare = main(SCALE_MODEL, status_subresource).prepare
    return Endpoint(
        "scale",
        SUBRESOURCE_VERBS,
        SCALE_MODEL,
        project,
        embed,
        prepare,
        partial=True,
        unreadable=unreadable,
        replicas=tuple(spec_fields),
    )


def with_replicas(endpoint: Endpoint, shown: View, stored: View) -> Document:
    """Return the Scale that a patch or apply changes (SRV-008).

    If the stored object has no replicas in its spec, the replicas of the Scale are the lowest int32.
    """
    missing = nested(stored, endpoint.replicas, int) is None
    return {**shown, "spec": {"replicas": _UNSET_REPLICAS}} if missing else {**shown}


_SCALE_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def _replicas(count: int, *, omit_zero: bool) -> Document:
    wrapped = (count + 2**31) % 2**32 - 2**31  # upstream: int32(count)
    return {"replicas": wrapped} if wrapped or not omit_zero else {}


def decode_scale(document: Document) -> tuple[Document, list[str]]:
    """Return the known fields of the body of a Scale, and the paths of the unknown fields.

    Raises ValueError with the complete error message if the body is not a Scale, or a value has a wrong type.
    """
    kind, version = document.get("kind", "Scale"), document.get("apiVersion", "autoscaling/v1")
    if (kind, version) in _OLD_SCALES:
        raise ValueError(f"converting ({version.partition('/')[2]}.Scale) to (v1.Scale): unknown conversion")
    if (kind, version) != ("Scale", "autoscaling/v1"):
        text = f'no kind "{kind}" is registered for version "{version}"'
        raise ValueError(f'{text} in scheme "pkg/runtime/scheme.go:111"')
    return typed.decode(SCALE, document)


_OLD_SCALES = tuple(("Scale", version) for version in ("extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"))


_SCALE_STATUS = Struct("ScaleStatus", {"replicas": Field(INT32, always=True), "selector": Field(Text())})
SCALE = Struct(
    "Scale",
    {
        "kind": Field(Text()),
        "apiVersion": Field(Text()),
        "metadata": Field(METADATA, always=True),
        "spec": Field(Struct("ScaleSpec", {"replicas": Field(INT32)}), always=True),
        "status": Field(_SCALE_STATUS, always=True),
    },
)


SCALE_MODEL = Model(
    "autoscaling/v1",
    "Scale",
    decode_scale,
    typed=True,
    columns=SCALE_COLUMNS,
    merge_type=lazily(lambda: go_merge_type(SCALE)),
)


def scale_errors(settings: View, document: View, *, spec: bool = True) -> list[FieldError]:
    """Return the validation errors of the fields that the scale endpoint reads (SRV-009).

    If ``spec`` is false, the replicas in the spec are not validated.
    """
    errors: list[FieldError] = []
    for path in ((settings["specReplicasPath"],) if spec else ()) + (settings["statusReplicasPath"],):
        errors += _replica_errors(path, document)
    selector = settings.get("labelSelectorPath") or ""
    if selector:
        try:
            nested(document, split_path(selector), str)
        except AccessorError as error:
            errors.append(invalid(selector, "", str(error)))
    return errors


def _replica_errors(path: str, document: View) -> list[FieldError]:
    try:
        count = nested(document, split_path(path), int) or 0
    except AccessorError as error:
        return [invalid(path, 0, str(error))]
    if count < 0:
        return [invalid(path, count, "should be a non-negative integer")]
    if count > _MAX_INT32:
        return [invalid(path, count, f"should be less than or equal to {_MAX_INT32}")]
    return []
