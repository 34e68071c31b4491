"""Compile a CustomResourceDefinition into a ServedResource."""

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import orjson
from msgspec.structs import replace

from apiext.catalog import endpoints
from apiext.catalog.columns import custom_columns
from apiext.catalog.schemas import LazySchema, prepare_all, schema_from
from apiext.catalog.selectable import selectable_fields
from apiext.catalog.served import (
    ALL_VERBS,
    TERMINATING_VERBS,
    DefinitionState,
    Endpoint,
    Model,
    Names,
    Published,
    ServedResource,
    ServedVersion,
    Shaping,
    Validation,
    Work,
)
from apiext.catalog.stored import Storage
from apiext.catalog.viewing import accepting, custom_codec
from apiext.crd.bundles import bundle_fault, is_blank
from apiext.crd.conditions import find
from apiext.crd.definition import (
    ESTABLISHED,
    NON_STRUCTURAL,
    TERMINATING,
    CustomResourceDefinition,
    Version,
    from_document,
)
from apiext.documents.document import Document, View
from apiext.managedfields.schemas import lazily, merge_type
from apiext.managedfields.types import Type
from apiext.meta import objectmeta
from apiext.meta.fields import FieldError
from apiext.meta.names import version_priority

if TYPE_CHECKING:  # imported when the first schema is compiled (decision 36)
    from apiext.schema.compile import CompiledSchema

Schema = Callable[[], "CompiledSchema"]


def compile_definition(
    document: View,
    *,
    shape: str = "",
    streams: Mapping[str, str] | None = None,
    again: Callable[[], View] | None = None,
) -> ServedResource:
    """Return the resource of a definition in v1 form. Schemas are compiled at their first use.

    The resource has the accepted names, or the requested names if none are accepted. The caller decides whether to
    serve it (CND-005). ``shape`` is the DefinitionState.identity, by default ``identity(document)``. ``streams`` is
    name of a version → its ServedVersion.identity; the identity of other versions is ``shape``. ``again()`` returns the
    document when a schema is compiled, so that the document need not stay in memory.
    """
    definition = from_document(document)
    sources = {version.name: schema_from(again or (lambda: document), version.name) for version in definition.versions}
    schemas = {name: LazySchema(source, definition.preserve_unknown_fields) for name, source in sources.items()}
    shape, streams = shape or identity(document), streams or {}
    storage = Storage(definition.group, schemas, definition.storage_version, definition.webhook is not None)
    best = best_version(definition.versions)
    versions = {
        version.name: replace(
            _version(definition, version, storage, schemas, sources[version.name], best),
            identity=streams.get(version.name, shape),
        )
        for version in definition.versions
    }
    return ServedResource(
        group=definition.group,
        resource=definition.names.plural,
        namespaced=definition.namespaced,
        versions={version.name: versions[version.name] for version in definition.versions if version.served},
        storage_version=definition.storage_version,
        definition=DefinitionState(
            uid=definition.uid,
            generation=definition.generation,
            established=definition.is_true(ESTABLISHED),
            terminating=definition.deleting or definition.is_true(TERMINATING),
            identity=shape,
            conversion=definition.webhook,
            unusable=_is_unusable(definition.webhook),
        ),
        all_versions=versions,
    )


def _is_unusable(webhook: View | None) -> bool:
    """Report whether the CA bundle of a conversion webhook is invalid.

    As upstream, a blank bundle is valid.
    """
    bundle = ((webhook or {}).get("clientConfig") or {}).get("caBundle") or ""
    return bool(bundle) and not is_blank(bundle) and bool(bundle_fault(bundle))


def identity(document: View) -> str:
    """Return a string that changes with the uid, the spec or the accepted names (SRV-015)."""
    metadata, status = document.get("metadata") or {}, document.get("status") or {}
    shape = orjson.dumps([document.get("spec"), status.get("acceptedNames")], option=orjson.OPT_SORT_KEYS)
    return f"{metadata.get('uid', '')}/{hashlib.blake2b(shape, digest_size=16).hexdigest()}"


def storage_version_hash(group: str, version: str, kind: str) -> str:
    """Return the storageVersionHash that discovery publishes (DIS-105)."""
    return b64encode(hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()[:8]).decode()


def deprecation_warning(definition: CustomResourceDefinition, version: Version, best: str) -> str:
    """Return the warning of a deprecated version, empty for other versions (SRV-016).

    The definition may contain the text. ``best`` is the result of ``best_version``. The default text names ``best`` if
    it has a higher priority than the deprecated version.
    """
    if not version.deprecated:
        return ""
    if version.warning is not None:
        return version.warning
    group, kind = definition.group, definition.names.kind
    better = best and version_priority(best) > version_priority(version.name)
    text = f"{group}/{version.name} {kind} is deprecated"
    return f"{text}; use {group}/{best} {kind}" if better else text


def best_version(versions: Iterable[Version]) -> str:
    """Return the served, not deprecated version of highest priority; empty if there is none."""
    fit = (version.name for version in versions if version.served and not version.deprecated)
    return max(fit, key=version_priority, default="")


def _endpoints(version: Version, model: Model) -> Mapping[str, Endpoint]:
    found = {"": endpoints.main(model, version.status)}
    if version.status:
        found["status"] = endpoints.status(model)
    if version.scale is not None:
        found["scale"] = endpoints.scale(version.scale, status_subresource=version.status)
    return found


