"""Check that a body is the object of the URL: kind, version, name and namespace.

See DEC-002, ERR-11…13.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from apiext.catalog.endpoints import SCALE_MODEL
from apiext.catalog.served import Endpoint, Model, ServedVersion
from apiext.crd.definition import GROUP
from apiext.documents.document import Document, View
from apiext.documents.encoding import DecodeError, decode_yaml, json_kind, root_members
from apiext.documents.errors import UndecodableMessage
from apiext.meta import fields, objectmeta, options, status
from apiext.meta.names import GroupKind, parse_group_version
from apiext.meta.syntax import path_segment
from apiext.text.quotes import go_quote
from apiext.verbs.call import Body, Call

YAML = "application/yaml"
NO_KIND = "couldn't get version/kind; json parse error: "
_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_TYPE_NAMES = {"apiversion": "apiVersion", "kind": "kind"}
_TYPE_TWICE = frozenset(f'duplicate field "{name}"' for name in _TYPE_NAMES.values())
_OF_NO_VERSION = frozenset(("Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList"))
_IN_EVERY_VERSION = _OF_NO_VERSION | {"CreateOptions", "UpdateOptions"}
_BESIDE_DEFINITIONS = frozenset(("CustomResourceDefinitionList", "ConversionReview"))
_OPTIONS = frozenset(
    (*(f"{verb}Options" for verb in ("Create", "Delete", "Get", "List", "Patch", "Update")), "WatchEvent")
)
_INTERNAL = "__internal"
_SHOWN = {name: f"v1.{name}" for name in ("Table", "TableOptions", "PartialObjectMetadata")}
_PARTIAL_LIST = "PartialObjectMetadataList"
# version of the options' group → kind → Go type (recorded from kube-apiserver)
_OF_META: Mapping[str, Mapping[str, str]] = {
    "v1": {n: f"v1.{n}" for n in ("WatchEvent", "ListOptions", "GetOptions", "PatchOptions", _PARTIAL_LIST, *_SHOWN)},
    "v1beta1": {_PARTIAL_LIST: f"v1beta1.{_PARTIAL_LIST}"} | _SHOWN,
    _INTERNAL: {
        "WatchEvent": "v1.InternalEvent",
        "ListOptions": "internalversion.ListOptions",
        "GetOptions": "v1.GetOptions",
        _PARTIAL_LIST: f"v1beta1.{_PARTIAL_LIST}",
    }
    | _SHOWN,
}
_SINCE_ALPHA = (
    "ClusterRole", "ClusterRoleBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "Role",
    "RoleBinding", "SelfSubjectReview", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
)  # fmt: skip
_SINCE_BETA = (
    "CustomResourceDefinition", "Event", "Lease", "LocalSubjectAccessReview", "MutatingWebhookConfiguration",
    "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview", "TokenReview",
    "ValidatingWebhookConfiguration",
)  # fmt: skip
_ELDER = {"v1alpha1": frozenset(_SINCE_ALPHA), "v1beta1": frozenset(_SINCE_ALPHA + _SINCE_BETA)}
"""Version before v1 → kinds that upstream's scheme has in this version, served or not.

Recorded from kube-apiserver, without the core group.
"""
_SUMMARY = 30  # bytes of a body that an error quotes (upstream: summarizeData)


def summary(raw: bytes) -> str:
    """Return the start of a body as decoding errors quote it (ERR-11)."""
    if not raw:
        return "<empty>"
    head = raw[:_SUMMARY]
    tail = " ..." if len(raw) > _SUMMARY else ""
    return (head.decode("utf-8", "replace") if raw[:1] == b"{" else head.hex()) + tail


NO_VERSION = "Object 'apiVersion' is missing in 'object has no apiVersion field'"
NULL_VERSION = ".apiVersion accessor error: <nil> is of the type <nil>, expected string"
NO_SCALE = 'no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"'
"""Upstream's error for a body of a Scale that cannot be decoded.

