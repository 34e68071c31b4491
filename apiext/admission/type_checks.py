"""Type errors in the expressions of a policy for the kinds that it matches.

Type errors do not affect writes. The status of a policy shows them to its author. Upstream:
plugin/policy/validating/typechecking.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import NamedTuple

from apiext.admission import limits
from apiext.catalog.admission_cel import typed_environment
from apiext.cel import types
from apiext.cel.declared import Declared
from apiext.cel.environment import Environment
from apiext.cel.source import Issues
from apiext.cel.types import Type
from apiext.documents.document import Document, View
from apiext.schema.cel_types import Types
from apiext.schema.parse import parse

MOST = 10  # maximum number of checked kinds of one rule (upstream: maxTypesToCheck)


class Kind(NamedTuple):
    """Group, version and kind of an object."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


KindsOf = Callable[[str, str, str], Sequence[Kind]]
"""(group, version, resource) → the kinds of the resource; empty if the resource is not served."""
SchemaOf = Callable[[Kind], View | None]
"""Kind → its schema with all references resolved; None if the kind has no schema."""


def warnings_of(policy: View, named: KindsOf, schema_of: SchemaOf) -> list[Document]:
    """Return ``status.typeChecking.expressionWarnings`` for a policy."""
    spec = policy.get("spec") or {}
    within = list(_environments(spec, named, schema_of))
    found = []
    for index, validation in enumerate(spec.get("validations") or ()):
        for name in ("expression", "messageExpression") if validation.get("messageExpression") else ("expression",):
            text = validation.get(name) or ""
            faults = [f"{kind}: {fault}\n" for kind, each in within if (fault := _fault(each, text))]
            if faults:
                found.append({"fieldRef": f"spec.validations[{index}].{name}", "warning": "\n".join(faults)})
    return found


def _environments(spec: View, named: KindsOf, schema_of: SchemaOf) -> Iterator[tuple[Kind, Environment]]:
    """Yield each kind that the policy matches, with the environment of its expressions.

    Skip kinds without a schema.
    """
    param_kind = spec.get("paramKind")
    params: Declared | Type | None = None
    if param_kind is not None:
        group, _, version = (param_kind.get("apiVersion") or "").rpartition("/")
        kind = Kind(group, version, param_kind.get("kind") or "")
        params = _declared(f"{kind.kind}0", schema_of(kind))
    for kind in kinds_of(spec, named):
        schema = schema_of(kind)
        if schema is not None:
            yield kind, _with_variables(spec, _declared(kind.kind, schema), params)


def kinds_of(spec: View, named: KindsOf) -> list[Kind]:
    """Return the kinds of the resources in the rules of a policy, sorted.

    Skip rules with a wildcard in a group or version. Skip subresources, and resources with a wildcard. Stop at MOST
    kinds of one rule, or after limits.ADMISSION_TYPES combinations of group, version and resource.
    """
    found: set[Kind] = set()
    left = limits.ADMISSION_TYPES
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        groups, versions = _plain(rule.get("apiGroups")), _plain(rule.get("apiVersions"))
        resources = sorted(name for name in rule.get("resources") or () if "*" not in name and "/" not in name)
        count = 0
        for group, version, resource in islice(product(groups, versions, resources), left):
            left -= 1
            for kind in named(group, version, resource):
                found.add(kind)
                count += 1
                if count == MOST:  # upstream: all further rules are ignored
                    return sorted(found)
    return sorted(found)


def _plain(names: Sequence[str] | None) -> list[str]:
    """Return the names sorted, or an empty list if one of them has a wildcard."""
    return [] if any("*" in name for name in names or ()) else sorted(names or ())


def _declared(name: str, schema: View | None) -> Declared | Type:
    """Return the CEL type of objects with a schema.

    Return dyn without a schema, or if the schema has no CEL type. Upstream adds the time to ``name`` to make it
    unique. Here, only the type of the object and the type of the params need different names, so the name of the
    params' type ends in 0.
    """
    declared = Types().declare(parse(schema), name, root=True) if schema is not None else None
    return declared if declared is not None else types.DYN


def _with_variables(spec: View, object_type: Declared | Type, params: Declared | Type | None) -> Environment:
    variables: dict[str, Type] = {}
    for variable in spec.get("variables") or ():
        within = typed_environment(object_type, params, variables)
        checked = within.check(variable.get("expression") or "")
        result = types.DYN if isinstance(checked, Issues) else _known(checked.result)
        variables = {**variables, variable.get("name") or "": result}
    return typed_environment(object_type, params, variables)


def _known(type: Type) -> Type:
    """Return the type of a variable whose expression has this type.

    Types of the kinds object, opaque and type become dyn, also inside lists and maps.
    """
    if type.kind in ("list", "map"):
        return types.make(type.kind, type.name, *map(_known, type.params))
    return types.DYN if type.kind in ("object", "opaque", "type") else type


def _fault(within: Environment, text: str) -> str:
    checked = within.check(text)
    return checked.text() if isinstance(checked, Issues) else ""


def resolved(reference: str, schemas: Mapping[str, View]) -> View | None:
    """Return a schema of an OpenAPI document with all references resolved.

    Return None if the document lacks the schema. A recursive reference becomes an object without properties (upstream:
    resolver.PopulateRefs).
    """
    return _resolved({"$ref": _PREFIX + reference}, schemas, ())


_PREFIX = "#/components/schemas/"


def _resolved(schema: View, schemas: Mapping[str, View], above: tuple[str, ...]) -> View | None:
    name = _reference(schema)
    if name in above:
        return {"type": "object"}
    found = schemas.get(name) if name else schema
    if found is None:
        return None
    path = (*above, name) if name else above
    made = {key: value for key, value in found.items() if key != "allOf"}
    if found.get("format") == "int-or-string":
        made["x-kubernetes-int-or-string"] = True
    if "properties" in made:
        made["properties"] = {key: _resolved(below, schemas, path) or {} for key, below in made["properties"].items()}
    for key in ("additionalProperties", "items"):
        if isinstance(made.get(key), Mapping):
            made[key] = _resolved(made[key], schemas, path)
    return made


def _reference(schema: View) -> str:
    """Return the name of the schema to which ``$ref`` or ``allOf`` refers.

    Return an empty string without a reference.
    """
    for part in (schema, *(schema.get("allOf") or ())):
        if "$ref" in part:
            return str(part["$ref"]).removeprefix(_PREFIX)
    return ""
