"""Plan the storage migration of a definition, and interpret the responses to its patches.

``apiext migrate`` migrates over the API; the controller of StorageVersionMigrations migrates in the server. A patch
with only uid and resourceVersion makes the server write an object at the storage version (VER-002).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from apiext.documents.document import Document, View
from apiext.documents.equality import same

REWRITTEN, ALREADY, CHANGED, GONE, FAILED = "rewritten", "already", "changed", "gone", "failed"
"""Outcomes for an object. ALREADY: its bytes did not change. CHANGED: a conflict. GONE: it does not exist."""
_TOO_MANY = 429


class MigrationError(Exception):
    """The error of a resource that cannot be migrated now; the text contains the reason."""


class Plan(Struct, frozen=True):
    """The migration of the objects of a definition, for one generation of the definition.

    ``storage`` is the storage version; ``served`` is true if it is served. ``stored`` are the storedVersions.
    ``compared`` are the old versions that are served and whose objects may lose fields: those with another schema, if
    no webhook converts the objects.
    """

    name: str
    uid: str
    generation: int
    group: str
    plural: str
    kind: str
    storage: str
    served: bool
    stored: tuple[str, ...]
    compared: tuple[str, ...]

    @property
    def pending(self) -> list[str]:
        """Return the versions, besides the storage version, in which objects may still be stored."""
        return [version for version in self.stored if version != self.storage]


def plan_of(definition: View) -> Plan:
    """Return the plan for a definition in the v1 form."""
    metadata, spec, status = definition["metadata"], definition["spec"], definition.get("status") or {}
    versions: Sequence[Mapping[str, Any]] = spec["versions"]
    storage = next(version for version in versions if version["storage"])
    stored = tuple(status.get("storedVersions") or ())
    others = [it for it in versions if not same(it.get("schema"), storage.get("schema"))]
    older = [it for it in others if it["served"] and it["name"] in stored]
    none = (spec.get("conversion") or {}).get("strategy", "None") == "None"
    accepted = status.get("acceptedNames") or {}
    return Plan(
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        group=spec["group"],
        plural=spec["names"]["plural"],
        kind=accepted.get("kind") or spec["names"]["kind"],
        storage=storage["name"],
        served=storage["served"],
        stored=stored,
        compared=tuple(version["name"] for version in older) if none else (),
    )


def touch(uid: str, revision: str) -> Document:
    """Return the patch that rewrites an object with this uid and resourceVersion."""
    return {"metadata": {"uid": uid, "resourceVersion": revision}}


def outcome(code: int, before: str, after: str) -> str:
    """Return the outcome for an object, from the status code of its ``touch`` patch.

    ``before`` and ``after`` are the object's resourceVersions before and after the patch. The caller must confirm GONE
    and CHANGED by reading the object, since a webhook may deny the patch with any code.
    """
    if code == 404:
        return GONE
    if code == 409:
        return CHANGED  # the object may still be in the old version, since another writer may have stored it so
    if code != 200:
        return FAILED
    return ALREADY if after == before else REWRITTEN


def is_temporary(code: int) -> bool:
    """Return whether a later retry of a failed request may succeed."""
    return code >= 500 or code == _TOO_MANY


def remaining(begun: Plan, definition: View) -> list[str] | None:
    """Return the storedVersions that the definition gets after all objects are rewritten.

    Return None if the definition was replaced or changed since the migration began: the server may have written some
    objects at another version.
    """
    now = plan_of(definition)
    return [now.storage] if (now.uid, now.generation) == (begun.uid, begun.generation) else None


def lost_fields(before: Any, after: Any, path: str = "") -> list[str]:
    """Return the paths of values that are missing or different in ``after``.

    Ignore apiVersion, kind and metadata.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        found: list[str] = []
        for key, value in before.items():
            if not path and key in ("apiVersion", "kind", "metadata"):
                continue
            where = f"{path}.{key}" if path else key
            found += lost_fields(value, after[key], where) if key in after else [where]
        return found
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [text for index, (one, other) in pairs for text in lost_fields(one, other, f"{path}[{index}]")]
    return [] if same(before, after) else [path]


def loss_text(plan: Plan, paths: Sequence[str], most: int) -> str:
    """Return the error text for fields that the storage version does not have.

    The text has at most ``most`` paths.
    """
    return f"{plan.storage} does not have {', '.join(paths[:most])}: see --allow-loss"


class Turns:
    """A rate limiter: at most ``rate`` turns per second, 0 for no limit."""

    def __init__(self, rate: float) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._next = 0.0

    def take(self, now: float) -> float:
        """Reserve the next turn; return the seconds until this turn.

        ``now`` is a monotonic time in seconds.
        """
        turn = max(self._next, now)
        self._next = turn + self._gap
        return turn - now if self._gap else 0.0
