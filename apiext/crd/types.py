"""The Go types of apiextensions v1 and v1beta1, as tables in Go's field order (CRD-002…008, ETC-003)."""

from collections.abc import Callable, Mapping
from typing import Any

from apiext.crd.typed import (
    ABSENT,
    INT32,
    Bool,
    Bytes,
    Decoding,
    Field,
    Float,
    GoType,
    Integer,
    Json,
    List,
    Map,
    Special,
    Struct,
    Text,
    Time,
    nested,
)
from apiext.documents.errors import DecodeError
from apiext.documents.places import Place, written
from apiext.meta import objectmeta

Taker = Callable[[Any, Decoding], Any]

TEXT, BOOL, INT64, FLOAT, JSON = Text(), Bool(), Integer(), Float(), Json()
STRINGS = List(TEXT)


def _optional(**fields: GoType) -> dict[str, Field]:
    return {name: Field(type_) for name, type_ in fields.items()}


def pointer(type_: GoType) -> Field:
    """Return a field that is printed when it was given."""
    return Field(type_, pointer=True)


def always(type_: GoType) -> Field:
    """Return a field that is always printed."""
    return Field(type_, always=True)


class _Metadata:
    """ObjectMeta, decoded by apiext.meta."""

    go = "v1.ObjectMeta"

    @property
    def zero(self) -> Any:
        """Metadata without anything, for its owner to change."""
        return {}

    def decode(self, value: Any, place: Place, into: Decoding) -> Any:
        """Return the metadata; its fault counts like any other, its unknown fields are noted in their place."""
        if value.__class__ is not dict:
            if value is not None:
                into.mismatch(value, self.go, "struct")
            return {}
        try:
            found, unknown = objectmeta.coerce(value, written(place), "metadata.")
        except DecodeError as error:
            into.fault = into.fault or error
            return {}
        for name in unknown:
            into.note((None, name))
        if value.get("managedFields") == []:  # upstream: typed objects keep it until managers are looked at
            found["managedFields"] = []
        return found


METADATA = _Metadata()


def schema_type(package: str) -> Struct:
    """Return JSONSchemaProps of an API version; both versions write it alike."""
    props = Struct("JSONSchemaProps", {}, package=package, holds_empty=True)
    many = List(props)

    def or_bool(value: Any, into: Decoding) -> Any:
        if value.__class__ is dict:
            return nested(props, value, into)
        if value.__class__ is bool:
            return value
        raise DecodeError("boolean or JSON schema expected")

    def or_array(value: Any, into: Decoding) -> Any:
        if value.__class__ is dict:
            return nested(props, value, into)
        return (nested(many, value, into) if value.__class__ is list else None) or ABSENT

    def or_strings(value: Any, into: Decoding) -> Any:
        if value.__class__ is dict:
            return nested(props, value, into)
        return nested(STRINGS, value, into) or None if value.__class__ is list else None

    rule = Struct(
        "ValidationRule",
        {
            "rule": always(TEXT),
            "message": Field(TEXT),
            "messageExpression": Field(TEXT),
            "reason": pointer(Text(f"{package}.FieldValueErrorReason")),
            "fieldPath": Field(TEXT),
            "optionalOldSelf": pointer(BOOL),
        },
        package=package,
    )
    takes = {"items": or_array, "bool": or_bool, "strings": or_strings}
    props.define(_schema_fields(package, props, rule, takes))
    return props


