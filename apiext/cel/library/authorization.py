"""Functions of the authorizer: known by name, but rules of definitions have nothing to call them on."""

from apiext.cel.overloads import Library, Overload
from apiext.cel.types import STRING, make
from apiext.cel.values import Value, no_overload

_AUTHORIZER = make("object", "kubernetes.authorization.Authorizer")
_NAMES = (
    "path", "check", "allowed", "reason", "error", "errored", "group", "resource", "subresource", "namespace", "name",
    "serviceAccount", "fieldSelector", "labelSelector",
)  # fmt: skip


def _never(*_: Value) -> Value:
    return no_overload()


LIBRARY = Library(
    "kubernetes.authz",
    tuple(
        Overload(name, f"authorizer_{name}", True, (_AUTHORIZER,), STRING, _never, (), (_AUTHORIZER.name,))
        for name in _NAMES
    ),
    since=(1, 27),
)
