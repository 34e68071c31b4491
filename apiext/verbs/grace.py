"""Delete pods gracefully (upstream: rest.BeforeDelete).

A running pod on a node stays stored until a delete with a grace period of 0. The kubelet of the node sends this delete
once the pod has stopped.
"""

from datetime import timedelta

from apiext.documents.document import Document, View
from apiext.meta.names import GroupResource
from apiext.meta.options import DeleteOptions
from apiext.meta.time import parse, render
from apiext.verbs import limits

PODS = GroupResource("", "pods")
_ENDED = ("Failed", "Succeeded")


class Grace:
    """Decides the grace period of a delete of one pod; call ``is_pending``, then ``marked``."""

    __slots__ = ("_current_period", "ends")

    def __init__(self) -> None:
        self._current_period = 0  # deletionGracePeriodSeconds of a deletion in progress, else 0
        # true if ``marked`` has set a grace period of 0, and the pod has no finalizers: the server stores the pod with
        # its deletionTimestamp, then deletes the pod
        self.ends = False

    def is_pending(self, pod: View, options: DeleteOptions) -> bool:
        """Return whether a pod is being deleted and this delete does not shorten its grace period.

        Return False if the pod's current grace period is 0.
        """
        self._current_period = _current_period_of(pod)
        if not self._current_period:
            return False
        requested = _period(options)
        return requested is None or requested >= self._current_period

    def marked(self, pod: Document, kept: Document | None, options: DeleteOptions, now: str) -> Document | None:
        """Return the pod with its new deletionTimestamp and grace period.

        Return None if the pod already has a deletionTimestamp with a grace period of 0, and has no finalizers.
        ``kept`` is the pod with its finalizers, None if the pod has no finalizers. Call ``is_pending`` first.
        """
        metadata = pod["metadata"]
        current = self._current_period
        self.ends = False
        if kept is None and metadata.get("deletionTimestamp") and not current:
            return None
        period = _period(options) if current else _granted(pod, options)
        assert period is not None, "is_pending returns True for a delete without a grace period"
        due = parse(now) + timedelta(seconds=period)
        if current:
            due = parse(metadata["deletionTimestamp"]) + timedelta(seconds=period - current)
            if due < parse(now):
                due, period = parse(now), min(period, 1)
        elif kept is None and metadata.get("generation"):
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = render(due)
        metadata["deletionGracePeriodSeconds"] = period
        self.ends = kept is None and not period
        metadata.pop("resourceVersion", None)
        return pod


def _current_period_of(pod: View) -> int:
    metadata = pod["metadata"]
    seconds: int = metadata.get("deletionGracePeriodSeconds") or 0
    return _bounded(seconds) if metadata.get("deletionTimestamp") else 0


def _period(options: DeleteOptions) -> int | None:
    """Return the grace period that the client requests, in seconds, or None.

    A negative period counts as 1.
    """
    requested = options.grace_period_seconds
    return None if requested is None else _bounded(requested)


def _granted(pod: View, options: DeleteOptions) -> int:
    """Return the grace period of a pod in seconds, 0 if the pod has no node or has ended."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in _ENDED:
        return 0
    requested = _period(options)
    return _bounded(spec.get("terminationGracePeriodSeconds") or 0) if requested is None else requested


def _bounded(seconds: int) -> int:
    return 1 if seconds < 0 else min(seconds, limits.GRACE_PERIOD)