It is not the real error: upstream looks up the type in a scheme that lacks the type Scale.
"""


def check_segment(name: str) -> None:
    """Raise a 400 if the name in the URL is not a valid path segment, so no object can have it."""
    faults = path_segment(name)
    if faults:
        raise status.bad_request(f"Name parameter invalid: {go_quote(name)}: {';'.join(faults)}")


def unreadable_body(model: Model, error: DecodeError, raw: bytes) -> status.StatusError:
    """Return the 400 of a body that cannot be decoded (ERR-11)."""
    kind = model.kind
    if model is SCALE_MODEL:
        return status.bad_request(NO_SCALE)
    if isinstance(error, UndecodableMessage) and error.kind:
        text = f"{error.kind} in version {go_quote(error.version)} cannot be handled as a {kind}: {error}"
        return status.bad_request(text)
    return status.bad_request(f"the object provided is unrecognized (must be of type {kind}): {error} ({summary(raw)})")


def check_type(
    call: Call,
    body: Body,
    warn: Callable[[Call, Sequence[str]], None],
    *,
    reports: bool = True,
    strict: bool = False,
) -> None:
    """Check apiVersion and kind of a body.

    Raise a 400 if the kind is missing, or if the apiVersion is not that of the URL. For a built-in kind or a Scale, set
    missing values from the URL, and raise a 400 for another kind. ``reports`` is true if the client requests reports of
    unknown fields; otherwise upstream decodes the body in another way, with other errors. If ``strict`` is true, a
    report is raised as an error, else passed to ``warn``.
    """
    document = body.document
    if not body.duplicates and not body.beyond and has_usual_type(call, document):
        return
    model = call.endpoint.model
    api_version, kind, typed = model.api_version, model.kind, model.typed
    type_meta, fault = read_type(_members(body))
    if not fault and body.beyond and not typed:  # upstream: reports this error before missing fields
        version = type_meta.get("apiVersion") or api_version
        raise cannot_be_handled(call, {**type_meta, "apiVersion": version}, body.beyond)
    if not fault and typed:
        document["apiVersion"] = full_version(type_meta.get("apiVersion", ""), api_version)
        document["kind"] = type_meta.get("kind") or kind
    if model is SCALE_MODEL and (fault or (document["kind"], document["apiVersion"]) != (kind, api_version)):
        raise status.bad_request(NO_SCALE)
    if not fault and not document.get("kind"):
        fault = f"Object 'Kind' is missing in '{_quoted_body(body, reports)}'"
        if not reports:
            given = parse_group_version(document.get("apiVersion") or api_version)
            version = given.version if given is not None else ""
            raise status.bad_request(f"{kind} in version {go_quote(version)} cannot be handled as a {kind}: {fault}")
    if fault:
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): {fault} ({summary(body.raw)})"
        )
    if document.get("apiVersion", "") is None:
        raise cannot_be_handled(call, document, NULL_VERSION)
    given_version = document.get("apiVersion") or ""
    if typed and given_version.endswith("/"):
        raise cannot_be_handled(call, document, f"Object 'apiVersion' is missing in '{_quoted_body(body, reports)}'")
    unknown = not_registered(call, document) if typed else ""
    if unknown:
        raise cannot_be_handled(call, document, unknown)
    if given_version != api_version:
        lost = _unknown_metadata(call, document)
        if reports and not typed:
            notes = [*body.duplicates, *lost, *unknown_in_other_version(call, document, given_version)]
            if notes and strict:
                raise strict_error(call, document, notes) if given_version else status.bad_request(NO_VERSION)
            warn(call, notes)
        raise wrong_version(given_version, api_version)


def has_usual_type(call: Call, document: View) -> bool:
    """Fast path: report whether a body is a custom object of the requested version, with a kind.

    Return False for an object with root fields that are not in _USUAL.
    """
    served, kind = call.served, document.get("kind")
    if call.endpoint.model.typed or document.get("apiVersion") != served.names.api_version:
        return False
    return kind.__class__ is str and kind != "" and _USUAL.issuperset(document)


_USUAL = frozenset(("apiVersion", "kind", "metadata", "spec", "status"))


def _quoted_body(body: Body, reports: bool) -> str:
    """Return a body as the error of a missing kind quotes it.

    If ``reports`` is false, upstream's decoder converts YAML to JSON first.
    """
    if not reports and body.media_type == YAML:
        return fields.go_value(decode_yaml(body.raw)[0])
    text = body.raw.decode("utf-8", "replace")
    return text if reports else text.strip()


def _members(body: Body) -> Iterable[tuple[str, Any]]:
    """Return the fields of a body as (name, value).

    If the body has apiVersion or kind twice, return both values.
    """
    return body.document.items() if _TYPE_TWICE.isdisjoint(body.duplicates) else root_members(body.raw)


def full_version(given: str, default: str) -> str:
    """Return the apiVersion in a body of a built-in kind, completed by upstream's defaults."""
    group, _, version = given.rpartition("/")
    if not version and group in ("", default.rpartition("/")[0]):
        return default
    return f"{group}/{version}" if group else version


