"""Functions of the authorizer: known by name, but rules of definitions have nothing to call them on."""

from apiext.cel.overloads import Library, Overload
from apiext.cel.types import STRING, make
from apiext.cel.values import Value, no_overload

_AUTHORIZER = make("object", "kubernetes.authorization.Authorizer")
_TEXTS = {
    "path": 1, "check": 1, "allowed": 0, "reason": 0, "error": 0, "errored": 0, "group": 1, "resource": 1,
    "subresource": 1, "namespace": 1, "name": 1, "serviceAccount": 2, "fieldSelector": 1, "labelSelector": 1,
}  # fmt: skip


def _never(*_: Value) -> Value:
    return no_overload()


LIBRARY = Library(
    "kubernetes.authz",
    tuple(
        Overload(name, f"authorizer_{name}", True, (_AUTHORIZER, *(STRING,) * texts), _AUTHORIZER, _never)
        for name, texts in _TEXTS.items()
    ),
    since=(1, 27),
)
