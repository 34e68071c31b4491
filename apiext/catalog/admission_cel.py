"""CEL environments of admission policies and matchConditions: variables, types, errors.

See ADM-006, cel/compile.go.
"""

from collections.abc import Mapping, Sequence
from functools import cache

from apiext.cel import attributes, types
from apiext.cel.base import Extension
from apiext.cel.constructed import OPEN, PATCH, Shape
from apiext.cel.declared import Declared
from apiext.cel.environment import Environment, Program, Rejected
from apiext.cel.library import patches as patching
from apiext.cel.library.authorization import AUTHORIZER, RESOURCE_CHECK
from apiext.cel.types import Type
from apiext.schema.work_budget import compiling, current, grow

BOOL = (types.BOOL,)
TEXT = (types.STRING,)
TEXT_OR_NULL = (types.STRING, types.NULL)
PATCHES = (types.list_of(types.object_named("JSONPatch")),)  # result types of the expression of a JSON patch
APPLY = (types.object_named("Object"),)  # result types of the expression of an apply configuration
PATCH_TYPES = {"ApplyConfiguration": ("applyConfiguration", APPLY), "JSONPatch": ("jsonPatch", PATCHES)}
"""patchType of a mutation → (field with its expression, allowed result types)."""
REQUEST_RESOURCE = "authorizer.requestResource"

_SCALARS = frozenset((
    types.BOOL, types.BYTES, types.DOUBLE, types.DURATION, types.INT, types.NULL, types.STRING, types.TIMESTAMP,
    types.UINT,
))  # fmt: skip
_TEXT = Declared("string")
_TEXTS = Declared("list", element=_TEXT)
_DYN = Declared("dyn", nullable=True)


def _object(type_name: str, /, **fields: Declared) -> Declared:
    return Declared("object", f"kubernetes.{type_name}", fields, fields)


def _request() -> Declared:
    kind = _object("GroupVersionKind", group=_TEXT, version=_TEXT, kind=_TEXT)
    resource = _object("GroupVersionResource", group=_TEXT, version=_TEXT, resource=_TEXT)
    extra = Declared("map", element=_TEXTS)
    user = _object("UserInfo", username=_TEXT, uid=_TEXT, groups=_TEXTS, extra=extra)
    texts = dict.fromkeys(("subResource", "requestSubResource", "name", "namespace", "operation"), _TEXT)
    return _object(
        "AdmissionRequest",
        kind=kind,
        resource=resource,
        requestKind=kind,
        requestResource=resource,
        userInfo=user,
        dryRun=Declared("bool"),
        options=_DYN,
        **texts,
    )


def _namespace() -> Declared:
    # upstream: times are declared as timestamps, although their values are strings
    time, number = Declared("timestamp"), Declared("int")
    texts = Declared("map", element=_TEXT)
    names = dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), _TEXT)
    metadata = _object(
        "NamespaceMetadata",
        labels=texts,
        annotations=texts,
        creationTimestamp=time,
        deletionTimestamp=time,
        deletionGracePeriodSeconds=number,
        generation=number,
        finalizers=_TEXTS,
        **names,
    )
    condition = _object(
        "NamespaceCondition", status=_TEXT, type=_TEXT, lastTransitionTime=time, message=_TEXT, reason=_TEXT
    )
    fields = {
        "metadata": metadata,
        "spec": _object("NamespaceSpec", finalizers=_TEXTS),
        "status": _object("NamespaceStatus", conditions=Declared("list", element=condition), phase=_TEXT),
    }
    return Declared("object", "kubernetes.Namespace", fields, fields, nullable=True)


REQUEST = _request()
NAMESPACE = _namespace()
_OBJECTS = (REQUEST, NAMESPACE)  # types for the type checker; their values are untyped maps
_VARIABLES = types.object_named(attributes.VARIABLES)


def _shape(name: str) -> Shape | None:
    """Return the fields (Shape) of a type that mutations may construct.

    Return None if they may not construct the type. The types are JSONPatch, Object, and nested types such as
    Object.spec.template.
    """
    if name == "JSONPatch":
        return PATCH
    return OPEN if name == "Object" or name.startswith("Object.") else None


