"""Shared parts of the plug-ins for mutating and validating policies.

Upstream: plugin/policy/generic.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct

from apiext.admission import calls
from apiext.admission.attributes import NAMESPACES, Attributes, Form
from apiext.admission.configured import Live
from apiext.admission.expressions import expression_variables
from apiext.admission.matching import Candidates
from apiext.admission.params import ConfigurationError, Params, without_type_and_managers
from apiext.admission.plugin_services import PluginServices
from apiext.admission.policy import Binding, Policy
from apiext.admission.versions import ObjectPair
from apiext.cel.dynamic import dynamic
from apiext.documents.document import View
from apiext.logs import note
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.scheduling.loop_budget import LoopBudget

C = TypeVar("C")

UNUSABLE = (ConfigurationError, StatusError)
"""Errors that make a policy or a binding unusable; the failurePolicy decides whether they deny the write."""


class Policies(Generic[C]):
    """Base of the two policy plug-ins: finds a write's policies, bindings and parameters."""

    __slots__ = ("_bindings", "_bound", "_bound_of", "_candidates", "_params", "_policies", "_services")

    def __init__(
        self, policies: Live[Policy[C]], bindings: Live[Binding], params: Params, services: PluginServices
    ) -> None:
        self._policies = policies
        self._bindings = bindings
        self._params = params
        self._services = services
        self._candidates = Candidates[Policy[C]](lambda policy: policy.criteria)
        self._bound_of: tuple[Binding, ...] = ()
        self._bound: Mapping[str, Sequence[Binding]] = {}

    def applies(self, operation: str, resource: GroupResource) -> bool:
        """Report whether a policy may be configured; false means that none is configured."""
        return not self._policies.empty

    def follow(self, changed: Callable[[], None]) -> None:
        """Make the plug-in call ``changed`` when it gets its first policy or loses its last policy."""
        self._policies.follow(changed)

    async def start(self, attributes: Attributes, new: View | None) -> "PolicyRun[C] | None":
        """Begin to apply the policies to a write; return None if no policy may apply to it."""
        policies = await self._policies.current()
        if not policies or attributes.served is None or calls.exempt(attributes, calls.POLICY_KINDS):
            return None
        if calls.is_review(attributes):
            return None
        candidates = await self._candidates.among(policies, attributes)
        if not candidates:
            return None
        found = [policy for _, policy in candidates]
        return PolicyRun(self._services, self._params, attributes, new, found, await self._bindings_by_policy())

    async def _bindings_by_policy(self) -> Mapping[str, Sequence[Binding]]:
        bindings = await self._bindings.current()
        if bindings is not self._bound_of:
            bound: dict[str, list[Binding]] = {}
            for binding in bindings:
                bound.setdefault(binding.policy, []).append(binding)
            self._bound, self._bound_of = bound, bindings
        return self._bound


class NoNamespace(Exception):
    """The namespace of the write does not exist.

    As upstream, the write fails, whatever the failurePolicy is.
    """

    @property
    def status(self) -> StatusError:
        """The 404 that names the namespace."""
        return status.not_found(NAMESPACES, str(self))


class BoundPolicy(Struct, Generic[C], frozen=True):
    """A policy that matches a write, and one of its bindings.

    ``form`` is the Form (attributes.py) of the write in which the policy matches.
    """

    policy: Policy[C]
    binding: Binding
    form: Form


class Denial(Struct, frozen=True):
    """One denial, with the names of policy and binding.

    Without a binding, the policy itself causes the denial.
    """

    policy: str
    binding: str | None
    message: str
    reason: str = ""


