"""Convert between the v1 form and the stored form of a definition.

See CRD-005…007, ETC-003, B1-006. The stored form is v1beta1: a schema, subresources, columns or selectable fields that
are equal in all versions are at the top of the spec. Upstream's internal form has the same fields at the same paths.
Upstream's errors contain these paths, so validation uses the stored form, too.
"""

from collections.abc import Sequence
from typing import Any

from apiext.crd import empties
from apiext.crd.decoding import decode_v1, decode_v1beta1
from apiext.crd.definition import GROUP
from apiext.documents.document import Document, View
from apiext.documents.equality import same
from apiext.documents.errors import DecodeError

V1 = f"{GROUP}/v1"
V1BETA1 = f"{GROUP}/v1beta1"
_HOISTED = (
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
)


def to_storage(document: View) -> Document:
    """Return the v1beta1 form of a decoded v1 definition. Both share the unchanged parts."""
    return {**document, "apiVersion": V1BETA1, "spec": _hoisted(document["spec"])}


def _hoisted(spec: View) -> Document:
    found: Document = {name: value for name, value in spec.items() if name not in ("versions", "conversion")}
    found["preserveUnknownFields"] = bool(spec.get("preserveUnknownFields"))
    versions = [_with_columns(version, "jsonPath", "JSONPath") for version in spec.get("versions") or ()]
    if spec.get("versions") is not None:
        found["versions"] = versions
    if versions and versions[0]["name"]:
        found["version"] = versions[0]["name"]
    for below, above in _HOISTED:
        if versions and all(_equal(version.get(below), versions[0].get(below)) for version in versions):
            if versions[0].get(below) is not None:
                found[above] = versions[0][below]
            for version in versions:
                version.pop(below, None)
    if "conversion" in spec:
        found["conversion"] = _flat_conversion(spec["conversion"])
    return found


def _equal(left: Any, right: Any) -> bool:
    """Return whether two parts are equal, as Go's equality.Semantic.

    An empty list equals an absent list.
    """
    if same(left, right) or (left in (None, []) and right in (None, [])):
        return True
    if not left or not right or "openAPIV3Schema" not in left or "openAPIV3Schema" not in right:
        return False
    return same(empties.clean_holder(left), empties.clean_holder(right))


def _flat_conversion(conversion: View) -> Document:
    flat: Document = {"strategy": conversion.get("strategy", "")}
    webhook = conversion.get("webhook") or {}
    if webhook.get("clientConfig") is not None:
        flat["webhookClientConfig"] = webhook["clientConfig"]
    if webhook.get("conversionReviewVersions") is not None:
        flat["conversionReviewVersions"] = webhook["conversionReviewVersions"]
    return flat


def from_stored_form(document: View) -> Document:
    """Return the v1 form of a v1beta1 definition whose defaults are set.

    Both share the unchanged parts.
    """
    spec = document["spec"]
    known = (*(above for _, above in _HOISTED), "versions", "version", "conversion", "preserveUnknownFields")
    found: Document = {name: value for name, value in spec.items() if name not in known}
    versions: Sequence[View] = spec.get("versions") or ()
    if not versions and spec.get("version"):
        versions = ({"name": spec["version"], "served": True, "storage": True},)
    common = {below: spec[above] for below, above in _HOISTED if spec.get(above) is not None}
    if "versions" in spec or versions:
        found["versions"] = [_with_columns({**version, **common}, "JSONPath", "jsonPath") for version in versions]
    else:
        found["versions"] = None
    if spec.get("preserveUnknownFields"):
        found["preserveUnknownFields"] = True
    if "conversion" in spec:
        found["conversion"] = _deep_conversion(spec["conversion"])
    return {**document, "apiVersion": V1, "spec": found}


def _deep_conversion(conversion: View) -> Document:
    deep: Document = {"strategy": conversion.get("strategy", "")}
    client, reviews = conversion.get("webhookClientConfig"), conversion.get("conversionReviewVersions")
    if client is not None or reviews is not None:
        deep["webhook"] = {} if client is None else {"clientConfig": client}
        deep["webhook"]["conversionReviewVersions"] = reviews
    return deep


def _with_columns(version: View, old: str, new: str) -> Document:
    columns: Any = version.get("additionalPrinterColumns")
    if not columns:
        return dict(version)
    renamed = [{new if name == old else name: value for name, value in column.items()} for column in columns]
    return {**version, "additionalPrinterColumns": renamed}


def check_version(document: View) -> None:
    """Raise DecodeError for a stored definition with an unknown apiVersion.

    A future release may have stored it, for example.
    """
    version = document.get("apiVersion")
    if version not in (V1, V1BETA1):
        raise DecodeError(f'no kind "CustomResourceDefinition" is registered for version "{version or ""}"')


def from_storage(document: View) -> Document:
    """Return the v1 form of a stored definition of v1beta1 or v1, with defaults.

    A null field gets the value that Go's decoder gives it. Raise DecodeError if Go's decoder fails, such as for a field
    of a wrong type.
    """
    check_version(document)
    if document["apiVersion"] == V1:
        return decode_v1(document)[0]
    return from_stored_form(decode_v1beta1(document)[0])
