"""Compute the managedFields of one write from the stored object and the requested object.

See SSA-001…016.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from apiext.documents.document import Document, View
from apiext.documents.encoding import DecodeError, decode_json, encode
from apiext.managedfields import entries, limits, typed, updater
from apiext.managedfields.comparison import SIMPLE, Comparison, compare
from apiext.managedfields.entries import APPLY, UPDATE, EntryError, Manager, Managers, Owned, manager_of
from apiext.managedfields.fieldset import EMPTY, FieldSet, difference, includes, of, union
from apiext.managedfields.fieldsv1 import MAX_DEPTH, is_too_deep
from apiext.managedfields.typed import TypeFault, check
from apiext.managedfields.types import NOTHING, Type
from apiext.managedfields.updater import Conflicts, Losses, MissingVersion, Versions, Write
from apiext.meta import limits as meta_limits
from apiext.meta import objectmeta
from apiext.schema import limits as schema_limits
from apiext.text.quotes import html_escaped

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"
_BEFORE_APPLY = "before-first-apply"
NEVER_OWNED = of(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",)]
    + [
        ("f:metadata", f"f:{name}")
        for name in (
            "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
            "resourceVersion",
        )
    ]
)  # fmt: skip
_TOO_DEEP = f"fields are nested deeper than {MAX_DEPTH} levels"


class ApplyError(Exception):
    """The error of an apply that fails; the text is that of upstream's 500 response."""


class BadApply(Exception):
    """The error of an invalid body of an apply, such as another kind or values of wrong types.

    Upstream responds with a 500 to values of wrong types.
    """


class _TooDeep(ValueError):
    """The error of an update whose fields are nested deeper than MAX_DEPTH."""


class Writer(Struct, frozen=True):
    """The field manager of a write, with the endpoint, the version and the time of the write.

    ``versions`` are all versions of the resource. ``name`` is the name of the manager. ``now`` is the time in seconds,
    in the format of RFC 3339.
    """

    versions: Versions
    api_version: str
    kind: str
    name: str
    subresource: str
    now: str

    def of(self, operation: str) -> Manager:
        """Return the manager of the writer for an operation."""
        return manager_of(self.name, operation, self.api_version, self.subresource)


def track(writer: Writer, live: View, new: View, *, creating: bool) -> list[Document]:
    """Return the managedFields after a write that is not an apply; the list may be empty.

    For a create, ``live`` is the empty object of the kind. An update of an object without managers is not tracked. If
    an object does not fit its types or cannot be converted, return the managedFields of the live object (upstream:
    UpdateNoErrors). The result may share parts with the arguments and with a cache.
    """
    given = _entries_of(new) if not writer.subresource else None
    given = [] if entries.is_reset(given) else given or _entries_of(live) or []
    try:
        if not given:
            return _created(writer, live, new) if creating else []
        write, before, after, changes = _compared(writer, live, new)
        managers = _managers_before(writer, live, new)
        if not managers:
            return _first_entry(write, changes, writer.now) if creating else []
        return entries.encode(_updated(write, before, after, managers, changes, writer.now))
    except (ApplyError, TypeFault, MissingVersion, ValueError):
        return _entries_of(live) or []


def _created(writer: Writer, live: View, new: View) -> list[Document]:
    """Return the managedFields of a new object.

    Raise the errors of ``_compared`` and ``_first_entry``.
    """
    version, new = writer.api_version, _bare(new)
    of_type, reset = writer.versions.type_of(version), writer.versions.reset(version)
    budget = [schema_limits.SHAPE_MEMBERS]
    key = (writer.name, version, writer.subresource, of_type, _shape(new, budget))
    cached = _CREATED.get(key)
    if cached is not None and cached[0] is reset and _TYPE_META.issuperset(live):
        entry = cached[1]
        return [{**entry, "time": writer.now, "fieldsV1": {**entry["fieldsV1"]}}]
    write, _, _, changes = _compared(writer, live, new)
    found = _first_entry(write, changes, writer.now)
    small = found and budget[0] >= 0 and len(repr(key[-1])) <= limits.OWNERSHIP_CHARACTERS
    if small and _TYPE_META.issuperset(live) and _is_owned_by_shape(of_type, new):
        if len(_CREATED) >= limits.OWNERSHIPS_SEEN:
            _CREATED.clear()
        _CREATED[key] = reset, found[0]
    return found


