"""Set managedFields of applies and of all other writes (SSA-001…019)."""

from collections.abc import Callable

import orjson

from apiext.catalog.endpoints import with_replicas
from apiext.catalog.served import Endpoint, ServedResource, ServedVersion
from apiext.conversion.review import is_empty
from apiext.documents.document import Document, View, clone
from apiext.documents.encoding import DecodeError, decode_yaml, json_kind
from apiext.documents.equality import same
from apiext.managedfields import entries, manager, scale
from apiext.managedfields.fieldset import EMPTY, FieldSet, difference, union_of
from apiext.managedfields.manager import ApplyError, BadApply, Writer
from apiext.managedfields.path import printed as printed_path
from apiext.managedfields.types import Type
from apiext.managedfields.updater import Conflicts, MissingVersion
from apiext.meta import status
from apiext.meta.fields import FieldError, first_shown
from apiext.meta.options import WriteOptions
from apiext.text.characters import is_print
from apiext.verbs import decoding, identity
from apiext.verbs.call import Call
from apiext.verbs.converting import Needed
from apiext.verbs.metadata import wipe

MEDIA_TYPE = "application/apply-patch+yaml"
_INVALID_AFTER_ADMISSION = (
    ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating "
    "admission controller; please fix your requests: "
)


class _Versions:
    """The versions of a resource for one endpoint.

    This class implements apiext.managedfields.updater.Versions.
    """

    def __init__(
        self,
        resource: ServedResource,
        requested: ServedVersion,
        endpoint: str,
        conversions: dict[tuple[bytes, str], Document],
    ) -> None:
        self._resource = resource
        self._asked = requested.names.api_version
        self._endpoint = endpoint
        self._conversions = conversions
        self._known = {requested.names.api_version: requested}

    def _served(self, api_version: str) -> ServedVersion:
        known = self._known.get(api_version)
        if known is not None:
            return known
        version = api_version.rpartition("/")[2]
        found = (self._resource.all_versions or self._resource.versions).get(version)
        if found is None or found.names.api_version != api_version:
            raise MissingVersion(api_version)
        self._known[api_version] = found
        return found

    def type_of(self, api_version: str) -> Type:
        return self._served(api_version).model.merge_type()

    def reset(self, api_version: str) -> FieldSet:
        served = self._served(api_version)
        if not served.model.typed and not self._endpoint and api_version != self._asked:
            # upstream: reset fields of custom objects (here: the status) are known only for the version of the request
            # So in all other versions, a manager may own the status.
            return EMPTY
        found = served.endpoints.get(self._endpoint)
        return found.reset if found is not None else EMPTY

    def convert(self, document: View, api_version: str, doing: str) -> Document:
        target = self._served(api_version)
        source = self._served(str(document.get("apiVersion", "")))
        if target.model.typed:
            return target.codec.decode(source.codec.encode(dict(document)), 0)
        if self._resource.definition.conversion is None or is_empty(document):
            # upstream: a converted object is not pruned, so it may not conform to its type
            # Without a webhook, a conversion changes only apiVersion.
            return {**document, "apiVersion": api_version}
        conversions, requested = self._conversions, orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        found = conversions.get((requested, api_version))
        if found is None:

            def keep(answer: Document, metadata: bytes) -> None:
                conversions[requested, api_version] = answer

            raise Needed(requested, api_version, (id(conversions), requested, api_version), keep, doing)
        return found


class _OneVersion:
    """The single version of an endpoint with its own kind, such as /scale.

    This class implements Versions of managedfields.
    """

    def __init__(self, api_version: str, type_of: Callable[[], Type]) -> None:
        self._api_version = api_version
        self._type_of = type_of

    def type_of(self, api_version: str) -> Type:
        if api_version != self._api_version:
            raise MissingVersion(api_version)
        return self._type_of()

    def reset(self, api_version: str) -> FieldSet:
        return EMPTY

    def convert(self, document: View, api_version: str, doing: str) -> Document:
        raise MissingVersion(api_version)


