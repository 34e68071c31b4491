"""Features that depend on the version of etcd."""

import re

Version = tuple[int, int, int]


def parse_version(text: str) -> Version:
    """Return the first ``x.y.z`` in a text; (0, 0, 0) if there is none."""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


def orders_progress(version: Version) -> bool:
    """Report whether this etcd sends a progress notification only after all earlier events.

    The pull requests #15220, #15695 and #17557 fixed this in etcd.
    """
    return version >= ((3, 4, 31) if version < (3, 5, 0) else (3, 5, 13))
