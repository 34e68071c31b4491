"""Decode, repair and validate object metadata as Go's ObjectMeta (MET-001…003, WRI-003)."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from apiext.documents.document import Document, View
from apiext.documents.encoding import DecodeError, encode, json_kind
from apiext.documents.integral import integral
from apiext.meta import limits, time
from apiext.meta.fields import INVALID, Errors, FieldError, Named, forbidden, invalid, not_supported, required, too_long
from apiext.meta.names import parse_group_version
from apiext.meta.options import field_manager_errors
from apiext.meta.syntax import (
    dns1123_label,
    dns1123_subdomain,
    is_plain,
    label_value,
    lower,
    path_segment,
    qualified_name,
)
from apiext.text.quotes import go_quote

NameValidator = Callable[[str], list[str]]
# the two validations of the metadata of an update: CHANGE validates the changes, WHOLE all fields as on create
CHANGE, WHOLE = "change", "whole"
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


class _Position:
    """The position of a value in a document.

    Errors contain ``struct``, the name of the Go struct, and ``go_path``. Reports of unknown fields contain ``path``.
    For an item of a list, ``above`` is the position of the list, and ``index`` is the index of the item. Paths are
    joined only when they are printed.
    """

    __slots__ = ("_above", "_go_path", "_path", "index", "struct", "unknown")

    def __init__(
        self, path: str, go_path: str, struct: str, unknown: list[str], above: "_Position | None" = None
    ) -> None:
        self._path = path
        self._go_path = go_path
        self._above = above
        self.index = 0
        self.struct = struct
        self.unknown = unknown

    @property
    def path(self) -> str:
        """Return the path for unknown fields."""
        above = self._above
        return self._path if above is None else f"{above.path}.{self._path}[{self.index}]"

    @property
    def go_path(self) -> str:
        """Return Go's path, with a trailing dot unless it is empty."""
        above = self._above
        return self._go_path if above is None else f"{above.go_path}{self._go_path}"

    def type_error(self, value: Any, name: str, go: str, form: str = "") -> DecodeError:
        """Return the error of a field of a wrong type; its Go type is ``go``.

        ``form`` is the form of the Go type for ``DecodeError.misfit``: map, slice, struct, or by default ``go``.
        """
        kind = json_kind(value)
        if kind == "number" and go == "int64":
            shown = str(value) if value.__class__ is int else encode(value).decode()
            kind = f"number {shown}"  # as upstream, which encodes the decoded number again
        place = f"{self.struct}.{self.go_path}{name}"
        error = DecodeError(f"json: cannot unmarshal {kind} into Go struct field {place} of type {go}")
        return error.misfit(value, go, form or go)


Reader = Callable[[Any, str, _Position], Any]
"""(value, field name, position) → normalized value, or None if Go omits the field. Raises DecodeError."""


_UNCHANGED: set[Reader] = set()  # readers that return any non-empty string unchanged


class _Fields(dict[str, Reader]):
    """The fields of a struct, with their readers.

    ``texts`` are the names of fields whose readers return any non-empty string unchanged.
    """

    def __init__(self, **readers: Reader) -> None:
        super().__init__(readers)
        self.texts = frozenset(name for name, read in readers.items() if read in _UNCHANGED)


def _string(go: str = "string", *, kept: bool = False) -> Reader:
    def read(value: Any, name: str, position: _Position) -> Any:
        if value.__class__ is not str:
            raise position.type_error(value, name, go, "string")
        return value if value or kept else None

    _UNCHANGED.add(read)
    return read


def _int64(value: Any, name: str, position: _Position) -> Any:
    # as upstream, which encodes the decoded metadata of a custom object again: 1.0 becomes 1
    if value.__class__ is float and not position.go_path:
        value = integral(value)
    if value.__class__ is not int or not _INT_MIN <= value <= _INT_MAX:
        raise position.type_error(value, name, "int64")
    return value


def _generation(value: Any, name: str, position: _Position) -> Any:
    return _int64(value, name, position) or None


