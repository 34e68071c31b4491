"""The plug-ins MutatingAdmissionWebhook and ValidatingAdmissionWebhook (ADM-001…015)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from apiext import limits as server_limits
from apiext.admission import calls
from apiext.admission.attributes import Attributes, Form
from apiext.admission.calls import Failed, Observed, Rejected
from apiext.admission.configured import Live
from apiext.admission.hooks import Hook
from apiext.admission.matching import Candidates
from apiext.admission.plugin_services import PluginServices
from apiext.admission.reviews import Response
from apiext.admission.versions import ObjectPair, Versions, normalized, returned_version, served_in
from apiext.documents import json_patch
from apiext.documents.document import Document
from apiext.documents.encoding import decode_json, json_kind
from apiext.documents.equality import same
from apiext.documents.errors import DecodeError
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.scheduling.loop_budget import LoopBudget
from apiext.text.quotes import go_quote

MUTATION = "mutation.webhook.admission.k8s.io/"
PATCH = "patch.webhook.admission.k8s.io/"
VALIDATING = "validating.webhook.admission.k8s.io/"


class _Webhooks:
    """Base of the two webhook plug-ins: finds the configured webhooks of a write."""

    __slots__ = ("_candidates", "_live", "_services")
    type: str  # the label ``type`` in metrics

    def __init__(self, live: Live[Hook], services: PluginServices) -> None:
        self._live = live
        self._services = services
        self._candidates = Candidates[Hook](lambda hook: hook.criteria)
        services.metrics.follow(self.type, lambda: (hook.name for hook in live.compiled))

    def applies(self, operation: str, resource: GroupResource) -> bool:
        """Report whether a webhook may be configured; false means that none is configured."""
        return not self._live.empty

    def follow(self, changed: Callable[[], None]) -> None:
        """Make the plug-in call ``changed`` when it gets its first webhook or loses its last one."""
        self._live.follow(changed)

    async def _hooks(self, attributes: Attributes) -> Sequence[tuple[int, Hook]]:
        """Return the webhooks that may match a write, each as (index among all webhooks, webhook)."""
        hooks = await self._live.current()
        if attributes.served is None or calls.exempt(attributes) or calls.is_review(attributes):
            return ()
        return await self._candidates.among(hooks, attributes)


class MutatingWebhooks(_Webhooks):
    """The plug-in: calls mutating webhooks in order, each with the result of the previous one.

    See ADM-004.
    """

    __slots__ = ()
    name = "MutatingAdmissionWebhook"
    type = "admit"

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        """Return the object after the patches of all webhooks.

        Raise StatusError if a webhook denies the write, or fails and its failurePolicy is not Ignore.
        """
        hooks = await self._hooks(attributes)
        return await _Mutation(self._services, attributes, hooks, new).run() if hooks else new


class _Mutation:
    """One of the two rounds in which the mutating webhooks are called for a write.

    The second round is the reinvocation (see rounds.py).
    """

    def __init__(
        self, services: PluginServices, attributes: Attributes, hooks: Sequence[tuple[int, Hook]], new: Document | None
    ) -> None:
        self._services = services
        self._attributes = attributes
        self._hooks = hooks
        self._new = new
        self._versions = Versions(attributes, services.convert, new)
        self._rounds, self._reinvocation = attributes.enter(MutatingWebhooks.name, new)

    async def run(self) -> Document | None:
        loop_budget = LoopBudget()
        for index, hook in self._hooks:
            if loop_budget.exhausted:
                await loop_budget.pause()
            await self._run_hook(index, hook)
        self._reinvocation.leave(self._new)
        return self._new

    async def _run_hook(self, index: int, hook: Hook) -> None:
        form = await calls.form_for(self._services, hook, self._attributes, self._versions, "admit", self._new)
        if form is None or (self._rounds.second and hook.owner not in self._reinvocation.hooks_to_call):
            return
        objects = self._versions.cached(form) or await calls.objects_in(self._versions, form, mutating=True)
        annotation_key = f"round_{int(self._rounds.second)}_index_{index}"
        observed = Observed(self._services, hook, self._attributes.operation, "admit")
        changed = False
        try:
            changed = await self._call(hook, form, objects, annotation_key)
        except Failed as error:
            observed.failed(error)
            self._ignore_or_raise(hook, annotation_key, error)
        except Rejected as error:
            observed.failed(error)
            raise error.status from error
        except StatusError as error:
            observed.failed(error)
            raise
        else:
            observed.passed()
        finally:
            self._note(hook, annotation_key, changed)
        if changed:
            self._rounds.second_needed = True
            self._reinvocation.note_change()
        if hook.reinvoke:
            self._reinvocation.note_call(hook.owner)

    def _note(self, hook: Hook, annotation_key: str, changed: bool) -> None:
        annotation = {"configuration": hook.configuration, "webhook": hook.name, "mutated": changed}
        self._attributes.traces.annotations[f"{MUTATION}{annotation_key}"] = orjson.dumps(annotation).decode()

    def _ignore_or_raise(self, hook: Hook, annotation_key: str, error: Failed) -> None:
        if not hook.ignore:
            raise status.internal(str(error)) from error
        self._attributes.traces.annotations[f"failed-open.{MUTATION}{annotation_key}"] = hook.name
        if calls.deadline_passed(self._attributes):
            raise status.timeout(calls.DEADLINE_EXCEEDED) from error

    async def _call(self, hook: Hook, form: Form, objects: ObjectPair, annotation_key: str) -> bool:
        """Call a webhook and apply its patch; report whether the patch changed the object."""
        response = await calls.call_webhook(self._services, hook, self._attributes, form, objects, mutating=True)
        if not response.patch:
            return False
        operations = await calls.in_thread_if_large(len(response.patch), _operations, hook, response)
        if not operations:
            return False
        if objects.new is None:
            text = "attempted to modify the object, which is not supported for this operation"
            raise status.internal(f"admission webhook {go_quote(hook.name)} {text}")
        if response.patch_type != "JSONPatch":
            raise Failed(hook.name, f"unsupported patch type {go_quote(response.patch_type)}")
        size = server_limits.WORK_INLINE if json_patch.copies(operations) else len(response.patch) + objects.size
        changed, found = await calls.in_thread_if_large(size, _patched, self._attributes, form, objects, operations)
        self._attributes.size = max(self._attributes.size, size)
        found = await self._back(form, found)
        self._new = await self._versions.change(form, found)
        annotation = {
            "configuration": hook.configuration,
            "webhook": hook.name,
            "patch": operations,
            "patchType": "JSONPatch",
        }
        text = await calls.in_thread_if_large(len(response.patch), _text, annotation)
        self._attributes.traces.annotations[f"{PATCH}{annotation_key}"] = text
        return changed

    async def _back(self, form: Form, found: Document) -> Document:
        """Return the result of a webhook in the version of the webhook request.

        Convert the result if the webhook has changed its version. Upstream passes such a result to the next webhook
        without a conversion.
        """
        attributes, definition = self._attributes, self._attributes.definition
        assert definition is not None
        there = returned_version(definition, form, found)
        if there is None:
            return found
        found = await calls.in_thread_if_large(attributes.size, normalized, there, attributes.subresource, found)
        found = await self._services.convert(definition, found, form.api_version)
        return await calls.in_thread_if_large(
            attributes.size, normalized, served_in(definition, form), attributes.subresource, found
        )


def _text(annotation: Document) -> str:
    return orjson.dumps(annotation).decode()


def _operations(hook: Hook, response: Response) -> list[Any]:
    """Return the operations of the JSON patch in a response; an empty list for null.

    Raise Failed if the patch is not a list of operations.
    """
    try:
        operations, _ = decode_json(response.patch)
        if operations is None:
            return []
        if not isinstance(operations, list):
            kind = json_kind(operations)
            raise json_patch.PatchMalformed(f"json: cannot unmarshal {kind} into Go value of type jsonpatch.Patch")
        json_patch.check(operations, bounded=False)
    except (DecodeError, json_patch.PatchMalformed) as error:
        raise Failed(hook.name, f"received undecodable patch in webhook response: {error}") from error
    return operations


def _patched(attributes: Attributes, form: Form, objects: ObjectPair, operations: list[Any]) -> tuple[bool, Document]:
    """Apply a patch, then prune the object and set its defaults (ADM-014).

    Return (whether the object changed, the object). Do not prune an object whose version the patch has changed: the
    caller does this. Raise a 500 for an operation that fails.
    """
    assert objects.new is not None
    assert attributes.definition is not None
    try:
        found = json_patch.apply(objects.new, operations)
    except json_patch.PatchInvalid as error:
        raise status.internal(str(error)) from error
    changed = not same(found, objects.new)
    if returned_version(attributes.definition, form, found) is not None:
        return changed, found
    return changed, normalized(served_in(attributes.definition, form), attributes.subresource, found)


class ValidatingWebhooks(_Webhooks):
    """The plug-in: calls validating webhooks in parallel; each receives the final object.

    See ADM-004.
    """

    __slots__ = ()
    name = "ValidatingAdmissionWebhook"
    type = "validating"

    async def review(self, attributes: Attributes) -> None:
        """Call the webhooks that match the write.

        If several webhooks deny the write or fail, raise the StatusError of the first in their order.
        """
        versions = Versions(attributes, self._services.convert, attributes.new)
        matching: list[tuple[Hook, Form, ObjectPair]] = []
        loop_budget = LoopBudget()
        for _, hook in await self._hooks(attributes):
            if loop_budget.exhausted:
                await loop_budget.pause()
            form = await calls.form_for(self._services, hook, attributes, versions, "validating", attributes.new)
            if form is not None:
                objects = versions.cached(form) or await calls.objects_in(versions, form, mutating=False)
                matching.append((hook, form, objects))
        if not matching:
            return
        if calls.deadline_passed(attributes):
            raise status.timeout(calls.DEADLINE_EXCEEDED)
        if len(matching) == 1:
            errors = [await self._denial(attributes, 0, *matching[0])]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._denial(attributes, index, *one)) for index, one in enumerate(matching)]
            errors = [task.result() for task in tasks]
        for error in errors:
            if error is not None:
                raise error

    async def _denial(
        self, attributes: Attributes, index: int, hook: Hook, form: Form, objects: ObjectPair
    ) -> StatusError | None:
        """Call a webhook.

        Return None if the write may continue, else the error to raise.
        """
        observed = Observed(self._services, hook, attributes.operation, "validating")
        try:
            await calls.call_webhook(self._services, hook, attributes, form, objects, mutating=False)
        except Failed as error:
            observed.failed(error)
            if not hook.ignore:
                return status.internal(str(error))
            attributes.traces.annotations[f"failed-open.{VALIDATING}round_0_index_{index}"] = hook.name
        except Rejected as error:
            observed.failed(error)
            return error.status
        except StatusError as error:
            observed.failed(error)
            return error
        else:
            observed.passed()
        return None
