"""Errors of decoding JSON and YAML."""

from typing import Any

from apiext.documents.floats import go_float

MAX_NOTES = 100  # notes on unknown fields of a text, and on duplicate ones (upstream: the strict errors that are kept)
_KINDS = {dict: "map", list: "slice", str: "string", bool: "bool", int: "int64", float: "float64"}
_RESTORED = {"map": "map from", "slice": "slice from", "struct": "struct from:"}


class DecodeError(ValueError):
    """A text cannot be decoded; the message is Go's inner error, without any prefix.

    ``restored`` is the message where Go converts a decoded document to its types, as for strategic merge patches
    (upstream: runtime.DefaultUnstructuredConverter). It is empty if it is the same.
    """

    restored = ""

    def misfit(self, value: Any, go: str, form: str) -> "DecodeError":
        """Set ``restored`` for a value of a wrong type; return self.

        ``form`` is the form of the Go type ``go``: map, slice, struct, or the name of a scalar.
        """
        kind = _KINDS.get(value.__class__, "map")
        if form in _RESTORED:
            self.restored = f"cannot restore {_RESTORED[form]} {kind}"
        elif form.startswith("int") and (kind == "int64" or (kind == "float64" and value.is_integer())):
            shown = go_float(value) if kind == "float64" else value
            self.restored = f"number {shown} does not fit into {go}"
        elif (form == "string" and kind == "int64") or (form.startswith("int") and kind == "float64"):
            self.restored = f"cannot convert {kind} to {go}"
        else:
            self.restored = f"unrecognized type: {form}"
        return self


class BoundExceeded(DecodeError):
    """The text may be valid JSON, but is nested too deeply, or has too many objects, for this server."""


class OverflowingNumber(DecodeError):
    """A number exceeds the range of float64, in a text of valid syntax.

    Upstream finds this after it has read kind and version.
    """


class UndecodableMessage(DecodeError):
    """A message states its kind and version, but cannot be decoded as such.

    Upstream finds this after it has read kind and version.
    """

    def __init__(self, text: str, kind: str, version: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.version = version
