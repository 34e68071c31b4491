"""Compile the rules of a schema (x-kubernetes-validations), and evaluate them on objects.

See CEL-001…020.
"""

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Union

from msgspec import Struct

from apiext.cel import types
from apiext.cel.declared import Declared
from apiext.cel.environment import Environment, Program, Rejected
from apiext.cel.escaping import escape
from apiext.cel.types import Type
from apiext.documents.document import View
from apiext.documents.paths import Key, Path, steps
from apiext.meta import fields
from apiext.meta import limits as meta_limits
from apiext.meta.fields import FieldError, child, field_path, has_room, invalid
from apiext.schema import limits
from apiext.schema.cel_types import ROOT_NAME, Types, is_shown, with_metadata
from apiext.schema.field_paths import PathError, follow
from apiext.schema.ratchet import Link, keys_of
from apiext.schema.structural import Rule, Structural, anywhere
from apiext.schema.timing import compilations, evaluations
from apiext.schema.transitions import fitted
from apiext.schema.work_budget import VISITING, WorkBudget, compiling, current, grow
from apiext.text.quotes import go_quote

MAX_MESSAGE = 5 * 1024  # bytes of a computed message (upstream: MaxEvaluatedMessageExpressionSizeBytes)
MAX_FAILED_MESSAGES = 100  # maximal number of log lines for one object
BLOCKING = frozenset(
    (fields.NOT_SUPPORTED, fields.REQUIRED, fields.TOO_LONG, fields.TOO_MANY, fields.TYPE_INVALID)
)  # an object with such an error is not evaluated, since rules could fail on it (CEL-015)
NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete"
    " validation"
)
_NO_MORE = "no further validation rules will be run"
_OUT_OF_BUDGET = f"validation failed due to running out of cost budget, {_NO_MORE}"
_TYPELESS = "rule compiler initialization error: failed to convert to declType for CEL validation rules"
_PARTS = ("@idx", "@elem")  # steps to array items and to map values
_MISFIT = "call arguments did not match a supported operator, function or macro signature for rule"
_OVER_LIMIT = "operation cancelled: actual cost limit exceeded"

# Stage that refuses an expression → prefix of the error text.
_RULE_REFUSED = {
    "compilation": "compilation failed: ",
    "instantiation": "program instantiation failed: ",
    "result": "cel expression ",
}
_MESSAGE_REFUSED = {
    "compilation": "messageExpression compilation failed: ",
    "instantiation": "messageExpression instantiation failed: ",
    "result": "messageExpression ",
}

Version = Callable[[str], str]
"""Returns the name of the environment for an expression: "stored" or "new"."""


def latest(expression: str) -> str:
    """Return "stored": the environment of stored expressions has all functions (UPD-003)."""
    return "stored"


class Compiled(Struct):
    """A rule with its programs, or with the error of its compilation.

    A rule with an empty expression has neither a program nor an error. ``message`` is the program of the
    messageExpression. ``field`` is the fieldPath as errors append it to the path of the node.
    """

    rule: Rule
    program: Program | None = None
    error: str = ""
    uses_old: bool = False
    message: Program | None = None
    message_error: str = ""
    field: str = ""


has_rules = anywhere("has rules", lambda node: node.extensions.rules)
"""Returns whether a node or any node below it has rules."""