def _bool(value: Any, name: str, position: _Position) -> Any:
    if value.__class__ is not bool:
        raise position.type_error(value, name, "bool")
    return value


def _time(value: Any, name: str, position: _Position) -> Any:
    if value.__class__ is not str:
        error = position.type_error(value, name, "string")
        error.restored = (
            # not the text of ``misfit``, since metav1.Time has its own decoder
            f"json: cannot unmarshal {json_kind(value)} into Go value of type string"
        )
        raise error
    try:
        return time.normalize(value) or None
    except ValueError as error:
        raise DecodeError(str(error)) from error


def _strings_map(value: Any, name: str, position: _Position) -> Any:
    if value.__class__ is not dict:
        raise position.type_error(value, name, "map[string]string", "map")
    for item in value.values():
        if item.__class__ is not str and item is not None:
            raise position.type_error(item, name, "string")
    if None in value.values():
        return {key: item or "" for key, item in value.items()}
    return value or None


def _strings(value: Any, name: str, position: _Position) -> Any:
    if value.__class__ is not list:
        raise position.type_error(value, name, "[]string", "slice")
    for item in value:
        if item.__class__ is not str and item is not None:
            raise position.type_error(item, name, "string")
    if None in value:
        return [item or "" for item in value]
    return value or None


def _structs(go: str, members: _Fields, always: Sequence[str] = ()) -> Reader:
    """Return the reader of a list of structs.

    ``always`` are fields that Go writes even if they are empty.
    """

    def read(value: Any, name: str, position: _Position) -> Any:
        if value.__class__ is not list:
            raise position.type_error(value, name, f"[]v1.{go}", "slice")
        found = []
        inner = _Position(name, f"{name}.", go, position.unknown, position)
        for index, item in enumerate(value):
            inner.index = index
            if item is not None and item.__class__ is not dict:
                raise position.type_error(item, name, f"v1.{go}", "struct")
            entry = _struct(item or {}, members, inner)
            for member in always:
                entry.setdefault(member, "")
            found.append(entry)
        return found or None

    return read


def _anything(value: Any, name: str, position: _Position) -> Any:
    del name, position
    return value


_OWNER = _Fields(
    apiVersion=_string(kept=True),
    kind=_string(kept=True),
    name=_string(kept=True),
    uid=_string("types.UID", kept=True),
    controller=_bool,
    blockOwnerDeletion=_bool,
)
_MANAGED = _Fields(
    manager=_string(),
    operation=_string("v1.ManagedFieldsOperationType"),
    apiVersion=_string(),
    time=_time,
    fieldsType=_string(),
    fieldsV1=_anything,
    subresource=_string(),
)
_MEMBERS = _Fields(
    name=_string(),
    generateName=_string(),
    namespace=_string(),
    selfLink=_string(),
    uid=_string("types.UID"),
    resourceVersion=_string(),
    generation=_generation,
    creationTimestamp=_time,
    deletionTimestamp=_time,
    deletionGracePeriodSeconds=_int64,
    labels=_strings_map,
    annotations=_strings_map,
    ownerReferences=_structs("OwnerReference", _OWNER, ("apiVersion", "kind", "name", "uid")),
    finalizers=_strings,
    managedFields=_structs("ManagedFieldsEntry", _MANAGED),
)


def _struct(given: View, members: _Fields, position: _Position) -> Document:
    found: Document = {}
    texts = members.texts
    for name, value in given.items():
        if name in texts and value and value.__class__ is str:
            found[name] = value
            continue
        read = members.get(name)
        if read is None:
            position.unknown.append(f"{position.path}.{name}")
            continue
        if value is None:
            continue
        kept = read(value, name, position)
        if kept is not None:
            found[name] = kept
    return found


