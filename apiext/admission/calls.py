"""One call of one webhook: matching, request, and handling of its response or failure.

See ADM-005…012. A Form (attributes.py) is the group, version and kind in which a plug-in receives a write.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

from apiext import limits as server_limits
from apiext import logs
from apiext.admission import limits, reviews
from apiext.admission import metrics as counts
from apiext.admission.attributes import NAMESPACES, Attributes, Form
from apiext.admission.configured import GROUP
from apiext.admission.expressions import ConditionError, expression_variables
from apiext.admission.hooks import Hook
from apiext.admission.matching import Criteria, labels_of
from apiext.admission.plugin_services import PluginServices
from apiext.admission.reviews import BadReview, Response
from apiext.admission.versions import ObjectPair, Versions
from apiext.documents.document import View
from apiext.meta import status
from apiext.meta.status import StatusError
from apiext.webhooks.breaker import Cut
from apiext.webhooks.errors import CallError, TimedOut
from apiext.webhooks.reviews import NotAReview
from apiext.webhooks.target import Target

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


POLICY_KINDS = frozenset(
    ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy",
     "MutatingAdmissionPolicyBinding")
)  # fmt: skip
EXEMPT = POLICY_KINDS | {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}
DEADLINE_EXCEEDED = "request did not complete within requested timeout"


class Failed(Exception):
    """The call of a webhook failed, or its response is invalid.

    Metrics have ``code`` as a label.
    """

    def __init__(self, name: str, reason: str, code: int = 503) -> None:
        super().__init__(f'failed calling webhook "{name}": {reason}')
        self.code = code


class Rejected(Exception):
    """A webhook denied the write."""

    def __init__(self, status: StatusError) -> None:
        super().__init__(status.message)
        self.status = status


def exempt(attributes: Attributes, kinds: Collection[str] = EXEMPT) -> bool:
    """Report whether a plug-in skips the write, since the object configures plug-ins (ADM-002).

    ``kinds`` are the kinds of configurations that this plug-in skips.
    """
    return attributes.resource.group == GROUP and attributes.kind.kind in kinds


def is_review(attributes: Attributes) -> bool:
    """Report whether the write is an access or token review, which webhooks and policies skip.

    A webhook that denies reviews could lock out all clients (KEP-5793; upstream:
    pkg/kubeapiserver/admission/exclusion). Webhooks and policies do apply to a TokenRequest.
    """
    served = attributes.served
    return served is not None and bool(served.endpoints[""].review)


async def _namespace_labels(services: PluginServices, attributes: Attributes, new: View | None) -> View:
    """Return the labels to which namespaceSelectors apply.

    Raise a 404 if the namespace does not exist, and a 500 if the write has no namespace.
    """
    # The group of the resource is not compared.
    # upstream: a custom resource with the plural name "namespaces" is selected by its own labels, too
    if attributes.resource.resource == NAMESPACES.resource and not attributes.subresource and new is not None:
        return labels_of(new)
    name = attributes.plugin_namespace
    if not name:
        raise status.internal("resource name may not be empty")
    found = await services.find_namespace(name)
    if found is None:
        raise status.not_found(NAMESPACES, name)
    return labels_of(found)


async def matched_form(
    services: PluginServices, criteria: Criteria, attributes: Attributes, new: View | None
) -> Form | None:
    """Return the Form in which these criteria match a write, None if they do not match.

    ``new`` is the object after earlier plug-ins. Raises StatusError for an invalid selector or a missing namespace,
    unless another criterion excludes the write (upstream: plugin/webhook/generic, plugin/policy/matching).
    """
    form = criteria.form(attributes)
    if form is None:
        return None
    fault: StatusError | None = None
    try:
        if not criteria.selects_object(new, attributes.old):
            return None
    except StatusError as error:
        fault = error
    if criteria.needs_namespace(attributes) and not criteria.selects_namespace(
        await _namespace_labels(services, attributes, new)
    ):
        return None
    if fault is not None:
        raise fault
    return form


def form_for(
    services: PluginServices, hook: Hook, attributes: Attributes, versions: Versions, type: str, new: View | None
) -> Coroutine[Any, Any, Form | None]:
    """Return the Form in which a webhook receives the write, None if it does not apply.

    Raise StatusError. ``new`` is the object after earlier plug-ins, ``type`` is admit or validating.
    """
    if not hook.conditions.programs:
        return matched_form(services, hook.criteria, attributes, new)
    return _form_by_conditions(services, hook, attributes, versions, type, new)


async def _form_by_conditions(
    services: PluginServices, hook: Hook, attributes: Attributes, versions: Versions, type: str, new: View | None
) -> Form | None:
    form = await matched_form(services, hook.criteria, attributes, new)
    if form is None:
        return form
    objects = await objects_in(versions, form, mutating=type == "admit")
    variables = expression_variables(
        attributes, form, objects.new, objects.old, partial(services.authorize, attributes.user)
    )
    try:
        matched = await hook.conditions.match(variables, type, attributes.operation, services.metrics)
    except ConditionError as error:
        raise status.forbidden(attributes.resource, attributes.name, str(error)) from error
    return form if matched else None


async def objects_in(versions: Versions, form: Form, *, mutating: bool) -> ObjectPair:
    """Return the objects of a write in the Form of a webhook; raise 500 if the conversion fails."""
    try:
        return await versions.objects(form)
    except StatusError as error:  # upstream: for mutating webhooks, the message gets its prefix twice
        raise status.internal(status.internal(error.message).message if mutating else error.message) from error


def deadline_passed(attributes: Attributes) -> bool:
    """Report whether the request's deadline has passed."""
    return bool(attributes.deadline) and asyncio.get_running_loop().time() >= attributes.deadline