class PolicyRun(Generic[C]):
    """The policies that may match one write, and their denials.

    ``new`` is the object after earlier plug-ins. ``bindings`` maps the name of a policy to its bindings.
    """

    __slots__ = (
        "_bindings",
        "_namespace",
        "_params",
        "_policies",
        "attributes",
        "denials",
        "loop_budget",
        "new",
        "services",
    )

    def __init__(
        self,
        services: PluginServices,
        params: Params,
        attributes: Attributes,
        new: View | None,
        policies: Sequence[Policy[C]],
        bindings: Mapping[str, Sequence[Binding]],
    ) -> None:
        self.services = services
        self.attributes = attributes
        self.new = new
        self.denials: list[Denial] = []
        self.loop_budget = LoopBudget()
        self._params = params
        self._policies = policies
        self._bindings = bindings
        self._namespace: View | None = None

    async def bound_policies(self) -> AsyncIterator[BoundPolicy[C]]:
        """Yield each matching policy with each matching binding, both in the order of their names.

        Add a denial for an unusable policy or binding, unless the policy ignores failures.
        """
        for policy in self._policies:
            await self.loop_budget.pause()
            bindings = self._bindings.get(policy.name, ())
            form = await self._form(policy) if bindings else None
            if form is None:
                continue
            for binding in bindings:
                if await self._applies(policy, binding):
                    yield BoundPolicy(policy, binding, form)

    async def _form(self, policy: Policy[C]) -> Form | None:
        """Return the Form in which a policy matches the write.

        Return None if it does not match or is unusable.
        """
        try:
            form = await calls.matched_form(self.services, policy.criteria, self.attributes, self.new)
            if form is not None and policy.param_kind is not None:
                self._params.served(policy.param_kind)
        except UNUSABLE as error:
            self.unusable(policy, None, error)
            return None
        return form

    async def _applies(self, policy: Policy[C], binding: Binding) -> bool:
        if binding.criteria is None:
            return True
        try:
            return await calls.matched_form(self.services, binding.criteria, self.attributes, self.new) is not None
        except UNUSABLE as error:
            self.unusable(policy, binding, error)
            return False

    async def params(self, bound: BoundPolicy[C]) -> list[View | None]:
        """Return the parameters of a binding, [None] without paramKind or paramRef.

        Raise one of the errors in UNUSABLE.
        """
        namespace = self.attributes.plugin_namespace
        return await self._params.find(bound.policy.param_kind, bound.binding.param, namespace, self.loop_budget)

    def unusable(self, policy: Policy[C], binding: Binding | None, error: Exception) -> None:
        """Add the denial for an unusable policy or binding, unless the policy ignores failures."""
        self.deny(policy, binding, f"failed to configure {'policy' if binding is None else 'binding'}: {error}")

    def deny(self, policy: Policy[C], binding: Binding | None, message: str, reason: str = "") -> None:
        """Add a denial, unless the policy ignores failures."""
        if policy.ignore:
            note("policy failed and is ignored", policy=policy.name, error=message)
        else:
            self.denials.append(Denial(policy.name, binding.name if binding is not None else None, message, reason))

    async def variables(self, form: Form, objects: ObjectPair) -> dict[str, Any]:
        """Return the variables of expressions, without ``params``; raise NoNamespace."""
        attributes = self.attributes
        variables = expression_variables(
            attributes, form, objects.new, objects.old, partial(self.services.authorize, attributes.user)
        )
        namespace = await self.namespace()
        variables["namespaceObject"] = dynamic(without_type_and_managers(namespace)) if namespace is not None else None
        return variables

    async def namespace(self) -> View | None:
        """Return the Namespace of the object, None for cluster-scoped objects; raise NoNamespace."""
        attributes = self.attributes
        if not attributes.namespace or attributes.resource == NAMESPACES:
            return None
        if self._namespace is None:
            self._namespace = await self.services.find_namespace(attributes.namespace)
            if self._namespace is None:
                raise NoNamespace(attributes.namespace)
        return self._namespace

    def denied(self, messages: Sequence[str]) -> StatusError:
        """Return a 403 with these causes; the caller may set another message, code or reason."""
        causes = [{"message": message} for message in messages]
        return status.forbidden(self.attributes.resource, self.attributes.name_for_denial, messages[0], causes)


def with_param(variables: Mapping[str, Any], policy: Policy[Any], param: View | None) -> dict[str, Any]:
    """Return the variables of expressions, with ``params`` if the policy has a paramKind."""
    return {**variables, "params": dynamic(param)} if policy.param_kind is not None else {**variables}