class Scope:
    """A node of a schema with rules at or below it.

    ``step`` leads from the parent to the node: the name of a property, or one of _PARTS. ``declared`` is the CEL type
    of the node, created at first use. If the parent or a node above it has rules, the type is a part of the parent's
    type. ``type_name`` is the name of the type in the parent's type, such as ``selfType1.spec``. ``type_source`` is the
    schema from which the type is created, or None if upstream has no type for the node. ``evaluated_properties`` are
    the properties with a type and with evaluated rules. ``is_evaluated`` is true if a rule at or below the node is
    evaluated on objects.
    """

    __slots__ = (
        "_compiled",
        "_declared",
        "evaluated_properties",
        "is_evaluated",
        "items",
        "node",
        "parent",
        "properties",
        "root",
        "step",
        "type_name",
        "type_source",
        "types",
        "under_rules",
        "uses_old",
        "values",
    )

    def __init__(
        self, node: Structural, parent: Union["Scope", None] = None, step: str = "", *, root: bool = False
    ) -> None:
        self.node = node
        self.parent = parent
        self.step = step
        self.root = root or node.extensions.embedded
        given = node if parent is None else parent.part(step, node)
        self.type_source = given if given is not None and is_shown(given) else None
        self.under_rules: bool = bool(node.extensions.rules) or (parent is not None and parent.under_rules)
        self.types: Types = parent.types if parent is not None else Types()
        self.type_name = ROOT_NAME
        self._declared: Declared | bool | None = False
        self._compiled: list[Compiled] | None = None
        self.uses_old = False  # valid after the compilation of the rules
        self.properties = {
            name: Scope(below, self, name) for name, below in node.properties.items() if has_rules(below)
        }
        self.items = Scope(node.items, self, "@idx") if node.items is not None and has_rules(node.items) else None
        values = node.map_values
        self.values = Scope(values, self, "@elem") if values is not None and has_rules(values) else None
        self.evaluated_properties = {
            name: it for name, it in self.properties.items() if it.is_evaluated and it.type_source is not None
        }
        parts = [part for part in (self.items, self.values) if part is not None and part.is_evaluated]
        self.is_evaluated: bool = bool(node.extensions.rules or self.evaluated_properties or parts)

    def part(self, step: str, node: Structural) -> Structural | None:
        """Return the schema from which the type of a child is created.

        ``node`` is the child's own schema, which differs from the result for the metadata of whole objects. Return
        ``node`` for a property whose name cannot be escaped for CEL, although the type has no field for it. For other
        children that are no field of the type, return None.
        """
        source = self.type_source
        if step not in _PARTS and escape(step) is None:
            return node
        if source is None or source.int_or_string:
            return None
        if step in _PARTS:
            holder, inside = ("array", source.items) if step == "@idx" else ("object", source.map_values)
            return inside if source.type == holder else None
        if source.type != "object" or source.map_values is not None:
            return None
        return (with_metadata(source.properties) if self.root else source.properties).get(step)

    @property
    def declared(self) -> Declared | None:
        """Return the type of the variable ``self`` in the rules of this node, None without a type."""
        if isinstance(self._declared, bool):
            self._declared = self._from_parent() or self.types.declare(self.type_source or self.node, root=self.root)
        return self._declared

    def _from_parent(self) -> Declared | None:
        above = self.parent
        if above is None or not above.under_rules or above.declared is None:
            return None
        step = self.step
        if step in _PARTS:
            found = above.declared.element
        else:
            step = escape(self.step) or ""
            found = above.declared.fields.get(step)
        if found is not None:
            self.type_name = f"{above.type_name}.{step}"
        return found

    def compiled(self, version: Version = latest) -> list[Compiled]:
        """Return the rules of this node, compiled at the first call.

        Return an empty list if the node has no CEL type.
        """
        if self._compiled is None:
            began = perf_counter()
            declared = self.declared
            made = _Compiler(self, declared, version).rules() if declared is not None else []
            self.uses_old = any(one.uses_old for one in made)
            self._compiled = made
            compilations.observe(perf_counter() - began)
        return self._compiled


def scope_of(root: Structural, *, resource: bool = True) -> Scope | None:
    """Return the scope of a schema, or None without rules.

    ``resource`` is true for a schema of whole objects.
    """
    return Scope(root, root=resource) if has_rules(root) else None


_TOO_LARGE = f"expression size exceeds limit: macros repeat more than {limits.MAX_RULE_COPIES} nodes in all rules"