async def call_webhook(
    services: PluginServices, hook: Hook, attributes: Attributes, form: Form, objects: ObjectPair, *, mutating: bool
) -> Response:
    """Call a webhook and return its response.

    Add its warnings and audit annotations to the write. Raises Failed and Rejected. Raises StatusError for a dry run
    that the webhook does not support (ADM-012), and if the request exceeds its deadline during the call.
    """
    if attributes.dry_run and not hook.supports_dry_run:
        raise status.bad_request(f'admission webhook "{hook.name}" does not support dry run')
    try:
        version = reviews.version_of(hook.versions)
    except BadReview as error:
        raise Failed(hook.name, f"could not create admission objects: {error}", 400) from error
    if not isinstance(hook.target, Target):
        raise Failed(hook.name, f"could not get REST client: {hook.target}", 500) from hook.target
    uid = reviews.new_uid()
    # most reviews are small, so this code avoids the coroutine of in_thread_if_large
    if attributes.size < server_limits.WORK_INLINE:
        body = reviews.review(version, uid, attributes, form, objects)
    else:
        body = await asyncio.to_thread(reviews.review, version, uid, attributes, form, objects)
    raw = await _post(services, hook, hook.target, attributes, body)
    try:
        if len(raw) < server_limits.WORK_INLINE:
            found = reviews.response_of(raw, version, uid, mutating=mutating)
        else:
            found = await asyncio.to_thread(reviews.response_of, raw, version, uid, mutating=mutating)
    except NotAReview as error:
        raise Failed(hook.name, f"failed to call webhook: {error}") from error
    except BadReview as error:
        raise Failed(hook.name, f"received invalid webhook response: {error}") from error
    for key, value in found.annotations.items():
        attributes.traces.annotations[f"{hook.name}/{key}"] = value
    for text in found.warnings[: limits.MAX_WARNINGS_ADDED]:
        attributes.traces.warn(text)
    if not found.allowed:
        raise Rejected(reviews.denial(hook.name, found.result))
    return found


async def _post(services: PluginServices, hook: Hook, target: Target, attributes: Attributes, body: bytes) -> bytes:
    left = hook.timeout
    if attributes.deadline:
        left = max(attributes.deadline - asyncio.get_running_loop().time(), 0.001)
    try:
        timeout = Cut(left) if left < hook.timeout else hook.timeout
        return await services.poster.post(target, body, timeout, owner=hook.owner)
    except CallError as error:
        # the request's deadline was earlier than the webhook's timeout
        if isinstance(error, TimedOut) and left < hook.timeout:
            raise status.timeout(DEADLINE_EXCEEDED) from error
        raise Failed(hook.name, f"failed to call webhook: {error}", error.code) from error


async def in_thread_if_large(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of work on an object of ``size`` bytes.

    Do the work in a thread if the object is large.
    """
    if size < server_limits.WORK_INLINE:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


_DENIALS: dict[str, logs.RateLimited] = {}


def _log_denial(webhook: str, operation: str, error: "Rejected") -> None:
    """Log that a webhook denied a write, with at most one line per webhook in LOG_EVERY seconds."""
    if len(_DENIALS) > limits.WEBHOOKS_LOGGED:
        _DENIALS.clear()
    seldom = _DENIALS.setdefault(webhook, logs.RateLimited(server_limits.LOG_EVERY))
    seldom.log(
        logging.INFO,
        log,
        str(error.status),
        event="denied",
        webhook=webhook,
        operation=operation,
        code=error.status.code,
    )


class Observed:
    """Measures one call of a webhook, from ``__init__`` to ``passed`` or ``failed``."""

    __slots__ = ("_began", "_hook", "_operation", "_services", "_type")

    def __init__(self, services: PluginServices, hook: Hook, operation: str, type: str) -> None:
        self._services = services
        self._hook = hook
        self._operation = operation
        self._type = type
        self._began = perf_counter()

    def passed(self) -> None:
        """Count a response that allowed the write."""
        took = perf_counter() - self._began
        self._services.metrics.webhook(self._hook.name, self._type, self._operation, 200, False, took)

    def failed(self, error: Exception) -> None:
        """Count a failed call, a denial or an internal error; log the first two."""
        metrics, name = self._services.metrics, self._hook.name
        if isinstance(error, Failed):
            rejected = not self._hook.ignore
            log.warning(
                "%s; %s", error, "the write is denied" if rejected else "the write continues: failurePolicy is Ignore"
            )
            if rejected:
                metrics.rejection(name, self._type, self._operation, counts.CALLING_ERROR, error.code)
            else:
                metrics.failed_open(name, self._type)
            self._count(error.code, rejected=rejected)
            return
        if isinstance(error, Rejected):
            _log_denial(name, self._operation, error)
        code = error.status.code if isinstance(error, Rejected) else 0
        kind = counts.NO_ERROR if isinstance(error, Rejected) else counts.INTERNAL_ERROR
        metrics.rejection(name, self._type, self._operation, kind, code)
        self._count(code, rejected=True)

    def _count(self, code: int, *, rejected: bool) -> None:
        took = perf_counter() - self._began
        self._services.metrics.webhook(self._hook.name, self._type, self._operation, code, rejected, took)
