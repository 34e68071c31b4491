"""Compiled admission policies and bindings; evaluation of policy expressions for one write."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from apiext.admission import limits
from apiext.admission.expressions import Budget, Conditions, evaluate, fault_of
from apiext.admission.hooks import conditions_of
from apiext.admission.matching import Criteria, rule_of, selector_of
from apiext.catalog.admission_cel import compiled, environment
from apiext.cel.attributes import Composed
from apiext.cel.environment import Environment, Program
from apiext.cel.escaping import unescape
from apiext.cel.types import DYN, Type
from apiext.cel.values import Fault, Value
from apiext.documents.document import View
from apiext.scheduling.loop_budget import LoopBudget

Compiled = Program | str
"""A compiled CEL program, or the compilation error of the expression."""

C = TypeVar("C")


class Policy(Struct, Generic[C], frozen=True, eq=False):
    """A compiled policy.

    ``param_kind`` is the (apiVersion, kind) of its parameters, None without parameters. ``variables`` is name →
    (expression, program or error), in order. ``content`` is Validations or Mutations.
    """

    name: str
    ignore: bool
    criteria: Criteria
    param_kind: tuple[str, str] | None
    conditions: Conditions
    variables: Mapping[str, tuple[str, Compiled]]
    content: C


class Binding(Struct, frozen=True, eq=False):
    """A compiled binding. ``policy`` is the name of its policy.

    ``criteria`` is None without matchResources. ``param`` is the paramRef, ``actions`` are the validationActions.
    """

    name: str
    policy: str
    criteria: Criteria | None
    param: Mapping[str, Any] | None
    actions: tuple[str, ...]


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


class EnvironmentFactory(Protocol):
    """A function that returns a CEL environment with the params and variables of one policy."""

    def __call__(self, *, authorizer: bool = True, patches: bool = False) -> Environment: ...


def policy_of(document: View, content: Callable[[View, EnvironmentFactory], C]) -> Policy[C]:
    """Compile a stored policy.

    ``content(spec, environment)`` compiles its validations or mutations.
    """
    name, spec = document["metadata"].get("name", ""), document.get("spec") or {}
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
    return Policy(
        name,
        ignore,
        criteria_of(spec.get("matchConstraints")),
        (kind.get("apiVersion") or "", kind.get("kind") or "") if kind is not None else None,
        conditions_of(name, "policy", spec.get("matchConditions"), ignore=ignore, params=params),
        variables,
        content(spec, partial(environment, params=params, variables=types)),
    )


def compile_binding(document: View) -> list[Binding]:
    """Compile a stored binding of a validating or mutating policy.

    Return a list with only this binding.
    """
    spec = document.get("spec") or {}
    match = spec.get("matchResources")
    return [
        Binding(
            document["metadata"].get("name", ""),
            spec.get("policyName") or "",
            criteria_of(match) if match is not None else None,
            spec.get("paramRef"),
            tuple(spec.get("validationActions") or ()),
        )
    ]


class PolicyEvaluation:
    """Evaluates expressions of one policy for one write; the expressions share a budget.

    A variable of the policy is evaluated when an expression uses it for the first time.
    """

    def __init__(self, policy: Policy[Any], variables: Mapping[str, Any]) -> None:
        self._values: dict[str, Value] = {}
        self._variables = {**variables, "variables": Composed(self._values)} if policy.variables else dict(variables)
        self._waiting = dict(policy.variables)
        self.budget = Budget(limits.ADMISSION_EXPRESSIONS)
        self._loop_budget = LoopBudget()

    async def run(self, text: str, program: Compiled) -> tuple[Value, str]:
        """Return the value of an expression and an empty error, or None and the error text.

        Raises OutOfBudget.
        """
        if isinstance(program, str):
            return None, f"compilation error: {program}"
        await self._loop_budget.pause()
        await self._need(program)
        found = await evaluate(program, self._variables, self.budget)
        return (found.value, "") if found.error is None else (None, fault_of(text, found))

    async def _need(self, program: Program) -> None:
        """Evaluate the variables that an expression uses, each once and in order.

        An expression uses all variables of its environment if it contains ``variables`` without a field. For the CEL
        checker, has(variables.x) is such an expression.
        """
        whole = program.environment.variables if program.mentions("variables") else ()
        wanted = [name for name in self._waiting if program.mentions(one := f"variables.{name}") or one in whole]
        for name in wanted:
            if name not in self._waiting:
                continue
            _, own = self._waiting.pop(name)
            value = self._values[name] = await self._variable(name, own)
            if unescape(name) != name:
                value = Fault(f"no such key: {name}")  # upstream looks up the unescaped name, which does not exist
            self._variables[f"variables.{name}"] = value

    async def _variable(self, name: str, program: Compiled) -> Value:
        """Return the value of a variable of the policy, or a Fault if it fails.

        Expressions with this variable get the Fault.
        """
        if isinstance(program, str):
            return Fault(f'composited variable "{name}" fails to compile: {program}')
        await self._need(program)
        found = await evaluate(program, self._variables, self.budget)
        if found.error is not None:
            return Fault(f'composited variable "{name}" fails to evaluate: {found.error}')
        return found.value