def writer(
    resource: ServedResource,
    served: ServedVersion,
    endpoint: str,
    name: str,
    now: str,
    conversions: dict[tuple[bytes, str], Document] | None = None,
) -> Writer:
    """Return the Writer that records a write to an endpoint in managedFields.

    ``name`` is the name of the manager. ``endpoint`` is empty for the object itself. ``now`` is the time of the write
    (RFC 3339). ``conversions`` are the cached results of the conversion webhook. The Writer raises Needed if a result
    is missing.
    """
    versions = _Versions(resource, served, endpoint, {} if conversions is None else conversions)
    return Writer(versions, served.names.api_version, served.names.kind, name, endpoint, now)


def kind_writer(endpoint: Endpoint, name: str, now: str) -> Writer:
    """Like ``writer``, for an endpoint with another kind, such as Scale."""
    model = endpoint.model
    versions = _OneVersion(model.api_version, model.merge_type)
    return Writer(versions, model.api_version, model.kind, name, endpoint.name, now)


def _writer(call: Call, options: WriteOptions, now: str) -> Writer:
    name = options.field_manager or _printable(call.manager)
    if call.endpoint.partial:
        return kind_writer(call.endpoint, name, now)
    return writer(call.resource, call.served, call.endpoint.name, name, now, call.conversions)


def _printable(agent: str) -> str:
    """Return the name of a manager from a User-Agent (SSA-005).

    The name consists of the printable characters of the User-Agent, at most 128 bytes.
    """
    if agent.isascii() and agent.isprintable():
        return agent[:_MAX_NAME]
    text = agent.encode(errors="surrogateescape").decode(errors="apiext.go")
    found = "".join(char for char in text if is_print(char))
    return found.encode()[:_MAX_NAME].decode(errors="ignore")


_MAX_NAME = 128


def claim_posted(call: Call, document: Document, options: WriteOptions, now: str) -> None:
    """In a posted object, delete the fields that only the server sets, and set managedFields."""
    if not call.endpoint.name:  # the body of a subresource, such as a TokenRequest, keeps its metadata
        wipe(document)
    claim(call, document, options, now)


def claim(call: Call, document: Document, options: WriteOptions, now: str) -> None:
    """Set managedFields of an object before its create (SSA-006)."""
    empty = call.endpoint.model.empty
    _set(document, manager.track(_writer(call, options, now), empty, document, creating=True))


def created(call: Call, document: View, options: WriteOptions, now: str) -> Document:
    """Return the object that a PUT creates, with its managedFields.

    Keep a resourceVersion and a uid of the body.
    """
    found: Document = clone(document)
    claim(call, found, options, now)
    return found


def track(call: Call, live: View, new: Document, options: WriteOptions, now: str) -> None:
    """Set managedFields of an object before a write that is not an apply (SSA-005…007)."""
    found = manager.track(_writer(call, options, now), live, call.served.shaping.internal(new), creating=False)
    _set(new, found)


def record(writer_: Writer, live: View, new: Document) -> None:
    """Set managedFields of a changed object with a given Writer.

    ``live`` is the object before the change.
    """
    _set(new, manager.track(writer_, live, new, creating=False))


def with_owners(call: Call, shown: View, stored: View) -> Document:
    """Return the Scale that a write of /scale changes, with the managedFields of the Scale.

    See SRV-010. If the object has no replicas, ``with_replicas`` gives the Scale the lowest int32, so that any count is
    a change.
    """
    found = with_replicas(call.endpoint, shown, stored)
    _set(found, scale.scale_entries((stored.get("metadata") or {}).get("managedFields"), _replicas(call)))
    return found


def object_entries(call: Call, stored: View, shown: View, new: Document) -> None:
    """Set managedFields of an object from those of its changed Scale, before a write of /scale.

    See SRV-010.
    """
    before, of_scale = (document["metadata"].get("managedFields") for document in (stored, shown))
    _set(new, scale.object_entries(before, of_scale, _replicas(call), call.served.names.api_version))


def _replicas(call: Call) -> scale.Paths:
    versions = call.resource.all_versions or call.resource.versions
    return {
        served.names.api_version: served.endpoints[call.endpoint.name].replicas
        if call.endpoint.name in served.endpoints
        else ()
        for served in versions.values()
    }


def _set(document: Document, owners: list[Document]) -> None:
    found = {**document.get("metadata", {})}
    found.pop("managedFields", None)
    if owners:
        found["managedFields"] = owners
    document["metadata"] = found