_CREATED: dict[Any, tuple[FieldSet, Document]] = {}
"""Cache: (manager, version, subresource, merge type, shape of a new object) → (reset fields, managedFields entry).

The reset fields are those that the endpoint resets (Versions.reset): no manager can own them.
"""

_TYPE_META = frozenset(("apiVersion", "kind"))
_CONTAINERS = frozenset((dict, list))


def _shape(value: Any, budget: list[int]) -> Any:
    """Return the shape of a value: the names and classes of all fields and items.

    ``budget[0]`` is the number of containers, fields and items that may still be visited. Stop if it becomes negative.
    """
    budget[0] -= len(value) + 1
    if budget[0] < 0:
        return ()
    names, items = ((*value,), value.values()) if value.__class__ is dict else (None, value)
    kinds = (*map(type, items),)
    if SIMPLE.issuperset(kinds):
        return names, kinds, ()
    return names, kinds, (*[_shape(one, budget) for one in items if one.__class__ in _CONTAINERS],)


def _is_owned_by_shape(of_type: Type, value: Any) -> bool:
    """Return whether the ownership of a value depends only on its shape, not on values in lists."""
    if value.__class__ is list:
        return not value or of_type.list is None or not of_type.list.granular
    if value.__class__ is not dict or of_type.map is None or not of_type.map.granular:
        return True
    member = of_type.map.member
    return all(_is_owned_by_shape(member(name) or NOTHING, item) for name, item in value.items())


def _first_entry(write: Write, changes: Comparison, now: str) -> list[Document]:
    """Return a list with the entry of the first manager of an object.

    Return an empty list if the manager would own no field. Raise _TooDeep.
    """
    own = changes.without(write.versions.reset(write.api_version))
    fields = difference(union(own.modified, own.added), NEVER_OWNED)
    if is_too_deep(fields):
        raise _TooDeep(_TOO_DEEP)
    return [entries.entry(write.manager, Owned(write.api_version, fields, now))] if fields else []


def _managers_before(writer: Writer, live: View, new: View) -> Managers:
    """Return the managers before the write: those of the request, else those of the live object.

    See SSA-007. Return no managers if the request resets them. Ignore the managers in a request for a subresource, and
    those that cannot be decoded.
    """
    if not writer.subresource:
        given = _entries_of(new)
        if entries.is_reset(given):
            return {}
        managers = entries.readable(given)
        if managers:
            return managers
    return entries.readable(_entries_of(live))


def _entries_of(document: View) -> Any:
    metadata = document.get("metadata")
    return metadata.get("managedFields") if isinstance(metadata, dict) else None


