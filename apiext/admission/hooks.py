"""Configured webhooks, compiled once for each revision of a configuration (ADM-002)."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from apiext.admission.expressions import Conditions
from apiext.admission.matching import Criteria, rule_of, selector_of
from apiext.catalog.admission_cel import BOOL, compiled, environment
from apiext.documents.document import View
from apiext.webhooks.errors import BadTarget
from apiext.webhooks.target import Target, target_of

_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")

T = TypeVar("T")


class Hook(Struct, frozen=True, eq=False):
    """One webhook of a configuration. ``target`` is a BadTarget if its clientConfig is invalid.

    ``owner`` identifies the webhook for the HTTP client: calls of an owner share a circuit breaker
    (webhooks/breaker.py). The owner contains the URL, since a mutating and a validating webhook often have the same
    name.
    """

    name: str
    configuration: str
    target: Target | BadTarget
    timeout: float
    ignore: bool
    supports_dry_run: bool
    versions: tuple[str, ...]
    criteria: Criteria
    conditions: Conditions
    reinvoke: bool
    owner: str = ""  # computed from the fields above

    def __post_init__(self) -> None:
        place = self.target.url if isinstance(self.target, Target) else ""
        force_setattr(self, "owner", f"admission/{self.configuration}/{self.name} {place}")


def compile_hooks(configuration: View) -> list[Hook]:
    """Compile the webhooks of a stored configuration, in their order."""
    name = configuration["metadata"].get("name", "")
    return [_hook(name, webhook) for webhook in configuration.get("webhooks") or ()]


def _hook(configuration: str, webhook: Mapping[str, Any]) -> Hook:
    try:
        target: Target | BadTarget = target_of(webhook.get("clientConfig") or {})
    except BadTarget as error:
        target = error
    name = webhook.get("name", "")
    ignore = webhook.get("failurePolicy") == "Ignore"
    return Hook(
        name=name,
        configuration=configuration,
        target=target,
        timeout=float(webhook.get("timeoutSeconds") or 10),
        ignore=ignore,
        supports_dry_run=webhook.get("sideEffects") in _NO_SIDE_EFFECTS,
        versions=tuple(webhook.get("admissionReviewVersions") or ()),
        criteria=Criteria(
            tuple(rule_of(rule) for rule in webhook.get("rules") or ()),
            equivalent=webhook.get("matchPolicy") == "Equivalent",
            by_namespace=selector_of(webhook.get("namespaceSelector")),
            by_object=selector_of(webhook.get("objectSelector")),
        ),
        conditions=conditions_of(name, "webhook", webhook.get("matchConditions"), ignore=ignore),
        reinvoke=webhook.get("reinvocationPolicy") == "IfNeeded",
    )


def conditions_of(
    name: str, kind: str, conditions: Sequence[Mapping[str, Any]] | None, *, ignore: bool, params: bool = False
) -> Conditions:
    """Compile the match conditions of a webhook or policy.

    ``kind`` is "webhook" or "policy", as in metrics.
    """
    within = environment(params=params)
    found = [
        (condition.get("name", ""), text, compiled(text, within, BOOL))
        for condition in conditions or ()
        for text in (condition.get("expression") or "",)
    ]
    return Conditions(name, kind, found, ignore=ignore)