class _Compiler:
    """The compiler of the rules of one node; it creates each CEL environment once."""

    def __init__(self, scope: Scope, declared: Declared, version: Version) -> None:
        self.scope = scope
        self.declared = declared
        self.version = version
        self.environments: dict[tuple[str, bool], Environment] = {}

    def rules(self) -> list[Compiled]:
        return [self._rule(rule) for rule in self.scope.node.extensions.rules]

    def _compile(self, text: str, optional: bool, result: Type) -> Program | Rejected:
        if self.scope.types.copied > limits.MAX_RULE_COPIES:
            return Rejected("compilation", _TOO_LARGE)
        key = (self.version(text), optional)
        environment = self.environments.get(key)
        if environment is None:
            environment = Environment(
                {"self": self.declared, "oldSelf": self.declared},
                optional=frozenset(("oldSelf",)) if optional else frozenset(),
                version=key[0],
            )
            self.environments[key] = environment
        current().spend(compiling(text))
        found = environment.compile(text, result, self._grow)
        if isinstance(found, Rejected):
            return Rejected(found.stage, self._renamed(found.text), found.checked)
        return found

    def _grow(self, nodes: int) -> None:
        self.scope.types.copied += nodes
        grow(nodes)

    def _renamed(self, text: str) -> str:
        """Let type names in an error text begin at this node.

        An example is ``selfType1`` for ``selfType1.spec``. Upstream's texts have these names, since upstream
        declares the types of each node separately.
        """
        name = self.scope.type_name
        return text if name == ROOT_NAME else text.replace(name, ROOT_NAME)

    def _rule(self, rule: Rule) -> Compiled:
        made = Compiled(rule)
        if not rule.rule.strip():
            return made
        optional = bool(rule.optional_old_self)
        program = self._compile(rule.rule, optional, types.BOOL)
        made.uses_old = program.mentions("oldSelf")
        if isinstance(program, Rejected):
            made.error = _RULE_REFUSED[program.stage] + program.text
            return made
        made.program = program
        if rule.message_expression:
            self._message(made, rule.message_expression, optional)
        if rule.field_path and not made.message_error:
            try:
                made.field = follow(rule.field_path, self.scope.node)[0]
            except PathError:
                made.field = ""
        return made

    def _message(self, made: Compiled, text: str, optional: bool) -> None:
        program = self._compile(text, optional, types.STRING)
        if isinstance(program, Rejected):
            made.message_error = _MESSAGE_REFUSED[program.stage] + program.text
        else:
            made.message = program


def blocked(errors: Sequence[FieldError]) -> bool:
    """Return whether other errors prevent the evaluation of rules (CEL-015)."""
    return bool(errors) and any(error.reason in BLOCKING for error in errors)


def not_checked() -> FieldError:
    """Return the error about rules that were not evaluated."""
    return invalid("", None, NOT_CHECKED)


