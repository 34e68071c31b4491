"""Keys of objects in etcd, and the names in a key (ETC-001).

The layout is that of kube-apiserver, except for DIF-033.
"""

from apiext.meta.names import GroupResource


class Keys:
    """Keys below a prefix such as ``registry``.

    ``root`` is the prefix with one slash at each end: ``/registry/``.
    """

    def __init__(self, prefix: str) -> None:
        self.root = "/" + prefix.strip("/") + "/" if prefix.strip("/") else "/"

    def path(self, resource: GroupResource) -> str:
        """Return the path of a collection below the root: ``<group>/<plural>``.

        The path of a resource of the core group is ``<plural>``. kube-apiserver uses this form for most built-in kinds
        of other groups, too (DIF-033).
        """
        return f"{resource.group}/{resource.resource}" if resource.group else resource.resource

    def collection(self, resource: GroupResource) -> str:
        """Return the prefix of all objects of a resource, with a trailing slash."""
        return f"{self.root}{self.path(resource)}/"

    def object(self, resource: GroupResource, namespace: str, name: str) -> str:
        """Return the key of one object, whose validated names contain no slash."""
        return f"{self.collection(resource)}{relative(namespace, name)}"

    def guard(self, definition_name: str) -> str:
        """Return the guard key of a CustomResourceDefinition.

        Its value changes with the spec of the definition. Each put of an object of the definition compares the revision
        of this key in its transaction (decisions/0010).
        """
        return f"{self.root}.apiext/guards/{definition_name}"

    @property
    def absent(self) -> str:
        """A key that never exists.

        It is below the root, so that the etcd user of the server may read it.
        """
        return f"{self.root}\0"

    @property
    def progress(self) -> str:
        """The key that the server writes so that its watch of the whole prefix gets an event."""
        return f"{self.root}.apiext/progress"


def relative(namespace: str, name: str) -> str:
    """Return an object's key within its collection: ``namespace/name``, or ``name``."""
    return f"{namespace}/{name}" if namespace else name


def split_relative(key: str, namespaced: bool) -> tuple[str, str] | None:
    """Return namespace and name of an object's key within its collection.

    Return None if the key is invalid. See ETC-008.
    """
    namespace, slash, name = key.rpartition("/")
    if not name or "/" in namespace or bool(slash) is not namespaced or (namespaced and not namespace):
        return None
    return namespace, name


def bounds(namespace: str | None) -> tuple[str, str]:
    """Return (first, end): the range of the keys of a namespace within the collection.

    ``end`` is not in the range. For None, return the range of all keys: two empty strings.
    """
    return (f"{namespace}/", f"{namespace}0") if namespace else ("", "")
