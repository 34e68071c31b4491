"""Encoder of the path items of OpenAPI.

OpenAPI v2 and v3 have separate encoders of operations and parameters.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import orjson

from apiext.catalog import limits as catalog_limits
from apiext.discovery.operations import Operation, PathItem
from apiext.documents.document import Document

Parameters = Callable[[str, str], Any]
"""(key of the parameter, kind) → the parameter, as a document or as JSON."""


class Paths:
    """The encoder of path items of one OpenAPI version.

    ``operation(operation, kind, parameters)`` returns an operation, and ``parameter(key, kind)`` a parameter.
    """

    def __init__(
        self, operation: Callable[[Operation, str, Parameters], Document], parameter: Callable[[str, str], Document]
    ) -> None:
        self._operation = operation
        self._parameter = parameter
        self._cached_fragment = lru_cache(catalog_limits.NAMES_SEEN)(self._fragment)

    def item(self, item: PathItem) -> Document:
        """Return a path item as a document."""
        return self._item(item, self._parameter)

    def encoded(self, item: PathItem) -> bytes:
        """Return a path item as JSON."""
        return orjson.dumps(self._item(item, self._encoded))

    def _item(self, item: PathItem, parameter: Parameters) -> Document:
        found: Document = {one.method: self._operation(one, item.kind, parameter) for one in item.operations}
        if item.parameters:
            found["parameters"] = [parameter(key, item.kind) for key in item.parameters]
        return found

    def _encoded(self, key: str, kind: str) -> orjson.Fragment:
        # only the parameter ``name`` contains the kind, so other parameters are cached once for all kinds
        return self._cached_fragment(key, kind if key == "name" else "")

    def _fragment(self, key: str, kind: str) -> orjson.Fragment:
        return orjson.Fragment(orjson.dumps(self._parameter(key, kind)))