def _schema_fields(package: str, props: Struct, rule: Struct, takes: Mapping[str, Taker]) -> dict[str, Field]:
    many, by_name = List(props), Map(props)
    docs = Struct("ExternalDocumentation", _optional(description=TEXT, url=TEXT), package=package)
    return {
        "id": Field(TEXT),
        "$schema": Field(Text(f"{package}.JSONSchemaURL")),
        "$ref": pointer(TEXT),
        "description": Field(TEXT),
        "type": Field(TEXT),
        "format": Field(TEXT),
        "title": Field(TEXT),
        "default": pointer(JSON),
        "maximum": pointer(FLOAT),
        "exclusiveMaximum": Field(BOOL),
        "minimum": pointer(FLOAT),
        "exclusiveMinimum": Field(BOOL),
        "maxLength": pointer(INT64),
        "minLength": pointer(INT64),
        "pattern": Field(TEXT),
        "maxItems": pointer(INT64),
        "minItems": pointer(INT64),
        "uniqueItems": Field(BOOL),
        "multipleOf": pointer(FLOAT),
        "enum": Field(List(JSON)),
        "maxProperties": pointer(INT64),
        "minProperties": pointer(INT64),
        "required": Field(STRINGS),
        "items": pointer(Special(f"{package}.JSONSchemaPropsOrArray", takes["items"])),
        "allOf": Field(many),
        "oneOf": Field(many),
        "anyOf": Field(many),
        "not": pointer(props),
        "properties": Field(by_name),
        "additionalProperties": pointer(Special(f"{package}.JSONSchemaPropsOrBool", takes["bool"])),
        "patternProperties": Field(by_name),
        "dependencies": Field(
            Map(
                Special(f"{package}.JSONSchemaPropsOrStringArray", takes["strings"]),
                go=f"{package}.JSONSchemaDependencies",
            )
        ),
        "additionalItems": pointer(Special(f"{package}.JSONSchemaPropsOrBool", takes["bool"])),
        "definitions": Field(Map(props, go=f"{package}.JSONSchemaDefinitions")),
        "externalDocs": pointer(docs),
        "example": pointer(JSON),
        "nullable": Field(BOOL),
        "x-kubernetes-preserve-unknown-fields": pointer(BOOL),
        "x-kubernetes-embedded-resource": Field(BOOL),
        "x-kubernetes-int-or-string": Field(BOOL),
        "x-kubernetes-list-map-keys": Field(STRINGS),
        "x-kubernetes-list-type": pointer(TEXT),
        "x-kubernetes-map-type": pointer(TEXT),
        "x-kubernetes-validations": Field(List(rule, go=f"{package}.ValidationRules")),
    }


def _column(package: str, path: str) -> Struct:
    return Struct(
        "CustomResourceColumnDefinition",
        {
            "name": always(TEXT),
            "type": always(TEXT),
            "format": Field(TEXT),
            "description": Field(TEXT),
            "priority": Field(INT32),
            path: always(TEXT),
        },
        package=package,
    )


def _client_config(package: str) -> Struct:
    service = Struct(
        "ServiceReference",
        {
            "namespace": always(TEXT),
            "name": always(TEXT),
            "path": pointer(TEXT),
            "port": pointer(INT32),
        },
        package=package,
    )
    fields = {"url": pointer(TEXT), "service": pointer(service), "caBundle": Field(Bytes())}
    return Struct("WebhookClientConfig", fields, package=package)


def _subresources(package: str) -> Struct:
    scale = Struct(
        "CustomResourceSubresourceScale",
        {
            "specReplicasPath": always(TEXT),
            "statusReplicasPath": always(TEXT),
            "labelSelectorPath": pointer(TEXT),
        },
        package=package,
    )
    status = Struct("CustomResourceSubresourceStatus", {}, package=package)
    return Struct("CustomResourceSubresources", {"status": pointer(status), "scale": pointer(scale)}, package=package)


def _names(package: str) -> Struct:
    fields = {
        "plural": always(TEXT),
        "singular": Field(TEXT),
        "shortNames": Field(STRINGS),
        "kind": always(TEXT),
        "listKind": Field(TEXT),
        "categories": Field(STRINGS),
    }
    return Struct("CustomResourceDefinitionNames", fields, package=package)