def not_registered(call: Call, document: View, *, internal: bool = False) -> str:
    """Return upstream's error for a kind, group or version that is not in its scheme.

    Return an empty string if there is no error. If ``internal`` is true, a body without an apiVersion has the internal
    version of the group.
    """
    model = call.endpoint.model
    api_version, kind = model.api_version, model.kind
    own_group, _, own = api_version.rpartition("/")
    default_version = f"{own_group}/{_INTERNAL}" if internal else ""
    given_kind, given_version = (
        document["kind"],
        full_version(document.get("apiVersion") or default_version, api_version),
    )
    group, _, version = given_version.rpartition("/")
    known = version in (own, _INTERNAL, *call.resource.versions) or bool(group and kind in _ELDER.get(version, ()))
    if known and given_kind == kind and group == own_group:
        return ""
    if own_group == GROUP and (other := _beside_definitions(given_kind, group, version)):
        return f"converting ({other}) to (apiextensions.{kind}): unknown conversion"
    return _unregistered(given_kind, given_version)


def _beside_definitions(kind: str, group: str, version: str) -> str:
    """Return the Go type of another kind in upstream's scheme of apiextensions.k8s.io.

    Return an empty string if there is none.
    """
    if kind in _OF_NO_VERSION:
        return f"v1.{kind}"
    if group != GROUP or version not in ("v1", "v1beta1"):
        return ""
    return f"{version}.{kind}" if kind in _BESIDE_DEFINITIONS else f"v1.{kind}" if kind in _OPTIONS else ""


def _unregistered(kind: str, api_version: str) -> str:
    group, _, version = api_version.rpartition("/")
    where = (
        f"version {go_quote(api_version)}"
        if version != _INTERNAL
        else f"the internal version of group {go_quote(group)}"
    )
    return f'no kind {go_quote(kind)} is registered for {where} in scheme "pkg/runtime/scheme.go:111"'


def unknown_in_other_version(call: Call, document: View, given: str) -> list[str]:
    """Return a note for each field except metadata, if the resource has no version ``given``.

    As in upstream, such a version has no fields, so all are unknown. Return [] for a body of another group or kind.
    """
    if call.served.model.typed or given == call.served.names.api_version:
        return []
    version = parse_group_version(given)
    if version is None or version.group != call.served.names.group:
        return []
    if document.get("kind") != call.served.names.kind or version.version in call.resource.versions:
        return []
    return [f'unknown field "{name}"' for name in sorted(document) if name not in ("apiVersion", "kind", "metadata")]


def options_fault(document: View, wanted: str) -> str:
    """Return upstream's error for options of another kind than ``wanted``, or an empty string.

    See WRI-020.
    """
    # upstream: the names of apiVersion and kind are case-insensitive in options
    type_meta, fault = read_type(document.items())
    kind = type_meta.get("kind") or wanted
    if fault or kind == wanted:
        return fault
    api_version = type_meta.get("apiVersion") or f"{options.GROUP}/v1"
    group, _, version = api_version.rpartition("/")
    known = _OF_META.get(version, {}).get(kind) if group == options.GROUP else None
    if kind in _IN_EVERY_VERSION or known:
        return f"converting ({known or f'v1.{kind}'}) to (v1.{wanted}): unknown conversion"
    return _unregistered(kind, api_version)


def no_object(document: object) -> str:
    """Return the error for a document that is not an object."""
    return f"{NO_KIND}json: cannot unmarshal {json_kind(document)} into Go value of type {_TYPE_META}"


def read_type(members: Iterable[tuple[str, Any]]) -> tuple[dict[str, str], str]:
    """Return (apiVersion and kind as Go decodes them, Go's error or an empty string).

    As Go, decode each field with one of these names in any letter case, and ignore nulls. A later field replaces an
    earlier one.
    """
    found: dict[str, str] = {}
    for name, given in members:
        known = _TYPE_NAMES.get(name.casefold())
        if known is None or given is None:
            continue
        if given.__class__ is not str:
            wrong = f"json: cannot unmarshal {json_kind(given)} into Go struct field .{known} of type string"
            return found, f"{NO_KIND}{wrong}"
        found[known] = given
    version = found.get("apiVersion", "")
    return found, f"unexpected GroupVersion string: {version}" if version.count("/") > 1 else ""


