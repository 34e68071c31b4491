"""The audit policy: the level of each request, and the validation of a policy (AUD-001)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from apiext.documents.encoding import decode_yaml, json_kind
from apiext.documents.errors import DecodeError
from apiext.meta import fields, syntax
from apiext.meta.fields import FieldError
from apiext.meta.objectmeta import coerce
from apiext.meta.requestinfo import RequestInfo

API_VERSION = "audit.k8s.io/v1"
NONE, METADATA, REQUEST, REQUEST_RESPONSE = range(4)
LEVELS = ("None", "Metadata", "Request", "RequestResponse")
RECEIVED, STARTED, COMPLETE, PANIC = STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")


Warn = Callable[[str], None]


class PolicyError(ValueError):
    """An invalid policy; the message says why."""


class Verdict(Struct, frozen=True):
    """The audit level of a request, the omitted stages, and whether managedFields are omitted."""

    level: int = NONE
    omitted: frozenset[str] = frozenset()
    omit_managed_fields: bool = False


class Resources(Struct, frozen=True):
    """Resources of an API group.

    Empty ``resources`` match all resources, empty ``names`` match all objects.
    """

    group: str = ""
    resources: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()

    def match(self, info: RequestInfo) -> bool:
        """Report whether a request is for one of these resources."""
        if self.group not in ("*", info.group):
            return False
        if not self.resources:
            return True
        if self.names and info.name not in self.names:
            return False
        return any(_resource_matches(wanted, info.resource, info.subresource) for wanted in self.resources)


def _resource_matches(wanted: str, resource: str, subresource: str) -> bool:
    if wanted in ("*", f"{resource}/{subresource}" if subresource else resource):
        return True
    if subresource and wanted == f"*/{subresource}":
        return True
    return wanted.endswith("/*") and wanted[:-2] == resource  # upstream: resource/* also matches the resource itself


class Rule(Struct, frozen=True):
    """A verdict and the requests for which it is used; an empty field matches all requests."""

    verdict: Verdict
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    resources: tuple[Resources, ...] = ()
    namespaces: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()

    def match(self, info: RequestInfo, namespace: str, user: str | None, groups: Sequence[str]) -> bool:
        """Report whether the rule matches a request; ``user`` is None before authentication."""
        if self.users and user not in self.users:
            return False
        if self.groups and self.groups.isdisjoint(groups):
            return False
        if self.verbs and info.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            if not info.is_resource or (self.namespaces and namespace not in self.namespaces):
                return False
            return not self.resources or any(one.match(info) for one in self.resources)
        if self.paths:
            return not info.is_resource and any(_path_matches(wanted, info.path) for wanted in self.paths)
        return True


def _path_matches(wanted: str, path: str) -> bool:
    return wanted in ("*", path) or (wanted.endswith("*") and path.startswith(wanted.rstrip("*")))


class Policy(Struct, frozen=True):
    """Rules; the first rule that matches a request gives its verdict.

    Requests without a match are not audited.
    """

    rules: tuple[Rule, ...]

    def verdict(self, info: RequestInfo, namespace: str, user: str | None, groups: Sequence[str]) -> Verdict:
        """Return the audit level and stages of a request."""
        for rule in self.rules:
            if rule.match(info, namespace, user, groups):
                return rule.verdict
        return _NOTHING


_NOTHING = Verdict()


# --- parsing ---

_STRINGS = "[]string"
_RESOURCE_TYPES = {"group": "string", "resources": _STRINGS, "resourceNames": _STRINGS}
_RULE_TYPES = {
    "level": "v1.Level", "users": _STRINGS, "userGroups": _STRINGS, "verbs": _STRINGS,
    "resources": "[]v1.GroupResources", "namespaces": _STRINGS, "nonResourceURLs": _STRINGS,
    "omitStages": "[]v1.Stage", "omitManagedFields": "bool",
}  # fmt: skip
_POLICY_TYPES = {
    "apiVersion": "string", "kind": "string", "metadata": "v1.ObjectMeta", "rules": "[]v1.PolicyRule",
    "omitStages": "[]v1.Stage", "omitManagedFields": "bool",
}  # fmt: skip
_MEMBERS: Mapping[str, Mapping[str, str]] = {  # type → field → type of the field
    "v1.GroupResources": _RESOURCE_TYPES,
    "v1.PolicyRule": _RULE_TYPES,
    "v1.Policy": _POLICY_TYPES,
}
_JSON_TYPES: Mapping[str, type] = {"bool": bool, "string": str, "v1.Level": str, "v1.Stage": str, "v1.ObjectMeta": dict}


def load(raw: bytes) -> tuple[Policy, list[str]]:
    """Parse a policy in YAML or JSON; return it with warnings. Raises PolicyError.

    The warnings are about unknown fields and duplicate keys.
    """
    try:
        document, notes = decode_yaml(raw)
    except DecodeError as error:
        raise PolicyError(f"failed decoding: {error}") from error
    if document is not None and not isinstance(document, dict):
        raise PolicyError(f"failed decoding: json: cannot unmarshal {json_kind(document)} into a policy")
    document = document or {}
    version, kind = document.get("apiVersion") or "", document.get("kind") or ""
    if not version:
        raise PolicyError(f'the policy has no apiVersion: expected "{API_VERSION}"')
    if version != API_VERSION or kind != "Policy":
        raise PolicyError(f'failed decoding: no kind "{kind}" is registered for version "{version}"')
    unknown = list(notes)
    _check(document, "v1.Policy", "Policy", "", unknown)
    errors = list(_errors(document))
    if errors:
        raise PolicyError(fields.aggregate(errors))
    if not document.get("rules"):
        raise PolicyError("loaded illegal policy with 0 rules")
    return Policy(tuple(_rule(document, rule) for rule in document["rules"])), unknown


def _check(value: Any, kind: str, path: str, shown: str, unknown: list[str]) -> None:
    """Raise PolicyError for a value of a wrong type, as Go's decoder does.

    Appends unknown fields to ``unknown``; replaces nulls in arrays by zero values.
    """
    if value is None:
        return
    if kind.startswith("[]"):
        if not isinstance(value, list):
            raise _type_error(value, path, kind)
        for index, item in enumerate(value):
            if item is None:  # Go decodes null as the zero value
                value[index] = {} if kind[2:] in _MEMBERS else ""
            _check(item, kind[2:], path, f"{shown}[{index}]", unknown)
        return
    members = _MEMBERS.get(kind)
    if not isinstance(value, _JSON_TYPES[kind] if members is None else dict):
        raise _type_error(value, path, kind)
    if kind == "v1.ObjectMeta":
        try:
            unknown += [f'unknown field "{field}"' for field in coerce(value, go_path="metadata.")[1]]
        except DecodeError as error:
            raise PolicyError(f"failed decoding: {error}") from error
        return
    for name, item in value.items() if isinstance(value, dict) else ():
        field_path = f"{shown}.{name}" if shown else name
        if members is not None and name in members:
            below = "Policy" if kind == "v1.Policy" else f"{kind[3:]}.{path.partition('.')[2]}"
            _check(item, members[name], f"{below}.{name}", field_path, unknown)
        else:
            unknown.append(f'unknown field "{field_path}"')


def _type_error(value: Any, path: str, kind: str) -> PolicyError:
    text = f"json: cannot unmarshal {json_kind(value)} into Go struct field {path} of type {kind}"
    return PolicyError(f"failed decoding: {text}")


def _rule(policy: Mapping[str, Any], rule: Mapping[str, Any]) -> Rule:
    own = rule.get("omitManagedFields")
    verdict = Verdict(
        LEVELS.index(rule["level"]),
        _set(policy, "omitStages") | _set(rule, "omitStages"),
        bool(policy.get("omitManagedFields") if own is None else own),
    )
    found = tuple(
        Resources(one.get("group") or "", tuple(one.get("resources") or ()), _set(one, "resourceNames"))
        for one in rule.get("resources") or ()
    )
    return Rule(
        verdict,
        _set(rule, "users"),
        _set(rule, "userGroups"),
        _set(rule, "verbs"),
        found,
        _set(rule, "namespaces"),
        tuple(rule.get("nonResourceURLs") or ()),
    )


def _set(value: Mapping[str, Any], name: str) -> frozenset[str]:
    return frozenset(value.get(name) or ())


# --- validation (upstream: ValidatePolicy) ---


def _errors(policy: Mapping[str, Any]) -> Iterator[FieldError]:
    yield from _stage_errors(policy, "omitStages")
    for index, rule in enumerate(policy.get("rules") or ()):
        yield from _rule_errors(rule, f"rules[{index}]")


def _rule_errors(rule: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    level = rule.get("level") or ""
    if not level:
        yield fields.required(f"{path}.level")
    elif level not in LEVELS:
        yield fields.not_supported(f"{path}.level", level, LEVELS)
    urls, resources = rule.get("nonResourceURLs") or [], rule.get("resources") or []
    for index, url in enumerate(urls):
        at = f"{path}.nonResourceURLs[{index}]"
        if url != "*" and not url.startswith("/"):
            yield fields.invalid(at, url, "non-resource URL rules must begin with a '/' character")
        if url != "*" and "*" in url[:-1]:
            yield fields.invalid(at, url, "non-resource URL wildcards '*' must be the final character of the rule")
    for one in resources:
        group = one.get("group") or ""
        if group not in ("", "*") and (wrong := syntax.dns1123_subdomain(group)):
            yield fields.invalid(f"{path}.resources.group", group, ",".join(wrong))
        if one.get("resourceNames") and not one.get("resources"):
            detail = "using resourceNames requires at least one resource"
            yield fields.invalid(f"{path}.resources.resourceNames", one["resourceNames"], detail)
    yield from _stage_errors(rule, "omitStages", f"{path}.")
    if urls and (resources or rule.get("namespaces")):
        detail = "rules cannot apply to both regular resources and non-resource URLs"
        yield fields.invalid(f"{path}.nonResourceURLs", urls, detail)


def _stage_errors(value: Mapping[str, Any], name: str, prefix: str = "") -> Iterator[FieldError]:
    for index, stage in enumerate(value.get(name) or ()):
        if stage not in STAGES:
            yield fields.invalid(f"{prefix}{name}[{index}]", stage, f"allowed stages are {','.join(STAGES)}")
