"""Names of groups, versions, resources and kinds, and the order of versions."""

import re

from msgspec import Struct


class GroupVersion(Struct, frozen=True, order=True):
    """An API group and version; the core group is the empty string."""

    group: str
    version: str


class GroupResource(Struct, frozen=True, order=True):
    """A plural resource name within a group; its text is ``crontabs.stable.example.com``."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class GroupKind(Struct, frozen=True, order=True):
    """A kind within a group; its text is ``CronTab.stable.example.com``."""

    group: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


_KUBE_VERSION = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?\Z")
_MOST = 2**63 - 1  # upstream: a version with a greater number is sorted like any other name
_STAGE = {"alpha": 0, "beta": 1, None: 2}


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Return the sort key of a version; the highest key is the preferred version (VER-001).

    GA versions are preferred over beta versions, and beta over alpha. Within a stage, higher numbers are preferred.
    Other names come last, in alphabetical order.
    """
    match = _KUBE_VERSION.match(version)
    if match is None or max(int(match[1]), int(match[3] or 0)) > _MOST:
        return (-1, 0, 0, "".join(chr(0x10FFFF - ord(c)) for c in version) + "\U0010ffff")
    major, stage, minor = match.groups()
    return (_STAGE[stage], int(major), int(minor or 0), "")


def sort_versions(versions: list[str]) -> list[str]:
    """Return the version names in order of preference, beginning with the preferred version.

    See VER-001.
    """
    return sorted(versions, key=version_priority, reverse=True)


def parse_group_version(api_version: str) -> GroupVersion | None:
    """Return the group and version of an apiVersion, or None if it has more than one slash."""
    if api_version.count("/") > 1:
        return None
    group, _, version = api_version.rpartition("/")
    return GroupVersion(group, version)