def check_admitted(call: Call, before: View, after: Document) -> None:
    """Restore managedFields if admission made them invalid, and add a warning (SSA-017)."""
    given, found = before["metadata"].get("managedFields"), after["metadata"].get("managedFields")
    if found is given:
        return
    try:
        entries.decode(found)
    except entries.EntryError as error:
        _set(after, list(given or ()))
        call.warnings.append(f"{_INVALID_AFTER_ADMISSION}{error}")


def settle(served: ServedVersion, new: Document, old: View) -> None:
    """Restore the old times in managedFields if nothing else changes, so that no write happens.

    See WRI-006, SSA-015.
    """
    after, before = new["metadata"].get("managedFields"), old["metadata"].get("managedFields")
    if not after or not before:
        return
    if (  # the parts that differ most often come first
        new["metadata"].get("generation") == old["metadata"].get("generation")
        and new.get("status") == old.get("status")
        and _bare(new["metadata"]) == _bare(old["metadata"])
        and _alike(served, new, old)
        and after != before
        and entries.same_but_for_times(after, before)
    ):
        new["metadata"]["managedFields"] = before


def _alike(served: ServedVersion, new: View, old: View) -> bool:
    """Return whether two objects of one generation differ in metadata only.

    In a built-in kind, an empty list equals an absent list.
    """
    if all(same(new.get(name), old.get(name)) for name in {**new, **old} if name != "metadata"):
        return True
    if not served.model.typed or "generation" not in old["metadata"]:
        return False
    return served.codec.encode({**new, "metadata": {}}) == served.codec.encode({**old, "metadata": {}})


def removed_by_apply(call: Call, options: WriteOptions, old: View, new: View) -> FieldSet:
    """Return the paths that an apply removed from its manager's set and no other manager owns."""
    name = options.field_manager or _printable(call.manager)
    applier = entries.manager_of(name, entries.APPLY, "", call.endpoint.name)
    before, after = (entries.readable(one["metadata"].get("managedFields")) for one in (old, new))
    last = before.get(applier)
    return difference(last.fields, union_of([one.fields for one in after.values()])) if last is not None else EMPTY


def _bare(metadata: View) -> Document:
    found = {**metadata}
    found.pop("managedFields", None)
    found.pop("resourceVersion", None)
    return found


_DECODING = "error decoding patch: "


