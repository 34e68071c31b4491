"""Errors of decoding JSON and YAML."""

from typing import Any

from apiext.documents.floats import go_float

MAX_NOTES = 100  # maximal number of reported unknown fields, and of duplicate fields (upstream: strict errors)
_KINDS = {dict: "map", list: "slice", str: "string", bool: "bool", int: "int64", float: "float64"}
_RESTORED = {"map": "map from", "slice": "slice from", "struct": "struct from:"}


class DecodeError(ValueError):
    """The error of a text that cannot be decoded.

    The message is Go's error; callers add upstream's prefix. ``restored`` is the message that Go uses instead when it
    converts a decoded document to its types, for example after a strategic merge patch (upstream:
    runtime.DefaultUnstructuredConverter). ``restored`` is empty if both messages are equal.
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
    """The error of a text with too many levels, objects or arrays; the text may be valid JSON."""


class OverflowingNumber(DecodeError):
    """The error of a number outside the range of float64 in a text of valid syntax.

    Upstream reads kind and version first. So it reports an invalid kind or version instead, if there is one.
    """


class UndecodableMessage(DecodeError):
    """The error of an invalid protobuf message that states a kind and version.

    Upstream reads kind and version first, so its error text contains them.
    """

    def __init__(self, text: str, kind: str, version: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.version = version
