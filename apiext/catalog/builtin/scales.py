"""The scale endpoint of workloads, with the selector of their pods."""

from collections.abc import Callable

from msgspec.structs import replace

from apiext.catalog.builtin.selector_texts import selector_text
from apiext.catalog.endpoints import scale
from apiext.catalog.served import Endpoint
from apiext.documents.document import Document, View

SELECTOR, LABELS = "selector", "labels"
_SETTINGS = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def builtin_scale(selected_by: str, prepare: Callable[[Document, View | None], Document]) -> Endpoint:
    """Return the scale endpoint of a kind.

    ``selected_by`` is SELECTOR if ``spec.selector`` is a label selector, LABELS if it is a map of labels.
    """
    plain = scale(_SETTINGS)

    def project(stored: View) -> View:
        shown = plain.project(stored)
        selector = (stored.get("spec") or {}).get("selector")
        text = selector_text({"matchLabels": selector} if selected_by == LABELS and selector else selector)
        return {**shown, "status": {**shown["status"], "selector": text}} if text else shown

    return replace(plain, project=project, prepare=prepare, unreadable=lambda stored: "")
