"""The NonStructuralSchema condition: only old or foreign servers store schemas that are not structural (CND-007)."""

from collections.abc import Callable

from apiext.controllers.definitions import Definitions
from apiext.controllers.statuses import Statuses, say
from apiext.crd.conditions import condition, find, same_condition, with_status, without_condition
from apiext.crd.definition import NON_STRUCTURAL
from apiext.documents.document import Document, View
from apiext.meta.fields import FieldError, aggregate, invalid


class NonStructural:
    """Says which structural rules a definition breaks, and takes it back when it breaks none."""

    def __init__(self, definitions: Definitions, statuses: Statuses, clock: Callable[[], str]) -> None:
        self._definitions = definitions
        self._statuses = statuses
        self._clock = clock
        self._judged: dict[str, bytes] = {}  # name → digest of a definition without violations
        self._waiting: set[str] = set()  # suspect, which a status written here hides, and not validated yet

    def wanted(self, name: str) -> bool:
        """Report whether the definition was not validated yet, and may have violations or the condition."""
        facts = self._definitions.get(name)
        if facts is None:
            self._judged.pop(name, None)
            self._waiting.discard(name)
            return False
        if facts.suspect and self._judged.get(name) != facts.digest:
            self._waiting.add(name)
        return name in self._waiting or bool(facts.reason(NON_STRUCTURAL))

    async def reconcile(self, name: str) -> None:
        """Write or remove the condition."""
        entry, facts = self._definitions.entry(name), self._definitions.get(name)
        if entry is None or facts is None or not self.wanted(name):
            return

        def amend(document: Document) -> Document | None:
            amended = self._amend(document)
            if amended is None:  # only then: after a conflict the key runs again
                self._judged[name] = facts.digest
                self._waiting.discard(name)
            return amended

        await self._statuses.amend(entry, amend)

    def _amend(self, document: Document) -> Document | None:
        told = violations(document)
        conditions = (document.get("status") or {}).get("conditions")
        before = find(conditions, NON_STRUCTURAL)
        if told is None:
            kept = without_condition(conditions, NON_STRUCTURAL)
            return with_status(document, conditions=kept) if before is not None else None
        return None if same_condition(before, told) else say(document, told, self._clock())


def violations(document: View) -> View | None:
    """Return the condition that a definition (v1 form) deserves, None when its schemas are structural."""
    from apiext.schema import rules_of_structure  # few definitions are suspect (decision 36)

    spec = document.get("spec") or {}
    errors: list[FieldError] = []
    if spec.get("preserveUnknownFields"):
        errors.append(invalid("spec.preserveUnknownFields", True, "must be false"))
    for index, version in enumerate(spec.get("versions") or ()):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            continue
        reason = rules_of_structure.unsupported(schema)
        if reason:
            text = f"failed to check validation schema for version {version.get('name', '')}: {reason}"
            return condition(NON_STRUCTURAL, "Unknown", "StructuralError", text)
        errors += rules_of_structure.errors(schema, f"spec.versions[{index}].schema.openAPIV3Schema")
    return condition(NON_STRUCTURAL, "True", "Violations", aggregate(errors)) if errors else None
