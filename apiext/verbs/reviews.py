"""Handle requests whose object is not stored: reviews, token requests, bindings, evictions."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson
from msgspec.structs import replace

from apiext.auth.authentication import BadCredential, bearer_token
from apiext.auth.authorization import Attributes, rules_of
from apiext.auth.bound_objects import Account, BadToken, BoundObject, Unbound
from apiext.auth.rbac import document_of
from apiext.auth.tokens import Tokens
from apiext.auth.user import MASTERS, User
from apiext.catalog.builtin.requirements import field_requirement_errors, label_requirement_errors
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode_in_order
from apiext.documents.go_json import in_order
from apiext.meta import objectmeta, status
from apiext.meta.fields import Errors, FieldError, invalid, required
from apiext.meta.names import GroupKind, GroupResource
from apiext.meta.options import WriteOptions
from apiext.meta.selectors import FieldSelector, LabelSelector, SelectorError
from apiext.meta.time import render
from apiext.scheduling.loop_budget import LoopBudget, collect
from apiext.text.quotes import go_quote
from apiext.verbs import decoding, identity, limits, ownership, pods, read
from apiext.verbs.call import Body, Call, Outcome, Verbs
from apiext.verbs.objects import attributes_of, warn_of_owners

ACCOUNTS = GroupResource("", "serviceaccounts")
SECRETS = GroupResource("", "secrets")
_TOKEN_REQUEST = GroupKind("authentication.k8s.io", "TokenRequest")
# upstream: conflicts name the kind, not a resource
_TOKEN_REQUESTS = GroupResource(_TOKEN_REQUEST.group, _TOKEN_REQUEST.kind)
_ONE_OF_BOTH = "exactly one of nonResourceAttributes or resourceAttributes must be specified"

Permit = Callable[[View], Awaitable[None]]
"""Runs validating admission on a valid review; raises StatusError to deny."""
Answer = Callable[[Verbs, Call, Document, Permit], Awaitable[Document]]
"""Normalized review → fields of the response, such as its status; raises StatusError.

