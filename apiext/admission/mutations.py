"""Mutations of a mutating policy: apply configurations and JSON patches.

Upstream: plugin/policy/mutating/patch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct

from apiext.admission import limits
from apiext.admission.attributes import Form
from apiext.admission.go_data import NotFinite, printable
from apiext.admission.policy import Compiled, EnvironmentFactory, Policy, PolicyEvaluation, policy_of
from apiext.admission.versions import check_kind, check_metadata, check_type
from apiext.catalog.admission_cel import PATCH_TYPES, compiled
from apiext.catalog.served import ServedVersion
from apiext.cel import effort
from apiext.cel import limits as cel_limits
from apiext.cel.go_values import go_type
from apiext.cel.objects import NO_SLICE, Constructed, applied, json_of, mismatches
from apiext.cel.values import Value, elements, is_list
from apiext.documents import json_patch
from apiext.documents.document import Document, View
from apiext.managedfields.merging import merge
from apiext.managedfields.typed import TypeFault, check
from apiext.managedfields.types import Type
from apiext.meta import status
from apiext.text.quotes import go_quote

# Work of one operation of a policy's JSON patch, as a number of bytes: an object of this size costs as much work.
JSON_PATCH_OPERATION = 64


class Refused(Exception):
    """A mutation that cannot be applied; the failurePolicy decides whether the write fails."""


class Kind(Struct, frozen=True):
    """The kind of the mutated objects, with the merge rules of its fields.

    ``complete(document)`` applies defaults; it returns the object, and the paths of unknown fields. It raises
    ValueError for a document that does not fit the Go type, or whose defaults are too large, and a 422 for a custom
    object with metadata of a wrong type.

    ``typed`` is true if the kind has a Go type upstream; if not, ``complete`` reports no unknown fields.
    """

    api_version: str
    name: str
    type: Type
    complete: Callable[[Document], tuple[Document, list[str]]]
    typed: bool = True


def kind_of(form: Form, served: ServedVersion, subresource: str) -> Kind:
    """Return the kind of the objects of an endpoint in a version."""
    model = served.endpoints[subresource].model
    of_type = model.merge_type()
    if model.typed:
        return Kind(form.api_version, form.kind, of_type, model.normalize)

    def complete(document: Document) -> tuple[Document, list[str]]:
        check_metadata(served, document.get("metadata"))  # ``complete`` would drop such values
        return served.shaping.complete(document), []

    return Kind(form.api_version, form.kind, of_type, complete, typed=False)


Patch = Callable[[Kind, View, Value], Document]
"""(kind, object, result of the expression) → the mutated object; raises Refused, StatusError and Cancelled."""


class Mutation(Struct, frozen=True):
    """One CEL expression, and the function that applies its result to the object."""

    text: str
    program: Compiled
    patch: Patch

    async def value(self, policy: Policy[Any], variables: Mapping[str, Any]) -> Value:
        """Return the result of the expression.

        Raise Refused if it does not compile or fails, and OutOfBudget if it exceeds the cost budget of the policy.
        """
        if isinstance(self.program, str):
            raise Refused(self.program)
        value, fault = await PolicyEvaluation(policy, variables).run(self.text, self.program)
        if fault:
            raise Refused(fault)
        return value

    def weight(self, value: Value) -> int:
        """Return the work of applying the result, as the bytes of an object that costs as much work."""
        return JSON_PATCH_OPERATION * len(value) if is_list(value) else 0

    def apply(self, kind: Kind, original: View, value: Value) -> Document:
        """Return the object after the mutation.

        Raise Refused if the mutation cannot be applied. Raise StatusError for an error that fails the write whatever
        the failurePolicy is.
        """
        effort.renew(cel_limits.MAX_CREATED)
        try:
            return self.patch(kind, original, value)
        except effort.Cancelled as error:
            raise Refused(str(error)) from error


class Mutations(Struct, frozen=True):
    """The mutations of a policy, in order.

    ``reinvoke`` is true if the reinvocationPolicy is IfNeeded.
    """

    mutations: Sequence[Mutation]
    reinvoke: bool


def compile_policy(document: View) -> list[Policy[Mutations]]:
    """Compile a stored MutatingAdmissionPolicy."""
    return [policy_of(document, _content)]


def _content(spec: View, environment: EnvironmentFactory) -> Mutations:
    within, made = environment(patches=True), list[Mutation]()
    for mutation in spec.get("mutations") or ():
        kind = mutation.get("patchType", "")
        member, wanted = PATCH_TYPES.get(kind) or PATCH_TYPES["ApplyConfiguration"]
        text = (mutation.get(member) or {}).get("expression") or ""
        made.append(Mutation(text, compiled(text, within, wanted), _PATCH_FUNCTIONS.get(kind, _apply)))
    return Mutations(made, spec.get("reinvocationPolicy") == "IfNeeded")


def _apply(kind: Kind, original: View, value: Value) -> Document:
    """Merge an apply configuration into the object, without field ownership.

    The schema of the object gives the list types.
    """
    if not isinstance(value, Constructed):
        raise Refused(f"unsupported return type from ApplyConfiguration expression: {go_type(value)}")
    _check_types(value)
    try:
        config = applied(value)
        _check_size(config)
        config = printable(config)
    except NotFinite as error:  # upstream: this error is reported only when the object is stored
        # So the write fails, even if the failurePolicy ignores errors of the policy.
        raise status.unknown(str(error)) from error
    except ValueError as error:
        raise Refused(str(error)) from error
    version, name = original.get("apiVersion") or "", original["kind"]
    if (version, name) != (kind.api_version, kind.name):  # an earlier JSON patch has changed the kind
        text = f"no corresponding type for {_go_version(version)}, Kind={name}"
        raise Refused(f"error applying patch: failed to convert patch object to typed object: {text}")
    config |= {"apiVersion": version, "kind": name}
    _check(kind, config, "patch", duplicates=False)
    whole = list(atomics(kind.type, config))
    if whole:
        text = "may not mutate atomic arrays, maps or structs"
        raise Refused(f"error applying patch: invalid ApplyConfiguration: {text}: {', '.join(whole)}")
    _check(kind, original, "original", duplicates=True)
    merged = merge(kind.type, original, config)
    _check_size(merged)
    merged = _cloned(merged)
    try:
        orjson.dumps(merged)
        return kind.complete(merged)[0]
    except orjson.JSONEncodeError as error:
        raise Refused("error applying patch: the patched document exceeds max depth") from error
    except ValueError as error:
        text = f"unable to convert unstructured object to {_go_version(version)}, Kind={name}"
        raise Refused(f"{text}: error decoding from json: {error}") from error


def _cloned(raw: Any) -> Any:
    """Return a copy without fields whose value is NO_SLICE, Go's nil slice.

    Upstream drops these when it decodes.
    """
    if type(raw) is dict:
        return {name: _cloned(value) for name, value in raw.items() if value is not NO_SLICE}
    return [_cloned(value) for value in raw] if type(raw) is list else raw


def _check_size(document: Any) -> None:
    """Raise Refused if a document certainly has more than limits.MAX_MUTATED bytes as JSON.

    The bytes are estimated without encoding, since a string that an expression uses many times is in memory once, but
    in JSON many times.
    """
    size, left = 0, [document]
    while left:
        value = left.pop()
        if type(value) is str:
            size += len(value)
        elif type(value) is dict:
            size += sum(map(len, value)) + 4 * len(value)
            left += value.values()
        elif type(value) is list:
            size += 2 * len(value)
            left += value
        if size > limits.MAX_MUTATED:
            raise Refused(f"the mutation makes more than {limits.MAX_MUTATED} bytes of JSON")


def _go_version(api_version: str) -> str:
    return api_version if "/" in api_version else f"/{api_version}"


def _check(kind: Kind, document: View, what: str, *, duplicates: bool) -> None:
    try:
        check(kind.type, document, duplicates=duplicates)
    except TypeFault as error:
        raise Refused(f"error applying patch: failed to convert {what} object to typed object: {error}") from error


def _check_types(value: Value) -> None:
    """Raise Refused if the type of a constructed object differs from the type of its field."""
    faults = mismatches(value) if isinstance(value, Constructed) else []
    if faults:
        raise Refused("type mismatch: " + "\n".join(faults))


def atomics(of: Type, value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of atomic lists and maps in an apply configuration.

    An apply would replace such a list or map as a whole.
    """
    if isinstance(value, dict) and of.map is not None:
        if not of.map.granular:
            yield path
        for name in sorted(value):
            # upstream: values of maps with arbitrary keys are not searched
            # The type of such a map declares no fields, so ``member`` is None.
            member = of.map.fields.get(name)
            if member is not None:
                yield from atomics(member, value[name], f"{path}.{name}")
    elif isinstance(value, list) and of.list is not None:
        if not of.list.granular:
            yield path
        for index, item in enumerate(value):
            yield from atomics(of.list.item, item, f"{path}[{index}]")


