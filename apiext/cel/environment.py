"""Where expressions are compiled: declared variables and a version of the language."""

from collections.abc import Mapping

from apiext.cel import types
from apiext.cel.base import base
from apiext.cel.checker import Checked, Checker
from apiext.cel.declared import Declared
from apiext.cel.parser import TOO_DEEP, parse
from apiext.cel.source import Issues, Source
from apiext.cel.types import Type
from apiext.cel.validators import validate


class Environment:
    """Compiles expressions over declared variables.

    variables: name to a Declared, or to a plain Type. optional: names whose values may be missing; they are seen as
    optional values. version: "stored" for all of the language, "new" for what the version before knows, too.
    """

    def __init__(
        self,
        variables: Mapping[str, Declared | Type],
        *,
        optional: frozenset[str] = frozenset(),
        version: str = "stored",
    ) -> None:
        self.base = base(version)
        self.declared = {name: kind for name, kind in variables.items() if isinstance(kind, Declared)}
        self.optional = optional
        self.variables: dict[str, Type] = {}
        self.objects: dict[str, Declared] = {}
        for name, kind in variables.items():
            if isinstance(kind, Declared):
                self.objects |= kind.objects()
            found = kind.type() if isinstance(kind, Declared) else kind
            self.variables[name] = types.optional_of(found) if name in optional else found

    def check(self, text: str) -> "Checked | Issues":
        """Return an expression parsed and with its types, or what is wrong with it."""
        issues = Issues(Source(text))
        try:
            parsed = parse(text, self.base.macros, issues)
            if parsed is None:
                return issues
            checked = Checker(parsed, self.base, self.variables, self.objects, issues).run()
            if not issues:
                validate(checked, issues)
        except RecursionError:
            issues.found.clear()
            issues.at(-1, TOO_DEEP)
        return issues if issues else checked