def _unknown_metadata(call: Call, document: View) -> list[str]:
    """Return notes about unknown metadata. Raise a 400 if metadata cannot be decoded.

    Upstream decodes metadata before it checks the version.
    """
    if call.served.model.typed or document.get("metadata") is None:
        return []
    try:
        return [f'unknown field "{path}"' for path in objectmeta.coerce(document["metadata"])[1]]
    except DecodeError as error:
        raise cannot_be_handled(call, document, str(error)) from error


def projected(endpoint: Endpoint, stored: View) -> View:
    """Return a stored object as an endpoint returns it.

    Raise a 500 if the endpoint is ``scale``, and the replicas are not an integer. See ERR-22.
    """
    try:
        return endpoint.project(stored)
    except ValueError as error:
        raise status.unknown(str(error)) from error


def wrong_version(given: str, expected: str) -> status.StatusError:
    """Return the 400 of a body whose apiVersion differs from the URL's (ERR-12)."""
    return status.bad_request(
        f"the API version in the data ({given.removeprefix('/')}) does not match the expected API version ({expected})"
    )


def cannot_be_handled(call: Call, document: View, text: str) -> status.StatusError:
    """Return the 400 of a body that has a valid kind, but cannot be decoded (ERR-11)."""
    kind = call.endpoint.model.kind
    if call.endpoint.model is SCALE_MODEL:
        return status.bad_request(NO_SCALE)
    given = document.get("kind") or kind
    version = parse_group_version(document.get("apiVersion") or "")
    name = version.version if version is not None else ""
    return status.bad_request(f"{given} in version {go_quote(name)} cannot be handled as a {kind}: {text}")


def strict_error(call: Call, document: View, notes: Sequence[str]) -> status.StatusError:
    """Return the 400 of unknown and duplicate fields of a body (WRI-013)."""
    error = cannot_be_handled(call, document, f"strict decoding error: {', '.join(notes)}")
    if not call.endpoint.model.typed:
        # upstream: strict errors are reported after the decoding, so they name the object's own kind
        error.message = error.message.replace(f"as a {call.served.names.kind}:", f"as a {document['kind']}:", 1)
    return error


def kind_errors(call: Call, document: View) -> list[fields.FieldError]:
    """Return the errors of the kind and version in an object (VAL-014)."""
    kind, version = document.get("kind"), document.get("apiVersion")
    errors = []
    if kind != call.served.names.kind:
        errors.append(fields.invalid("kind", kind, f"must be {call.served.names.kind}"))
    if version != call.served.names.api_version:
        shown = version.removeprefix("/") if isinstance(version, str) else version
        errors.append(fields.invalid("apiVersion", shown, f"must be {call.served.names.api_version}"))
    return errors


def own_kind(served: ServedVersion, document: View) -> GroupKind:
    """Return the kind to show in errors about an object.

    For a custom object, it is the kind in the object itself.
    """
    if served.model.typed:
        return served.names.stored_kind
    version = parse_group_version(str(document.get("apiVersion", "")))
    return GroupKind("" if version is None else version.group, str(document.get("kind", "")))


def settle_names(call: Call, document: Document) -> None:
    """Set the namespace of a body.

    Raise a 400 if the name or namespace of the body differs from the URL's (ERR-13).
    """
    settle_namespace(call, document)
    metadata = document.get("metadata") or {}
    name = metadata.get("name", "")
    if not name:
        raise nameless(call)
    if name != call.name:
        raise status.bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")


def nameless(call: Call) -> status.StatusError:
    """Return the 400 of an object without a name, although the URL has a name (ERR-13)."""
    return status.bad_request(
        f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
    )


def settle_namespace(call: Call, document: Document) -> None:
    """Set the namespace of a body; raise a 400 if it differs from the URL's (ERR-13).

    If the resource is cluster-scoped, delete the namespace of the body.
    """
    metadata = document.setdefault("metadata", {})
    if not call.served.names.namespaced:
        metadata.pop("namespace", None)
        return
    given = metadata.get("namespace", "")
    if given and given != call.namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = call.namespace or ""
