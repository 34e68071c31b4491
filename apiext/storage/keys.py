"""Keys of objects in etcd, in the layout of kube-apiserver, and the names in a key (ETC-001, ETC-008)."""

from apiext.meta.names import GroupResource


class Keys:
    """Keys below one prefix. The prefix gets a leading slash, and trailing slashes are removed."""

    def __init__(self, prefix: str) -> None:
        self.root = "/" + prefix.strip("/") + "/" if prefix.strip("/") else "/"

    def path(self, resource: GroupResource) -> str:
        """Return the path of a collection below the prefix: ``<group>/<plural>``, for the core group ``<plural>``."""
        return f"{resource.group}/{resource.resource}" if resource.group else resource.resource

    def collection(self, resource: GroupResource) -> str:
        """Return the prefix of all objects of a resource, with a trailing slash."""
        return f"{self.root}{self.path(resource)}/"

    def object(self, resource: GroupResource, namespace: str, name: str) -> str:
        """Return the key of one object, whose validated names contain no slash."""
        return f"{self.collection(resource)}{relative(namespace, name)}"

    def guard(self, definition_name: str) -> str:
        """Return the guard key of a CustomResourceDefinition.

        Every put of its objects compares the revision of the key.
        """
        return f"{self.root}.apiext/guards/{definition_name}"

    @property
    def absent(self) -> str:
        """A key that never exists. It is below the prefix, so that the etcd user of the server may read it."""
        return f"{self.root}\0"

    @property
    def progress(self) -> str:
        """The key to write so that the root watch gets an event."""
        return f"{self.root}.apiext/progress"


def relative(namespace: str, name: str) -> str:
    """Return an object's key within its collection: ``namespace/name``, or the name if there is no namespace."""
    return f"{namespace}/{name}" if namespace else name


def split_relative(key: str, namespaced: bool) -> tuple[str, str] | None:
    """Return namespace and name of an object's key within its collection, None if the key is invalid (ETC-008)."""
    namespace, slash, name = key.rpartition("/")
    if not name or "/" in namespace or bool(slash) is not namespaced or (namespaced and not namespace):
        return None
    return namespace, name


def bounds(namespace: str | None) -> tuple[str, str]:
    """Return (first, end): the range of the keys of a namespace within the collection, without ``end`` ("": no end)."""
    return (f"{namespace}/", f"{namespace}0") if namespace else ("", "")