_PATCHING = Extension(patching.LIBRARY, _shape)


def environment(
    *,
    params: bool = False,
    authorizer: bool = True,
    version: str = "stored",
    variables: Mapping[str, Type] | None = None,
    patches: bool = False,
) -> Environment:
    """Return the environment of admission expressions.

    ``params`` and ``authorizer`` are true if expressions may use the variables of these names. ``variables`` is name →
    type of spec.variables, None for objects without this field. ``version`` is "stored" for all functions, or "new" for
    the functions that new expressions may use. With ``patches``, expressions may construct objects and patches: only
    the expressions of spec.mutations may do this (upstream: HasPatchTypes).
    """
    if variables is None:
        return _plain(params, authorizer, version, patches)
    known = {**_globals(params, authorizer), **_composed(variables)}
    extension = _PATCHING if patches else None
    return Environment(known, version=version, extension=extension, objects=(*_OBJECTS, _variables_type(variables)))


def typed_environment(
    object_type: Declared | Type, params: Declared | Type | None, variables: Mapping[str, Type]
) -> Environment:
    """Return the environment that checks expressions against schemas.

    ``object_type`` is the type of the object. As upstream, the environment does not declare authorizer.requestResource.
    """
    known: dict[str, Declared | Type] = {"object": object_type, "oldObject": object_type, "authorizer": AUTHORIZER}
    known |= {"namespaceObject": NAMESPACE.type(), "request": REQUEST.type()}
    if params is not None:
        known["params"] = params
    return Environment({**known, **_composed(variables)}, objects=(*_OBJECTS, _variables_type(variables)))


def _composed(variables: Mapping[str, Type]) -> dict[str, Type]:
    """Return name → type of the global ``variables`` and of each field ``variables.<name>``."""
    return {"variables": _VARIABLES, **{f"variables.{name}": _declared_type(kind) for name, kind in variables.items()}}


def _variables_type(variables: Mapping[str, Type]) -> Declared:
    """Return the declared type of the global ``variables``, with its fields."""
    fields = {name: Declared("dyn", known=_declared_type(kind)) for name, kind in variables.items()}
    return Declared("object", _VARIABLES.name, fields, fields)


def _declared_type(kind: Type) -> Type:
    """Return the declared type of a variable: scalars keep their type, other types become dyn.

    Lists and maps keep the types of scalar elements (upstream: convertCelTypeToDeclType).
    """

    if kind in _SCALARS:
        return kind
    if kind.kind in ("list", "map"):
        return types.make(kind.kind, kind.name, *map(_declared_type, kind.params))
    return types.DYN


@cache
def _plain(params: bool, authorizer: bool, version: str, patches: bool) -> Environment:
    extension = _PATCHING if patches else None
    return Environment(_globals(params, authorizer), version=version, extension=extension, objects=_OBJECTS)


def _globals(params: bool, authorizer: bool) -> dict[str, Type]:
    known = {
        "object": types.DYN, "oldObject": types.DYN, "namespaceObject": NAMESPACE.type(), "request": REQUEST.type(),
    }  # fmt: skip
    if params:
        known["params"] = types.DYN
    if authorizer:
        known |= {"authorizer": AUTHORIZER, REQUEST_RESOURCE: RESOURCE_CHECK}
    return known


def compiled(text: str, within: Environment, wanted: Sequence[Type] = ()) -> Program | str:
    """Compile an expression; return the program, or upstream's error message.

    ``wanted`` are the allowed result types; empty allows all types. Raises BudgetExhausted if a work budget is active
    and exhausted.
    """
    current().spend(compiling(text))
    found = within.compile(text, weigh=grow)
    if found.result is None:
        return f"compilation failed: {found.text}"
    if wanted and found.result not in wanted:
        listed = _named(wanted[0]) if len(wanted) == 1 else f"one of [{' '.join(map(_named, wanted))}]"
        return f"must evaluate to {listed} but got {_named(found.result)}"
    return f"program instantiation failed: {found.text}" if isinstance(found, Rejected) else found


def _named(type: Type) -> str:
    """Return the name of a type with its parameters, as Go prints types in this error message."""
    return f"{type.name}({', '.join(map(_named, type.params))})" if type.params else type.name
