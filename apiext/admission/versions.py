"""The objects of one write in the versions that webhooks and policies (hooks) match.

The objects are converted once for each version, until a hook changes them (ADM-005). A Form contains the group and
version in which a hook receives the objects (see attributes.py).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson

from apiext.admission.attributes import Attributes, Form
from apiext.catalog.served import ServedResource, ServedVersion
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode, json_kind
from apiext.documents.errors import DecodeError
from apiext.meta import objectmeta, status
from apiext.meta.fields import invalid
from apiext.meta.names import GroupKind
from apiext.schema.budget import DEFAULTS, OverBudget
from apiext.text.quotes import go_quote

Convert = Callable[[ServedResource, View, str], Awaitable[Document]]
"""(resource, object, apiVersion) → the object in this version; raises StatusError."""


async def plain_conversion(definition: ServedResource, document: View, api_version: str) -> Document:
    """Convert an object to another version without a conversion webhook (VER-003)."""
    target = _served_in(definition, api_version)
    if not target.model.typed:
        return {**document, "apiVersion": api_version}
    source = _served_in(definition, str(document.get("apiVersion", "")))
    found = target.codec.decode(source.codec.encode(dict(document)), 0)
    found["metadata"].pop("resourceVersion", None)
    revision = (document.get("metadata") or {}).get("resourceVersion")
    if revision:
        found["metadata"]["resourceVersion"] = revision
    return found


def served_in(definition: ServedResource, form: Form) -> ServedVersion:
    """Return the version of a Form, even if the version is not served."""
    return _version(definition, form.group, form.version)


def _served_in(definition: ServedResource, api_version: str) -> ServedVersion:
    group, _, version = api_version.rpartition("/")
    return _version(definition, group, version)


def _version(definition: ServedResource, group: str, version: str) -> ServedVersion:
    if group != definition.group:
        for served in definition.equivalents:
            if (served.names.group, served.names.version) == (group, version):
                return served
    return (definition.all_versions or definition.versions)[version]


def normalized(served: ServedVersion, subresource: str, document: Document) -> Document:
    """Prune, coerce and default an object from a webhook, like a request body (ADM-014).

    Raise StatusError: a 422 for a custom object with metadata of a wrong type, and a 500 for another invalid object.
    """
    if served.model.typed:
        check_type(document, *_type_of(served, subresource))
    else:
        _check_group(served, subresource, document)
    endpoint = served.endpoints[subresource]
    converts = endpoint.partial and not served.model.typed
    if converts and not document.get("apiVersion"):
        raise status.StatusError(500, "", "Object 'apiVersion' is missing in 'unstructured object has no version'")
    if not endpoint.partial and not served.model.typed:
        check_metadata(served, document.get("metadata"))
    DEFAULTS.refill()
    try:
        found = endpoint.model.normalize(document)[0]
    except (ValueError, OverBudget) as error:
        if converts:  # upstream: a Scale is converted to its Go type only after the webhook call
            raise status.StatusError(500, "", _unconverted(served, subresource, error)) from error
        raise status.internal(str(error)) from error
    found.setdefault("metadata", {})
    return found


def _unconverted(served: ServedVersion, subresource: str, error: Exception) -> str:
    """Return the error text of an object that cannot be decoded as the kind of a subresource."""
    if not isinstance(error, DecodeError):  # for example, the object has another kind
        return str(error)
    api_version, kind = _type_of(served, subresource)
    return f"unable to convert unstructured object to {api_version}, Kind={kind}: {error.restored or error}"


def _type_of(served: ServedVersion, subresource: str) -> tuple[str, str]:
    """Return apiVersion and kind of the objects at an endpoint whose kind has a Go type."""
    model = served.endpoints[subresource].model
    return model.api_version, model.kind


def returned_version(definition: ServedResource, form: Form, document: View) -> ServedVersion | None:
    """Return the version of a custom object in a webhook's response.

    Return None if it is the version of the Form. Also return None for a built-in kind, a Scale, an object of another
    group, and an invalid apiVersion. Raise StatusError (500) for a version that the definition does not have.
    """
    given = document.get("apiVersion")
    group, slash, version = given.partition("/") if isinstance(given, str) else ("", "", "")
    own = served_in(definition, form)
    if own.model.typed or form.api_version != own.names.api_version:  # a built-in kind, or a Scale
        return None
    if not slash or group != own.names.group or version == own.names.version or "/" in version:
        return None
    found = (definition.all_versions or definition.versions).get(version)
    if found is None:
        raise status.StatusError(500, "", f"request to convert CR from an invalid group/version: {given}")
    return found


def pruned(served: ServedVersion, subresource: str, document: Document) -> Document:
    """Prune and coerce an object that policies mutated.

    Raise StatusError (500) if its group changed, its kind is missing, or its apiVersion is invalid.
    """
    _check_group(served, subresource, document)
    if served.endpoints[
        subresource
    ].partial:  # objects of another kind than the resource's, such as a Scale, are not pruned
        return document
    document.setdefault("metadata", {})
    return served.shaping.settle(document)


def check_metadata(served: ServedVersion, metadata: Any) -> None:
    """Raise a 422 for metadata of a custom object with a value of a wrong type.

    Upstream: getObjectMeta of the validation of custom objects.
    """
    if metadata.__class__ is dict:
        try:
            objectmeta.coerce(metadata)
        except DecodeError as error:
            fault = error.restored or str(error)
        else:
            return
    elif metadata is None:
        return
    else:
        fault = f"expected map[string]interface{{}}, got {_GO_TYPES[metadata.__class__]}"
    names = served.names
    name = metadata.get("name") if isinstance(metadata, dict) else None
    shown = name if isinstance(name, str) else ""
    raise status.invalid(GroupKind(names.group, names.kind), shown, [invalid("metadata", metadata, fault)])


_GO_TYPES: Mapping[type, str] = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}


def check_type(document: Document, api_version: str, kind: str) -> None:
    """Restore kind and apiVersion that a webhook or policy removed from an object.

    Raise StatusError (500) if they changed.
    """
    _check_texts(document)
    version, name = document.get("apiVersion") or api_version, document.get("kind") or kind
    if (version, name) != (api_version, kind):
        _check_version(version)
        text = f"no kind {go_quote(str(name))} is registered for version {go_quote(str(version))}"
        raise status.internal(f'{text} in scheme "pkg/runtime/scheme.go:111"')
    document["apiVersion"], document["kind"] = version, name


def _check_version(version: str) -> None:
    if version.count("/") > 1:
        raise status.internal(f"unexpected GroupVersion string: {version}")


def _check_group(served: ServedVersion, subresource: str, document: Document) -> None:
    check_kind(document)
    group, _, version = (document.get("apiVersion") or "").rpartition("/")
    if not served.model.typed and not subresource and group != served.names.group:
        text = f"{group}/{version}, Kind={document['kind']} is unstructured and is not suitable for converting to"
        raise status.StatusError(500, "", f"{text} {go_quote(served.names.api_version)}")


def check_kind(document: Document) -> None:
    """Raise StatusError (500) for an object without a kind, or with an invalid apiVersion."""
    _check_texts(document)
    if not document.get("kind"):
        raise status.internal(f"Object 'Kind' is missing in '{encode(document).decode()}'")
    _check_version(document.get("apiVersion") or "")


def _check_texts(document: Document) -> None:
    for name in ("apiVersion", "kind"):
        if not isinstance(document.get(name), str | None):
            fault = f"json: cannot unmarshal {json_kind(document[name])} into Go struct field .{name} of type string"
            raise status.internal(f"couldn't get version/kind; json parse error: {fault}")


class ObjectPair:
    """New and old object in one version, and both encoded as JSON."""

    __slots__ = ("_new", "_old", "new", "old")

    def __init__(self, new: View | None, old: View | None) -> None:
        self.new = new
        self.old = old
        self._new = b""
        self._old = b""

    @property
    def fragments(self) -> tuple[orjson.Fragment, orjson.Fragment]:
        """New and old object as JSON, encoded once for all hooks that receive this version."""
        self._new = self._new or _encoded(self.new)
        self._old = self._old or _encoded(self.old)
        return orjson.Fragment(self._new), orjson.Fragment(self._old)

    @property
    def size(self) -> int:
        """The size of the new object as JSON in bytes; 0 before ``fragments`` encodes it."""
        return len(self._new)

    def with_new(self, new: View) -> "ObjectPair":
        """Return a copy with this new object and the same old object."""
        found = ObjectPair(new, self.old)
        found._old = self._old
        return found


def _encoded(document: View | None) -> bytes:
    return b"null" if document is None else encode(document)


Normalize = Callable[[ServedVersion, str, Document], Document]
"""(version, subresource, object) → the object, pruned and coerced for this version; raises StatusError."""


_OF_KIND = slice(2, 4)  # fields of a Form: group and version of its kind


class Versions:
    """The objects of a write: (group, version) of their kind → new and old object."""

    __slots__ = ("_attributes", "_convert", "_pairs")

    def __init__(self, attributes: Attributes, convert: Convert, new: View | None) -> None:
        self._attributes = attributes
        self._convert = convert
        self._pairs = {attributes.form[_OF_KIND]: ObjectPair(new, attributes.old)}

    def cached(self, form: Form) -> ObjectPair | None:
        """Return the objects in a Form, None if they must be converted first."""
        return self._pairs.get(form[_OF_KIND])

    async def objects(self, form: Form) -> ObjectPair:
        """Return the objects in a Form; raise StatusError if their conversion fails."""
        found = self.cached(form)
        if found is None:
            whole = next(iter(self._pairs.values()))
            found = self._pairs[form[_OF_KIND]] = ObjectPair(
                await self._converted(whole.new, form), await self._converted(whole.old, form)
            )
        return found

    async def change(self, form: Form, new: Document, normalize: Normalize = normalized) -> Document:
        """Replace the new object by a hook's result.

        Return the result in the version of the request. A result in another version is converted and then normalized.
        """
        own = self._attributes.form
        if form[_OF_KIND] == own[_OF_KIND]:
            self._pairs = {own[_OF_KIND]: self._pairs[own[_OF_KIND]].with_new(new)}
            return new
        definition = self._attributes.definition
        assert definition is not None, "only a known resource has other versions"
        back = await self._convert(definition, new, own.api_version)
        back = normalize(served_in(definition, own), self._attributes.subresource, back)
        before, there = self._pairs[own[_OF_KIND]], self._pairs[form[_OF_KIND]]
        self._pairs = {own[_OF_KIND]: before.with_new(back), form[_OF_KIND]: there.with_new(new)}
        return back

    async def _converted(self, document: View | None, form: Form) -> View | None:
        if document is None:
            return None
        definition = self._attributes.definition
        assert definition is not None, "only a known resource has other versions"
        return await self._convert(definition, document, form.api_version)
