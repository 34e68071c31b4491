"""Parse the options of requests, from the query or a DeleteOptions body, and validate them.

See WRI-011, RV-004.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from apiext.documents.encoding import json_kind
from apiext.meta import limits
from apiext.meta.fields import (
    INVALID,
    FieldError,
    as_many_as_shown,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from apiext.meta.names import GroupKind
from apiext.meta.requestinfo import truth
from apiext.text.characters import all_print, is_print
from apiext.text.quotes import go_quote

Query = Mapping[str, Sequence[str]]
GROUP = "meta.k8s.io"
_NUMBER = re.compile(r"[+-]?[0-9]+\Z")
_POLICIES = ("Foreground", "Background", "Orphan")


class OptionsError(ValueError):
    """The error of options that cannot be parsed.

    The server returns the message to the client (400).
    """


def first(query: Query, name: str) -> str:
    """Return the first value of a parameter, or an empty string."""
    values = query.get(name)
    return values[0] if values else ""


def _int(query: Query, name: str) -> int | None:
    """Return an int64 parameter, or None if it is absent. Raise OptionsError with Go's text."""
    values = query.get(name)
    return parse_int(values[0]) if values else None


def parse_int(text: str) -> int:
    """Return an int64 as Go's strconv.ParseInt does. Raise OptionsError with Go's text."""
    if not _NUMBER.match(text):
        raise OptionsError(f"strconv.ParseInt: parsing {go_quote(text)}: invalid syntax")
    digits = text.lstrip("+-0") or "0"
    number = int(digits) if len(digits) < 20 else 2**64
    if text.startswith("-"):
        number = -number
    if not -(2**63) <= number < 2**63:
        raise OptionsError(f"strconv.ParseInt: parsing {go_quote(text)}: value out of range")
    return number


def _bool(query: Query, name: str) -> bool | None:
    """Return a boolean parameter, None if absent.

    All values but ``0`` and ``false`` (in any letter case) are true.
    """
    values = query.get(name)
    return truth(values) if values else None


