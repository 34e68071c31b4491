"""The paths and operations of a served version, before they are written as OpenAPI v2 or v3 (OAS-007, OAS-008)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from apiext.catalog.served import Endpoint, ServedVersion
from apiext.discovery import types

PATCH_TYPES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_STRATEGIC = "application/strategic-merge-patch+json"
BODY_TYPES = ("application/json", "application/yaml")
_DESCRIPTIONS = {200: "OK", 201: "Created", 202: "Accepted", 401: "Unauthorized"}
_LIST = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
)
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_PATCH = ("dryRun", "fieldManager for patch", "fieldValidation", "force")
_DELETE = (
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
)


@dataclass(frozen=True, slots=True)
class Action:
    """A kind of operation: the verb that allows it, its method, words, parameters, answers and kind of body."""

    verb: str
    method: str
    name: str  # x-kubernetes-action
    word: str  # the beginning of its operationId
    phrase: str  # its description; {sub} is " status of" or nothing, {a} the article
    parameters: tuple[str, ...]
    codes: tuple[int, ...]
    body: str = ""  # itself, patch, delete options, or none


_COLLECTION = (
    Action("list", "get", "list", "list", "list objects of kind {kind}", _LIST, (200,)),
    Action("create", "post", "post", "create", "create {a} {kind}", _WRITE, (200, 201, 202), "itself"),
    Action(
        "deletecollection",
        "delete",
        "deletecollection",
        "deletecollection",
        "delete collection of {kind}",
        _LIST,
        (200,),
    ),
)
_ITEM = (
    Action("get", "get", "get", "read", "read{sub} the specified {kind}", ("resourceVersion",), (200,)),
    Action("update", "put", "put", "replace", "replace{sub} the specified {kind}", _WRITE, (200, 201), "itself"),
    Action("delete", "delete", "delete", "delete", "delete {a} {kind}", _DELETE, (200, 202), "delete options"),
    Action("patch", "patch", "patch", "patch", "partially update{sub} the specified {kind}", _PATCH, (200,), "patch"),
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a path."""

    method: str
    action: str
    operation_id: str
    description: str
    parameters: tuple[str, ...]
    consumes: tuple[str, ...]
    answers: Mapping[int, str]  # code → model, empty for none
    body: str  # model, empty for none
    body_required: bool

    def response_texts(self) -> Iterator[tuple[int, str, str]]:
        """Yield code, description and model of each answer."""
        for code, model in self.answers.items():
            yield code, _DESCRIPTIONS[code], model


@dataclass(frozen=True, slots=True)
class PathItem:
    """One path with its operations and the parameters they have in common, by name."""

    path: str
    operations: tuple[Operation, ...]
    parameters: tuple[str, ...]


def tag(served: ServedVersion) -> str:
    """Return the tag of every operation of a group-version."""
    return f"{_identifier(_group_part(served))}_{_identifier(served.version)}"


def path_items(served: ServedVersion) -> list[PathItem]:
    """Return the paths of a served version, sorted."""
    root = f"/apis/{served.group}/{served.version}" if served.group else f"/api/{served.version}"
    base = f"{root}/namespaces/{{namespace}}/{served.resource}" if served.namespaced else f"{root}/{served.resource}"
    model = types.model_name(served, served.kind)
    everywhere = ("namespace", "pretty") if served.namespaced else ("pretty",)
    collection = [_operation(served, action, None, model) for action in _COLLECTION if action.verb in served.verbs]
    item = [_operation(served, action, None, model) for action in _ITEM if action.verb in served.verbs]
    found = [_path(base, collection, everywhere), _path(f"{base}/{{name}}", item, ("name", *everywhere))]
    for name, endpoint in served.endpoints.items():
        if name:
            shown = types.SCALE if endpoint.kind == "Scale" else model
            part = [_operation(served, action, endpoint, shown) for action in _ITEM if action.verb in endpoint.verbs]
            found.append(_path(f"{base}/{{name}}/{name}", part, ("name", *everywhere)))
    if served.namespaced and "list" in served.verbs:
        listing = _operation(served, _COLLECTION[0], None, model, all_namespaces=True)
        found.append(_path(f"{root}/{served.resource}", [listing], ("pretty",)))
    return sorted((one for one in found if one.operations), key=lambda one: one.path)


def _path(path: str, operations: Sequence[Operation], parameters: tuple[str, ...]) -> PathItem:
    """Return the path with the parameters that all its operations have moved to itself."""
    common = set.intersection(*(set(one.parameters) for one in operations)) if operations else set()
    trimmed = tuple(
        replace(one, parameters=tuple(name for name in one.parameters if name not in common)) for one in operations
    )
    return PathItem(path, trimmed, tuple(sorted({*parameters, *common})))


def _operation(
    served: ServedVersion, action: Action, endpoint: Endpoint | None, model: str, *, all_namespaces: bool = False
) -> Operation:
    kind = served.kind
    sub = endpoint.name if endpoint is not None else ""
    if all_namespaces:
        subject = f"{kind}ForAllNamespaces"
    else:
        subject = f"{'Namespaced' if served.namespaced else ''}{kind}{sub[:1].upper()}{sub[1:]}"
    bodies = {"itself": model, "patch": types.PATCH, "delete options": types.DELETE_OPTIONS}
    return Operation(
        action.method,
        action.name,
        _operation_id(served, action.word, subject),
        action.phrase.format(kind=kind, a=_article(kind), sub=f" {sub} of" if sub else ""),
        action.parameters,
        _consumes(served, action),
        dict.fromkeys(action.codes, _answer(served, action, model)) | {401: ""},
        bodies.get(action.body, ""),
        action.body in ("itself", "patch"),
    )


def _answer(served: ServedVersion, action: Action, model: str) -> str:
    if action.verb == "list":
        return types.model_name(served, served.list_kind)
    return types.STATUS if action.method == "delete" else model


def _consumes(served: ServedVersion, action: Action) -> tuple[str, ...]:
    if action.method != "patch":
        return BODY_TYPES
    return (*PATCH_TYPES, _STRATEGIC) if served.typed else PATCH_TYPES


def _operation_id(served: ServedVersion, word: str, subject: str) -> str:
    verb, rest = ("delete", "collection") if word == "deletecollection" else (word, "")
    group, version = _identifier(_group_part(served)), _identifier(served.version)
    return verb + _capital(group) + _capital(version) + _capital(rest + subject)


def _group_part(served: ServedVersion) -> str:
    return served.group.removesuffix(".k8s.io") if served.group else "core"


def _identifier(text: str) -> str:
    """Return letters and digits of the text, each part after the first capitalised."""
    found = []
    capital = False
    for position, char in enumerate(text):
        if char.isalpha() or char == "_" or (position and char.isdigit()):
            found.append(char.upper() if capital else char)
            capital = False
        else:
            capital = True
    return "".join(found)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _article(kind: str) -> str:
    return "an" if kind[:1].lower() in ("a", "e", "i", "o", "u") else "a"
