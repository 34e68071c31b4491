"""Settings of hypothesis for expensive tests, in proportion to the profile of the run."""

from __future__ import annotations

from typing import Any

import hypothesis

from tests.plugin import EXAMPLES


def examples(count: int, **more: Any) -> hypothesis.settings:
    """Return settings with ``count`` examples on CI.

    The profile `long` has ten times as many.
    """
    return hypothesis.settings(max_examples=count * hypothesis.settings.default.max_examples // EXAMPLES, **more)