class ListOptions(Struct, frozen=True):
    """Options of list, watch and deletecollection.

    Selectors are strings; the verb parses them.
    """

    label_selector: str = ""
    field_selector: str = ""
    watch: bool = False
    allow_watch_bookmarks: bool = False
    resource_version: str = ""
    resource_version_match: str = ""
    timeout_seconds: int | None = None
    limit: int = 0
    continue_token: str = ""
    send_initial_events: bool | None = None

    @property
    def kind(self) -> GroupKind:
        """Return the kind for the texts of validation errors."""
        return GroupKind(GROUP, "ListOptions")

    @classmethod
    def parse(cls, query: Query) -> "ListOptions":
        """Return the options of a query; a negative limit becomes 0.

        Raise OptionsError for an invalid number.
        """
        if not query:
            return _NO_LIST_OPTIONS
        found = {}
        for key in filter(query.get, _LIST_OPTIONS):  # most requests have few options
            name, read = _LIST_OPTIONS[key]
            found[name] = read(query[key][0])
        return cls(**found)

    @property
    def begins_with_state(self) -> bool:
        """Return whether a watch begins with the current objects.

        If sendInitialEvents is set, it decides. Otherwise, a watch begins with the current objects if it has no
        resourceVersionMatch, and its resourceVersion is absent or "0".
        """
        if self.send_initial_events is None:
            return self.watch and not self.resource_version_match and self.resource_version in ("", "0")
        return self.send_initial_events

    def errors(self) -> list[FieldError]:
        """Return the errors of options that may not be combined, or have an unknown value (RV-004).

        As in upstream, the parameter ``watch`` selects the rules. So a watch with an old path (``/watch/…``) is
        validated as a list, and a deletecollection with ``watch`` is validated as a watch.
        """
        return self._watch_errors() if self.watch else self._list_errors()

    def _list_errors(self) -> list[FieldError]:
        found: list[FieldError] = []
        match = self.resource_version_match
        where = "resourceVersionMatch"
        if match:
            if not self.resource_version:
                found.append(forbidden(where, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
            if self.continue_token:
                found.append(forbidden(where, "resourceVersionMatch is forbidden when continue is provided"))
            if match not in ("Exact", "NotOlderThan"):
                found.append(not_supported(where, match, ("Exact", "NotOlderThan", "")))
            if match == "Exact" and self.resource_version == "0":
                text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                found.append(forbidden(where, text))
        if self.send_initial_events is not None:
            found.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        return found

    def _watch_errors(self) -> list[FieldError]:
        found: list[FieldError] = []
        match = self.resource_version_match
        where = "resourceVersionMatch"
        if match and self.send_initial_events is None:
            text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            found.append(forbidden(where, text))
        if self.send_initial_events is not None and match != "NotOlderThan":
            text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            found.append(forbidden(where, text))
        if match and match != "NotOlderThan":
            found.append(not_supported(where, match, ("NotOlderThan",)))
        # ``given`` is true if upstream itself sets sendInitialEvents and resourceVersionMatch.
        # upstream: sets sendInitialEvents of a watch without a revision or from 0 before the validation
        given = self.send_initial_events is None and self.resource_version in ("", "0")
        if self.continue_token and (match or given):
            found.append(forbidden(where, "resourceVersionMatch is forbidden when continue is provided"))
        return found


_NO_LIST_OPTIONS = ListOptions()
_LIST_OPTIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = {  # parameter → (option, parser of its first value)
    "labelSelector": ("label_selector", str),
    "fieldSelector": ("field_selector", str),
    "watch": ("watch", lambda text: truth((text,))),
    "allowWatchBookmarks": ("allow_watch_bookmarks", lambda text: truth((text,))),
    "resourceVersion": ("resource_version", str),
    "resourceVersionMatch": ("resource_version_match", str),
    "timeoutSeconds": ("timeout_seconds", parse_int),
    "limit": ("limit", lambda text: max(parse_int(text), 0)),
    "continue": ("continue_token", str),
    "sendInitialEvents": ("send_initial_events", lambda text: truth((text,))),
}


class WriteOptions(Struct, frozen=True):
    """Options of create, update and patch.

    ``name`` is CreateOptions, UpdateOptions or PatchOptions.
    """

    name: str
    dry_run_values: tuple[str, ...] = ()
    field_manager: str = ""
    field_validation: str = ""
    force: bool | None = None

    @property
    def kind(self) -> GroupKind:
        """Return the kind for the texts of validation errors."""
        return GroupKind(GROUP, self.name)

    @property
    def dry_run(self) -> bool:
        """Return whether the request stores nothing."""
        return bool(self.dry_run_values)

    @classmethod
    def parse(cls, name: str, query: Query) -> "WriteOptions":
        """Return the options of a query."""
        return cls(
            name,
            tuple(query.get("dryRun", ())),
            first(query, "fieldManager"),
            first(query, "fieldValidation"),
            _bool(query, "force") if name == "PatchOptions" else None,
        )

    def document(self) -> dict[str, Any]:
        """Return the options as an object for admission (ADM-007).

        Omit ``force``, since admission gets CreateOptions or UpdateOptions for a patch, as in upstream.
        """
        found: dict[str, Any] = {"kind": self.name, "apiVersion": f"{GROUP}/v1"}
        if self.dry_run_values:
            found["dryRun"] = list(self.dry_run_values)
        if self.field_manager:
            found["fieldManager"] = self.field_manager
        if self.field_validation:
            found["fieldValidation"] = self.field_validation
        return found

    def errors(self, *, apply: bool = False) -> list[FieldError]:
        """Return the validation errors of the options (WRI-011)."""
        found: list[FieldError] = []
        if self.force is not None and not apply:
            found.append(forbidden("force", "may not be specified for non-apply patch"))
        if apply and not self.field_manager:
            found.append(required("fieldManager", "is required for apply patch"))
        found += field_manager_errors(self.field_manager)
        found += _dry_run_errors(self.dry_run_values)
        if self.field_validation not in ("", "Ignore", "Strict", "Warn"):
            found.append(not_supported("fieldValidation", self.field_validation, ("", "Ignore", "Strict", "Warn")))
        return found


def field_manager_errors(manager: str, path: str = "fieldManager") -> list[FieldError]:
    """Return errors if a field manager's name is too long or has unprintable characters."""
    if not manager or (manager.isascii() and manager.isprintable() and len(manager) <= limits.MAX_MANAGER):
        return []
    found: list[FieldError] = []
    if len(manager.encode(errors="replace")) > limits.MAX_MANAGER:
        found.append(too_long(path, limits.MAX_MANAGER))
    if not all_print(manager):
        shown = f"Invalid value: {go_quote(manager)}"
        found += as_many_as_shown(FieldError(INVALID, path, f"{shown}: {fault}") for fault in _unprintable(manager))
    return found


def _unprintable(text: str) -> Iterator[str]:
    position = 0
    for char in text:
        if not is_print(char):
            yield f"invalid character U+{ord(char):04X} (at position {position})"
        position += len(char.encode(errors="replace"))


def _dry_run_errors(values: Sequence[str]) -> list[FieldError]:
    if all(value == "All" for value in values):
        return []
    return [not_supported("dryRun", list(values), ("All",))]


class DeleteOptions(Struct, frozen=True):
    """Options of delete and deletecollection, from the body or, without a body, from the query.

    See WRI-020.
    """

    dry_run_values: tuple[str, ...] = ()
    grace_period_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    ignore_store_read_error: bool | None = None
    has_preconditions: bool = False  # also true for empty preconditions, since admission gets them

    @property
    def kind(self) -> GroupKind:
        """Return the kind for the texts of validation errors."""
        return GroupKind(GROUP, "DeleteOptions")

    @property
    def dry_run(self) -> bool:
        """Return whether the request deletes nothing."""
        return bool(self.dry_run_values)

    @classmethod
    def parse(cls, query: Query) -> "DeleteOptions":
        """Return the options of a query. Raise OptionsError for an invalid number."""
        policy = query.get("propagationPolicy")
        return cls(
            dry_run_values=tuple(query.get("dryRun", ())),
            grace_period_seconds=_int(query, "gracePeriodSeconds"),
            uid=first(query, "uid") or None,
            resource_version=first(query, "resourceVersion") or None,
            orphan_dependents=_bool(query, "orphanDependents"),
            propagation_policy=policy[0] if policy else None,
            ignore_store_read_error=_bool(query, "ignoreStoreReadErrorWithClusterBreakingPotential"),
        )

    @classmethod
    def from_document(cls, document: Any) -> "DeleteOptions":
        """Return the options of a body; ignore unknown fields. Raise OptionsError with Go's text."""
        if not isinstance(document, dict):
            raise OptionsError(f"json: cannot unmarshal {json_kind(document)} into Go value of type v1.DeleteOptions")
        found: dict[str, Any] = {}
        for name, value in document.items():  # upstream: only the error of the first invalid field is reported
            if name == "dryRun":
                found["dry_run_values"] = _texts(value)
            elif name == "preconditions":
                found["has_preconditions"] = value is not None
                found |= _fields(_checked(value, name, dict, "v1.Preconditions", _TOP) or {}, _PRECONDITIONS, _WITHIN)
            else:
                found |= _fields({name: value}, _FIELDS, _TOP)
        return cls(**found)

    def document(self) -> dict[str, Any]:
        """Return the options as an object for admission (ADM-007)."""
        conditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        preconditions = {name: value for name, value in conditions.items() if value is not None}
        given = {
            "gracePeriodSeconds": self.grace_period_seconds,
            "preconditions": preconditions if preconditions or self.has_preconditions else None,
            "orphanDependents": self.orphan_dependents,
            "propagationPolicy": self.propagation_policy,
            "dryRun": list(self.dry_run_values) or None,
            "ignoreStoreReadErrorWithClusterBreakingPotential": self.ignore_store_read_error,
        }
        found: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": f"{GROUP}/v1"}
        return found | {name: value for name, value in given.items() if value is not None}

    def errors(self, *, collection: bool = False) -> list[FieldError]:
        """Return the validation errors of the options of a delete, or of a deletecollection.

        See WRI-018.
        """
        found: list[FieldError] = []
        policy = self.propagation_policy
        if self.orphan_dependents is not None and policy is not None:
            text = "orphanDependents and deletionPropagation cannot be both set"
            found.append(invalid("propagationPolicy", policy, text))
        if policy is not None and policy not in _POLICIES:
            found.append(not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
        found += _dry_run_errors(self.dry_run_values)
        if self.ignore_store_read_error:
            together = {
                "propagationPolicy": policy is not None,
                "orphanDependents": self.orphan_dependents is not None,
                "gracePeriodSeconds": self.grace_period_seconds is not None,
                "preconditions": self.has_preconditions or (self.uid or self.resource_version) is not None,
            }
            found += [
                invalid(IGNORE_READ_ERROR, True, f"cannot be set together with .{name}")
                for name, given in together.items()
                if given
            ]
            if collection and not found:
                text = "is not allowed with DELETECOLLECTION, try again after removing the option"
                found.append(invalid(IGNORE_READ_ERROR, True, text))
        return found


IGNORE_READ_ERROR = "ignoreStoreReadErrorWithClusterBreakingPotential"
_TOP = ("DeleteOptions", "")
_WITHIN = ("Preconditions", "preconditions.")
_FieldTypes = Mapping[str, tuple[str, type, str]]  # field → (option, class, Go's type)
_FIELDS: _FieldTypes = {
    "gracePeriodSeconds": ("grace_period_seconds", int, "int64"),
    "orphanDependents": ("orphan_dependents", bool, "bool"),
    "propagationPolicy": ("propagation_policy", str, "v1.DeletionPropagation"),
    "ignoreStoreReadErrorWithClusterBreakingPotential": ("ignore_store_read_error", bool, "bool"),
}
_PRECONDITIONS: _FieldTypes = {
    "uid": ("uid", str, "types.UID"),
    "resourceVersion": ("resource_version", str, "string"),
}


def _fields(document: Mapping[str, Any], known: _FieldTypes, within: tuple[str, str]) -> dict[str, Any]:
    """Return the known fields of a document as options, without null fields."""
    read = {
        known[name][0]: _checked(value, name, *known[name][1:], within)
        for name, value in document.items()
        if name in known
    }
    return {name: value for name, value in read.items() if value is not None}


def _texts(values: Any) -> tuple[str, ...]:
    """Return the values of dryRun; as in Go, a null item becomes an empty string."""
    given = _checked(values, "dryRun", list, "[]string", _TOP) or ()
    return tuple(_checked(value, "dryRun", str, "string", _TOP) or "" for value in given)


def _checked(value: Any, name: str, wanted: type, go: str, within: tuple[str, str]) -> Any:
    if value is None or value.__class__ is wanted:
        return value
    struct, path = within
    kind = json_kind(value)
    if kind == "number" and wanted is int:
        beyond = isinstance(value, float) and abs(value) >= 2**63 and value.is_integer()
        kind = f"number {int(value) if beyond else value}"
    raise OptionsError(f"json: cannot unmarshal {kind} into Go struct field {struct}.{path}{name} of type {go}")
