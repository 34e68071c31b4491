"""The plug-in ValidatingAdmissionPolicy: policies, their bindings and parameters (ADM-020)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import orjson

from apiext import limits
from apiext.admission import calls
from apiext.admission.attributes import NAMESPACES, Attributes, Form
from apiext.admission.calls import Surroundings
from apiext.admission.expressions import variables
from apiext.admission.hooks import Live
from apiext.admission.params import ConfigurationError, Params
from apiext.admission.policy import Binding, Decision, Policy, judge
from apiext.admission.versions import Versions
from apiext.cel.dynamic import dynamic
from apiext.documents.document import Document, View
from apiext.meta import status
from apiext.meta.status import StatusError

FAILURES = "validation.policy.admission.k8s.io/validation_failure"
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}
_EXEMPT = frozenset(
    ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy",
     "MutatingAdmissionPolicyBinding")
)  # fmt: skip


class ValidatingPolicies:
    """Judges the final object by the policies that are bound."""

    __slots__ = ("_around", "_bindings", "_params", "_policies")
    name = "ValidatingAdmissionPolicy"

    def __init__(self, policies: Live[Policy], bindings: Live[Binding], params: Params, around: Surroundings) -> None:
        self._policies = policies
        self._bindings = bindings
        self._params = params
        self._around = around

    @property
    def idle(self) -> bool:
        """Whether no policy is configured."""
        return self._policies.empty

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        """Policies change nothing."""
        return new

    async def review(self, attributes: Attributes) -> None:
        """Judge the write; raises StatusError for the first thing that a policy denies."""
        policies = await self._policies.current()
        if policies and attributes.served is not None and not _exempt(attributes):
            bindings = await self._bindings.current()
            try:
                await _Review(self._around, self._params, attributes).run(policies, bindings)
            except _NoNamespace as error:
                raise status.not_found(NAMESPACES, str(error)) from error


def _exempt(attributes: Attributes) -> bool:
    return attributes.resource.group == "admissionregistration.k8s.io" and attributes.kind.kind in _EXEMPT


class _NoNamespace(Exception):
    """The namespace of the write is gone; upstream denies for it whatever the policies say."""


@dataclass(frozen=True, slots=True)
class _Denial:
    """Who denies the write, and why; no binding when the policy itself cannot be put to use."""

    policy: Policy
    binding: Binding | None
    decision: Decision

    def text(self) -> str:
        bound = f" with binding '{self.binding.name}'" if self.binding is not None else ""
        return f"ValidatingAdmissionPolicy '{self.policy.name}'{bound} denied request: {self.decision.message}"


@dataclass(slots=True)
class _Review:
    """One write before the policies."""

    around: Surroundings
    params: Params
    attributes: Attributes
    denials: list[_Denial] = field(default_factory=list)
    failures: list[Document] = field(default_factory=list)
    namespace: View | None = None

    async def run(self, policies: Sequence[Policy], bindings: Sequence[Binding]) -> None:
        versions = Versions(self.attributes, self.around.convert, self.attributes.new)
        for policy in policies:
            bound = [binding for binding in bindings if binding.policy == policy.name]
            if bound:
                await self._policy(policy, bound, versions)
        traces = self.attributes.traces
        if self.failures:
            traces.annotations[FAILURES] = orjson.dumps(self.failures[: limits.ADMISSION_FAILURES]).decode()
        if self.denials:
            raise self._denied(self.denials[0])

    async def _policy(self, policy: Policy, bound: Sequence[Binding], versions: Versions) -> None:
        try:
            form = await calls.meant(self.around, policy.criteria, self.attributes, self.attributes.new)
            if form is None:
                return
            if policy.param_kind is not None:
                self.params.served(policy.param_kind)
        except (ConfigurationError, StatusError) as error:
            self._misconfigured(policy, None, error)
            return
        notes: dict[str, list[str]] = {}
        for binding in bound:
            try:
                await self._binding(policy, binding, form, versions, notes)
            except (ConfigurationError, StatusError) as error:
                self._misconfigured(policy, binding, error)
        for key, values in notes.items():
            self.attributes.traces.annotations[f"{policy.name}/{key}"] = ", ".join(values)

    def _misconfigured(self, policy: Policy, binding: Binding | None, error: Exception) -> None:
        if not policy.ignore:
            what = "policy" if binding is None else "binding"
            self.denials.append(_Denial(policy, binding, Decision(f"failed to configure {what}: {error}")))

    async def _binding(
        self, policy: Policy, binding: Binding, form: Form, versions: Versions, notes: dict[str, list[str]]
    ) -> None:
        attributes = self.attributes
        criteria = binding.criteria
        if criteria is not None and await calls.meant(self.around, criteria, attributes, attributes.new) is None:
            return
        found = await self.params.find(policy.param_kind, binding.param, attributes.shown_namespace)
        if not found:
            return
        try:
            shown = await versions.shown(form)
        except StatusError as error:
            raise ConfigurationError(f"failed to convert object version: {error}") from error
        known = variables(attributes, form, shown.new, shown.old, partial(self.around.authorize, attributes.user))
        known["namespaceObject"] = await self._namespace()
        for param in found:
            if policy.param_kind is not None:
                known["params"] = dynamic(param)
            verdict = await judge(policy, known, attributes.operation, self.around.metrics)
            for decision in verdict.decisions:
                self._act(policy, binding, decision)
            self.denials += [_Denial(policy, binding, decision) for decision in verdict.errors]
            for key, value in verdict.annotations:
                values = notes.setdefault(key, [])
                if value not in values:
                    values.append(value)

    async def _namespace(self) -> View | None:
        """Return the namespace that the object is in; a namespace is in none."""
        attributes = self.attributes
        if not attributes.namespace or attributes.resource == NAMESPACES:
            return None
        if self.namespace is None:
            self.namespace = await self.around.find_namespace(attributes.namespace)
            if self.namespace is None:
                raise _NoNamespace(attributes.namespace)
        return self.namespace

    def _act(self, policy: Policy, binding: Binding, decision: Decision) -> None:
        """Do what the binding says about a failed validation."""
        if "Deny" in binding.actions:
            self.denials.append(_Denial(policy, binding, decision))
        if "Warn" in binding.actions:
            by = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
            self.attributes.traces.warn(f"Validation failed for {by}: {decision.message}")
        if "Audit" in binding.actions:
            self.failures.append(
                {
                    "message": decision.message,
                    "policy": policy.name,
                    "binding": binding.name,
                    "expressionIndex": decision.index,
                    "validationActions": list(binding.actions),
                }
            )

    def _denied(self, denial: _Denial) -> StatusError:
        text = denial.text()
        error = status.forbidden(self.attributes.resource, self.attributes.told_name, text, [{"message": text}])
        error.reason = denial.decision.reason or "Invalid"
        error.code = _CODES.get(error.reason, 422)
        return error
