"""The controller of the condition NonStructuralSchema of definitions (CND-007).

Clients of v1beta1, old servers and other programs may have stored definitions that violate the rules of v1.
"""

from collections.abc import Callable

from apiext.controllers.definitions import Definitions
from apiext.controllers.statuses import Statuses, set_condition
from apiext.crd.conditions import condition, find, same_condition, with_status, without_condition
from apiext.crd.definition import NON_STRUCTURAL
from apiext.documents.document import Document, View
from apiext.meta.fields import FieldError, aggregate, invalid


class NonStructural:
    """The controller.

    It writes the condition with the violations of a definition, or removes the condition.
    """

    def __init__(self, definitions: Definitions, statuses: Statuses, clock: Callable[[], str]) -> None:
        self._definitions = definitions
        self._statuses = statuses
        self._clock = clock
        self._validated: dict[str, bytes] = {}  # name → digest of a definition whose condition is right
        # Names of definitions to validate. ``Facts.suspect`` is not enough. It is true if the stored form does not
        # prove that the schema is structural. A write of the status can make it false before the validation.
        self._waiting: set[str] = set()

    def wanted(self, name: str) -> bool:
        """Report whether this controller must validate the definition or maintain its condition.

        The second case holds for each definition that has the condition.
        """
        facts = self._definitions.get(name)
        if facts is None:
            self._validated.pop(name, None)
            self._waiting.discard(name)
            return False
        if facts.suspect and self._validated.get(name) != facts.digest:
            self._waiting.add(name)
        return name in self._waiting or bool(facts.reason(NON_STRUCTURAL))

    async def reconcile(self, name: str) -> None:
        """Write or remove the condition."""
        entry, facts = self._definitions.entry(name), self._definitions.get(name)
        if entry is None or facts is None or not self.wanted(name):
            return

        def amend(document: Document) -> Document | None:
            amended = self._amend(document)
            # The name leaves ``_waiting`` only when the stored condition is right. Until then, the write of the
            # condition, or a conflicting write, causes another run.
            if amended is None:
                self._validated[name] = facts.digest
                self._waiting.discard(name)
            return amended

        await self._statuses.amend(entry, amend)

    def _amend(self, document: Document) -> Document | None:
        wanted = violations(document)
        conditions = (document.get("status") or {}).get("conditions")
        before = find(conditions, NON_STRUCTURAL)
        if wanted is None:
            kept = without_condition(conditions, NON_STRUCTURAL)
            return with_status(document, conditions=kept) if before is not None else None
        return None if same_condition(before, wanted) else set_condition(document, wanted, self._clock())


def violations(document: View) -> View | None:
    """Return the condition NonStructuralSchema for a definition in v1 form.

    Return None if the definition has no violations. If a schema has no structural form, for example because of an
    unsupported keyword, return a condition with the status Unknown.
    """
    from apiext.schema import rules_of_structure  # imported only here, since few definitions are suspect (decision 36)

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