The function calls Permit once the review is valid.
"""


async def answer(verbs: Verbs, call: Call, body: Body, options: WriteOptions) -> Outcome:
    """Handle the review or other object in a body; return a 201 with the response.

    Raise StatusError, for example a 400 or 422 for an invalid review.
    """
    document = await decoding.normalize_body(call, body, decoding.mode(options))
    if call.trail is not None:
        call.trail.requested(document)
    identity.settle_namespace(call, document)
    ownership.claim_posted(call, document, options, verbs.clock())
    warn_of_owners(call, document, admitted=False)
    attributes = attributes_of(call, "CREATE", options, document, None)
    owned, document = document, await verbs.admission.mutate(attributes, document)
    ownership.check_admitted(call, owned, document)
    warn_of_owners(call, document)

    async def permit(question: View) -> None:
        attributes.new = question
        await verbs.admission.review(attributes)

    action = pods.ACTIONS.get(call.endpoint.review)
    if action is not None:
        return Outcome(201, document=await action(verbs, call, document, permit, options))
    found = await REVIEWS[call.endpoint.review](verbs, call, document, permit)
    return Outcome(201, document={**document, **found})


# --- access ---


async def _self_access(verbs: Verbs, call: Call, document: Document, permit: Permit) -> Document:
    spec = document["spec"]
    _refuse(call, [*_attributes(spec), *_selector_errors(spec), *_metadata(document)])
    await permit(document)
    return _decision(verbs, call.user, spec)


async def _access(verbs: Verbs, call: Call, document: Document, permit: Permit) -> Document:
    spec = document["spec"]
    _refuse(call, [*_attributes(spec), *_subject(spec), *_selector_errors(spec), *_metadata(document)])
    await permit(document)
    return _decision(verbs, await _user(verbs, spec), spec)


async def _local_access(verbs: Verbs, call: Call, document: Document, permit: Permit) -> Document:
    spec = document["spec"]
    local = _metadata(document, " except for namespace")
    errors = [*_attributes(spec), *_subject(spec), *_selector_errors(spec), *local]
    asked = spec.get("resourceAttributes")
    if asked is not None and asked.get("namespace", "") != document["metadata"].get("namespace", ""):
        where = "spec.resourceAttributes.namespace"
        errors.append(invalid(where, asked.get("namespace", ""), "must match metadata.namespace"))
    if spec.get("nonResourceAttributes") is not None:
        shown = _shown(spec["nonResourceAttributes"])
        errors.append(invalid("spec.nonResourceAttributes", shown, "disallowed on this kind of request"))
    _refuse(call, errors)
    await permit(document)
    return _decision(verbs, await _user(verbs, spec), spec)


def _decision(verbs: Verbs, user: User, spec: View) -> Document:
    asked = spec.get("resourceAttributes")
    if asked is not None:
        names = ("group", "version", "resource", "subresource", "namespace", "name")
        wanted = Attributes(user, asked.get("verb", ""), "", *(asked.get(name, "") for name in names))
    else:
        other = spec["nonResourceAttributes"]
        wanted = Attributes(user, other.get("verb", ""), other.get("path", ""), at_path=True)
    decision = verbs.authorizer(wanted)
    details: Document = {"reason": decision.reason} if decision.reason else {}
    if ignored := _ignored(asked or {}):
        details["evaluationError"] = "; ".join(ignored)
    return {"status": {"allowed": decision.allowed, **details}}


def _ignored(asked: View) -> list[str]:
    """Return the errors of invalid selectors.

    The decision ignores all selectors, as upstream's RBAC does.
    """
    errors: list[str] = []
    for name, (parse, fits) in _PARSERS.items():
        selector = asked.get(name) or {}
        requirements = selector.get("requirements") or ()
        readable = [fits(one) for one in requirements] or [_parses(parse, selector.get("rawSelector", ""))]
        if not all(readable):
            part = "partially ignored" if any(readable) else "ignored"
            errors.append(f"spec.resourceAttributes.{name} {part} due to parse error")
    return errors


def _parses(parse: Callable[[Any], object], given: object) -> bool:
    try:
        parse(given)
    except SelectorError:
        return False
    return True


def _fits_field(requirement: View) -> bool:
    return requirement.get("operator") in {"In", "NotIn"} and len(requirement.get("values") or ()) == 1


def _fits_label(requirement: View) -> bool:
    return _parses(LabelSelector.from_document, {"matchExpressions": [requirement]})


_PARSERS: Mapping[str, tuple[Callable[[str], object], Callable[[View], bool]]] = {
    "fieldSelector": (FieldSelector.parse, _fits_field),
    "labelSelector": (LabelSelector.parse, _fits_label),
}


async def _user(verbs: Verbs, spec: View) -> User:
    """Return the user of a review.

    If the user has more than limits.REVIEWED_GROUPS groups, keep only system:masters and groups with a binding.
    """
    groups: Sequence[str] = spec.get("groups") or ()
    if len(groups) > limits.REVIEWED_GROUPS:
        namespace = (spec.get("resourceAttributes") or {}).get("namespace", "")
        policy, loop_budget, given, groups = verbs.policy, LoopBudget(), groups, []
        for group in given:
            if group == MASTERS or (policy is not None and policy.names_group(group, namespace)):
                groups.append(group)
            if loop_budget.exhausted:
                await loop_budget.pause()
    return User(spec.get("user", ""), tuple(groups), spec.get("uid", ""))


# --- validation ---


def _refuse(call: Call, errors: list[FieldError]) -> None:
    if errors:
        raise status.invalid(GroupKind(call.served.names.group, ""), "", errors)  # upstream: this error names no kind


def _metadata(document: View, unless: str = "") -> list[FieldError]:
    given = document["metadata"]
    if not given.keys() - {"managedFields", "namespace" if unless else ""}:
        return []
    shown = orjson.Fragment(encode_in_order(objectmeta.in_go_order(in_order(given))))
    return [invalid("metadata", shown, f"must be empty{unless}")]


def _attributes(spec: View) -> list[FieldError]:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) != (other is None):
        return []
    return [invalid("spec", None if other is None else _shown(other), _ONE_OF_BOTH)]


def _selector_errors(spec: View) -> list[FieldError]:
    """Return the errors of the selectors of resourceAttributes."""
    asked, errors = spec.get("resourceAttributes") or {}, Errors()
    for name, errors_of in _SELECTORS.items():
        selector, path = asked.get(name), f"spec.resourceAttributes.{name}"
        if selector is None:
            continue
        raw, requirements = selector.get("rawSelector", ""), selector.get("requirements") or ()
        if raw and requirements:
            errors.append(invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements"))
        if not raw and not requirements:
            text = f"when {path} is specified, requirements or rawSelector is required"
            errors.append(required(f"{path}.requirements", text))
        for index, requirement in enumerate(requirements):
            errors += errors_of(requirement, f"{path}.requirements[{index}]")
    return errors


_SELECTORS: Mapping[str, Callable[[View, str], Iterable[FieldError]]] = {
    "fieldSelector": field_requirement_errors,
    "labelSelector": partial(label_requirement_errors, operators=False),
}


def _shown(attributes: View) -> Document:
    """Return attributes as upstream's internal type prints them."""
    return {"Path": attributes.get("path", ""), "Verb": attributes.get("verb", "")}


