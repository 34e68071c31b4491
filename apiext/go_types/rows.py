"""The rows of built-in kinds as data: names, endpoints, validation and storage of each kind.

In YAML, a row is a flat mapping whose keys are called words; ``types/README.md`` describes them. Here a row is divided
into parts. ``compiling.py`` assigns the words to the parts, so that the server decodes ``rows.json`` directly into
these classes at its start.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct, field
from msgspec.json import decode

from apiext.go_types.sources import ROWS, read
from apiext.meta.objectmeta import CHANGE

STORED_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Published(Struct, frozen=True, forbid_unknown_fields=True):
    """The data of a kind that discovery, Tables and field selectors use."""

    short: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    verbs: tuple[str, ...] = STORED_VERBS
    columns: tuple[str | Mapping[str, Any], ...] = ("name", "age")
    select: tuple[str | Mapping[str, str], ...] = ()
    select_namespace: bool = True
    unselectable: str = "field label not supported: {label}"
    deprecation: str = ""
    on_request: bool = False


class Writes(Struct, frozen=True, forbid_unknown_fields=True):
    """The writes that the main endpoint accepts, and the changes that the server makes in them."""

    defaults: str = ""
    drops: Mapping[str, str] = {}
    prepare: str = ""
    named: str = ""
    generation: bool | str = False
    counts: tuple[str, ...] = ()
    keeps_status: bool = False
    resets: tuple[str, ...] = ()
    signed: str = ""
    addressed: bool = False
    unconditional: bool = False
    upserts: bool = False
    returns_deleted: bool = False


class Status(Struct, frozen=True, forbid_unknown_fields=True):
    """The status endpoint; ``served`` is true if the kind has a status endpoint."""

    served: bool = field(name="status", default=False)
    metadata: bool = field(name="status_metadata", default=False)
    prepare: str = field(name="prepare_status", default="")
    stamp: str = field(name="stamp_status", default="")
    validate: str = field(name="validate_status", default="")
    warnings: str = field(name="warnings_status", default="")
    metadata_checks: tuple[str, ...] = field(name="metadata_checks_status", default=(CHANGE,))


class Validation(Struct, frozen=True, forbid_unknown_fields=True):
    """The validation of a write to the main endpoint."""

    names: str = "dns1123_subdomain"
    rules: tuple[Mapping[str, Any], ...] = ()
    validate: str = ""
    warnings: str = ""
    metadata_checks: tuple[str, ...] = (CHANGE,)
    finalizers: bool = field(name="validates_finalizers", default=False)


class StoredAs(Struct, frozen=True, forbid_unknown_fields=True):
    """The kind of another group with the same stored objects.

    ``renamed`` is field → field in the stored object.
    """

    group: str
    version: str
    resource: str
    renamed: Mapping[str, str]


class Storage(Struct, frozen=True, forbid_unknown_fields=True):
    """The stored form of objects, its conversion, and whether the objects are cached or expire."""

    form: str = field(name="stored", default="")
    version: str = field(name="stored_version", default="")
    same_as: StoredAs | None = field(name="stored_as", default=None)
    shown: str = ""
    restored: str = ""
    uncached: bool = False
    expires: bool = False


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """The row of a kind in one version; ``others`` are the rows of its other versions.

    ``types`` is the name of the data file with its types. ``message`` is the name of its protobuf message, empty if
    this equals the kind.
    """

    version: str
    resource: str
    kind: str
    types: str
    namespaced: bool
    group: str = ""
    message: str = ""
    review: str = ""
    scale: str = ""
    subresources: tuple[Mapping[str, Any], ...] = ()
    published: Published = Published()
    writes: Writes = Writes()
    status: Status = Status()
    validation: Validation = Validation()
    storage: Storage = Storage()
    others: tuple["Row", ...] = ()

    def all_versions(self) -> tuple["Row", ...]:
        """Return the rows of all versions, beginning with this row."""
        return self, *self.others

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects, which is also the name in --runtime-config."""
        return f"{self.group}/{self.version}" if self.group else self.version


@cache
def rows() -> tuple[Row, ...]:
    """Return the rows of all kinds."""
    return decode(read(ROWS), type=tuple[Row, ...])