def _status(package: str) -> Struct:
    condition = Struct(
        "CustomResourceDefinitionCondition",
        {
            "type": always(Text(f"{package}.CustomResourceDefinitionConditionType")),
            "status": always(Text(f"{package}.ConditionStatus")),
            "lastTransitionTime": always(Time()),
            "reason": Field(TEXT),
            "message": Field(TEXT),
            "observedGeneration": Field(INT64),
        },
        package=package,
    )
    fields = {
        "conditions": always(List(condition)),
        "acceptedNames": always(_names(package)),
        "storedVersions": always(STRINGS),
        "observedGeneration": Field(INT64),
    }
    return Struct("CustomResourceDefinitionStatus", fields, package=package)


def _definition(package: str, spec: Struct) -> Struct:
    return Struct(
        "CustomResourceDefinition",
        {
            "kind": Field(TEXT),
            "apiVersion": Field(TEXT),
            "metadata": always(METADATA),
            "spec": always(spec),
            "status": always(_status(package)),
        },
        package=package,
    )


def _version(package: str, column: Struct, selectable: Struct, validation: Struct) -> Struct:
    return Struct(
        "CustomResourceDefinitionVersion",
        {
            "name": always(TEXT),
            "served": always(BOOL),
            "storage": always(BOOL),
            "deprecated": Field(BOOL),
            "deprecationWarning": pointer(TEXT),
            "schema": pointer(validation),
            "subresources": pointer(_subresources(package)),
            "additionalPrinterColumns": Field(List(column)),
            "selectableFields": Field(List(selectable)),
        },
        package=package,
        holds_empty=True,
    )


def _v1() -> Struct:
    package = "v1"
    column = _column(package, "jsonPath")
    selectable = Struct("SelectableField", {"jsonPath": always(TEXT)}, package=package)
    validation = Struct("CustomResourceValidation", {"openAPIV3Schema": pointer(schema_type(package))}, package=package)
    webhook = Struct(
        "WebhookConversion",
        {"clientConfig": pointer(_client_config(package)), "conversionReviewVersions": always(STRINGS)},
        package=package,
    )
    conversion = Struct(
        "CustomResourceConversion",
        {"strategy": always(Text("v1.ConversionStrategyType")), "webhook": pointer(webhook)},
        package=package,
    )
    spec = Struct(
        "CustomResourceDefinitionSpec",
        {
            "group": always(TEXT),
            "names": always(_names(package)),
            "scope": always(Text("v1.ResourceScope")),
            "versions": always(List(_version(package, column, selectable, validation))),
            "conversion": pointer(conversion),
            "preserveUnknownFields": Field(BOOL),
        },
        package=package,
    )
    return _definition(package, spec)


def _v1beta1() -> Struct:
    package = "v1beta1"
    column = _column(package, "JSONPath")
    selectable = Struct("SelectableField", {"jsonPath": always(TEXT)}, package=package)
    validation = Struct("CustomResourceValidation", {"openAPIV3Schema": pointer(schema_type(package))}, package=package)
    conversion = Struct(
        "CustomResourceConversion",
        {
            "strategy": always(Text("v1beta1.ConversionStrategyType")),
            "webhookClientConfig": pointer(_client_config(package)),
            "conversionReviewVersions": Field(STRINGS),
        },
        package=package,
    )
    spec = Struct(
        "CustomResourceDefinitionSpec",
        {
            "group": always(TEXT),
            "version": Field(TEXT),
            "names": always(_names(package)),
            "scope": always(Text("v1beta1.ResourceScope")),
            "validation": pointer(validation),
            "subresources": pointer(_subresources(package)),
            "versions": Field(List(_version(package, column, selectable, validation))),
            "additionalPrinterColumns": Field(List(column)),
            "selectableFields": Field(List(selectable)),
            "conversion": pointer(conversion),
            "preserveUnknownFields": pointer(BOOL),
        },
        package=package,
    )
    return _definition(package, spec)


V1 = _v1()
V1BETA1 = _v1beta1()
