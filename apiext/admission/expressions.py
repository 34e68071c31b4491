"""Evaluation of CEL expressions for a write: variables, budget, and match conditions.

See ADM-006.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from time import perf_counter
from typing import Any

from apiext.admission import limits
from apiext.admission.attributes import Attributes, Form, Requester
from apiext.admission.metrics import Metrics
from apiext.catalog.admission_cel import REQUEST_RESOURCE
from apiext.cel import limits as cel_limits
from apiext.cel.dynamic import DynamicMap, dynamic
from apiext.cel.environment import Evaluation, Program
from apiext.cel.library.authorization import Authorize, Question, authorizer, resource_check
from apiext.cel.limit import PER_CALL_LIMIT, Limit
from apiext.cel.values import Fault
from apiext.documents.document import View
from apiext.logs import note
from apiext.scheduling.loop_budget import LoopBudget
from apiext.scheduling.shares import in_thread

OVER_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


class OutOfBudget(Exception):
    """The expressions that share a Budget have exceeded it."""


def expression_variables(
    attributes: Attributes, form: Form, new: View | None, old: View | None, authorize: Authorize
) -> dict[str, Any]:
    """Return the variables of expressions for a write.

    ``form`` is the Form (group, version and kind) that the webhook or policy matches. The caller adds params, and
    replaces ``namespaceObject``, which is None here.
    """
    asked = Question(
        group=attributes.resource.group,
        resource=attributes.resource.resource,
        subresource=attributes.subresource,
        namespace=attributes.plugin_namespace,
        name=attributes.name,
    )
    return {
        "object": dynamic(new),
        "oldObject": dynamic(old),
        "request": DynamicMap(_request(attributes, form)),
        "namespaceObject": None,
        "authorizer": authorizer(authorize),
        REQUEST_RESOURCE: resource_check(authorize, asked),
    }


def _request(attributes: Attributes, form: Form) -> dict[str, Any]:
    """Return the variable ``request`` of expressions.

    Fields that only an AdmissionReview has are empty or None.
    """
    return {"uid": "", **request(attributes, form), "object": None, "oldObject": None}


def request(attributes: Attributes, form: Form) -> dict[str, Any]:
    """Return the request of an AdmissionReview without uid and objects (ADM-007).

    Empty optional fields are absent.
    """
    found: dict[str, Any] = {**_kinds_and_resources(attributes.resource.resource, form, attributes.form)}
    if attributes.subresource:
        found["subResource"] = found["requestSubResource"] = attributes.subresource
    if attributes.name:
        found["name"] = attributes.name
    if namespace := attributes.plugin_namespace:
        found["namespace"] = namespace
    found["operation"] = attributes.operation
    found["userInfo"] = _user_info(attributes.user)
    found["dryRun"] = attributes.dry_run
    found["options"] = attributes.options
    return found


def _user_info(user: Requester) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if user.name:
        found["username"] = user.name
    if user.uid:
        found["uid"] = user.uid
    if user.groups:
        found["groups"] = list(user.groups)
    if user.extra:
        found["extra"] = {name: list(values) for name, values in user.extra}
    return found


@lru_cache(limits.FORMS_SEEN)
def _kinds_and_resources(plural: str, form: Form, own: Form) -> Mapping[str, Mapping[str, str]]:
    """Return kind and resource in the matched Form, and kind and resource of the request.

    ``form`` is the Form that a webhook or policy matches, ``own`` is the Form of the request.
    """
    return {
        "kind": {"group": form.kind_group, "version": form.kind_version, "kind": form.kind},
        "resource": {"group": form.group, "version": form.version, "resource": plural},
        "requestKind": {"group": own.kind_group, "version": own.kind_version, "kind": own.kind},
        "requestResource": {"group": own.group, "version": own.version, "resource": plural},
    }


class Budget:
    """The remaining budget of several expressions, such as the match conditions of one webhook.

    ``left`` is in CEL cost units. ``effort`` is the number of elements that the expressions may still read or create.
    ``work`` is the number of elements that evaluations in a thread may still visit without allocating memory.
    """

    __slots__ = ("effort", "left", "work")

    def __init__(self, units: int) -> None:
        self.left = units
        self.effort = cel_limits.MAX_ELEMENTS
        self.work = cel_limits.MAX_WORK

    def spend(self, cost: int) -> None:
        """Subtract the cost of an expression; raise OutOfBudget if it exceeds the remaining budget."""
        if cost > self.left:
            raise OutOfBudget(OVER_BUDGET)
        self.left -= cost


async def evaluate(program: Program, variables: Mapping[str, Any], budget: Budget) -> Evaluation:
    """Evaluate an expression on the event loop, or in a thread if it exceeds a small budget.

    The evaluation in the thread starts from the beginning. An expression whose code is large and not yet generated is
    evaluated only in a thread. Raises OutOfBudget.
    """
    run = program.interpret if any(type(value) is Fault for value in variables.values()) else program.evaluate
    max_cost = min(budget.left, PER_CALL_LIMIT)

    def work(limit: Limit) -> Evaluation:
        try:
            return run(variables, limit)
        finally:
            touched.append(limit.touched())

    found, touched = None, list[int]()
    if program.generated or program.nodes <= limits.ADMISSION_CODE_INLINE:
        found = work(Limit(min(max_cost, limits.ADMISSION_CEL_INLINE), brief=True, effort=budget.effort))
    if found is None or found.cancelled:
        limit = Limit(max_cost, effort=budget.effort, max_work=budget.work)
        try:
            found = await in_thread(lambda: work(limit), "expressions")
        finally:
            limit.cancel()  # ends the evaluation in the thread if the request has been cancelled
        budget.work -= limit.work
    budget.effort -= touched[-1]
    budget.spend(found.cost)
    return found


def fault_of(text: str, found: Evaluation) -> str:
    """Return upstream's message for an expression whose evaluation failed."""
    return f"expression '{text}' resulted in error: {found.error}"


