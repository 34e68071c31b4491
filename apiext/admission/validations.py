"""Evaluation of a validating policy for one write (upstream: plugin/policy/validating)."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from apiext.admission import limits
from apiext.admission.expressions import Budget, ConditionError, OutOfBudget
from apiext.admission.metrics import Metrics
from apiext.admission.policy import Compiled, EnvironmentFactory, Policy, PolicyEvaluation, policy_of
from apiext.catalog.admission_cel import BOOL, REQUEST_RESOURCE, TEXT, TEXT_OR_NULL, compiled
from apiext.cel.dynamic import DynamicMap
from apiext.cel.environment import Environment
from apiext.cel.limit import PER_CALL_LIMIT
from apiext.cel.values import Value
from apiext.documents.document import View
from apiext.logs import note

_UNUSABLE = "messageExpression should evaluate to a short text that is not empty and has no line breaks"
_IGNORED = "policy failed and is ignored"
_AUTHORIZER_VARIABLES = frozenset(("authorizer", REQUEST_RESOURCE))
_OF_NAMESPACE = frozenset((
    "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generateName",
    "generation", "labels", "name", "namespace", "resourceVersion", "uid",
))  # fmt: skip


class Validation(Struct, frozen=True):
    """One expression that must be true, and the message and reason for its failure."""

    text: str
    program: Compiled
    message_expression: Compiled | None
    message: str
    reason: str


class Validations(Struct, frozen=True):
    """The validations and audit annotations of a policy.

    An audit annotation is (key, expression, program or error).
    """

    validations: Sequence[Validation]
    annotations: Sequence[tuple[str, str, Compiled]]


class Decision(Struct, frozen=True):
    """A failed validation, or an error of a policy; ``index`` is the position of the validation."""

    message: str
    reason: str = ""
    index: int = 0


class Verdict(Struct):
    """The result of a policy for one write and one parameter.

    The binding's validationActions apply to ``decisions``, the failurePolicy to ``errors``. ``annotations`` are
    (key, value).
    """

    decisions: list[Decision] = field(default_factory=list)
    errors: list[Decision] = field(default_factory=list)
    annotations: list[tuple[str, str]] = field(default_factory=list)


def compile_policy(document: View) -> list[Policy[Validations]]:
    """Compile a stored ValidatingAdmissionPolicy."""
    return [policy_of(document, _content)]


def _content(spec: View, environment: EnvironmentFactory) -> Validations:
    within, without_authorizer = environment(), environment(authorizer=False)
    return Validations(
        [_validation(one, within, without_authorizer) for one in spec.get("validations") or ()],
        [
            (one.get("key", ""), text, compiled(text, within, TEXT_OR_NULL))
            for one in spec.get("auditAnnotations") or ()
            for text in ((one.get("valueExpression") or "").strip(),)
        ],
    )


def _validation(document: Mapping[str, Any], within: Environment, without_authorizer: Environment) -> Validation:
    text, message_expression = document.get("expression") or "", document.get("messageExpression") or ""
    return Validation(
        text,
        compiled(text, within, BOOL),
        compiled(message_expression, without_authorizer, TEXT) if message_expression else None,
        (document.get("message") or "").strip(),
        document.get("reason") or "Invalid",
    )


async def validate(
    policy: Policy[Validations], variables: Mapping[str, Any], operation: str, metrics: Metrics
) -> Verdict:
    """Evaluate a policy for a write and a parameter.

    ``variables`` are the variables of its expressions, including ``params``.
    """
    try:
        if not await policy.conditions.match(variables, "validate", operation, metrics):
            return Verdict()
    except ConditionError as error:
        return _failed(policy, str(error))
    verdict = Verdict()
    try:
        verdict.decisions = await _decisions(policy, _with_limited_namespace(variables))
        work = PolicyEvaluation(policy, _message_variables(variables))
        for key, text, program in policy.content.annotations:
            await _annotate(policy, work, verdict, key, text, program)
    except OutOfBudget as error:
        return _failed(policy, str(error))
    return verdict


def _failed(policy: Policy[Validations], text: str) -> Verdict:
    if policy.ignore:
        note(_IGNORED, policy=policy.name, error=text)
        return Verdict()
    return Verdict([Decision(text)])


def _with_limited_namespace(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the variables of validations.

    The metadata of namespaceObject has only the fields that upstream shows.
    """
    namespace = variables.get("namespaceObject")
    if namespace is None:
        return variables
    metadata = namespace.raw.get("metadata") or {}
    visible = {name: value for name, value in metadata.items() if name in _OF_NAMESPACE}
    return {**variables, "namespaceObject": DynamicMap({**namespace.raw, "metadata": visible})}


