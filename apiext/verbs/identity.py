"""Is this body the object that the URL names? Kind, version, name and namespace (DEC-002, ERR-011…013)."""

from apiext.catalog.served import Endpoint, ServedVersion
from apiext.documents.document import Document, View
from apiext.documents.encoding import json_kind
from apiext.meta import fields, status
from apiext.meta.names import GroupKind, parse_group_version
from apiext.verbs.call import Body, Call

_SUMMARY = 30  # bytes of a body that an error quotes (upstream: summarizeData)


def expected_kind(served: ServedVersion, endpoint: Endpoint) -> tuple[str, str]:
    """Return (apiVersion, kind) of what the endpoint shows."""
    if not endpoint.kind:
        return served.api_version, served.kind
    version = f"{endpoint.group}/{endpoint.version}" if endpoint.group else endpoint.version
    return version, endpoint.kind


def summary(raw: bytes) -> str:
    """Return the start of a body as decoding errors quote it (ERR-11)."""
    if not raw:
        return "<empty>"
    head = raw[:_SUMMARY]
    tail = " ..." if len(raw) > _SUMMARY else ""
    return (head.decode("utf-8", "replace") if raw[:1] == b"{" else head.hex()) + tail


NO_SCALE = 'no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"'
"""What upstream says of every Scale body that it cannot take: its scheme for errors does not know the type."""


def check_type(call: Call, body: Body) -> None:
    """Check apiVersion and kind of a body, completing those of typed resources from the URL."""
    document = body.document
    api_version, kind = expected_kind(call.served, call.endpoint)
    if call.endpoint.kind and (document.get("kind") or kind, document.get("apiVersion") or api_version) != (
        kind,
        api_version,
    ):
        raise status.bad_request(NO_SCALE)
    if call.served.typed or call.endpoint.kind:
        document["apiVersion"] = document.get("apiVersion") or api_version
        document["kind"] = document.get("kind") or kind
    given_kind, given_version = document.get("kind"), document.get("apiVersion", "")
    if not isinstance(given_kind, str) or not given_kind:
        text = _no_kind(body, given_kind)
        raise status.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): {text} ({summary(body.raw)})"
        )
    if given_version != api_version:
        warn_of_other_version(call, document, str(given_version))
        raise wrong_version(str(given_version), api_version)
    if (call.served.typed or call.endpoint.kind) and given_kind != kind:
        raise status.bad_request(
            f'{given_kind} in version "{call.served.version}" cannot be handled as a {kind}: no kind "{given_kind}" is '
            f'registered for version "{given_version}" in scheme "pkg/runtime/scheme.go:111"'
        )


def warn_of_other_version(call: Call, document: View, given: str) -> None:
    """upstream: nothing is known of a version that is not there, so all of the object is unknown in it."""
    version = parse_group_version(given)
    if call.served.typed or version is None or version.group != call.served.group:
        return
    if document.get("kind") == call.served.kind and version.version not in call.resource.versions:
        known = ("apiVersion", "kind", "metadata")
        call.warnings.extend(f'unknown field "{name}"' for name in sorted(document) if name not in known)


def _no_kind(body: Body, given: object) -> str:
    if given in (None, ""):
        return f"Object 'Kind' is missing in '{body.raw.decode('utf-8', 'replace')}'"
    found = f"json: cannot unmarshal {json_kind(given)} into Go struct field .kind of type string"
    return f"couldn't get version/kind; json parse error: {found}"


def wrong_version(given: str, expected: str) -> status.StatusError:
    """400 for a body of another apiVersion than the URL's (ERR-12)."""
    return status.bad_request(
        f"the API version in the data ({given}) does not match the expected API version ({expected})"
    )


def cannot_be_handled(call: Call, document: View, text: str) -> status.StatusError:
    """400 for a body whose kind could be read and whose contents could not (ERR-11)."""
    _, kind = expected_kind(call.served, call.endpoint)
    if call.endpoint.kind:
        return status.bad_request(NO_SCALE)
    given = document.get("kind") or kind
    version = parse_group_version(str(document.get("apiVersion", "")))
    name = version.version if version is not None else ""
    return status.bad_request(f'{given} in version "{name}" cannot be handled as a {kind}: {text}')


def check_kind(call: Call, document: View) -> None:
    """422 for a custom object of another kind or version; nothing else is judged then (VAL-014)."""
    kind, version = document.get("kind"), document.get("apiVersion")
    errors = []
    if kind != call.served.kind:
        errors.append(fields.invalid("kind", kind, f"must be {call.served.kind}"))
    if version != call.served.api_version:
        errors.append(fields.invalid("apiVersion", version, f"must be {call.served.api_version}"))
    if not errors:
        return
    name = str(document.get("metadata", {}).get("name", ""))
    raise status.invalid(GroupKind(call.served.group, str(kind)), name, errors)


def check_name(call: Call, document: View) -> None:
    """400 when the name in a body is not the one of the URL (ERR-13)."""
    metadata = document.get("metadata") or {}
    name = metadata.get("name", "")
    if not name:
        raise status.bad_request(
            f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
        )
    if name != call.name:
        raise status.bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")


def settle_namespace(call: Call, document: Document) -> None:
    """Fill in, clear or refuse the namespace of a body (ERR-13)."""
    metadata = document.setdefault("metadata", {})
    if not call.served.namespaced:
        metadata.pop("namespace", None)
        return
    given = metadata.get("namespace", "")
    if given and given != call.namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = call.namespace or ""
