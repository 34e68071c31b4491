"""The plug-in ValidatingAdmissionPolicy (ADM-020, upstream: plugin/policy/validating)."""

from collections.abc import Sequence
from typing import Any

import orjson

from apiext.admission import limits
from apiext.admission.attributes import Attributes
from apiext.admission.params import ConfigurationError
from apiext.admission.policies import UNUSABLE, BoundPolicy, Denial, NoNamespace, Policies, PolicyRun, with_param
from apiext.admission.policy import Binding
from apiext.admission.validations import Decision, Validations, validate
from apiext.admission.versions import Versions
from apiext.documents.document import Document, View
from apiext.meta.status import StatusError

FAILURES = "validation.policy.admission.k8s.io/validation_failure"
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}


class ValidatingPolicies(Policies[Validations]):
    """The plug-in: validates the final object with the policies that have a binding."""

    __slots__ = ()
    name = "ValidatingAdmissionPolicy"

    async def review(self, attributes: Attributes) -> None:
        """Validate the write with all policies; raise the first denial as StatusError."""
        policy_run = await self.start(attributes, attributes.new)
        if policy_run is not None:
            try:
                await _Review(policy_run).run()
            except NoNamespace as error:
                raise error.status from error


class _Review:
    """The validation of one write by all validating policies that match it."""

    def __init__(self, policy_run: PolicyRun[Validations]) -> None:
        self._policy_run = policy_run
        self._versions = Versions(policy_run.attributes, policy_run.services.convert, policy_run.new)
        self._failures: list[Document] = []
        self._notes: dict[str, list[str]] = {}

    async def run(self) -> None:
        policy_run, traces = self._policy_run, self._policy_run.attributes.traces
        async for bound in policy_run.bound_policies():
            try:
                found = await policy_run.params(bound)
                if found:
                    await self._evaluate(bound, found)
            except UNUSABLE as error:
                policy_run.unusable(bound.policy, bound.binding, error)
        for key, values in self._notes.items():
            traces.annotations[key] = ", ".join(values)
        if self._failures:
            traces.annotations[FAILURES] = orjson.dumps(self._failures[: limits.ADMISSION_FAILURES]).decode()
        if policy_run.denials:
            raise self._denied(policy_run.denials[0])

    async def _evaluate(self, bound: BoundPolicy[Validations], params: Sequence[View | None]) -> None:
        policy_run, policy = self._policy_run, bound.policy
        try:
            objects = await self._versions.objects(bound.form)
        except StatusError as error:
            raise ConfigurationError(f"failed to convert object version: {error}") from error
        variables, kind = await policy_run.variables(bound.form, objects), policy.param_kind
        for param in params:
            await policy_run.loop_budget.pause()
            named = (
                {"apiVersion": kind[0], "kind": kind[1], **param} if param is not None and kind is not None else param
            )
            variables_with_param = with_param(variables, policy, named)
            verdict = await validate(
                policy, variables_with_param, policy_run.attributes.operation, policy_run.services.metrics
            )
            for decision in verdict.decisions:
                self._act(bound, decision)
            for decision in verdict.errors:
                policy_run.deny(policy, bound.binding, decision.message, decision.reason)
            for key, value in verdict.annotations:
                values = self._notes.setdefault(f"{policy.name}/{key}", [])
                if value not in values:
                    values.append(value)

    def _act(self, bound: BoundPolicy[Validations], decision: Decision) -> None:
        """Apply the validationActions of the binding to a failed validation."""
        policy_run, policy, binding = self._policy_run, bound.policy.name, bound.binding
        if "Deny" in binding.actions:
            policy_run.denials.append(Denial(policy, binding.name, decision.message, decision.reason))
        if "Warn" in binding.actions:
            by = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding.name}'"
            policy_run.attributes.traces.warn(f"Validation failed for {by}: {decision.message}")
        if "Audit" in binding.actions:
            self._failures.append(_failure(policy, binding, decision))

    def _denied(self, denial: Denial) -> StatusError:
        bound = f" with binding '{denial.binding}'" if denial.binding is not None else ""
        text = f"ValidatingAdmissionPolicy '{denial.policy}'{bound} denied request: {denial.message}"
        error = self._policy_run.denied([text])
        error.reason = denial.reason or "Invalid"
        error.code = _CODES.get(error.reason, 422)
        return error


def _failure(policy: str, binding: Binding, decision: Decision) -> dict[str, Any]:
    """Return the item for a failed validation in the list of the audit annotation."""
    return {
        "message": decision.message,
        "policy": policy,
        "binding": binding.name,
        "expressionIndex": decision.index,
        "validationActions": list(binding.actions),
    }