def _message_variables(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the variables of messageExpressions and audit annotations, without the authorizer.

    As upstream, an annotation that uses the authorizer compiles, but its evaluation fails.
    """
    return {name: value for name, value in variables.items() if name not in _AUTHORIZER_VARIABLES}


async def _decisions(policy: Policy[Validations], variables: Mapping[str, Any]) -> list[Decision]:
    """Return the failed validations.

    A validation whose evaluation fails is one of them, unless the policy ignores failures. The messageExpressions are
    evaluated after all expressions. Raise OutOfBudget if the expressions exceed the budget of the policy.
    """
    work, validations = PolicyEvaluation(policy, variables), policy.content.validations
    found = [await work.run(one.text, one.program) for one in validations]
    messages = [""] * len(found)
    try:
        messages = await _messages(policy, _message_variables(variables), found, work.budget)
    except OutOfBudget as error:
        # upstream: if the messages exceed the budget, every validation fails, even if its expression is true
        found = [(None, fault or f"failed messageExpression: {error}") for _, fault in found]
    decisions = []
    for index, (one, (value, fault)) in enumerate(zip(validations, found, strict=True)):
        if fault and policy.ignore:
            note(_IGNORED, policy=policy.name, error=fault)
        elif fault:
            decisions.append(Decision(fault, index=index))
        elif not fault and value is not True:
            message = messages[index] or one.message or f"failed expression: {one.text.strip()}"
            decisions.append(Decision(message, one.reason, index))
    return decisions


async def _messages(
    policy: Policy[Validations], variables: Mapping[str, Any], found: Sequence[tuple[Value, str]], budget: Budget
) -> list[str]:
    """Return the result of each messageExpression.

    The result is empty if the messageExpression is absent or was not evaluated, or if its value is unusable (see
    ``_text``). Subtract the cost from ``budget``; raise OutOfBudget if the budget is exhausted. Upstream also evaluates
    the messageExpressions of validations that hold. This function does so only if their cost could exhaust the budget.
    """
    work = PolicyEvaluation(policy, variables)
    work.budget = budget
    message_expressions = [one.message_expression for one in policy.content.validations]
    highest_cost = (len(policy.variables) + sum(one is not None for one in message_expressions)) * PER_CALL_LIMIT
    made = [""] * len(message_expressions)
    for index, (message_expression, (value, fault)) in enumerate(zip(message_expressions, found, strict=True)):
        is_needed = not fault and value is not True
        if message_expression is not None and (is_needed or highest_cost > budget.left):
            text, error = await work.run("", message_expression)
            made[index] = _text(text, error)
            if is_needed and not made[index]:
                rule = policy.content.validations[index].text
                text_of_error = error.removeprefix("expression '' resulted in error: ") or _UNUSABLE
                note("messageExpression evaluation failed", policy=policy.name, rule=rule, error=text_of_error)
    return made


def _text(value: Value, fault: str) -> str:
    """Return the stripped result of a messageExpression.

    The result is empty if the evaluation failed, or if the value is no string, too long or has a line break.
    """
    text = "" if fault or not isinstance(value, str) else value.strip()
    return "" if len(text.encode()) > limits.ADMISSION_MESSAGE or "\n" in text else text


async def _annotate(
    policy: Policy[Validations], work: PolicyEvaluation, verdict: Verdict, key: str, text: str, program: Compiled
) -> None:
    """Evaluate an audit annotation; add the annotation or the evaluation error to the verdict.

    If the policy ignores failures, log the error instead.
    """
    value, fault = await work.run(text, program)
    if fault and policy.ignore:
        note(_IGNORED, policy=policy.name, error=fault)
    elif fault:
        verdict.errors.append(Decision(fault))
    elif isinstance(value, str) and value.strip():
        # upstream cuts between bytes and Go writes each byte of a cut character as U+FFFD
        text = value.strip().encode()[: limits.ADMISSION_ANNOTATION].decode("utf-8", "apiext.go")
        verdict.annotations.append((key, text))