def _subject(spec: View) -> list[FieldError]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid("spec.user", "", "at least one of user or group must be specified")]


# --- rules ---


async def _self_rules(verbs: Verbs, call: Call, document: Document, permit: Permit) -> Document:
    namespace = document["spec"].get("namespace", "")
    if not namespace:
        raise status.bad_request("no namespace on request")
    await permit(document)
    found = rules_of(verbs.authorizer, call.user, namespace)
    shown: Document = {
        "resourceRules": await collect(map(document_of, found.rules), lambda rule: "resources" in rule),
        "nonResourceRules": await collect(map(document_of, found.rules), lambda rule: "nonResourceURLs" in rule),
        "incomplete": False,
    }
    if found.fault:
        shown["evaluationError"] = found.fault
    return {"metadata": {}, "spec": {}, "status": shown}


# --- users ---


async def _token(verbs: Verbs, call: Call, document: Document, permit: Permit) -> Document:
    spec = document["spec"]
    token, audiences = spec.get("token", ""), spec.get("audiences") or []
    if not token:
        raise status.bad_request("token is required for TokenReview in authentication")
    await permit(document)
    header = f"Bearer {token}"
    token = bearer_token(header)
    if not token:
        return {"status": {"user": {}}}
    try:
        account = await _account(verbs.accounts, token, audiences) if verbs.accounts is not None else None
    except BadToken as error:  # _INVALID is the error of the other authenticators, which do not know the token
        return _unknown(f"[{_INVALID}, {error}]")
    if account is not None:
        return _known(*account)
    own = verbs.accounts.audiences if verbs.accounts is not None else ()
    matching = [audience for audience in audiences or own if audience in own]
    if verbs.authenticator is None or (audiences and not matching):
        return _unknown(_INVALID)
    try:
        user = verbs.authenticator.authenticate(header, None)
    except BadCredential:
        return _unknown(_INVALID)
    return _known(user, matching) if user is not None else _unknown(_INVALID)


async def _account(accounts: Tokens, token: str, audiences: Sequence[str]) -> tuple[User, list[str]] | None:
    """Return the user of a token, as Tokens.user does; raise BadToken.

    If the account is not cached, or does not match the token, wait for the newest state of the store.
    """
    try:
        return accounts.user(token, audiences)
    except Unbound:
        await accounts.fresh()
        return accounts.user(token, audiences)


_INVALID = "invalid bearer token"


def _unknown(error: str) -> Document:
    return {"status": {"user": {}, "error": error}}


def _known(user: User, audiences: Sequence[str]) -> Document:
    found: Document = {"authenticated": True, "user": _info(user)}
    return {"status": {**found, "audiences": list(audiences)} if audiences else found}


async def _self(verbs: Verbs, call: Call, document: Document, permit: Permit) -> Document:
    await permit(document)
    return {"metadata": {"creationTimestamp": verbs.clock()}, "status": {"userInfo": _info(call.user)}}


def _info(user: User) -> Document:
    info: dict[str, Any] = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    info["extra"] = {name: list(values) for name, values in user.extra}
    return {name: value for name, value in info.items() if value}


# --- tokens of service accounts ---


async def _token_request(verbs: Verbs, call: Call, document: Document, permit: Permit) -> Document:
    """Issue a token for the service account in the URL.

    Raise a 404 if the account does not exist.
    """
    given = document["metadata"].get("name") or ""
    if given and given != call.name:
        fault = invalid("metadata.name", given, "must match the service account name if specified")
        raise status.invalid(_TOKEN_REQUEST, call.name, [fault])
    given = document["metadata"].get("namespace") or ""
    if given and given != call.namespace:
        fault = invalid("metadata.namespace", given, "must match the service account namespace if specified")
        raise status.invalid(_TOKEN_REQUEST, call.name, [fault])
    entry = await read.get(verbs, call, "")
    account = Account(call.namespace or "", call.name, orjson.loads(entry.raw)["metadata"].get("uid", ""))
    wanted = document["metadata"].get("uid") or account.uid
    if wanted != account.uid:
        text = f"the UID in the token request ({wanted}) does not match the UID of the service account ({account.uid})"
        raise status.conflict(_TOKEN_REQUESTS, call.name, text)
    if verbs.accounts is None:
        raise status.unavailable("this server does not issue tokens")
    from apiext.catalog.builtin.token_rules import token_request_errors  # a plain start needs no tokens (decision 36)

    spec = {**document["spec"], "audiences": document["spec"].get("audiences") or list(verbs.accounts.audiences)}
    place = {"name": call.name, "namespace": account.namespace, "uid": account.uid}
    metadata = {**document["metadata"], **place, "creationTimestamp": verbs.clock()}
    errors = token_request_errors(spec)
    if errors:
        raise status.invalid(_TOKEN_REQUEST, "", errors)
    unanswered = {"token": "", "expirationTimestamp": None}
    await permit({**document, "metadata": metadata, "spec": spec, "status": unanswered})
    bound = await _bound(verbs, call, spec["boundObjectRef"]) if spec.get("boundObjectRef") is not None else {}
    longest = verbs.accounts.longest
    if 0 < longest < spec["expirationSeconds"]:
        call.warn([f"requested expiration of {spec['expirationSeconds']} seconds shortened to {longest} seconds"])
        spec["expirationSeconds"] = longest
    audiences = document["spec"].get("audiences") or ()
    made = verbs.accounts.issue(account, spec["expirationSeconds"], audiences, bound)
    ends = render(datetime.fromtimestamp(made.until, UTC))
    if call.trail is not None:
        call.trail.annotations[ISSUED] = made.credential
    return {"metadata": metadata, "spec": spec, "status": {"token": made.token, "expirationTimestamp": ends}}


