"""Which etcd versions can be trusted with what."""

import re

Version = tuple[int, int, int]


def parse_version(text: str) -> Version:
    """Read the first x.y.z of a text; (0, 0, 0) when there is none."""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 0, 0)


def is_durable(version: Version) -> bool:
    """Tell whether a single node keeps what it acknowledged through a crash (etcd 13766, 14370)."""
    return version >= ((3, 4, 21) if version < (3, 5, 0) else (3, 5, 5))


def answers_progress(version: Version) -> bool:
    """Tell whether a progress answer never overtakes events (etcd 15220, 15695, 17557)."""
    return version >= ((3, 4, 31) if version < (3, 5, 0) else (3, 5, 13))


def may_renumber(version: Version) -> bool:
    """Tell whether a crash can give acknowledged writes other revisions (3.5.0 to 3.5.4)."""
    return (3, 5, 0) <= version < (3, 5, 5)


def progress_flag(version: Version) -> str | None:
    """Return the flag that sets how often idle watches hear of progress, None when there is none."""
    if version >= (3, 6, 0):
        return "--watch-progress-notify-interval"
    return "--experimental-watch-progress-notify-interval" if version >= (3, 4, 23) else None