def coerce(metadata: Any, path: str = "metadata", go_path: str = "") -> tuple[Document, list[str]]:
    """Return metadata as Go's ObjectMeta encodes it, and the paths of unknown fields.

    See MET-001, MET-003. ``path`` is the prefix of unknown paths. ``go_path`` is the prefix of Go's dotted paths in
    errors: ``metadata.`` for Go types, empty for custom objects, whose unknown paths are sorted. Raise DecodeError with
    Go's text. The result shares values with the argument.
    """
    if metadata is None:
        return {}, []
    if metadata.__class__ is not dict:
        raise DecodeError(f"json: cannot unmarshal {json_kind(metadata)} into Go value of type v1.ObjectMeta")
    unknown: list[str] = []
    position = _Position(path, go_path, "ObjectMeta", unknown)
    try:
        found = _struct(metadata, _MEMBERS, position)
    except DecodeError:
        # Raise the error that upstream reports: of the first invalid time, else of the first invalid field. For custom
        # objects, the first field is that in sorted order.
        # upstream: decodes custom objects in sorted order and reports the first error, but first an invalid time
        members = metadata if go_path else orjson.loads(encode(metadata))
        _check_times(members, position)
        _struct(members, _MEMBERS, position)
        raise
    return found, unknown if go_path else sorted(unknown)


def _check_times(members: View, position: _Position) -> None:
    for name, value in members.items():
        if _MEMBERS.get(name) is _time and value is not None:
            _time(value, name, position)
        elif name == "managedFields" and value.__class__ is list:
            inner = _Position(name, f"{name}.", "ManagedFieldsEntry", [], position)
            for entry in value:
                if entry.__class__ is dict and entry.get("time") is not None:
                    _time(entry["time"], "time", inner)


def in_go_order(metadata: View) -> Document:
    """Return metadata with fields in the order of Go's structs, also in owners and managers."""
    found = _ordered(metadata, _MEMBERS)
    for name, members in (("ownerReferences", _OWNER), ("managedFields", _MANAGED)):
        if name in found:
            found[name] = [_ordered(entry, members) for entry in found[name]]
    return found


def _ordered(given: View, members: Mapping[str, Reader]) -> Document:
    return {name: given[name] for name in members if name in given}


def repair(metadata: Any) -> Document:
    """Return normalized metadata without malformed and unknown fields (MET-002).

    Omit a generation of 0; the code that reads custom objects from storage sets it to 1.
    """
    if metadata.__class__ is not dict:
        return {}
    position = _Position("metadata", "", "ObjectMeta", [])
    try:
        return _struct(metadata, _MEMBERS, position)
    except DecodeError:
        pass
    found: Document = {}
    for name, value in metadata.items():
        try:
            found |= _struct({name: value}, _MEMBERS, position)
        except DecodeError:
            continue
    return found


def validate(
    metadata: View, namespaced: bool, name_validator: NameValidator = dns1123_subdomain, path: str = "metadata"
) -> list[FieldError]:
    """Return the validation errors of new metadata, in upstream's order (WRI-003, VAL-013)."""
    name, namespace = metadata.get("name"), metadata.get("namespace")
    found = Errors()
    if prefix := metadata.get("generateName"):
        dashed = len(prefix) > 1 and prefix.endswith("-")  # valid, since the generated suffix follows the dash
        faults = name_validator(f"{prefix[:-2]}a" if dashed else prefix)
        found += (invalid(f"{path}.generateName", prefix, fault) for fault in faults)
    if not name:
        found.append(required(f"{path}.name", "name or generateName is required"))
    elif faults := name_validator(name):
        found += (invalid(f"{path}.name", name, fault) for fault in faults)
    if not (namespace and namespaced) or _label(namespace):
        found += _namespace_errors(namespace, namespaced, f"{path}.namespace")
    if metadata.get("generation", 0) < 0:
        found.append(invalid(f"{path}.generation", metadata["generation"], _NEGATIVE))
    found += _common_errors(metadata, path, finalizers=True)
    return found


