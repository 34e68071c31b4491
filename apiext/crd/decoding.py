"""Decode the bodies of definition requests as Go's types do (CRD-004, CRD-008, CRD-009)."""

from apiext.crd import defaults, types
from apiext.documents.document import Document, View
from apiext.go_types import typed


def decode_v1(document: View) -> tuple[Document, list[str]]:
    """Return a v1 body as Go encodes it, with defaults, and the paths of unknown fields.

    The paths are in the order of the body. Raise DecodeError (a ValueError) with Go's text, such as ``json: cannot
    unmarshal string into Go struct field CustomResourceDefinitionNames.spec.names.shortNames of type []string``.
    """
    decoded, unknown = typed.decode(types.V1, document)
    return defaults.default_v1(decoded), unknown


def decode_v1beta1(document: View) -> tuple[Document, list[str]]:
    """Return a v1beta1 body as Go encodes it, with defaults, and the paths of unknown fields.

    Raise DecodeError.
    """
    decoded, unknown = typed.decode(types.V1BETA1, document)
    return defaults.default_v1beta1(decoded), unknown