def _bare(document: View) -> Document:
    """Return the object without its managedFields."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return document if isinstance(document, dict) else dict(document)
    bare = {**metadata}
    del bare["managedFields"]
    return {**document, "metadata": bare}


def _compared(writer: Writer, live: View, new: View) -> tuple[Write, View, View, Comparison]:
    """Return the write, both objects without managedFields, and their comparison.

    Raise ApplyError with upstream's text.
    """
    before, after = _bare(live), _bare(new)
    of_type = writer.versions.type_of(writer.api_version)
    try:
        check(of_type, after)
    except TypeFault as fault:
        raise ApplyError(f"failed to convert new object ({go_name(new)}) to smd typed: {fault}") from fault
    write = Write(writer.versions, writer.api_version, of_type, writer.of(UPDATE))
    try:
        return write, before, after, updater.compared(write, before, after)
    except ValueError as fault:
        raise _not_updated(new, fault) from fault


def _updated(write: Write, live: View, new: View, managers: Managers, changes: Comparison, now: str) -> Managers:
    """Return the managers after an update with these changes.

    Raise ApplyError with upstream's text.
    """
    try:
        managers, losses = updater.after(write, live, new, managers, changes)
        return _claimed(write, managers, losses, now)
    except ValueError as fault:
        raise _not_updated(new, fault) from fault


def _claimed(write: Write, managers: Managers, losses: Losses, now: str) -> Managers:
    """Return the managers after the writer has taken ownership of its changes. Raise _TooDeep."""
    changed, gone = losses
    fields = difference(changed, NEVER_OWNED)
    if is_too_deep(fields):
        raise _TooDeep(_TOO_DEEP)
    own = managers.pop(write.manager, None) or Owned(write.api_version, EMPTY)
    kept = difference(own.fields if fields is changed else difference(own.fields, changed), gone)
    if not includes(kept, fields):  # fast path: most writers already own the fields that they change
        kept = union(fields, kept)
    if kept:
        managers[write.manager] = Owned(write.api_version, kept, now if fields else own.time)
    return entries.capped(managers)


def _not_updated(new: View, fault: ValueError) -> ApplyError:
    if isinstance(fault, _TooDeep):
        return ApplyError(str(fault))
    return ApplyError(f"failed to update ManagedFields ({go_name(new)}): {fault}")


def apply(writer: Writer, live: View, patch: View, empty: View, *, force: bool) -> tuple[Document, bool]:
    """Apply ``patch``; return (merged object with managedFields, whether a field changed).

    ``empty`` is the empty object of the kind; ``live`` equals ``empty`` if the object does not exist. Raise Conflicts,
    BadApply and ApplyError.
    """
    try:
        managers = entries.decode(_entries_of(live))
    except EntryError as error:
        raise ApplyError(f"failed to decode managed fields: {error}") from error
    if (patch.get("apiVersion"), patch.get("kind")) != (writer.api_version, writer.kind):
        raise BadApply(f"invalid object type: {go_kind(patch)}")
    live = _bare(live)
    if not managers:
        managers = _initial_managers(writer, live, empty)
    try:
        new, managers = _applied(writer, live, patch, managers, force=force)
    except Conflicts as conflicts:
        if writer.name != _KUBECTL:
            raise
        _allow_own(writer, live, conflicts)
        new, managers = _applied(writer, live, patch, managers, force=True)
    found: Document = {**(live if new is None else new)}
    metadata = found["metadata"] = dict(found.get("metadata") or {})
    if writer.name == _KUBECTL and (metadata.get("annotations") or {}).get(LAST_APPLIED):
        metadata["annotations"] = _with_last_applied(metadata["annotations"], patch)
    owners = entries.encode(managers)
    if owners:
        metadata["managedFields"] = owners
    return found, new is not None


def _initial_managers(writer: Writer, live: View, empty: View) -> Managers:
    """Return the managers for an object that has none (SSA-006).

    The manager ``before-first-apply`` owns all fields of the object.
    """
    writer = replace(writer, name=_BEFORE_APPLY)
    try:
        write, before, after, changes = _compared(writer, empty, live)
        return _updated(write, before, after, _managers_before(writer, empty, live), changes, writer.now)
    except ApplyError as error:
        raise ApplyError(f"failed to create manager for existing fields: {error}") from error


def _are_readable(given: Any) -> bool:
    """Return whether managedFields can be decoded.

    As upstream, the server refuses an apply with managedFields, but ignores managedFields that cannot be decoded.
    """
    if not isinstance(given, list) or not all(isinstance(entry, dict) for entry in given):
        return False
    try:
        objectmeta.coerce({"managedFields": given})
    except DecodeError:
        return False
    return True


def _applied(
    writer: Writer, live: View, patch: View, managers: Managers, *, force: bool
) -> tuple[Document | None, Managers]:
    """Return (merged object or None if it equals the live object, managers)."""
    if _are_readable(_entries_of(patch)):
        raise BadApply("metadata.managedFields must be nil")
    of_type = writer.versions.type_of(writer.api_version)
    try:
        check(of_type, patch, duplicates=False)
    except TypeFault as fault:
        raise BadApply(f"failed to create typed patch object ({go_name(patch)}): {fault}") from fault
    try:
        check(of_type, live, checked=patch)
    except TypeFault as fault:
        raise ApplyError(f"failed to create typed live object ({go_name(live)}): {fault}") from fault
    manager = writer.of(APPLY)
    write = Write(writer.versions, writer.api_version, of_type, manager)
    try:
        new, managers = updater.apply(write, live, patch, managers, force=force)
    except (TypeFault, ValueError) as fault:
        raise ApplyError(str(fault)) from fault
    owned = managers.pop(manager, None)
    fields = difference(owned.fields, NEVER_OWNED) if owned is not None else {}
    if is_too_deep(fields):
        raise BadApply(_TOO_DEEP)
    if owned is not None and fields:
        managers[manager] = Owned(writer.api_version, fields, owned.time if new is None else writer.now)
    return new, managers


def _allow_own(writer: Writer, live: View, conflicts: Conflicts) -> None:
    """Raise the conflicts, except those about fields of kubectl's earlier client-side apply.

    See SSA-016.
    """
    allowed = _last_applied_fields(writer, live)
    if allowed is None:
        raise conflicts
    left = {manager: paths for manager, lost in conflicts.owned.items() if (paths := difference(lost, allowed))}
    if left:
        raise Conflicts(left) from conflicts


def _last_applied_fields(writer: Writer, live: View) -> FieldSet | None:
    """Return the last-applied annotation's fields that have the same values in the live object.

    Return None without a usable annotation.
    """
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    of_type = writer.versions.type_of(writer.api_version)
    try:
        last = decode_json(text.encode())[0] if text else None
        if not isinstance(last, dict) or not last.get("kind") or last.get("apiVersion") != writer.api_version:
            return None
        check(of_type, live, duplicates=False)
        check(of_type, last, duplicates=False)
    except (DecodeError, TypeFault):
        return None
    changes = compare(of_type, last, live)
    fields = typed.fields_of(of_type, last)
    for changed in (changes.modified, changes.added, changes.removed):
        fields = difference(fields, changed)
    return fields


def _with_last_applied(annotations: View, patch: View) -> Document:
    """Return the annotations with kubectl's last-applied annotation updated.

    Omit this annotation if all annotations together would have more than MAX_ANNOTATIONS bytes.
    """
    metadata = dict(patch.get("metadata") or {})
    own = metadata.pop("annotations", None)
    if isinstance(own, dict):
        metadata["annotations"] = {name: item for name, item in own.items() if name != LAST_APPLIED}
    found = {**annotations, LAST_APPLIED: html_escaped(encode({**patch, "metadata": metadata}).decode()) + "\n"}
    if sum(len(f"{name}{item}".encode()) for name, item in found.items()) > meta_limits.MAX_ANNOTATIONS:
        del found[LAST_APPLIED]
    return found


def go_name(document: View) -> str:
    """Return the name of an object in errors: ``namespace/name; group/version, Kind=kind``."""
    metadata = document.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    namespace, name = (item if isinstance(item, str) else "" for item in (found.get("namespace"), found.get("name")))
    return f"{namespace or ''}/{name or ''}; {go_kind(document)}"


def go_kind(document: View) -> str:
    """Return apiVersion and kind as Go prints a GroupVersionKind."""
    api_version, kind = (
        item if isinstance(item, str) else "" for item in (document.get("apiVersion"), document.get("kind"))
    )
    if api_version.count("/") > 1:
        api_version = kind = ""
    return f"{api_version if '/' in api_version else f'/{api_version}'}, Kind={kind}"
