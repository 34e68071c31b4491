"""Go types that need a special decoder: quantities, IntOrString, metadata, schema unions."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from apiext.documents.errors import DecodeError
from apiext.documents.paths import Path, written
from apiext.go_types import quantities
from apiext.go_types.typed import ABSENT, INT32, Decoding, GoType, List, Mismatch, Special, Text, nested
from apiext.meta import objectmeta

_QUANTITY = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,18})?")
_BAD_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class IntOrText(Struct, frozen=True):
    """The Go type intstr.IntOrString."""

    go: str = "intstr.IntOrString"
    zero: Any = 0

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the number or the string.

        Raises DecodeError at the first error, as Go's UnmarshalJSON.
        """
        if value.__class__ is str:
            return value
        own = Decoding(into.owner, into.fields)
        number = INT32.decode(value, path, own)
        if own.fault is not None:
            if isinstance(own.fault, Mismatch):
                own.fault.restored = f"json: cannot unmarshal {own.fault.found} into Go value of type int32"
            raise own.fault
        return number


class Quantity(Struct, frozen=True):
    """The Go type resource.Quantity, rounded away from zero to ``places`` decimal places."""

    go: str = "resource.Quantity"
    zero: Any = "0"
    places: int = 9

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the canonical string of a string or number, ``0`` for null.

        Raises DecodeError with Go's message.
        """
        if value is None:
            return "0"
        text = value.strip() if value.__class__ is str else str(value) if value.__class__ in (int, float) else ""
        if not _QUANTITY.fullmatch(text):
            raise DecodeError(_BAD_QUANTITY)
        return quantities.canonical(text, self.places)


class _Metadata:
    """The Go type ObjectMeta; apiext.meta decodes it."""

    go = "v1.ObjectMeta"

    @property
    def zero(self) -> Any:
        """Empty metadata: a new dict at each access, since callers change the dict."""
        return {}

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the metadata; record its first error and its unknown fields in ``into``."""
        if value.__class__ is not dict:
            if value is not None:
                into.mismatch(value, self.go, "struct")
            return {}
        try:
            found, unknown = objectmeta.coerce(value, written(path), "metadata.")
        except DecodeError as error:
            into.fault = into.fault or error
            return {}
        for name in unknown:
            into.note((None, name))
        # upstream: typed objects keep an empty list of managers until the write updates managedFields
        if value.get("managedFields") == [] and written(path) == "metadata":
            found["managedFields"] = []
        return found


METADATA = _Metadata()


# --- unions: values of one of several types ---

SCHEMA = "JSONSchemaProps"


def schema_or_array(schema: GoType, value: Any, into: Decoding) -> Any:
    """Return the decoded value of a JSONSchemaPropsOrArray.

    Return ABSENT for an empty array, and for a value that is neither an object nor an array.
    """
    if value.__class__ is dict:
        return nested(schema, value, into)
    return (nested(List(schema), value, into) if value.__class__ is list else None) or ABSENT


def schema_or_bool(schema: GoType, value: Any, into: Decoding) -> Any:
    """Return the decoded value of a JSONSchemaPropsOrBool; raises DecodeError."""
    if value.__class__ is dict:
        return nested(schema, value, into)
    if value.__class__ is bool:
        return value
    raise DecodeError("boolean or JSON schema expected")


def schema_or_strings(schema: GoType, value: Any, into: Decoding) -> Any:
    """Return the decoded value of a JSONSchemaPropsOrStringArray.

    Return None for an empty array, and for a value that is neither an object nor an array.
    """
    if value.__class__ is dict:
        return nested(schema, value, into)
    return nested(_STRINGS, value, into) or None if value.__class__ is list else None


_STRINGS = List(Text())
_UNIONS: Mapping[str, Callable[[GoType, Any, Decoding], Any]] = {
    "JSONSchemaPropsOrArray": schema_or_array,
    "JSONSchemaPropsOrBool": schema_or_bool,
    "JSONSchemaPropsOrStringArray": schema_or_strings,
}


def union(name: str, go: str, schema: GoType) -> Special:
    """Return the union type of a schema and another type; ``name`` is its key in _UNIONS."""
    read = _UNIONS[name]
    return Special(go, lambda value, into: read(schema, value, into))
