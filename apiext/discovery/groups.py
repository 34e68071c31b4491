"""The legacy discovery documents of groups, versions and resources (DIS-101…105, DIS-108)."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from apiext.catalog.served import TERMINATING_VERBS, Catalog, Endpoint, ServedResource, ServedVersion
from apiext.documents.document import Document
from apiext.meta.names import sort_versions

CORE = ""
_ORDER = {"status": 0, "scale": 1}  # upstream's order of the subresources of custom resources (DIS-112)
_OWN = (
    CORE, "apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
    "autoscaling", "batch", "certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io",
    "storage.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io",
    "coordination.k8s.io", "node.k8s.io", "discovery.k8s.io", "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io", "storagemigration.k8s.io",
)  # fmt: skip
"""The groups of built-in kinds, in the order of upstream's priorities.

If several groups have a resource of the same name, clients take the first of these groups.
"""


class Published(Struct, frozen=True):
    """A resource in one version, as discovery lists it."""

    resource: ServedResource
    version: ServedVersion

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs of the resource.

        There are fewer verbs while the definition is being deleted (DEL-004).
        """
        if not self.resource.definition.terminating:
            return self.version.published.verbs
        return tuple(verb for verb in self.version.published.verbs if verb in TERMINATING_VERBS)

    def subresources(self) -> list[Endpoint]:
        """Return the subresources in upstream's order.

        Subresources of built-in kinds are sorted by name.
        """
        found = [endpoint for name, endpoint in self.version.endpoints.items() if name]
        order = {} if self.resource.builtin else _ORDER
        return sorted(found, key=lambda endpoint: (order.get(endpoint.name, len(order)), endpoint.name))


ByVersion = Mapping[str, Mapping[str, Sequence[Published]]]


def published(catalog: Catalog) -> ByVersion:
    """Return group → version → resources, for established resources.

    Groups of built-in kinds precede other groups (DIS-107). Versions are in Kubernetes' order, such as v2, v1, v1beta1.
    Resources are sorted by name. The name of the core group is "".
    """
    return catalog.compute_once("discovery.published", _published)


def _published(catalog: Catalog) -> ByVersion:
    groups: dict[str, dict[str, list[Published]]] = {}
    own: set[str] = set()
    for (group, _), resource in sorted(catalog.resources.items()):
        if not resource.definition.established:
            continue
        if resource.builtin:
            own.add(group)
        versions = groups.setdefault(group, {})
        for name, version in resource.versions.items():
            versions.setdefault(name, []).append(Published(resource, version))

    def place(group: str) -> tuple[bool, int, str]:
        return group not in own, _OWN.index(group) if group in own and group in _OWN else len(_OWN), group

    order = sorted((group for group, versions in groups.items() if versions), key=place)
    return {group: {name: groups[group][name] for name in sort_versions(list(groups[group]))} for group in order}


def core_versions(catalog: Catalog, address: str) -> Document:
    """Return the APIVersions document of ``/api``. ``address`` is host and port of the server."""
    return {
        "kind": "APIVersions",
        "versions": list(published(catalog).get(CORE, ())),
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(catalog: Catalog) -> Document:
    """Return the APIGroupList document of ``/apis`` (DIS-108)."""
    groups = [_group(name, versions) for name, versions in published(catalog).items() if name != CORE]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(catalog: Catalog, name: str) -> Document | None:
    """Return the APIGroup document of ``/apis/<group>``, None if there is no such group."""
    versions = published(catalog).get(name) if name != CORE else None
    if versions is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _group(name: str, versions: Mapping[str, object]) -> Document:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resource_list(catalog: Catalog, group: str, version: str) -> Document | None:
    """Return the APIResourceList document of a group and version.

    Return None if this version is not served. See DIS-105.
    """
    found = published(catalog).get(group, {}).get(version)
    if found is None:
        return None
    written = {"apiVersion": "v1", "groupVersion": f"{group}/{version}"} if group else {"groupVersion": version}
    return {"kind": "APIResourceList", **written, "resources": [entry for one in found for entry in _entries(one)]}


def _entries(one: Published) -> list[Document]:
    """Return the entries of a resource and of its subresources (DIS-102)."""
    served = one.version
    entry: Document = {
        "name": served.names.resource,
        "singularName": served.published.singular,
        "namespaced": served.names.namespaced,
        "kind": served.names.kind,
        "verbs": list(one.verbs),
    }
    if served.published.short_names:
        entry["shortNames"] = list(served.published.short_names)
    if served.published.categories:
        entry["categories"] = list(served.published.categories)
    if served.published.storage_version_hash and one.resource.storage is not None:
        entry["storageVersionHash"] = served.published.storage_version_hash
    return [entry, *(_subentry(served, endpoint) for endpoint in one.subresources())]


def _subentry(served: ServedVersion, endpoint: Endpoint) -> Document:
    entry: Document = {
        "name": f"{served.names.resource}/{endpoint.name}",
        "singularName": "",
        "namespaced": served.names.namespaced,
    }
    model = endpoint.model
    if endpoint.partial and model.api_version != served.names.api_version:
        entry |= {"group": model.group, "version": model.version}
    entry |= {"kind": model.kind, "verbs": list(endpoint.verbs)}
    return entry