class Application:
    """An applied configuration: the change of an existing object, or the object to create.

    The constructor raises a 400 for a body that is not YAML. If such a body begins with a brace, ``change`` and
    ``creation`` raise the 400 instead, since upstream reads the object before it decodes the body. They also raise the
    400 for a configuration that is not an object.
    """

    def __init__(self, call: Call, raw: bytes, options: WriteOptions, clock: Callable[[], str]) -> None:
        self._call = call
        self._options = options
        self._clock = clock
        self._config: Document = {}
        self._fault: status.StatusError | None = None
        self._duplicates: list[str] = []
        try:
            found, self._duplicates = decode_yaml(raw)
        except DecodeError as error:
            if not raw.lstrip().startswith(b"{"):
                raise status.bad_request(f"error encoding patch: {error}") from error
            # upstream: a body that begins with a brace is JSON, and is decoded after the read of the object
            self._fault = status.bad_request(f"{_DECODING}error converting YAML to JSON: {error}")
            return
        if isinstance(found, dict):
            self._config = found
        elif found is not None:
            self._fault = status.bad_request(
                f"{_DECODING}error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
                f"{json_kind(found)} into Go value of type map[string]interface {{}}"
            )

    def change(self, live: View) -> Document:
        """Return the live object with the configuration applied, with defaults and managedFields.

        Raise a 400 for an invalid configuration, a 409 for conflicts, and a 500 for other errors of the apply.
        """
        if self._fault is not None:
            raise self._fault
        found = self._scaled(live) if self._call.endpoint.partial else self._applied(live)
        self._report()  # upstream: reports duplicate keys last
        return self._finish(found)

    def creation(self) -> Document:
        """Return the object to create; raise the errors of ``change``.

        Also raise a 409 if the configuration has a uid, since it is then for an existing object.
        """
        call = self._call
        if self._fault is not None:
            raise self._fault
        found = self._applied(dict(call.served.model.empty))
        self._report()
        uid = found["metadata"].get("uid")
        if uid:
            text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise status.conflict(call.served.names.group_resource, call.name, text)
        return self._finish(found)

    def _applied(self, live: View) -> Document:
        call = self._call
        found, changed = self._merged(live, dict(call.served.model.empty))
        # upstream: an apply without a change sets no defaults, even if its version has more than the storage version
        if not changed:
            return found
        try:
            return call.served.shaping.complete(clone(found))
        except DecodeError as error:
            raise status.bad_request(self._unconverted(error)) from error
        except ValueError as error:
            raise status.bad_request(str(error)) from error

    def _merged(self, live: View, empty: View) -> tuple[Document, bool]:
        call = self._call
        writer_ = _writer(call, self._options, self._clock())
        try:
            return manager.apply(writer_, live, self._config, empty, force=bool(self._options.force))
        except BadApply as error:
            raise status.bad_request(str(error)) from error
        except Conflicts as conflicts:
            raise conflict(conflicts) from conflicts
        except ApplyError as error:
            raise status.unknown(str(error)) from error

    def _scaled(self, live: View) -> Document:
        """Return the Scale with its managedFields; raise a 500 if the apply would change the Scale.

        Upstream's converter does not support the kind Scale. Upstream also calls the converter if the replicas have no
        owner yet, so such an apply is a 500, too.
        """
        version, kind = self._call.endpoint.model.api_version, self._call.endpoint.model.kind
        fault = f"to proper version: request to convert CR to an invalid group/version: {version}"
        fits = (self._config.get("apiVersion"), self._config.get("kind")) == (version, kind)
        if fits and "managedFields" not in live["metadata"]:
            first = f"failed to convert live object (/; {version}, Kind={kind})"
            raise status.unknown(f"failed to create manager for existing fields: {first} {fault}")
        found, changed = self._merged(live, {})
        if changed:
            raise status.unknown(f"failed to convert new object ({manager.go_name(self._config)}) {fault}")
        return found

    def _unconverted(self, error: DecodeError) -> str:
        """Return the error of a result that does not fit the Go type."""
        name, kind = manager.go_name(self._config), manager.go_kind(self._config)
        return (
            f"failed to convert new object ({name}) to proper version: "
            f"unable to convert unstructured object to {kind}: {error.restored or error}"
        )

    def _finish(self, found: Document) -> Document:
        identity.settle_names(self._call, found)
        return found

    def _report(self) -> None:
        """Report duplicate keys as warnings or as an error (WRI-013)."""
        if not self._duplicates or self._options.field_validation == "Ignore":
            return
        text = f"error converting YAML to JSON: {'; '.join(self._duplicates)}"
        if self._options.field_validation == "Strict":
            raise status.bad_request(f"error strict decoding patch: {text}")
        decoding.warn(self._call, [text])


def conflict(conflicts: Conflicts) -> status.StatusError:
    """Return the 409 of an apply, with causes for the conflicting fields (SSA-008).

    There is one cause for each field and owner that fits into a response.
    """
    errors = (FieldError(_CONFLICT, printed_path(path, owned=True), str(owner)) for owner, path in conflicts.paths())
    found, complete = first_shown(errors)
    causes = [
        {"reason": error.reason, "message": f"conflict with {error.body}", "field": error.field} for error in found
    ]
    message = _message(found, conflicts.count)
    if not complete:
        causes.append({"message": _NOT_SHOWN})
        message += f"\n{_NOT_SHOWN}"
    return status.StatusError(409, "Conflict", message, {"causes": causes})


_CONFLICT = "FieldManagerConflict"
_NOT_SHOWN = "too many conflicts: the rest is not shown"


def _message(found: list[FieldError], count: int) -> str:
    """Return the text of ``count`` conflicts.

    The text shows the fields ``found`` with their owners.
    """
    if count == 1:
        return f"Apply failed with 1 conflict: conflict with {found[0].body}: {found[0].field}"
    by_owner: dict[str, list[str]] = {}
    for error in found:
        by_owner.setdefault(error.body, []).append(f"- {error.field}")
    lines = [line for owner, paths in by_owner.items() for line in (f"conflicts with {owner}:", *paths)]
    return f"Apply failed with {count} conflicts: " + "\n".join(lines)
