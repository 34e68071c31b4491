"""Generate random names from the prefix in ``generateName``.

Upstream: apiserver's names.SimpleNameGenerator.
"""

import random

_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"  # upstream: no vowels, so that names contain no words
_MAX_PREFIX = 58  # 63 minus the length of the random part
_RANDOM_LENGTH = 5


def generate_name(prefix: str) -> str:
    """Return a random name that begins with a generateName prefix (WRI-002)."""
    return prefix[:_MAX_PREFIX] + "".join(random.choices(_CHARACTERS, k=_RANDOM_LENGTH))
