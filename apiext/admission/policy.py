"""A validating admission policy compiled, and what it decides about one write (plugin/policy/validating)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apiext import limits
from apiext.admission.expressions import Budget, ConditionError, Conditions, OutOfBudget, evaluate, fault_of
from apiext.admission.hooks import conditions_of
from apiext.admission.matching import Criteria, rule_of, selector_of
from apiext.admission.metrics import Metrics
from apiext.catalog.admission_cel import BOOL, TEXT, TEXT_OR_NULL, compiled, environment
from apiext.cel.environment import Environment, Program
from apiext.cel.types import DYN, Type
from apiext.cel.values import Fault, Value
from apiext.documents.document import View

Compiled = Program | str
"""A program, or what is wrong with its expression."""


@dataclass(frozen=True, slots=True)
class Validation:
    """One expression that must be true, and what is said when it is not."""

    text: str
    program: Compiled
    teller: Compiled | None
    message: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """A policy. ``param_kind`` are apiVersion and kind of its parameters, None when it has none."""

    name: str
    ignore: bool
    criteria: Criteria
    param_kind: tuple[str, str] | None
    conditions: Conditions
    variables: Mapping[str, tuple[str, Compiled]]
    validations: Sequence[Validation]
    annotations: Sequence[tuple[str, str, Compiled]]


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """A policy put to use: on which writes, with which parameters, and what a failure does."""

    name: str
    policy: str
    criteria: Criteria | None
    param: Mapping[str, Any] | None
    actions: tuple[str, ...]


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


def criteria_of(match: Mapping[str, Any] | None) -> Criteria:
    """Return v1 MatchResources as criteria."""
    match = match or {}
    return Criteria(
        tuple(rule_of(rule) for rule in match.get("resourceRules") or ()),
        tuple(rule_of(rule) for rule in match.get("excludeResourceRules") or ()),
        match.get("matchPolicy") == "Equivalent",
        selector_of(match.get("namespaceSelector")),
        selector_of(match.get("objectSelector")),
        any_resource=True,
    )


def compile_policy(document: View) -> list[Policy]:
    """Return a stored policy compiled."""
    name, spec = document["metadata"]["name"], document.get("spec") or {}
    kind = spec.get("paramKind")
    params = kind is not None
    ignore = spec.get("failurePolicy") == "Ignore"
    types: dict[str, Type] | None = {} if spec.get("variables") else None
    variables: dict[str, tuple[str, Compiled]] = {}
    for variable in spec.get("variables") or ():
        assert types is not None
        text = variable.get("expression") or ""
        found = compiled(text, environment(params=params, variables=types))
        variables[variable.get("name", "")] = (text, found)
        types[variable.get("name", "")] = found.result if isinstance(found, Program) else DYN
    within = environment(params=params, variables=types)
    telling = environment(params=params, authorizer=False, variables=types)
    return [
        Policy(
            name,
            ignore,
            criteria_of(spec.get("matchConstraints")),
            (kind.get("apiVersion") or "", kind.get("kind") or "") if kind is not None else None,
            conditions_of(name, "policy", spec.get("matchConditions"), ignore=ignore, params=params),
            variables,
            [_validation(one, within, telling) for one in spec.get("validations") or ()],
            [
                (one.get("key", ""), text, compiled(text, within, TEXT_OR_NULL))
                for one in spec.get("auditAnnotations") or ()
                for text in ((one.get("valueExpression") or "").strip(),)
            ],
        )
    ]


def _validation(document: Mapping[str, Any], within: Environment, telling: Environment) -> Validation:
    text, teller = document.get("expression") or "", document.get("messageExpression") or ""
    return Validation(
        text,
        compiled(text, within, BOOL),
        compiled(teller, telling, TEXT) if teller else None,
        (document.get("message") or "").strip(),
        document.get("reason") or "Invalid",
    )


def compile_binding(document: View) -> list[Binding]:
    """Return a stored binding compiled."""
    spec = document.get("spec") or {}
    match = spec.get("matchResources")
    return [
        Binding(
            document["metadata"]["name"],
            spec.get("policyName") or "",
            criteria_of(match) if match is not None else None,
            spec.get("paramRef"),
            tuple(spec.get("validationActions") or ()),
        )
    ]


async def judge(policy: Policy, known: Mapping[str, Any], operation: str, metrics: Metrics) -> Verdict:
    """Return what a policy has against a write whose variables are known, params among them."""
    try:
        if not await policy.conditions.match(known, "validate", operation, metrics):
            return Verdict()
    except ConditionError as error:
        return _failed(policy, str(error))
    work = _Work(policy, known)
    verdict = Verdict()
    try:
        verdict.decisions = await work.judge()
        work.budget = Budget(limits.ADMISSION_EXPRESSIONS)  # annotations have a budget of their own
        for key, text, program in policy.annotations:
            await work.annotate(verdict, key, text, program)
    except OutOfBudget as error:
        return _failed(policy, str(error))
    return verdict


def _failed(policy: Policy, text: str) -> Verdict:
    return Verdict() if policy.ignore else Verdict([Decision(text)])


class _Work:
    """One policy at work on one write: values of variables as they are needed, and the budget."""

    def __init__(self, policy: Policy, known: Mapping[str, Any]) -> None:
        self._policy = policy
        self._there: dict[str, Value] = dict.fromkeys(policy.variables, True)  # what has() sees of variables
        self._known = {**known, "variables": self._there} if policy.variables else dict(known)
        self._waiting = dict(policy.variables)
        self.budget = Budget(limits.ADMISSION_EXPRESSIONS)

    async def run(self, text: str, program: Compiled) -> tuple[Value, str]:
        """Return the value of an expression, or the text of what went wrong."""
        if isinstance(program, str):
            return None, f"compilation error: {program}"
        await self._need(program)
        found = await evaluate(program, self._known, self.budget)
        return (found.value, "") if found.error is None else (None, fault_of(text, found))

    async def _need(self, program: Program) -> None:
        """Have the variables that an expression names, each evaluated once, in their order; has() means any."""
        whole = program.environment.variables if program.mentions("variables") else ()
        wanted = [name for name in self._waiting if program.mentions(one := f"variables.{name}") or one in whole]
        for name in wanted:
            if name not in self._waiting:
                continue
            _, own = self._waiting.pop(name)
            value = self._known[f"variables.{name}"] = await self._variable(name, own)
            if type(value) is Fault:
                self._there[name] = value

    async def _variable(self, name: str, program: Compiled) -> Value:
        """Return the value of a composed variable, or the fault that whoever uses it meets."""
        if isinstance(program, str):
            return Fault(f'composited variable "{name}" fails to compile: {program}')
        await self._need(program)
        found = await evaluate(program, self._known, self.budget)
        if found.error is not None:
            return Fault(f'composited variable "{name}" fails to evaluate: {found.error}')
        return found.value

    async def judge(self) -> list[Decision]:
        """Return what is wrong: every expression is evaluated first, then the messages of those that are not true."""
        validations = self._policy.validations
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
