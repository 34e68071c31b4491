"""Delete pods gracefully: a pod on a node is kept until the node stops it (upstream: rest.BeforeDelete)."""

from datetime import timedelta

from apiext.documents.document import Document, View
from apiext.meta.names import GroupResource
from apiext.meta.options import DeleteOptions
from apiext.meta.time import parse, render
from apiext.verbs import limits

PODS = GroupResource("", "pods")
_ENDED = ("Failed", "Succeeded")


class Grace:
    """Decide the grace period of a delete of one pod; call ``is_pending``, then ``marked``."""

    __slots__ = ("_left", "ends")

    def __init__(self) -> None:
        self._left = 0  # seconds of a deletion in progress
        self.ends = False  # the marked pod has no time left and no finalizer: it is deleted after its mark is stored

    def is_pending(self, pod: View, options: DeleteOptions) -> bool:
        """Return whether a pod is already being deleted, no later than now requested."""
        self._left = _seconds_left(pod)
        if not self._left:
            return False
        asked = _period(options)
        return asked is None or asked >= self._left

    def marked(self, pod: Document, kept: Document | None, options: DeleteOptions, now: str) -> Document | None:
        """Return the pod with its deletionTimestamp, or None if it was marked before and has no time left.

        ``kept`` is the pod with its finalizers, or None without any. Call ``is_pending`` first.
        """
        metadata = pod["metadata"]
        left = self._left
        self.ends = False
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
        self.ends = kept is None and not period
        metadata.pop("resourceVersion", None)
        return pod


def _seconds_left(pod: View) -> int:
    metadata = pod["metadata"]
    seconds: int = metadata.get("deletionGracePeriodSeconds") or 0
    return _bounded(seconds) if metadata.get("deletionTimestamp") else 0


def _period(options: DeleteOptions) -> int | None:
    """Return the grace period that the client requests, in seconds, or None; a negative one is 1."""
    given = options.grace_period_seconds
    return None if given is None else _bounded(given)


def _granted(pod: View, options: DeleteOptions) -> int:
    """Return the grace period of a pod in seconds: the requested one or its own; 0 without a node or after its end."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in _ENDED:
        return 0
    asked = _period(options)
    return _bounded(spec.get("terminationGracePeriodSeconds") or 0) if asked is None else asked


def _bounded(seconds: int) -> int:
    return 1 if seconds < 0 else min(seconds, limits.GRACE_PERIOD)
