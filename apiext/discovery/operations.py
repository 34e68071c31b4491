"""The paths and operations of a served version, independent of the version of OpenAPI.

See OAS-007, OAS-008.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from apiext.catalog import limits as catalog_limits
from apiext.catalog.served import Endpoint, ServedVersion
from apiext.discovery import types
from apiext.documents.document import Document
from apiext.meta.media_types import ENCODINGS, JSON, PATCH_TYPES, STREAMS, TYPED_PATCH_TYPES, YAML

BODY_TYPES = (JSON, YAML)
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
_DELETE_MANY = tuple(sorted({*_LIST, *_DELETE} - {"allowWatchBookmarks", "watch"}))
_BELOW = "path of *ProxyOptions"  # the key of the parameter for the path below a proxy
_METHODS = {"get": "get", "create": "post", "update": "put", "delete": "delete", "patch": "patch"}
"""Verb → HTTP method, for endpoints whose requests upstream forwards, such as exec or proxy."""
_INSTEAD = "deprecated: use the 'watch' parameter with a list operation instead"


class Action(Struct, frozen=True):
    """The properties that operations of one kind share, for example all lists."""

    verb: str
    method: str
    name: str  # the value of x-kubernetes-action
    word: str  # the first word of the operationId
    # the description; {sub} is "" or for example " status of"; {article} is " a ", " an ", or " " for a plural
    phrase: str
    parameters: tuple[str, ...]
    codes: tuple[int, ...]
    body: str = ""  # the kind of body: "itself" (the object), "patch", "delete options", or "" for no body


_COLLECTION = (
    Action("list", "get", "list", "list", "list objects of kind {kind}", _LIST, (200,)),
    Action("create", "post", "post", "create", "create{article}{kind}", _WRITE, (200, 201, 202), "itself"),
    Action("deletecollection", "delete", "deletecollection", "delete", "delete collection of {kind}", _LIST, (200,)),
)
_ITEM = (
    Action("get", "get", "get", "read", "read{sub} the specified {kind}", ("resourceVersion",), (200,)),
    Action("create", "post", "post", "create", "create{sub}{article}{kind}", _WRITE, (200, 201, 202), "itself"),
    Action("update", "put", "put", "replace", "replace{sub} the specified {kind}", _WRITE, (200, 201), "itself"),
    Action("delete", "delete", "delete", "delete", "delete{article}{kind}", _DELETE, (200, 202), "delete options"),
    Action("patch", "patch", "patch", "patch", "partially update{sub} the specified {kind}", _PATCH, (200,), "patch"),
)
_TYPED_COLLECTION = (
    replace(_COLLECTION[0], phrase="list or watch objects of kind {kind}"),
    _COLLECTION[1],
    replace(_COLLECTION[2], parameters=_DELETE_MANY, body="delete options"),
)
_TYPED_ITEM = (
    replace(_ITEM[0], parameters=()),
    *_ITEM[1:4],
    replace(_ITEM[4], codes=(200, 201)),
)
_WATCH_LIST = Action(
    "watch", "get", "watchlist", "watch", f"watch individual changes to a list of {{kind}}. {_INSTEAD}.", _LIST, (200,)
)
_WATCH_ONE = Action(
    "watch",
    "get",
    "watch",
    "watch",
    f"watch changes to an object of kind {{kind}}. {_INSTEAD}, filtered to a single item with the 'fieldSelector' "
    "parameter.",
    _LIST,
    (200,),
)


class Operation(Struct, frozen=True):
    """An operation of a path. ``gvk`` is (group, version, kind), None for paths of discovery.

    A model is a schema of OpenAPI, given by its name.
    """

    method: str
    action: str
    operation_id: str
    description: str
    tag: str
    answers: Mapping[int, str]  # status code → model of the response, "" for none
    consumes: tuple[str, ...]
    produces: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    body: str = ""  # model of the request body, "" for none
    body_required: bool = False
    gvk: tuple[str, str, str] | None = None

    def response_texts(self) -> Iterator[tuple[int, str, str]]:
        """Yield (status code, description, model) of each response."""
        for code, model in self.answers.items():
            yield code, _DESCRIPTIONS[code], model

    def extensions(self, as_map: bool = False) -> Document:
        """Return the extensions (``x-kubernetes-…``) of the operation.

        If ``as_map`` is true, sort the keys group, version and kind, as upstream does in OpenAPI v2.
        """
        if self.gvk is None:
            return {}
        found = dict(zip(("group", "version", "kind"), self.gvk, strict=True))
        kind = dict(sorted(found.items())) if as_map else found
        return {"x-kubernetes-action": self.action, "x-kubernetes-group-version-kind": kind}


class PathItem(Struct, frozen=True):
    """A path with its operations, the keys of their common parameters, and a kind.

    The kind is that of the resource, or of the options of a connection such as PodExecOptions. It is "" for a path
    without a resource.
    """

    path: str
    operations: tuple[Operation, ...]
    parameters: tuple[str, ...] = ()
    kind: str = ""


def tag(group: str, version: str) -> str:
    """Return the OpenAPI tag of all operations of a group and version, such as ``apps_v1``."""
    return f"{identifier(group_words(group))}_{identifier(version)}"


def path_items(served: ServedVersion) -> list[PathItem]:
    """Return the sorted paths of a served version."""
    names = served.names
    root = f"/apis/{names.api_version}" if names.group else f"/api/{names.version}"
    below = f"namespaces/{{namespace}}/{names.resource}" if names.namespaced else names.resource
    base = f"{root}/{below}"
    everywhere = ("namespace", "pretty") if served.names.namespaced else ("pretty",)
    named = ("name", *everywhere)
    collection, item = (_TYPED_COLLECTION, _TYPED_ITEM) if served.model.typed else (_COLLECTION, _ITEM)
    found = [
        _path(served, base, _allowed(served, collection, served.published.verbs), everywhere),
        _path(served, f"{base}/{{name}}", _allowed(served, [one for one in item if one.verb != "create"]), named),
    ]
    for name, endpoint in served.endpoints.items():
        if endpoint.connects:
            found += _connect_paths(served, f"{base}/{{name}}/{name}", endpoint, named[:-1])
        elif name:
            operations = _allowed(served, item, endpoint.verbs, endpoint)
            found.append(_path(served, f"{base}/{{name}}/{name}", operations, named))
    if served.names.namespaced and "list" in served.published.verbs:
        listing = _operation(served, collection[0], None, "ForAllNamespaces")
        found.append(_path(served, f"{root}/{served.names.resource}", [listing], ("pretty",)))
    if served.model.typed and "watch" in served.published.verbs:
        found += _watch_paths(served, root, below, everywhere)
    return sorted((one for one in found if one.operations), key=lambda one: one.path)


def _watch_paths(served: ServedVersion, root: str, below: str, everywhere: tuple[str, ...]) -> Iterator[PathItem]:
    """Yield the deprecated watch paths. Only built-in kinds have them."""
    list_all = _operation(served, _WATCH_LIST, None, "List")
    yield _path(served, f"{root}/watch/{below}", [list_all], everywhere)
    one = _operation(served, _WATCH_ONE, None, "")
    yield _path(served, f"{root}/watch/{below}/{{name}}", [one], ("name", *everywhere))
    if served.names.namespaced:
        everything = _operation(served, _WATCH_LIST, None, "ListForAllNamespaces")
        yield _path(served, f"{root}/watch/{served.names.resource}", [everything], ("pretty",))


def _connect_paths(served: ServedVersion, path: str, endpoint: Endpoint, named: tuple[str, ...]) -> Iterator[PathItem]:
    """Yield the path of an endpoint whose requests upstream forwards.

    For a proxy, also yield the pattern of the paths below it.
    """
    kind = endpoint.model.kind
    if endpoint.connects == "log":
        operation = replace(
            _operation(served, _TYPED_ITEM[0], endpoint),
            answers={200: types.TEXT, 401: ""},
            produces=("text/plain", *ENCODINGS),
        )
        yield PathItem(path, (operation,), tuple(sorted((*named, "pretty", *_options("PodLogOptions")))), kind)
        return
    parameters = (*named, *_options(kind))
    proxy = endpoint.name == "proxy"
    methods = [method for verb, method in _METHODS.items() if verb in endpoint.verbs]
    if proxy:
        methods += ["head", "options"]
    yield _connect_path(served, path, endpoint, methods, parameters)
    if proxy:
        yield _connect_path(served, f"{path}/{{path}}", endpoint, methods, (*parameters, _BELOW), "WithPath")


def _connect_path(
    served: ServedVersion,
    path: str,
    endpoint: Endpoint,
    methods: Sequence[str],
    parameters: Sequence[str],
    suffix: str = "",
) -> PathItem:
    names, kind = served.names, endpoint.model.kind
    scope = "Namespaced" if names.namespaced else ""
    subject = f"{scope}{names.kind}{_capital(endpoint.name)}{suffix}"
    operations = tuple(
        Operation(
            method,
            "connect",
            operation_id("connect", names.group, names.version, f"{_capital(method)}{subject}"),
            f"connect {method.upper()} requests to {endpoint.name} of {names.kind}",
            tag(names.group, names.version),
            {200: types.TEXT, 401: ""},
            ("*/*",),
            ("*/*",),
            gvk=_gvk(served, endpoint),
        )
        for method in methods
    )
    return PathItem(path, operations, tuple(sorted(parameters)), kind)


def _options(kind: str) -> Iterator[str]:
    """Yield the keys of the parameters for a kind of options, such as PodExecOptions."""
    return (key for key, one in types.data().parameters.items() if one.options == kind)


def _allowed(
    served: ServedVersion,
    actions: Sequence[Action],
    verbs: Sequence[str] | None = None,
    endpoint: Endpoint | None = None,
) -> list[Operation]:
    verbs = served.published.verbs if verbs is None else verbs
    return [_operation(served, action, endpoint) for action in actions if action.verb in verbs]


def _path(served: ServedVersion, path: str, operations: Sequence[Operation], parameters: tuple[str, ...]) -> PathItem:
    """Return a path item.

    Move parameters that all operations have from the operations to the path.
    """
    common = set.intersection(*(set(one.parameters) for one in operations)) if operations else set()
    trimmed = tuple(
        replace(one, parameters=tuple(name for name in one.parameters if name not in common)) for one in operations
    )
    return PathItem(path, trimmed, tuple(sorted({*parameters, *common})), served.names.kind)


def _operation(served: ServedVersion, action: Action, endpoint: Endpoint | None, suffix: str = "") -> Operation:
    kind = served.names.kind
    sub = endpoint.name if endpoint is not None else ""
    scope = "Namespaced" if served.names.namespaced and not suffix.endswith("ForAllNamespaces") else ""
    prefix = "Collection" if action.verb == "deletecollection" else ""
    subject = f"{prefix}{scope}{identifier(kind)}{sub[:1].upper()}{sub[1:]}{suffix}"
    model = _model(served, endpoint)
    bodies = {"itself": model, "patch": types.PATCH, "delete options": types.DELETE_OPTIONS}
    words = {"kind": kind, "article": _article(kind), "sub": f" {sub} of" if sub else ""}
    return Operation(
        action.method,
        action.name,
        operation_id(action.word, served.names.group, served.names.version, subject),
        action.phrase.format(**words),
        tag(served.names.group, served.names.version),
        dict.fromkeys(action.codes, _answer(served, action, model)) | {401: ""},
        _consumes(served, action),
        _produces(served, action),
        action.parameters,
        bodies.get(action.body, ""),
        action.body in ("itself", "patch"),
        _gvk(served, endpoint),
    )


def _gvk(served: ServedVersion, endpoint: Endpoint | None) -> tuple[str, str, str]:
    """Return the (group, version, kind) of an operation.

    Operations of a custom resource always have the kind of the resource.
    """
    if served.model.typed and endpoint is not None:
        return endpoint.model.group, endpoint.model.version, endpoint.model.kind
    return served.names.group, served.names.version, served.names.kind


def _model(served: ServedVersion, endpoint: Endpoint | None) -> str:
    """Return the name of the model of the objects that an endpoint reads and writes."""
    if endpoint is None or not endpoint.partial:
        return types.model_name(served, served.names.kind)
    return types.typed_model_name(endpoint.model.group, endpoint.model.version, endpoint.model.kind)


def _answer(served: ServedVersion, action: Action, model: str) -> str:
    if action.verb == "list":
        return types.model_name(served, served.names.list_kind)
    if action.verb == "watch":
        return types.WATCH_EVENT
    whole = (  # as upstream, the delete operation of namespaces declares a Status
        served.traits.returns_deleted and served.names.resource != "namespaces" and action.verb == "delete"
    )
    return types.STATUS if action.method == "delete" and not whole else model


def _consumes(served: ServedVersion, action: Action) -> tuple[str, ...]:
    if action.method == "patch":
        return TYPED_PATCH_TYPES if served.model.typed else PATCH_TYPES
    return ("*/*",) if served.model.typed else BODY_TYPES


def _produces(served: ServedVersion, action: Action) -> tuple[str, ...]:
    if not served.model.typed:
        return BODY_TYPES
    return (*ENCODINGS, *STREAMS) if action.verb in ("list", "watch") else ENCODINGS


def operation_id(word: str, group: str, version: str, subject: str) -> str:
    """Return an operationId, such as readStableExampleComV1NamespacedX.

    The example consists of read, stable.example.com, v1 and NamespacedX.
    """
    return "".join((word, _capital(identifier(group_words(group))), _capital(identifier(version)), _capital(subject)))


def group_words(group: str) -> str:
    """Return the group for tags and operationIds, without the suffix .k8s.io.

    The core group becomes "core".
    """
    return group.removesuffix(".k8s.io") if group else "core"


@lru_cache(catalog_limits.NAMES_SEEN)
def identifier(text: str) -> str:
    """Drop invalid characters of an identifier; capitalize the next letter: x-y.z → xYZ."""
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
    """Return the article between a verb and a kind, with blanks.

    As upstream, a kind that ends in a single ``s`` counts as a plural, which has no article.
    """
    if kind.endswith("s") and not kind.endswith("ss"):
        return " "
    return " an " if kind[:1].lower() in ("a", "e", "i", "o", "u") else " a "
