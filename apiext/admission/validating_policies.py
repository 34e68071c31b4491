"""The plug-in ValidatingAdmissionPolicy (ADM-020, plugin/policy/validating)."""

from collections.abc import Sequence
from typing import Any

import orjson

from apiext.admission import limits
from apiext.admission.attributes import Attributes
from apiext.admission.params import ConfigurationError
from apiext.admission.policies import UNUSABLE, Case, Denial, NoNamespace, Policies, Use, with_param
from apiext.admission.policy import Binding
from apiext.admission.validations import Decision, Validations, validate
from apiext.admission.versions import Versions
from apiext.documents.document import Document, View
from apiext.meta.status import StatusError

FAILURES = "validation.policy.admission.k8s.io/validation_failure"
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}


class ValidatingPolicies(Policies[Validations]):
    """Validates the final object with the policies that have a binding."""

    __slots__ = ()
    name = "ValidatingAdmissionPolicy"

    async def review(self, attributes: Attributes) -> None:
        """Validate the write; raise StatusError for the first denial of a policy."""
        case = await self.case(attributes, attributes.new)
        if case is not None:
            try:
                await _Review(case).run()
            except NoNamespace as error:
                raise error.status from error


class _Review:
    """The validation of one write by all validating policies that match it."""

    def __init__(self, case: Case[Validations]) -> None:
        self._case = case
        self._versions = Versions(case.attributes, case.services.convert, case.new)
        self._failures: list[Document] = []
        self._notes: dict[str, list[str]] = {}

    async def run(self) -> None:
        case, traces = self._case, self._case.attributes.traces
        async for use in case.uses():
            try:
                found = await case.params(use)
                if found:
                    await self._evaluate(use, found)
            except UNUSABLE as error:
                case.unusable(use.policy, use.binding, error)
        for key, values in self._notes.items():
            traces.annotations[key] = ", ".join(values)
        if self._failures:
            traces.annotations[FAILURES] = orjson.dumps(self._failures[: limits.ADMISSION_FAILURES]).decode()
        if case.denials:
            raise self._denied(case.denials[0])

    async def _evaluate(self, use: Use[Validations], params: Sequence[View | None]) -> None:
        case, policy = self._case, use.policy
        try:
            shown = await self._versions.shown(use.form)
        except StatusError as error:
            raise ConfigurationError(f"failed to convert object version: {error}") from error
        known, kind = await case.known(use.form, shown), policy.param_kind
        for param in params:
            await case.loop_budget.pause()
            named = (
                {"apiVersion": kind[0], "kind": kind[1], **param} if param is not None and kind is not None else param
            )
            seen = with_param(known, policy, named)
            verdict = await validate(policy, seen, case.attributes.operation, case.services.metrics)
            for decision in verdict.decisions:
                self._act(use, decision)
            for decision in verdict.errors:
                case.deny(policy, use.binding, decision.message, decision.reason)
            for key, value in verdict.annotations:
                values = self._notes.setdefault(f"{policy.name}/{key}", [])
                if value not in values:
                    values.append(value)

    def _act(self, use: Use[Validations], decision: Decision) -> None:
        """Apply the validationActions of the binding to a failed validation."""
        case, policy, binding = self._case, use.policy.name, use.binding
        if "Deny" in binding.actions:
            case.denials.append(Denial(policy, binding.name, decision.message, decision.reason))
        if "Warn" in binding.actions:
            by = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding.name}'"
            case.attributes.traces.warn(f"Validation failed for {by}: {decision.message}")
        if "Audit" in binding.actions:
            self._failures.append(_failure(policy, binding, decision))

    def _denied(self, denial: Denial) -> StatusError:
        bound = f" with binding '{denial.binding}'" if denial.binding is not None else ""
        text = f"ValidatingAdmissionPolicy '{denial.policy}'{bound} denied request: {denial.message}"
        error = self._case.denied([text])
        error.reason = denial.reason or "Invalid"
        error.code = _CODES.get(error.reason, 422)
        return error


def _failure(policy: str, binding: Binding, decision: Decision) -> dict[str, Any]:
    """Return the item of a failed validation in the audit annotation."""
    return {
        "message": decision.message,
        "policy": policy,
        "binding": binding.name,
        "expressionIndex": decision.index,
        "validationActions": list(binding.actions),
    }