def validate_update(
    new: View,
    old: View,
    namespaced: bool,
    kind_validations: Sequence[str] = (CHANGE,),
    name_validator: NameValidator = dns1123_subdomain,
    own: Callable[[View], list[FieldError]] | None = None,
) -> list[FieldError]:
    """Return the validation errors of changed metadata (WRI-003, WRI-004).

    As in upstream, the common validation runs first, and then each validation of the kind. So most errors occur several
    times. ``kind_validations`` lists the validations of the kind, in their order: CHANGE validates changes, WHOLE
    validates as on create. For an object that has another kind than the endpoint, the caller passes an empty list.
    ``own(new)`` returns the errors that are specific to the kind; each validation of the kind appends them.
    """
    changed = _change_errors(new, old)
    found = validate(new, namespaced, path_segment)
    if found:
        changed += _common_errors(new, "metadata", finalizers=False)
    found += changed
    for validation in kind_validations:
        found += changed if validation == CHANGE else validate(new, namespaced, name_validator)
        if own is not None:
            found += own(new)
    return found


def warnings(new: View, old: View | None) -> list[str]:
    """Return warnings about new finalizers that are not domain-qualified (VAL-015)."""
    finalizers = new.get("finalizers")
    if not finalizers:
        return []
    before = frozenset((old or {}).get("finalizers") or ())
    found: dict[str, None] = {}
    for name in finalizers:
        if name in before or name in _KNOWN_FINALIZERS or "/" in name:
            continue
        including = " including a path (/)" if "." in name else ""
        found[
            f"metadata.finalizers: {go_quote(name)}: prefer a domain-qualified finalizer name{including} to avoid "
            "accidental conflicts with other finalizer writers"
        ] = None
    return list(found)


_KNOWN_FINALIZERS = frozenset(("orphan", "foregroundDeletion", "kubernetes"))


def _namespace_errors(namespace: str | None, namespaced: bool, path: str) -> list[FieldError]:
    if not namespaced:
        return [forbidden(path, "not allowed on this type")] if namespace else []
    if not namespace:
        return [required(path)]
    return [invalid(path, namespace, fault) for fault in _label(namespace)]


_label = lru_cache(limits.NAMESPACES_SEEN)(dns1123_label)  # many objects share few namespaces


def _common_errors(metadata: View, path: str, *, finalizers: bool) -> list[FieldError]:
    found = Errors()
    if labels := metadata.get("labels"):
        found += label_errors(labels, f"{path}.labels")
    if annotations := metadata.get("annotations"):
        found += annotation_errors(annotations, f"{path}.annotations")
    if owners := metadata.get("ownerReferences"):
        found += _owner_errors(owners, f"{path}.ownerReferences")
    if finalizers and metadata.get("finalizers"):
        found += _finalizer_errors(metadata["finalizers"], f"{path}.finalizers")
    for index, entry in enumerate(metadata.get("managedFields") or ()):
        found += () if found.is_full else _managed_errors(entry, path, index)
    return found


def label_errors(labels: Mapping[str, str], path: str) -> list[FieldError]:
    """Return the validation errors of labels: of keys and values, in the order of sorted keys."""
    found = Errors()
    for key in sorted(labels):
        if is_plain(key) and is_plain(labels[key]):
            continue
        found += (invalid(path, key, fault) for fault in qualified_name(key))
        found += (invalid(path, labels[key], fault) for fault in label_value(labels[key]))
    return found


def annotation_errors(annotations: Mapping[str, str], path: str) -> list[FieldError]:
    """Return the validation errors of annotations: of lower-case keys, and of the total size."""
    found = Errors(invalid(path, key, fault) for key in sorted(annotations) for fault in qualified_name(lower(key)))
    size = sum(map(len, annotations)) + sum(map(len, annotations.values()))
    if size * 4 > limits.MAX_ANNOTATIONS:  # a character has at most four bytes
        size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > limits.MAX_ANNOTATIONS:
        found.append(too_long(path, limits.MAX_ANNOTATIONS))
    return found


