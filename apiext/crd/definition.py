"""A CustomResourceDefinition as an immutable value, parsed from its v1 document."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from apiext.documents.document import View
from apiext.documents.encoding import json_kind

GROUP = "apiextensions.k8s.io"
KIND = "CustomResourceDefinition"
PLURAL = "customresourcedefinitions"
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"

ESTABLISHED = "Established"
NAMES_ACCEPTED = "NamesAccepted"
NON_STRUCTURAL = "NonStructuralSchema"
TERMINATING = "Terminating"
APPROVAL = "KubernetesAPIApprovalPolicyConformant"

_NONE: Mapping[str, Any] = {}


class Names(Struct, frozen=True):
    """The requested or accepted names of a definition.

    An empty string stands for a missing name.
    """

    plural: str = ""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    kind: str = ""
    list_kind: str = ""
    categories: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the JSON form: always with plural and kind, with other fields only if they are set.

        See CRD-004.
        """
        optional = {
            "singular": self.singular,
            "shortNames": list(self.short_names),
            "listKind": self.list_kind,
            "categories": list(self.categories),
        }
        return {"plural": self.plural, "kind": self.kind} | {key: value for key, value in optional.items() if value}


def names_of(document: View | None) -> Names:
    """Parse ``spec.names`` or ``status.acceptedNames``.

    Raise TypeError if a field has a wrong type.
    """
    if not isinstance(document, Mapping | None):
        raise TypeError(f"{json_kind(document)} in the place of names")
    given = document or _NONE
    return Names(
        plural=_text(given.get("plural")),
        singular=_text(given.get("singular")),
        short_names=_texts(given.get("shortNames")),
        kind=_text(given.get("kind")),
        list_kind=_text(given.get("listKind")),
        categories=_texts(given.get("categories")),
    )


def _text(given: Any) -> str:
    """Return a string, or an empty string for None.

    Raise TypeError for other types, which another server may have stored.
    """
    if not isinstance(given, str | None):
        raise TypeError(f"{json_kind(given)} in the place of a text")
    return given or ""


def _texts(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple | None):
        raise TypeError(f"{json_kind(given)} in the place of a list")
    return tuple(map(_text, given or ()))


def _conditions(given: Any) -> Sequence[View]:
    for item in given or ():
        for name in ("type", "status", "reason", "message"):
            _text(item.get(name))
    return given or ()


class Version(Struct, frozen=True):
    """One entry of ``spec.versions``.

    ``schema`` is the openAPIV3Schema, or None. ``subresources`` maps the names of subresources to their settings.
    """

    name: str
    served: bool
    storage: bool
    deprecated: bool
    warning: str | None
    schema: View | None
    subresources: View
    columns: Sequence[View]
    selectable: tuple[str, ...]

    @property
    def status(self) -> bool:
        """Return whether the version has a status subresource."""
        return self.subresources.get("status") is not None

    @property
    def scale(self) -> View | None:
        """Return the settings of the scale subresource.

        Return None if the version has no scale subresource.
        """
        return self.subresources.get("scale")


class CustomResourceDefinition(Struct, frozen=True):
    """A definition parsed from its v1 document; ``conversion`` is ``spec.conversion``."""

    name: str
    uid: str
    generation: int
    group: str
    scope: str
    names: Names
    accepted: Names
    versions: tuple[Version, ...]
    conversion: View
    preserve_unknown_fields: bool
    conditions: Sequence[View]
    stored_versions: tuple[str, ...]
    deleting: bool
    annotations: View

    @property
    def namespaced(self) -> bool:
        """Return whether the objects of the definition are namespaced."""
        return self.scope == "Namespaced"

    @property
    def storage_version(self) -> str:
        """Return the storage version, or an empty string if no version is marked as storage version."""
        return next((version.name for version in self.versions if version.storage), "")

    @property
    def webhook(self) -> View | None:
        """Return the settings of the conversion webhook, or None if the strategy is not Webhook."""
        if self.conversion.get("strategy") != "Webhook":
            return None
        return self.conversion.get("webhook") or _NONE

    def is_true(self, condition: str) -> bool:
        """Return whether the definition has the condition with status True."""
        return any(item.get("type") == condition and item.get("status") == "True" for item in self.conditions)


def _schema(entry: View) -> View | None:
    return (entry.get("schema") or _NONE).get("openAPIV3Schema")


def schema_of(document: View, version: str) -> View | None:
    """Return the schema of a version of a v1 document, or None without such a version or schema."""
    entries = (document.get("spec") or _NONE).get("versions") or ()
    return next((_schema(entry) for entry in entries if entry.get("name") == version), None)


def _version(entry: View) -> Version:
    return Version(
        name=entry.get("name") or "",
        served=bool(entry.get("served")),
        storage=bool(entry.get("storage")),
        deprecated=bool(entry.get("deprecated")),
        warning=entry.get("deprecationWarning"),
        schema=_schema(entry),
        subresources=entry.get("subresources") or _NONE,
        columns=entry.get("additionalPrinterColumns") or (),
        selectable=tuple(field.get("jsonPath") or "" for field in entry.get("selectableFields") or ()),
    )


def from_document(document: View) -> CustomResourceDefinition:
    """Parse a v1 document; an absent part gives an empty value.

    Raise TypeError or AttributeError for a wrong type of uid, group, scope, names, acceptedNames or conditions. Most
    other types are not checked.
    """
    metadata, spec = document.get("metadata") or _NONE, document.get("spec") or _NONE
    status = document.get("status") or _NONE
    return CustomResourceDefinition(
        name=metadata.get("name") or "",
        uid=_text(metadata.get("uid")),
        generation=metadata.get("generation") or 0,
        group=_text(spec.get("group")),
        scope=_text(spec.get("scope")),
        names=names_of(spec.get("names")),
        accepted=names_of(status.get("acceptedNames")),
        versions=tuple(_version(entry) for entry in spec.get("versions") or ()),
        conversion=spec.get("conversion") or _NONE,
        preserve_unknown_fields=bool(spec.get("preserveUnknownFields")),
        conditions=_conditions(status.get("conditions")),
        stored_versions=tuple(status.get("storedVersions") or ()),
        deleting="deletionTimestamp" in metadata,
        annotations=metadata.get("annotations") or _NONE,
    )
