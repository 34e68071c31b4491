"""The graceful deletion of pods: a pod on a node stays until its node has stopped it (upstream: rest.BeforeDelete)."""

from datetime import timedelta

from apiext.documents.document import Document, View
from apiext.meta.names import GroupResource
from apiext.meta.options import DeleteOptions
from apiext.meta.time import parse, render

PODS = GroupResource("", "pods")
_ENDED = ("Failed", "Succeeded")


class Grace:
    """The time that a pod has before it is deleted."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = 0  # seconds of a deletion that has begun

    def is_pending(self, pod: View, options: DeleteOptions) -> bool:
        """Report whether a pod is being deleted already, at least as soon as requested now."""
        self._left = _seconds_left(pod)
        if not self._left:
            return False
        asked = _period(options)
        return asked is None or asked >= self._left

    def marked(self, pod: Document, kept: Document | None, options: DeleteOptions, now: str) -> Document | None:
        """Mark a pod as being deleted; return it, or None if nothing keeps it any longer.

        ``kept`` is the pod as its finalizers keep it, None if there are none. Call ``is_pending`` before.
        """
        metadata = pod["metadata"]
        left = self._left
        if kept is None and metadata.get("deletionTimestamp") and not left:
            return None
        period = _period(options) if left else _granted(pod, options)
        assert period is not None, "a deletion that does not say when is pending"
        due = parse(now) + timedelta(seconds=period)
        if left:
            due = parse(metadata["deletionTimestamp"]) + timedelta(seconds=period - left)
            if due < parse(now):
                due, period = parse(now), min(period, 1)
        elif kept is None and metadata.get("generation"):
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = render(due)
        metadata["deletionGracePeriodSeconds"] = period
        if kept is None and not period:
            return None
        metadata.pop("resourceVersion", None)
        return pod


def _seconds_left(pod: View) -> int:
    metadata = pod["metadata"]
    seconds: int = metadata.get("deletionGracePeriodSeconds") or 0
    return (1 if seconds < 0 else seconds) if metadata.get("deletionTimestamp") else 0


def _period(options: DeleteOptions) -> int | None:
    """Return the seconds that the client grants; fewer than none are one."""
    given = options.grace_period_seconds
    return 1 if given is not None and given < 0 else given


def _granted(pod: View, options: DeleteOptions) -> int:
    """Return the grace period of a pod in seconds: the requested or its own; 0 without a node or after its end."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in _ENDED:
        return 0
    asked = _period(options)
    period: int = (spec.get("terminationGracePeriodSeconds") or 0) if asked is None else asked
    return 1 if period < 0 else period
