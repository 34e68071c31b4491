"""The plug-in MutatingAdmissionPolicy (upstream: plugin/policy/mutating)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import orjson

from apiext import limits as server_limits
from apiext.admission import calls
from apiext.admission.attributes import Attributes
from apiext.admission.expressions import ConditionError, OutOfBudget
from apiext.admission.mutations import Mutations, Refused, kind_of
from apiext.admission.policies import UNUSABLE, BoundPolicy, Denial, NoNamespace, Policies, PolicyRun, with_param
from apiext.admission.policy import Binding
from apiext.admission.rounds import Reinvocation, Rounds
from apiext.admission.versions import Versions, pruned, served_in
from apiext.cel.dynamic import dynamic
from apiext.documents.document import Document, View
from apiext.documents.equality import same
from apiext.meta import status
from apiext.meta.status import StatusError
from apiext.text.quotes import go_quote

_INVALID = "Invalid"


class MutatingPolicies(Policies[Mutations]):
    """Plug-in that applies the policies that match the write, one after the other."""

    __slots__ = ()
    name = "MutatingAdmissionPolicy"

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        """Return the object that the policies mutated; raise StatusError if they deny the write."""
        if new is None:
            return None
        policy_run = await self.start(attributes, new)
        if policy_run is None:
            return new
        try:
            return await _Round(policy_run, new).run()
        except NoNamespace as error:
            raise error.status from error


class _Round:
    """Applies the mutating policies to one write, in one round.

    A round is one pass over all mutating plug-ins (rounds.py). If the first round has mutated the object, a second
    round follows. It applies only policies with the reinvocationPolicy IfNeeded, and only if the object was mutated
    after the policy.
    """

    def __init__(self, policy_run: PolicyRun[Mutations], new: Document) -> None:
        self._policy_run = policy_run
        self._new = new
        self._versions = Versions(policy_run.attributes, policy_run.services.convert, new)
        # true after the first mutation that has not failed
        self._patched = False  # upstream: a patch without effect also counts as a mutation

    async def run(self) -> Document:
        """Find the policies that match, then apply them; return the mutated object.

        Raises StatusError.
        """
        found = await self._invocations()
        if found:
            await self._policy_run.namespace()
            rounds, reinvocation = self._policy_run.attributes.enter(MutatingPolicies.name, self._new)
            for bound, param in found:
                await self._policy_run.loop_budget.pause()
                await self._invoke(bound, param, rounds, reinvocation)
            if self._patched:
                reinvocation.note_change()
                rounds.second_needed = True
            if self._new is not self._policy_run.new:
                with _converting():
                    await self._prune()
            reinvocation.leave(self._new)
        if self._policy_run.denials:
            raise self._denied(self._policy_run.denials)
        return self._new

    async def _invocations(self) -> list[tuple[BoundPolicy[Mutations], View | None]]:
        """Return each matching policy with each matching binding and each parameter of the binding."""
        policy_run, found = self._policy_run, list[tuple[BoundPolicy[Mutations], View | None]]()
        async for bound in policy_run.bound_policies():
            at: Binding | None = None  # None during the conversion: if it fails, the denial names only the policy
            try:
                await self._versions.objects(bound.form)
                at = bound.binding
                found += [(bound, param) for param in await policy_run.params(bound)]
            except UNUSABLE as error:
                policy_run.unusable(bound.policy, at, error)
        return found

    async def _invoke(
        self, bound: BoundPolicy[Mutations], param: View | None, rounds: Rounds, reinvocation: Reinvocation
    ) -> None:
        """Apply a policy if its match conditions hold.

        In the second round, apply only a policy that must be reinvoked.
        """
        policy_run, policy = self._policy_run, bound.policy
        objects = await self._versions.objects(bound.form)
        variables = with_param(await policy_run.variables(bound.form, objects), policy, param)
        try:
            if not await policy.conditions.match(
                variables, "validate", policy_run.attributes.operation, policy_run.services.metrics
            ):
                return
        except ConditionError as error:
            policy_run.deny(policy, bound.binding, str(error), _INVALID)
            return
        key = (policy.name, bound.binding.name, _param_key(param))
        if rounds.second and key not in reinvocation.hooks_to_call:
            return
        assert objects.new is not None
        found = await self._mutated(bound, variables, objects.new)
        if found is not objects.new and not same(found, objects.new):
            reinvocation.note_change()
            rounds.second_needed = True
            with _converting():
                self._new = await self._versions.change(bound.form, found, pruned)
        if policy.content.reinvoke:
            reinvocation.note_call(key)

    async def _mutated(self, bound: BoundPolicy[Mutations], variables: dict[str, Any], document: View) -> Document:
        """Return the object after all mutations of a policy.

        As upstream, continue after a mutation that failed.
        """
        attributes, policy = self._policy_run.attributes, bound.policy
        assert attributes.definition is not None
        kind = kind_of(bound.form, served_in(attributes.definition, bound.form), attributes.subresource)
        for mutation in policy.content.mutations:
            try:
                value = await mutation.value(policy, {**variables, "object": dynamic(document)})
                size = attributes.size + mutation.weight(value)
                document = await calls.in_thread_if_large(size, mutation.apply, kind, document, value)
                attributes.size = max(attributes.size, _size(document, attributes.size))
            except (Refused, OutOfBudget) as error:
                self._policy_run.deny(policy, bound.binding, str(error), _INVALID)
            else:
                self._patched = True
        return cast(Document, document)

    async def _prune(self) -> None:
        """Prune and coerce the object in the version of the request.

        Called once, after all mutations of the round.
        """
        policy_run, attributes, new = self._policy_run, self._policy_run.attributes, self._new
        own, definition = attributes.form.api_version, attributes.definition
        assert attributes.served is not None
        assert definition is not None
        given = new.get("apiVersion") or ""
        if given != own and given.partition("/")[0] == own.partition("/")[0]:
            if given.partition("/")[2] not in (definition.all_versions or definition.versions):
                raise status.internal(f"request to convert CR from an invalid group/version: {given}")
            new = await policy_run.services.convert(definition, new, own)
        self._new = await calls.in_thread_if_large(
            attributes.size, pruned, attributes.served, attributes.subresource, new
        )

    def _denied(self, denials: Sequence[Denial]) -> StatusError:
        """Return the 403 with the message and reason of the first denial.

        The causes of the error list all denials.
        """
        texts = [_text(denial) for denial in denials]
        error = self._policy_run.denied(texts)
        error.message = texts[0]
        error.reason = denials[0].reason or error.reason
        return error


def _size(document: View, size: int) -> int:
    """Return the size in bytes of an object that a mutation may have enlarged.

    ``size`` is the known size; it is returned unchanged if it is already large.
    """
    if size >= server_limits.WORK_INLINE:
        return size
    try:
        return len(orjson.dumps(document))
    except TypeError:  # the object is nested too deeply for orjson
        return server_limits.WORK_INLINE


@contextmanager
def _converting() -> Iterator[None]:
    """Raise upstream's error if the conversion to the version of the request fails."""
    try:
        yield
    except StatusError as error:
        text = error.message.removeprefix("Internal error occurred: ")
        raise status.internal(f"failed to convert object: {text}") from error


def _text(denial: Denial) -> str:
    by = f"'{denial.policy}' with binding '{denial.binding}'" if denial.binding is not None else go_quote(denial.policy)
    return f"policy {by} denied request: {denial.message}"


def _param_key(param: View | None) -> tuple[str, str]:
    metadata = (param or {}).get("metadata") or {}
    return metadata.get("namespace", ""), metadata.get("name", "")