def _patch(kind: Kind, original: View, value: Value) -> Document:
    """Apply a JSON patch.

    Return the object unchanged if a ``test`` operation of the patch fails.
    """
    operations = [_operation(one) for one in elements(value)]
    _check_size(operations)
    try:
        found = json_patch.apply(original, operations)
    except json_patch.TestFailed:
        return dict(original)
    except json_patch.PatchInvalid as error:
        raise Refused(f"JSON Patch: {error}") from error
    _check_size(found)
    if kind.typed:
        check_type(found, kind.api_version, kind.name)
    else:
        check_kind(found)
    try:
        found, unknown = kind.complete(found)
    except ValueError as error:
        raise status.internal(str(error)) from error
    if unknown:
        listed = ", ".join(f"unknown field {go_quote(path)}" for path in sorted(unknown))
        raise status.internal(f"strict decoding error: {listed}")
    return found


def _operation(value: Value) -> Document:
    if not isinstance(value, Constructed):
        raise Refused("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
    given = value.fields
    made: Document = {"op": given.get("op", ""), "path": given.get("path", "")}
    if given.get("from"):
        made["from"] = given["from"]
    if "value" in given:
        _check_types(given["value"])
        try:
            made["value"] = json_of(given["value"])
            if made["value"] is None and made["op"] == "test":
                made["value"] = _UNEQUAL  # upstream: a null in a policy equals no value of an object, not even null
        except ValueError as error:
            text = "JSONPath valueExpression evaluated to a type that could not marshal to JSON"
            raise Refused(f"{text}: {error}") from error
    return made


_UNEQUAL: Document = {"": {"": None}}
"""A value that equals no value of an object."""
_PATCH_FUNCTIONS: Mapping[str, Patch] = {"ApplyConfiguration": _apply, "JSONPatch": _patch}
"""patchType → the function that applies the result of an expression of this type."""
