"""CEL functions of the authorizer: a chain of calls that ends with ``check``.

Upstream: library/authz.go. Only admission passes the authorizer as a variable; validation rules of definitions cannot
use it.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from apiext.cel.costs import FLAT, Cost
from apiext.cel.library.named_formats import FORMATS
from apiext.cel.overloads import Implement, Library, Overload
from apiext.cel.types import BOOL, STRING, Type, make
from apiext.cel.values import Fault, Special, Value, no_overload

_PREFIX = "kubernetes.authorization."
AUTHORIZER = make("object", f"{_PREFIX}Authorizer")
PATH_CHECK = make("object", f"{_PREFIX}PathCheck")
GROUP_CHECK = make("object", f"{_PREFIX}GroupCheck")
RESOURCE_CHECK = make("object", f"{_PREFIX}ResourceCheck")
DECISION = make("object", f"{_PREFIX}Decision")


class Question(Struct, frozen=True):
    """The attributes of an authorization check: of a path, or of a resource if ``path`` is None.

    ``user`` is "" for the user of the request.
    """

    verb: str = ""
    path: str | None = None
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    user: str = ""


Authorize = Callable[[Question], tuple[bool, str]]
"""Returns (whether the authorizer allows the access, its reason)."""
_NOTHING = Question()


class Check(Special):
    """A value in the chain: the authorizer, or a path, group or resource to check."""

    __slots__ = ("authorize", "question", "type_name")

    def __init__(self, type_name: str, authorize: Authorize, question: Question = _NOTHING) -> None:
        self.type_name = type_name
        self.authorize = authorize
        self.question = question

    def same(self, other: Value) -> Fault:
        """Return a fault: as upstream, expressions cannot compare values of this type."""
        return no_overload()


class Decision(Special):
    """The authorizer's decision."""

    __slots__ = ("allowed", "reason")
    type_name = DECISION.name

    def __init__(self, allowed: bool, reason: str) -> None:
        self.allowed = allowed
        self.reason = reason

    def same(self, other: Value) -> Fault:
        """Return a fault: as upstream, expressions cannot compare decisions."""
        return no_overload()


def authorizer(authorize: Authorize) -> Check:
    """Return the value of the variable ``authorizer``."""
    return Check(AUTHORIZER.name, authorize)


def resource_check(authorize: Authorize, question: Question) -> Check:
    """Return the value of the variable ``authorizer.requestResource``."""
    return Check(RESOURCE_CHECK.name, authorize, question)


def _into(kind: Type, field: str, *, needed: bool = False) -> Implement:
    def step(check: Check, *texts: Value) -> Value:
        if needed and not texts[0].strip():
            return Fault(f"{field} must not be empty")  # such as "resource must not be empty", as upstream
        return Check(kind.name, check.authorize, replace(check.question, **{field: texts[0]}))

    return step


def _account(check: Check, namespace: Value, name: Value) -> Value:
    if FORMATS["dns1123Subdomain"].test(name):
        return Fault("Invalid service account name")
    if FORMATS["dns1123Label"].test(namespace):
        return Fault("Invalid service account namespace")
    asked = replace(check.question, user=f"system:serviceaccount:{namespace}:{name}")
    return Check(check.type_name, check.authorize, asked)


def _same(check: Value, *_: Value) -> Value:
    return check  # selectors are ignored: a user with access to all objects also has access to a selection


def _check(check: Check, verb: Value) -> Value:
    return Decision(*check.authorize(replace(check.question, verb=verb)))


_ANSWERS: Mapping[str, Callable[[Decision], Value]] = {
    "allowed": lambda decision: decision.allowed,
    "reason": lambda decision: decision.reason,
    "errored": lambda _: False,
    "error": lambda _: "",
}


_QUESTION_COST = 350_000
_QUESTION = Cost(
    lambda args, result: _QUESTION_COST, lambda call: ((_QUESTION_COST, _QUESTION_COST), None), by_name=True
)

_ROWS: tuple[tuple[str, Type, int, Type, Implement], ...] = (
    ("path", AUTHORIZER, 1, PATH_CHECK, _into(PATH_CHECK, "path", needed=True)),
    ("group", AUTHORIZER, 1, GROUP_CHECK, _into(GROUP_CHECK, "group")),
    ("serviceAccount", AUTHORIZER, 2, AUTHORIZER, _account),
    ("resource", GROUP_CHECK, 1, RESOURCE_CHECK, _into(RESOURCE_CHECK, "resource", needed=True)),
    ("subresource", RESOURCE_CHECK, 1, RESOURCE_CHECK, _into(RESOURCE_CHECK, "subresource")),
    ("namespace", RESOURCE_CHECK, 1, RESOURCE_CHECK, _into(RESOURCE_CHECK, "namespace")),
    ("name", RESOURCE_CHECK, 1, RESOURCE_CHECK, _into(RESOURCE_CHECK, "name")),
    ("fieldSelector", RESOURCE_CHECK, 1, RESOURCE_CHECK, _same),
    ("labelSelector", RESOURCE_CHECK, 1, RESOURCE_CHECK, _same),
    ("check", PATH_CHECK, 1, DECISION, _check),
    ("check", RESOURCE_CHECK, 1, DECISION, _check),
    ("allowed", DECISION, 0, BOOL, _ANSWERS["allowed"]),
    ("reason", DECISION, 0, STRING, _ANSWERS["reason"]),
    ("errored", DECISION, 0, BOOL, _ANSWERS["errored"]),
    ("error", DECISION, 0, STRING, _ANSWERS["error"]),
)

LIBRARY = Library(
    "kubernetes.authz",
    tuple(
        Overload(
            name,
            f"{owner.name.removeprefix(_PREFIX).lower()}_{name}",
            True,
            (owner, *(STRING,) * texts),
            result,
            run,
            _QUESTION if run is _check else FLAT,
            wanted=(owner.name, *("string",) * texts),
        )
        for name, owner, texts, result, run in _ROWS
    ),
    since=(1, 27),
)