class Conditions:
    """The compiled match conditions of a webhook or policy.

    ``programs`` has (name, expression, program or compilation error) for each condition.
    """

    __slots__ = ("_ignore", "_kind", "_name", "programs")

    def __init__(
        self, name: str, kind: str, programs: Sequence[tuple[str, str, Program | str]], *, ignore: bool
    ) -> None:
        self._name = name
        self._kind = kind
        self._ignore = ignore
        self.programs = programs

    async def match(self, variables: Mapping[str, Any], type: str, operation: str, metrics: Metrics) -> bool:
        """Report whether all conditions hold.

        If a condition is false, return False, even if an earlier condition failed with an error. If conditions failed
        and none is false, return False if the failurePolicy ignores errors, else raise ConditionError.

        In conditions, namespaceObject is null. ``request.resource`` is the resource of the request. Objects and
        ``request.kind`` are in the version that the webhook or policy matches (upstream:
        plugin/webhook/matchconditions).
        """
        if not self.programs:
            return True
        request = variables["request"].raw
        asked = DynamicMap({**request, "resource": request["requestResource"]})
        variables = {**variables, "request": asked, "namespaceObject": None}
        began, faults, excluded = perf_counter(), list[str](), False
        try:
            excluded = not await self._all(variables, faults)
        except OutOfBudget as error:
            faults = [str(error)]
        finally:
            labels = (self._name, self._kind, type, operation)
            metrics.conditions(labels, perf_counter() - began, excluded=excluded, faults=len(faults))
        if excluded or not faults:
            return not excluded
        if self._ignore:
            for fault in faults:
                note(f"match condition of a {self._kind} failed and is ignored", name=self._name, error=fault)
            return False
        raise ConditionError(faults[0] if len(faults) == 1 else f"[{', '.join(dict.fromkeys(faults))}]")

    async def _all(self, variables: Mapping[str, Any], faults: list[str]) -> bool:
        budget, loop_budget = Budget(limits.ADMISSION_CONDITIONS), LoopBudget()
        for _, text, program in self.programs:
            await loop_budget.pause()
            if isinstance(program, str):
                faults.append(f"compilation error: {program}")
                continue
            found = await evaluate(program, variables, budget)
            if found.error is not None:
                faults.append(fault_of(text, found))
            elif found.value is False:
                return False
        return True


class ConditionError(Exception):
    """The evaluation of match conditions failed; the text has the errors."""