def _owner_errors(owners: Sequence[View], path: str) -> list[FieldError]:
    found = Errors()
    controller, shown, room = "", "", limits.MAX_FIELD_ERROR_BYTES
    for index, owner in enumerate(owners):
        position, api_version = f"{path}[{index}]", owner.get("apiVersion", "")
        parsed = parse_group_version(api_version)
        if not api_version:
            found.append(required(f"{position}.apiVersion", _EMPTY))
        elif parsed is None or not parsed.version:
            found.append(invalid(f"{position}.apiVersion", api_version, "must be <group>/<version> or <version>"))
        found += (required(f"{position}.{name}", _EMPTY) for name in ("kind", "name", "uid") if not owner.get(name))
        if parsed == _CORE_V1 and owner.get("kind") == "Event":
            found.append(_invalid_owners(position, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller") is True:
            current = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if not controller:
                controller = current
            elif room > 0:  # each error prints all owners, as in upstream, so the total size is quadratic
                shown = shown or orjson.dumps([_ordered(owner, _OWNER) for owner in owners]).decode()
                room -= len(shown)
                found.append(
                    FieldError(INVALID, path, f"Invalid value: {shown}: {_TWO_CONTROLLERS % (controller, current)}")
                )
    return found


_EMPTY = "must not be empty"
_CORE_V1 = parse_group_version("v1")
_TWO_CONTROLLERS = 'Only one reference can have Controller set to true. Found "true" in references for %s and %s'


def _invalid_owners(path: str, owner: View, detail: str) -> FieldError:
    """Return the error of an owner, printed with its fields in Go's order."""
    return FieldError(INVALID, path, f"Invalid value: {orjson.dumps(_ordered(owner, _OWNER)).decode()}: {detail}")


def _finalizer_errors(finalizers: Sequence[str], path: str) -> list[FieldError]:
    found = Errors(invalid(path, name, fault) for name in finalizers for fault in qualified_name(name))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        found.append(invalid(path, list(finalizers), text))
    return found


def _managed_errors(entry: View, path: str, index: int) -> list[FieldError]:
    operation, kind, manager = entry.get("operation", ""), entry.get("fieldsType", ""), entry.get("manager", "")
    long = len(entry.get("subresource", "")) > _MAX_SUBRESOURCE
    if operation in _OPERATIONS and kind in _FIELDS_TYPES and not long and not field_manager_errors(manager):
        return []
    found = Errors()
    path = f"{path}.managedFields[{index}]"
    if not operation:
        found.append(required(f"{path}.operation", _EMPTY))
    elif operation not in _OPERATIONS:
        found.append(not_supported(f"{path}.operation", operation, _OPERATIONS))
    if kind not in _FIELDS_TYPES:
        found.append(invalid(f"{path}.fieldsType", kind, "must be `FieldsV1`"))
    found += field_manager_errors(manager, f"{path}.manager")
    if long:
        found.append(too_long(f"{path}.subresource", _MAX_SUBRESOURCE))
    return found


_OPERATIONS, _FIELDS_TYPES = ("Apply", "Update"), ("FieldsV1", "")
_MAX_SUBRESOURCE = 256  # bytes (upstream: MaxSubresourceNameLength)
_NEGATIVE = "must be greater than or equal to 0"
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def _change_errors(new: View, old: View) -> list[FieldError]:
    found = Errors()
    if old.get("deletionTimestamp"):
        extra = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if extra:
            listed = ", ".join(go_quote(name) for name in extra)
            text = "no new finalizers can be added if the object is being deleted, found new finalizers []string"
            found.append(forbidden("metadata.finalizers", f"{text}{{{listed}}}"))
    if new.get("generation", 0) < 0:
        found.append(invalid("metadata.generation", new["generation"], _NEGATIVE))
    if new.get("generation", 0) < old.get("generation", 0):
        found.append(invalid("metadata.generation", new.get("generation", 0), "must not be decremented"))
    if [*map(new.get, _IMMUTABLE)] == [*map(old.get, _IMMUTABLE)]:
        return found
    for name in _IMMUTABLE:
        if new.get(name) != old.get(name):
            value = new.get(name, "" if name in ("name", "namespace", "uid") else None)
            shown = Named(value) if name == "uid" else value
            found.append(invalid(f"metadata.{name}", shown, "field is immutable"))
    return found
