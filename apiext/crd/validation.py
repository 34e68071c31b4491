"""Validate a definition on create, on update, and on writes of its status.

See CRD-020…040, UPD. This module validates the stored form (v1beta1, see encoding.py), since upstream's errors contain
the paths of this form (CRD-005). In metadata, it validates only the approval annotation and the name, which must
consist of plural and group.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from apiext.crd.approval import approval_errors
from apiext.crd.bundles import bundle_fault
from apiext.crd.conditions import is_true
from apiext.crd.definition import ESTABLISHED
from apiext.crd.encoding import to_storage
from apiext.crd.internal_text import versions_text
from apiext.crd.rules_of_conversion import conversion_errors, recognizes
from apiext.crd.rules_of_parts import (
    MAX_SELECTABLE,
    column_errors,
    deprecation_errors,
    invalid_json,
    name_errors,
    selectable_errors,
    stored_version_errors,
    subresource_errors,
)
from apiext.crd.rules_of_root import root_errors, validator_error
from apiext.documents.document import View
from apiext.documents.equality import same
from apiext.meta.fields import FieldError, as_many_as_shown, child, forbidden, invalid, item, not_supported, required
from apiext.meta.syntax import dns1035_label, dns1123_subdomain
from apiext.schema import definitions, options, rules_of_structure
from apiext.schema.field_paths import NOWHERE
from apiext.schema.parse import parse

SCOPES = ("Cluster", "Namespaced")
_PRESERVE = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
_PARTS = (  # (field at the top of the spec, field in a version, name in error texts)
    ("validation", "schema", "schemas"),
    ("subresources", "subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns", "additionalPrinterColumns"),
)


class Rules(Struct, frozen=True):
    """The rules to enforce; the defaults are the rules for a new v1 definition.

    An update skips rules that the stored definition violates (UPD-002). An update of an established definition adds
    ``fixed_names`` (scope and kind must not change) and ``bundle_checked`` (the caBundle must be valid).
    """

    recognized_reviews: bool = True
    fixed_names: bool = False
    schema_needed: bool = True
    bundle_checked: bool = False
    # versions that may have more than MAX_SELECTABLE selectable fields; "" stands for the spec
    many_selectable: frozenset[str] = frozenset()
    # names of the versions with an unchanged schema
    same_schema: frozenset[str] = frozenset()
    preserve_forbidden: bool = True
    approval_needed: bool = True
    schema: options.Options = field(default_factory=options.Options)


V1 = Rules()
V1BETA1 = Rules(
    schema_needed=False,
    preserve_forbidden=False,
    approval_needed=False,
    schema=options.Options(structural=False, valid_types=False, pruned_defaults=False, atomic_sets=False),
)


def validate(new: View, old: View | None) -> list[FieldError]:
    """Return the errors of a v1 definition; ``old`` is the stored definition, None on create."""
    return validate_stored_form(to_storage(new), to_storage(old) if old is not None else None, V1)


def validate_v1beta1(new: View, old: View | None) -> list[FieldError]:
    """Return the errors of a v1beta1 definition (B1-004)."""
    return validate_stored_form(new, old, V1BETA1)


def validate_stored_form(new: View, old: View | None, rules: Rules) -> list[FieldError]:
    """Return the errors of a definition in the stored form, by the rules of its API version."""
    if old is None:
        return list(as_many_as_shown(_errors(new, None, rules)))
    rules = ratcheted(new, old, rules)
    errors = list(as_many_as_shown(_errors(new, old, rules)))
    if not errors:  # the server looks for violations in the old schemas only if there are errors, since this is slow
        return errors
    broken = definitions.ratchets([schema for schema, _ in schemas_of(old["spec"])])
    return list(as_many_as_shown(_errors(new, old, replace(rules, schema=_both(rules.schema, broken)))))


def _errors(new: View, old: View | None, rules: Rules) -> Iterator[FieldError]:
    spec, status = new["spec"], new.get("status") or {}
    if old is None:
        yield from _metadata_name_errors(new)
    yield from _spec_errors(spec, rules, "spec")
    if old is not None:
        yield from _fixed_errors(spec, old["spec"], rules)
    yield from name_errors(status.get("acceptedNames") or {}, "status.acceptedNames")
    yield from stored_version_errors(status.get("storedVersions"), spec.get("versions") or (), "status.storedVersions")
    if rules.approval_needed:
        yield from approval_errors(new, old)
    if rules.preserve_forbidden and spec.get("preserveUnknownFields"):
        yield invalid("spec.preserveUnknownFields", True, _PRESERVE)


def validate_status(new: View, old: View | None) -> list[FieldError]:
    """Return the errors of accepted names, the only validated field of a status (CRD-039)."""
    return list(name_errors((new.get("status") or {}).get("acceptedNames") or {}, "status.acceptedNames"))


def ratcheted(new: View, old: View, rules: Rules) -> Rules:
    """Return the rules for an update: they allow the violations of the stored definition.

    See UPD-001, UPD-002. The options for schemas stay unchanged.
    """
    spec = old["spec"]
    conversion = spec.get("conversion") or {}
    bundle = (conversion.get("webhookClientConfig") or {}).get("caBundle")
    established = is_true(old, ESTABLISHED)
    return replace(
        rules,
        recognized_reviews=recognizes(conversion.get("conversionReviewVersions") or ("v1",)),
        fixed_names=established,
        schema_needed=rules.schema_needed and not _lacks_schema(spec),
        bundle_checked=established and not (bundle and bundle_fault(bundle)),
        many_selectable=_unchanged_selectable(new["spec"], spec),
        same_schema=_unchanged_schemas(new["spec"], spec),
        preserve_forbidden=rules.preserve_forbidden and not spec.get("preserveUnknownFields"),
    )


def _unchanged_selectable(spec: View, old: View) -> frozenset[str]:
    now = {version["name"]: version for version in spec.get("versions") or ()} | {"": spec}
    before = {version["name"]: version for version in old.get("versions") or ()} | {"": old}
    return frozenset(
        name
        for name in now.keys() & before.keys()
        if len(before[name].get("selectableFields") or ()) > MAX_SELECTABLE
        and before[name]["selectableFields"] == now[name].get("selectableFields")
    )


def _unchanged_schemas(spec: View, old: View) -> frozenset[str]:
    now, before = _schemas_by_version(spec), _schemas_by_version(old)
    return frozenset(name for name, schema in now.items() if name in before and same(before[name], schema))


def _schemas_by_version(spec: View) -> dict[str, View | None]:
    top = _schema(spec.get("validation"))
    versions = spec.get("versions") or ()
    return {version["name"]: _schema(version.get("schema")) if top is None else top for version in versions}


def _both(left: options.Options, right: options.Options) -> options.Options:
    return options.Options(
        structural=left.structural and right.structural,
        valid_types=left.valid_types and right.valid_types,
        pruned_defaults=left.pruned_defaults and right.pruned_defaults,
        atomic_sets=left.atomic_sets and right.atomic_sets,
        map_keys=left.map_keys and right.map_keys,
        limited_rules=left.limited_rules and right.limited_rules,
        known_expressions=left.known_expressions | right.known_expressions,
    )


def schemas_of(spec: View) -> list[tuple[View, str]]:
    """Return (openAPIV3Schema, its path) of each schema of a spec in the stored form."""
    places = [(spec.get("validation"), "spec.validation")]
    places += [
        (version.get("schema"), f"spec.versions[{index}].schema")
        for index, version in enumerate(spec.get("versions") or ())
    ]
    return [
        (holder["openAPIV3Schema"], f"{path}.openAPIV3Schema")
        for holder, path in places
        if holder and holder.get("openAPIV3Schema") is not None
    ]


def _schema(holder: View | None) -> View | None:
    return (holder or {}).get("openAPIV3Schema")


def _lacks_schema(spec: View) -> bool:
    if _schema(spec.get("validation")) is not None:
        return False
    return any(_schema(version.get("schema")) is None for version in spec.get("versions") or ())


def _metadata_name_errors(document: View) -> list[FieldError]:
    metadata, spec = document.get("metadata") or {}, document["spec"]
    wanted = f"{spec['names']['plural']}.{spec['group']}"
    # upstream: the rule also applies to generateName, so no definition can have it
    # The only exception is a generateName that equals the wanted name.
    given = [(field, metadata.get(field)) for field in ("generateName", "name")]
    text = 'must be spec.names.plural+"."+spec.group'
    return [invalid(f"metadata.{field}", name, text) for field, name in given if name and name != wanted]


def _fixed_errors(spec: View, old: View, rules: Rules) -> Iterator[FieldError]:
    names, before_names = spec["names"], old["names"]
    fixed = [("group", spec["group"], old["group"]), ("names.plural", names["plural"], before_names["plural"])]
    if rules.fixed_names:
        kind = ("names.kind", names["kind"], before_names["kind"])
        fixed = [("scope", spec["scope"], old["scope"]), kind, *fixed]
    for path, value, before in fixed:
        if value != before:
            yield invalid(f"spec.{path}", value, "field is immutable")


def _spec_errors(spec: View, rules: Rules, path: str) -> Iterator[FieldError]:
    preserve = bool(spec.get("preserveUnknownFields"))
    yield from _group_errors(spec["group"], child(path, "group"))
    scope = spec.get("scope") or ""
    if scope not in SCOPES:
        where = child(path, "scope")
        yield not_supported(where, scope, SCOPES) if scope else required(where)
    yield from _missing_schema_errors(spec, rules, preserve, child(path, "versions"))
    schemas = [schema for schema, _ in schemas_of(spec)]
    with_defaults = any(map(options.has_defaults, schemas))
    if with_defaults and preserve:
        text = "must be false in order to use defaults in the schema"
        yield invalid(child(path, "preserveUnknownFields"), True, text)
    if not preserve or with_defaults or any(map(options.has_extensions, schemas)):
        rules = replace(rules, schema=replace(rules.schema, structural=True))
    yield from _version_errors(spec, rules, path)
    yield from _exclusive_errors(spec, path)
    yield from _version_list_errors(spec, path)
    names = spec["names"]
    for name in ("plural", "singular", "kind", "listKind"):
        if not names.get(name):
            yield required(child(child(path, "names"), name))
    yield from name_errors(names, child(path, "names"))
    status_anywhere = any(_has_status(holder.get("subresources")) for holder in (spec, *(spec.get("versions") or ())))
    yield from _part_errors(spec, path, "validation", status_anywhere, rules)
    yield from _conversion_errors(spec, rules, preserve, child(path, "conversion"))


def _group_errors(group: str, path: str) -> Iterator[FieldError]:
    if not group:
        yield required(path)
    elif faults := dns1123_subdomain(group):
        yield invalid(path, group, ",".join(faults))
    elif "." not in group:
        yield invalid(path, group, "should be a domain with at least one dot")


def _missing_schema_errors(spec: View, rules: Rules, preserve: bool, path: str) -> Iterator[FieldError]:
    if _schema(spec.get("validation")) is not None or not (rules.schema_needed or not preserve):
        return
    detail = "" if rules.schema_needed else "because otherwise all fields are pruned"
    for index, version in enumerate(spec.get("versions") or ()):
        if _schema(version.get("schema")) is None and (rules.schema_needed or version["served"]):
            yield required(f"{item(path, index)}.schema.openAPIV3Schema", detail)


def _has_status(subresources: View | None) -> bool:
    return (subresources or {}).get("status") is not None


def _subresources(spec: View) -> Mapping[str, View | None]:
    """Return a mapping: name of a version → subresources of the version.

    If no version has subresources, all versions have those of the spec. As in upstream, the first of several versions
    with the same name counts.
    """
    own = [(version["name"], version.get("subresources")) for version in spec.get("versions") or ()]
    if all(given is None for _, given in own):
        return {name: spec.get("subresources") for name, _ in own}
    return dict(reversed(own))


def _version_errors(spec: View, rules: Rules, path: str) -> Iterator[FieldError]:
    subresources = _subresources(spec)
    for index, version in enumerate(spec.get("versions") or ()):
        where = item(child(path, "versions"), index)
        if faults := dns1035_label(version["name"]):
            yield invalid(child(where, "name"), version["name"], ",".join(faults))
        yield from deprecation_errors(version, where)
        has_status = _has_status(subresources[version["name"]])
        yield from _part_errors(version, where, "schema", has_status, rules)


def _part_errors(holder: View, path: str, schema: str, status: bool, rules: Rules) -> Iterator[FieldError]:
    """Yield the errors of the fields that a spec and a version have in common.

    ``holder`` is the spec or the version; ``schema`` is the name of its schema field.
    """
    name = holder.get("name") or "" if schema == "schema" else ""
    # An unchanged schema may exceed the limits of rules (UPD-003). As in upstream, the schema of the spec counts as the
    # schema of the first version.
    if (name or holder.get("version")) in rules.same_schema:
        rules = replace(rules, schema=replace(rules.schema, limited_rules=False))
    yield from _schema_errors(holder.get(schema), child(path, schema), status, rules)
    yield from subresource_errors(holder.get("subresources"), child(path, "subresources"))
    yield from column_errors(holder.get("additionalPrinterColumns") or (), child(path, "additionalPrinterColumns"))
    yield from _selectable_errors(holder, path, schema, limited=name not in rules.many_selectable)


def _schema_errors(holder: View | None, path: str, status: bool, rules: Rules) -> list[FieldError]:
    schema = _schema(holder)
    if schema is None:
        return []
    where = child(path, "openAPIV3Schema")
    errors = list(root_errors(schema, where, status=status))
    inner = definitions.definition_errors(schema, where, rules.schema)
    unsupported = rules_of_structure.unsupported(schema) if errors else ""
    if unsupported and inner == [
        invalid(where, "", unsupported)
    ]:  # this error is reported only without other errors (STR-012)
        inner = []
    return errors + inner or validator_error(schema, path)


_TOP_SELECTABLE = "may only be set when validations.schema is included"
_VERSION_SELECTABLE = "may only be set when `version.schema.openAPIV3Schema` is not included"


def _selectable_errors(holder: View, path: str, schema: str, *, limited: bool) -> Iterator[FieldError]:
    selectable = holder.get("selectableFields") or ()
    if not selectable:
        return
    found, where = _schema(holder.get(schema)), child(path, "selectableFields")
    if found is None and not (schema == "validation" and holder.get(schema) is not None):
        yield invalid(where, "", _TOP_SELECTABLE if schema == "validation" else _VERSION_SELECTABLE)
        return
    unsupported = rules_of_structure.unsupported(found) if found is not None else ""
    if unsupported:
        yield invalid(child(path, "schema.openAPIV3Schema"), "", unsupported)
    if found is None or unsupported:
        faults = selectable_errors(selectable, parse({}), where, limited=limited)
        # Without a supported schema, upstream crashes when it follows a path. Here such a path is no error (DIS-20).
        yield from (fault for fault in faults if not fault.body.endswith(NOWHERE))
        return
    yield from selectable_errors(selectable, parse(found), where, limited=limited)


def _exclusive_errors(spec: View, path: str) -> Iterator[FieldError]:
    versions = spec.get("versions") or ()
    for above, below, words in _PARTS:
        own = [version[below] for version in versions if version.get(below)]
        if spec.get(above) is not None and own:
            yield forbidden(child(path, above), f"top-level and per-version {words} are mutually exclusive")
    for above, below, words in _PARTS:
        own = [version.get(below) for version in versions]
        if own and own[0] and all(same(value, own[0]) for value in own):
            text = (
                f"per-version {words} may not all be set to identical values (top-level {above} should be used instead)"
            )
            yield invalid_json(child(path, "versions"), versions_text(versions), text)


def _version_list_errors(spec: View, path: str) -> Iterator[FieldError]:
    versions = spec.get("versions")
    names = [version["name"] for version in versions or ()]
    where = child(path, "versions")
    if len(set(names)) != len(names):
        yield invalid_json(where, versions_text(versions), "must contain unique version names")
    if sum(version["storage"] for version in versions or ()) != 1:
        text = "must have exactly one version marked as storage version"
        yield invalid_json(where, versions_text(versions), text)
    version = spec.get("version") or ""
    if version:
        if faults := dns1035_label(version):
            yield invalid(child(path, "version"), version, ",".join(faults))
        if names and names[0] != version:
            yield invalid(child(path, "version"), version, "must match the first version in spec.versions")


def _conversion_errors(spec: View, rules: Rules, preserve: bool, path: str) -> Iterator[FieldError]:
    conversion = spec.get("conversion")
    if conversion is None:
        return
    if conversion.get("strategy") != "None" and preserve:
        text = "must be None if spec.preserveUnknownFields is true"
        yield invalid(child(path, "strategy"), conversion.get("strategy") or "", text)
    yield from conversion_errors(
        conversion, path, recognized=rules.recognized_reviews, check_bundle=rules.bundle_checked
    )