class Run:
    """One evaluation of all rules on one object: its errors, warnings and remaining budget.

    ``budget`` is in CEL cost units, and negative as soon as the evaluation has ended early. ``path`` is the path of the
    object in errors. ``link`` pairs the object with its old state; it is None without an old state. Methods raise
    BudgetExhausted and Stopped (see WorkBudget).
    """

    __slots__ = (
        "_counted",
        "_link",
        "_path",
        "_size",
        "_warned",
        "budget",
        "errors",
        "failed_messages",
        "warnings",
        "work",
    )

    def __init__(self, budget: int = limits.OBJECT_BUDGET, path: str = "", link: Link | None = None) -> None:
        self.budget = budget
        self._path = path
        self._link = link
        self.work: WorkBudget = current()
        if not self.work.brief:
            self.work.limit.work = 0
        self.errors: list[FieldError] = []
        self.warnings: list[str] = []
        self.failed_messages: dict[tuple[str, str], None] = {}  # pairs (rule, error) without duplicates
        self._counted = self._size = self._warned = 0

    def visit(self, scope: Scope, value: Any, old: Any, path: Path = None) -> None:
        """Evaluate the rules at and below a node; ``old`` is None if the node has no old value.

        See CEL-008.
        """
        if value is None:
            return
        self.work.spend(VISITING)
        if scope.node.extensions.rules:
            compiled = scope.compiled() if scope.type_source is not None else []
            began = perf_counter()
            self._rules(scope, compiled, value, old, path)
            evaluations.observe(perf_counter() - began)
        if self.budget < 0:
            return
        if value.__class__ is dict:
            self._members(scope, value, old if old.__class__ is dict else {}, path)
        elif value.__class__ is list and scope.items is not None:
            self._list(scope, scope.items, value, old if old.__class__ is list else [], path)

    def _members(self, scope: Scope, value: View, old: View, path: Path) -> None:
        if scope.values is not None:
            for name, below in value.items():
                self.visit(scope.values, below, old.get(name), (path, Key(name)))
                if self.budget < 0:
                    return
        for name, inner in scope.evaluated_properties.items():
            if name in value:
                self.visit(inner, value[name], old.get(name), (path, name))
                if self.budget < 0:
                    return

    def _list(self, scope: Scope, items: Scope, value: list[Any], old: list[Any], path: Path) -> None:
        names = scope.node.extensions.list_keys if scope.node.extensions.list_type == "map" else ()
        known: dict[Any, Any] = {}
        if names:
            for before in old:
                keys = keys_of(names, before)
                if keys is not None:
                    known.setdefault(keys, before)
        for index, below in enumerate(value):
            before = known.get(keys_of(names, below)) if known else None
            self.visit(items, below, before, (path, index))
            if self.budget < 0:
                return

    def _rules(self, scope: Scope, compiled: list[Compiled], value: Any, old: Any, path: Path) -> None:
        kind = scope.node.type
        if not compiled:
            self.errors.append(invalid(field_path(path, self._path), kind, _TYPELESS))
            self.budget = -1 if self._full() else self.budget
        if compiled and self.budget <= 0:
            self._end(invalid(field_path(path, self._path), kind, _OUT_OF_BUDGET))
            return
        for made in compiled:
            if made.error:
                self.errors.append(invalid(field_path(path, self._path), kind, f"rule compile error: {made.error}"))
            elif made.program is not None and not (made.uses_old and old is None and not made.rule.optional_old_self):
                self._rule(made, made.program, scope, value, old, path)
            if self.budget < 0 or (self.errors and self._full()):
                self.budget = min(self.budget, -1)
                return

    def _full(self) -> bool:
        """Return whether there are more errors than fit into a response."""
        fresh = self.errors[self._counted :]
        self._counted += len(fresh)
        self._size += sum(error.size for error in fresh)
        return not has_room(self._counted, self._size)

    def _rule(self, made: Compiled, program: Program, scope: Scope, value: Any, old: Any, path: Path) -> None:
        kind, rule = scope.node.type, made.rule
        if not scope.uses_old:
            old = None  # as upstream: messageExpressions get oldSelf only if a rule of the node uses oldSelf
        given = {"self": value, "oldSelf": old} if old is not None else {"self": value}
        found = self.work.evaluate(program, given)
        if found.cost > self.budget:
            self._end(invalid(field_path(path, self._path), kind, _OUT_OF_BUDGET))
            return
        self.budget -= found.cost
        if found.value is True and found.error is None:
            return
        if made.uses_old and old is not None and self._is_incomparable(program, scope, given, found.error or ""):
            return
        if found.error is not None:
            self._failed(found.error, rule, field_path(path, self._path), kind)
            return
        where = field_path(path, self._path)
        where = child(where, made.field) if made.field else where
        ratcheted = not made.uses_old and self._unchanged(path)
        text, last = self._message(made, given)
        if last:
            self._add(invalid(where, kind, text), ratcheted)
            self.budget = -1
            return
        self._add(_rule_error(where, kind, value, text, rule.reason), ratcheted)

    def _is_incomparable(self, program: Program, scope: Scope, given: dict[str, Any], error: str) -> bool:
        """Return whether a rule fails only because oldSelf does not have the types of the schema.

        The caller ignores such a failure: an error would prevent all later updates of the object.
        """
        if scope.declared is None or error.startswith(_OVER_LIMIT):
            return False
        old, fits = fitted(given["oldSelf"], given["self"], scope.declared, partial(self.work.spend, VISITING))
        if fits or error:
            return not fits
        found = self.work.evaluate(program, {**given, "oldSelf": old})
        if found.cost > self.budget:
            self.budget = 0  # this rule fails; the next rule that costs more than 0 ends the validation with an error
            return False
        self.budget -= found.cost
        return found.error is not None or found.value is True

    def _failed(self, error: str, rule: Rule, path: str, kind: str) -> None:
        if error.startswith("no such overload"):
            self.errors.append(invalid(path, kind, f"'{error}': {_MISFIT}: {_named(rule)}"))
        elif error.startswith(_OVER_LIMIT):
            text = f"'{error}': {_NO_MORE} due to call cost exceeds limit for rule: {_named(rule)}"
            self._end(invalid(path, kind, text))
        else:
            self.errors.append(invalid(path, kind, f"{error} evaluating rule: {_named(rule)}"))

    def _message(self, made: Compiled, given: dict[str, Any]) -> tuple[str, bool]:
        """Return (message of a failed rule, whether the evaluation of rules ends) (CEL-009)."""
        rule = made.rule
        usual = rule.message.strip() if rule.message else f"failed rule: {_named(rule)}"
        if made.message is None:
            if made.message_error:
                self._no_message(rule, made.message_error)
            return usual, False
        if rule.optional_old_self and made.message.mentions("oldSelf"):
            # upstream compiles the expression for an optional oldSelf, but passes a plain value, so evaluation fails
            return usual, False
        found = self.work.evaluate(made.message, given)
        if found.cost > self.budget:
            return f"messageExpression evaluation failed due to running out of cost budget, {_NO_MORE}", True
        if found.error is not None and found.error.startswith(_OVER_LIMIT):
            shown = go_quote(rule.message_expression)
            return f"{_NO_MORE} due to call cost exceeds limit for messageExpression: {shown}", True
        self.budget -= found.cost
        text = found.value.strip() if found.error is None and isinstance(found.value, str) else ""
        fault = found.error or _unusable(text)
        if fault:
            self._no_message(rule, fault)
            return usual, False
        return text, False

    def _no_message(self, rule: Rule, error: str) -> None:
        """Record the error of a messageExpression for the log.

        The response contains the rule's message instead.
        """
        if len(self.failed_messages) < MAX_FAILED_MESSAGES:
            self.failed_messages[rule.rule, error] = None

    def _add(self, error: FieldError, ratcheted: bool) -> None:
        if not ratcheted:
            self.errors.append(error)
        elif self._warned < meta_limits.MAX_FIELD_ERROR_BYTES:  # RAT-003; more text would not fit into the headers
            self.warnings.append(str(error))
            self._warned += len(self.warnings[-1])

    def _end(self, error: FieldError) -> None:
        self.errors.append(error)
        self.budget = -1

    def _unchanged(self, path: Path) -> bool:
        """Return whether a value is unchanged (RAT-003).

        If the value at the path has no old value, the nearest value above it that has one is compared. Errors of
        unchanged values are only warnings. The link of the value is looked up only here, after a failure, since
        rules seldom fail.
        """
        link, above = self._link, None
        for step in steps(path):
            if link is None:
                break
            if isinstance(step, int):
                link, above = link.index(step), link
            # as in upstream, apiVersion and kind of the root never count as unchanged
            elif above is None and step in _TYPE_META:
                link = None
            else:
                link, above = link.member(step), link
        found = link or above
        return found is not None and found.unchanged()


def _unusable(text: str) -> str:
    """Return upstream's reason why a computed message cannot be used, or an empty string."""
    if not text:
        return "messageExpression should evaluate to a non-empty string"
    if "\n" in text:
        return "messageExpression should not contain line breaks"
    too_long = len(text.encode()) > MAX_MESSAGE
    return f"messageExpression beyond allowable length of {MAX_MESSAGE}" if too_long else ""


def _named(rule: Rule) -> str:
    return (rule.message or rule.rule).strip()


def _rule_error(path: str, kind: str, value: Any, text: str, reason: str | None) -> FieldError:
    if reason == fields.FORBIDDEN:
        return fields.forbidden(path, text)
    if reason == fields.REQUIRED:
        return fields.required(path, text)
    hidden = kind in ("object", "array")  # DIS-02
    if reason == fields.DUPLICATE:
        return FieldError(fields.DUPLICATE, path, "Duplicate value") if hidden else fields.duplicate(path, value)
    return fields.invalid_omit(path, text) if hidden else invalid(path, value, text)


_TYPE_META = ("apiVersion", "kind")