async def _bound(verbs: Verbs, call: Call, reference: View) -> Mapping[str, BoundObject]:
    """Return claim → object, for the object to which a token is bound; for a pod, also its node.

    Raise a 404 if the object does not exist, and a 409 if it has another uid than the reference. Raise a 400 if a pod
    has another service account, or if tokens cannot be bound to objects of the kind.
    """
    kind, name, (group, version) = reference.get("kind", ""), reference.get("name", ""), _group_version(reference)
    bindable = _BINDABLE.get(kind)
    if bindable is None or group:
        from apiext.catalog.builtin.token_rules import names_webhook

        why = _DISABLED if names_webhook(reference) else ""
        raise status.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}{why}")
    if not name:
        raise status.bad_request("Name parameter required.")
    document = await _object(verbs, call, bindable, name)
    spec = document.get("spec") or {}
    if kind == "Pod" and spec.get("serviceAccountName") != call.name:
        account = f"serviceaccount {go_quote(call.name)}"
        raise status.bad_request(f"cannot bind token for {account} to pod running with different serviceaccount name.")
    bound = {kind.lower(): BoundObject(name, document["metadata"].get("uid", ""))}
    uid = bound[kind.lower()].uid
    if reference.get("uid", uid) != uid:
        text = f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
        raise status.conflict(GroupResource("", kind), name, f"{text}{_RECREATED}")
    node = spec.get("nodeName") if kind == "Pod" else None
    return bound | {"node": await _node_of(verbs, call, node)} if node else bound


async def _node_of(verbs: Verbs, call: Call, name: str) -> BoundObject:
    """Return the node of a pod, without its uid if it does not exist."""
    try:
        document = await _object(verbs, call, _BINDABLE["Node"], name)
    except status.StatusError as error:
        if error.code != 404:
            raise
        return BoundObject(name, "")
    return BoundObject(name, document["metadata"].get("uid", ""))


async def _object(verbs: Verbs, call: Call, group_resource: GroupResource, name: str) -> View:
    """Return an object of the core group.

    A namespaced object is in the namespace of the call. Raise a 404 if the object does not exist, and a 400 if no
    object can have the name.
    """
    identity.check_segment(name)
    resource = verbs.catalog.current.resource("", group_resource.resource)
    if resource is None:
        raise status.not_found(group_resource, name)
    namespace = call.namespace if resource.namespaced else None
    get = replace(call, resource=resource, served=resource.versions["v1"], name=name, namespace=namespace)
    found: View = orjson.loads((await read.get(verbs, get, "")).raw)
    return found


def _group_version(reference: View) -> tuple[str, str]:
    """Return group and version of a reference.

    As in upstream, both are empty if the apiVersion has more than one slash.
    """
    text = reference.get("apiVersion", "")
    group, _, version = text.rpartition("/")
    return (group, version) if text.count("/") <= 1 else ("", "")


_BINDABLE = {"Pod": GroupResource("", "pods"), "Node": GroupResource("", "nodes"), "Secret": SECRETS}
_RECREATED = "The object might have been deleted and then recreated"
_DISABLED = " (feature gate APIServerWebhookAuthenticationToken is disabled)"
ISSUED = "authentication.kubernetes.io/issued-credential-id"  # the audit annotation of a new token

REVIEWS: Mapping[str, Answer] = {
    "self_access": _self_access,
    "access": _access,
    "local_access": _local_access,
    "self_rules": _self_rules,
    "token": _token,
    "self": _self,
    "token_request": _token_request,
}
"""Value of ``Endpoint.review`` → the function that handles the requests of this endpoint."""
