"""What is wrong with a text that should be JSON or YAML."""

from typing import Any

from apiext.documents.floats import go_float

MAX_NOTES = 100  # unknown fields, and as many duplicate ones, of a text that are told (upstream: strict errors kept)
_KINDS = {dict: "map", list: "slice", str: "string", bool: "bool", int: "int64", float: "float64"}
_RESTORED = {"map": "map from", "slice": "slice from", "struct": "struct from:"}


class DecodeError(ValueError):
    """A text that is no document; the message is Go's inner error, without any prefix.

    ``restored`` is the message where Go fills its types from a document instead of a text, as it does with strategic
    merge patches; empty when it is the same (upstream: runtime.DefaultUnstructuredConverter).
    """

    restored = ""

    def misfit(self, value: Any, go: str, form: str) -> "DecodeError":
        """Set ``restored`` for a value that a Go type of that form (map, slice, struct or a scalar) cannot hold."""
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
    """The text may be valid JSON, but it is nested too deeply, or has too many objects, for this server."""


class OverflowingNumber(DecodeError):
    """A number that no float64 holds, in a text whose syntax is right (upstream: found after kind and version)."""


class UnfitMessage(DecodeError):
    """A message that says what it is, and that cannot be read as that (upstream: found after kind and version)."""

    def __init__(self, text: str, kind: str, version: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.version = version