def _version(
    definition: CustomResourceDefinition,
    version: Version,
    storage: Storage,
    schemas: Mapping[str, LazySchema],
    source: Callable[[], View | None],
    best: str,
) -> ServedVersion:
    schema = schemas[version.name]
    # objects may be stored in any of these versions; a read uses the schema of the stored version
    names_read = dict.fromkeys((version.name, definition.storage_version, *definition.stored_versions))
    read = [schemas[name] for name in names_read if name in schemas]
    accepted = definition.accepted if definition.accepted.kind else definition.names
    group, plural, kind = definition.group, definition.names.plural, accepted.kind
    codec = custom_codec(storage, version.name, exact=not (version.status and _defaults_status(version.schema)))
    is_read_back = codec.is_normalized
    model = Model(
        f"{group}/{version.name}",
        kind,
        _normalizer(schema, kind, group),
        columns=custom_columns(version.columns),
        schema=source,
        merge_type=_merge_type(definition, source),
        empty={"apiVersion": f"{group}/{version.name}", "kind": kind},
        owns_items=lambda: schema.cold or _has_list_types(schema()),
    )
    return ServedVersion(
        Names(group, version.name, plural, kind, accepted.list_kind or f"{kind}List", definition.namespaced),
        model,
        replace(codec, is_normalized=lambda raw: is_read_back(raw) and not schema().coerces),
        _endpoints(version, model),
        Shaping(
            accept=accepting(storage, version.name),
            settle=_settling(schema),
            complete=_completion(schema),
        ),
        Validation(
            validate=_validator(schema, version.scale),
            validate_status=_status_validator(schema, version.scale),
            structure=lambda new, old, endpoint: schema().structure_errors(new, old, embedded=endpoint != "status"),
            rules=lambda new, old, errors: schema().rules(new, old, errors, f"{plural}.{group}"),
        ),
        Published(
            singular=accepted.singular,
            short_names=accepted.short_names,
            categories=accepted.categories,
            verbs=TERMINATING_VERBS if definition.is_true(TERMINATING) else ALL_VERBS,
            deprecation_warning=deprecation_warning(definition, version, best),
            storage_version_hash=storage_version_hash(group, definition.storage_version, kind),
            preserve=definition.preserve_unknown_fields,
            selectable=selectable_fields(version.selectable, namespaced=definition.namespaced),
        ),
        work=Work(
            cold=lambda: any(one.cold for one in read),
            prepare=lambda: prepare_all(*read, quickly=len(storage.shapes) > 1),
            slow=schema.slow,
            report=schema.report,
        ),
    )


def _merge_type(definition: CustomResourceDefinition, source: Callable[[], View | None]) -> Callable[[], Type]:
    preserve = definition.preserve_unknown_fields
    doubtful = preserve or find(definition.conditions, NON_STRUCTURAL) is not None

    def made() -> Type:
        schema = source()
        if doubtful and schema is not None:
            # imported here, since most definitions are structural (decision 36)
            from apiext.schema.rules_of_structure import is_structural

            if not is_structural(schema):
                schema = None  # upstream: a schema that is not structural is ignored
        return merge_type(schema, preserve_unknown_fields=preserve)

    return lazily(made)


def _completion(schema: Schema) -> Callable[[Document], Document]:
    def complete(document: Document) -> Document:
        found = schema()
        document["metadata"] = objectmeta.repair(document.get("metadata") or {})
        found.default(document, coerced=False)  # upstream: an apply does not coerce embedded resources
        return document

    return complete


def _settling(schema: Schema) -> Callable[[Document], Document]:
    def settle(document: Document) -> Document:
        document["metadata"] = objectmeta.repair(document.get("metadata") or {})
        found = schema()
        found.prune(document)
        found.coerce_embedded(document, drop_invalid=True)
        return document

    return settle


def _defaults_status(schema: View | None) -> bool:
    """Report whether the schema has a default for status.

    A create drops the status, and a read then sets this default. So the stored bytes differ from those that a read
    returns.
    """
    return "default" in (((schema or {}).get("properties") or {}).get("status") or {})


def _normalizer(schema: Schema, kind: str, group: str) -> Callable[[Document], tuple[Document, list[str]]]:
    begin = f"{group}/"

    def normalize(document: Document) -> tuple[Document, list[str]]:
        unknown: list[str] = []
        if "metadata" in document:
            document["metadata"], unknown = objectmeta.coerce(document["metadata"], "metadata")
        own = document.get("kind") == kind and str(document.get("apiVersion")).startswith(begin)
        if own:  # as upstream, a body of another kind or group stays as it is; validation rejects it later
            unknown = unknown + schema().normalize(document, unknown)
        return document, unknown

    return normalize


def _validator(schema: Schema, scale: View | None) -> Callable[[View, View | None], list[FieldError]]:
    def validate(new: View, old: View | None) -> list[FieldError]:
        errors = schema().validate(new, old)
        return errors + endpoints.scale_errors(scale, new) if scale is not None else errors

    return validate


def _status_validator(schema: Schema, scale: View | None) -> Callable[[View, View | None], list[FieldError]]:
    def validate(new: View, old: View | None) -> list[FieldError]:
        errors = schema().validate_status(new, old)
        return errors + endpoints.scale_errors(scale, new, spec=False) if scale is not None else errors

    return validate


def _has_list_types(schema: "CompiledSchema") -> bool:
    from apiext.schema import list_types

    return list_types.applies_to(schema.root)
