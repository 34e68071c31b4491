"""What a validating policy has against one write (plugin/policy/validating)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apiext import limits
from apiext.admission.expressions import Budget, ConditionError, OutOfBudget
from apiext.admission.metrics import Metrics
from apiext.admission.policy import Compiled, Policy, Within, Work, policy_of
from apiext.catalog.admission_cel import BOOL, TEXT, TEXT_OR_NULL, compiled
from apiext.cel.environment import Environment
from apiext.documents.document import View


@dataclass(frozen=True, slots=True)
class Validation:
    """One expression that must be true, and what is said when it is not."""

    text: str
    program: Compiled
    teller: Compiled | None
    message: str
    reason: str


@dataclass(frozen=True, slots=True)
class Validations:
    """What a validating policy demands, and its audit annotations: (key, expression, program)."""

    validations: Sequence[Validation]
    annotations: Sequence[tuple[str, str, Compiled]]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy has against a write; ``index`` is the validation's."""

    message: str
    reason: str = ""
    index: int = 0


@dataclass(slots=True)
class Verdict:
    """What came of a policy: decisions that the binding's actions apply to, errors that always deny, annotations."""

    decisions: list[Decision] = field(default_factory=list)
    errors: list[Decision] = field(default_factory=list)
    annotations: list[tuple[str, str]] = field(default_factory=list)


def compile_policy(document: View) -> list[Policy[Validations]]:
    """Return a stored ValidatingAdmissionPolicy compiled."""
    return [policy_of(document, _content)]


def _content(spec: View, environment: Within) -> Validations:
    within, telling = environment(), environment(authorizer=False)
    return Validations(
        [_validation(one, within, telling) for one in spec.get("validations") or ()],
        [
            (one.get("key", ""), text, compiled(text, within, TEXT_OR_NULL))
            for one in spec.get("auditAnnotations") or ()
            for text in ((one.get("valueExpression") or "").strip(),)
        ],
    )


def _validation(document: Mapping[str, Any], within: Environment, telling: Environment) -> Validation:
    text, teller = document.get("expression") or "", document.get("messageExpression") or ""
    return Validation(
        text,
        compiled(text, within, BOOL),
        compiled(teller, telling, TEXT) if teller else None,
        (document.get("message") or "").strip(),
        document.get("reason") or "Invalid",
    )


async def judge(policy: Policy[Validations], known: Mapping[str, Any], operation: str, metrics: Metrics) -> Verdict:
    """Return what a policy has against a write whose variables are known, params among them."""
    try:
        if not await policy.conditions.match(known, "validate", operation, metrics):
            return Verdict()
    except ConditionError as error:
        return _failed(policy, str(error))
    work = _Judgement(policy, known)
    verdict = Verdict()
    try:
        verdict.decisions = await work.judge()
        work.budget = Budget(limits.ADMISSION_EXPRESSIONS)  # annotations have a budget of their own
        for key, text, program in policy.content.annotations:
            await work.annotate(verdict, key, text, program)
    except OutOfBudget as error:
        return _failed(policy, str(error))
    return verdict


def _failed(policy: Policy[Validations], text: str) -> Verdict:
    return Verdict() if policy.ignore else Verdict([Decision(text)])


class _Judgement(Work):
    """One validating policy at work on one write."""

    def __init__(self, policy: Policy[Validations], known: Mapping[str, Any]) -> None:
        super().__init__(policy, known)
        self._policy = policy

    async def judge(self) -> list[Decision]:
        """Return what is wrong: every expression is evaluated first, then the messages of those that are not true."""
        validations = self._policy.content.validations
        found = [await self.run(one.text, one.program) for one in validations]
        told = [""] * len(found)
        try:
            for index, (value, fault) in enumerate(found):
                if not fault and value is not True:
                    told[index] = await self._told(validations[index])
        except OutOfBudget as error:  # upstream: then no result stands, not even one that is true
            found = [(None, fault or f"failed messageExpression: {error}") for _, fault in found]
        decisions = []
        for index, (one, (value, fault)) in enumerate(zip(validations, found, strict=True)):
            if fault and not self._policy.ignore:
                decisions.append(Decision(fault, index=index))
            elif not fault and value is not True:
                message = told[index] or one.message or f"failed expression: {one.text.strip()}"
                decisions.append(Decision(message, one.reason, index))
        return decisions

    async def _told(self, validation: Validation) -> str:
        """Return what the messageExpression makes, empty when it makes nothing of use."""
        if validation.teller is None:
            return ""
        value, fault = await self.run("", validation.teller)
        if fault or not isinstance(value, str):
            return ""
        text = value.strip()
        return "" if len(text.encode()) > limits.ADMISSION_MESSAGE or "\n" in text else text

    async def annotate(self, verdict: Verdict, key: str, text: str, program: Compiled) -> None:
        """Add an audit annotation, or the error of one that cannot be made."""
        value, fault = await self.run(text, program)
        if fault:
            if not self._policy.ignore:
                verdict.errors.append(Decision(fault))
        elif isinstance(value, str) and value.strip():
            verdict.annotations.append((key, value.strip()[: limits.ADMISSION_ANNOTATION]))
