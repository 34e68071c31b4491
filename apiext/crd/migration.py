"""What a storage migration is, whoever drives it: the plan of a definition, and what follows from each answer.

Two drive it: ``apiext migrate`` over the API, and the controller of StorageVersionMigrations in the server. An object
is written again by an empty patch under its uid and resourceVersion, which the server does at the storage version
(VER-002).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from apiext.documents.document import Document, View
from apiext.documents.equality import same

REWRITTEN, ALREADY, CHANGED, GONE, FAILED = "rewritten", "already", "changed", "gone", "failed"
_TOO_MANY = 429


class MigrationError(Exception):
    """A resource that cannot be migrated as things are; the text says why."""


class Plan(Struct, frozen=True):
    """What is to be done for one definition in one generation.

    ``served`` tells whether the storage version is. ``compared`` are the served old versions whose objects may lose
    fields.
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
        """The versions that objects may still be stored in besides the storage version."""
        return [version for version in self.stored if version != self.storage]


def plan_of(definition: View) -> Plan:
    """Return what is to be done for a definition as served."""
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
    """Return the patch that has one state of an object written again."""
    return {"metadata": {"uid": uid, "resourceVersion": revision}}


def outcome(code: int, before: str, after: str) -> str:
    """Return what the answer to ``touch`` means for an object; the revisions are those before and after.

    That it is gone or changed is true only if it is no longer at the revision before: webhooks deny with any code.
    """
    if code == 404:
        return GONE
    if code == 409:
        return CHANGED  # by another writer, who may have left it as it was stored
    if code != 200:
        return FAILED
    return ALREADY if after == before else REWRITTEN


def may_pass(code: int) -> bool:
    """Tell whether a failure, such as a webhook's, may pass by itself."""
    return code >= 500 or code == _TOO_MANY


def remaining(begun: Plan, definition: View) -> list[str] | None:
    """Return the storedVersions once all objects were rewritten.

    None when the definition is another one than at the beginning, or says something else: then some objects may have
    been written at another version meanwhile.
    """
    now = plan_of(definition)
    return [now.storage] if (now.uid, now.generation) == (begun.uid, begun.generation) else None


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """Return the paths of what a document has and its other version has not; metadata is the same in both."""
    if isinstance(before, dict) and isinstance(after, dict):
        found: list[str] = []
        for key, value in before.items():
            if not path and key in ("apiVersion", "kind", "metadata"):
                continue
            where = f"{path}.{key}" if path else key
            found += lost(value, after[key], where) if key in after else [where]
        return found
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [text for index, (one, other) in pairs for text in lost(one, other, f"{path}[{index}]")]
    return [] if same(before, after) else [path]


def loss(plan: Plan, paths: Sequence[str], most: int) -> str:
    """Return what is said of an object whose fields the storage version does not have."""
    return f"{plan.storage} does not have {', '.join(paths[:most])}: see --allow-loss"


class Turns:
    """Spreads turns over time, so many per second; 0: at once."""

    def __init__(self, rate: float) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._next = 0.0

    def take(self, now: float) -> float:
        """Return the seconds until the turn that is taken."""
        turn = max(self._next, now)
        self._next = turn + self._gap
        return turn - now if self._gap else 0.0
