"""Validate the schemas of a definition: return their errors, and warnings about them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from apiext.cel.literals import string_literals
from apiext.documents.document import View
from apiext.meta.fields import FieldError, first_shown, forbidden, invalid
from apiext.schema import defaults_check, formats, limits, patterns, rules_of_schema, rules_of_structure
from apiext.schema.default import Default, default_of
from apiext.schema.options import STRICT, Options, expressions, has_defaults, has_invalid_types, has_rules
from apiext.schema.parse import parse
from apiext.schema.recursion import deep_recursion
from apiext.schema.rules_check import Check
from apiext.schema.structural import Structural
from apiext.schema.traverse import subschemas, too_deep
from apiext.text.quotes import go_quote

_RULES = "x-kubernetes-validations"


def definition_errors(schema: View, path: str, options: Options = STRICT) -> list[FieldError]:
    """Return the errors of a version's schema, with upstream's texts and order.

    See SCH-001…014, STR-001…012. ``path`` is the path of the schema, such as ``spec.validation.openAPIV3Schema``. If
    the schema is nested too deeply, or its patterns are too large, the error about this limit is the only one.
    Structural errors come first; they prevent the validation of defaults and of rules (STR-011). Errors of defaults
    prevent the validation of rules. If the schema has no structural form, for example because of an unsupported
    keyword, then structure, defaults and rules are not validated. The reason is returned only if there is no other
    error (STR-012).
    """
    if too_deep(schema):
        return [forbidden(path, f"must not be nested deeper than {limits.MAX_SCHEMA_NESTING} levels")]
    if options.limited_rules and _too_much_to_match(schema):
        text = f"must not have patterns with more than {limits.MAX_PATTERN_PROGRAMS} instructions of RE2 in all"
        return [forbidden(path, text)]
    found: list[FieldError] = []
    unsupported = ""
    if options.structural:
        unsupported = rules_of_structure.unsupported(schema)
        if not unsupported:
            found = rules_of_structure.errors(schema, path)
            if not found and has_defaults(schema):
                root = parse(schema, strip_formats=False)
                found = defaults_check.errors(root, path, pruned=options.pruned_defaults)
    check_rules = options.structural and not unsupported and not found and has_rules(schema)
    broken: list[str] = []
    found = found + rules_of_schema.errors(schema, path, options, broken)
    shown, complete = first_shown(found)
    if check_rules and complete:
        shown, complete = first_shown([*shown, *_rule_errors(schema, path, broken, options)])
    if not shown and unsupported:
        return [invalid(path, "", unsupported)]
    return shown if complete else [*shown, forbidden(path, "too many errors: the rest is not shown")]


def _too_much_to_match(schema: View) -> bool:
    """Report whether a schema's patterns have over MAX_PATTERN_PROGRAMS instructions in all."""
    nodes = list(subschemas(schema))
    found = [node.get("pattern") for node in nodes] + list(_texts_of_matching_rules(nodes))
    left = limits.MAX_PATTERN_PROGRAMS
    for pattern in dict.fromkeys(one for one in found if one and isinstance(one, str)):
        left -= patterns.size(pattern)
        if left < 0:
            return True
    return False


def _texts_of_matching_rules(nodes: Iterable[View]) -> Iterator[str]:
    """Yield the string literals of expressions that contain ``matches`` or ``find``.

    Each literal may be a pattern. Yield nothing if the rules exceed MAX_RULE_TEXT: the server refuses such rules before
    it compiles them.
    """
    rules = [rule for node in nodes for rule in node.get(_RULES) or () if isinstance(rule, Mapping)]
    texts = [text for rule in rules for text in (rule.get("rule"), rule.get("messageExpression"))]
    written = [text for text in texts if isinstance(text, str)]
    if sum(map(len, written)) <= limits.MAX_RULE_TEXT:
        for text in dict.fromkeys(written):
            if "matches" in text or "find" in text:
                yield from string_literals(text)


def _rule_errors(schema: View, path: str, broken: list[str], options: Options) -> list[FieldError]:
    if not options.limited_rules:  # the stored definition has the same schema, so its rules may exceed MAX_RULES
        return Check(parse(schema), path, broken, options).errors()
    rules = [rule for node in subschemas(schema) for rule in node.get(_RULES) or ()]
    if len(rules) > limits.MAX_RULES:
        return [forbidden(path, f"must not have more than {limits.MAX_RULES} x-kubernetes-validations in all")]
    size = sum(len(text) for rule in rules for text in (rule.get("rule") or "", rule.get("messageExpression") or ""))
    if size > limits.MAX_RULE_TEXT:
        text = f"x-kubernetes-validations must not be longer than {limits.MAX_RULE_TEXT} characters in all"
        return [forbidden(path, text)]
    return Check(parse(schema), path, broken, options).errors()


def ratchets(schemas: Iterable[View | None]) -> Options:
    """Return the options for an update of a definition (UPD-002).

    ``schemas`` are the schemas of the stored definition. The update may keep certain errors that they have.
    """
    given = [schema for schema in schemas if schema is not None]
    structural = all(rules_of_structure.is_structural(schema) for schema in given)
    inner = [node for schema in given for node in subschemas(schema)]
    return Options(
        structural=structural,
        valid_types=not has_invalid_types(given),
        pruned_defaults=not any(_unpruned(schema) for schema in given),
        atomic_sets=not any(rules_of_schema.non_atomic_items(node, "") for node in inner),
        map_keys=not any(rules_of_schema.map_key_errors(node, "") for node in inner),
        known_expressions=expressions(given),
    )


def rule_warnings(schema: View, path: str, options: Options = STRICT) -> list[str]:
    """Return the warnings about rules that this server accepts, but other servers refuse.

    See DIS-19.
    """
    texts = (text for node in subschemas(schema) for rule in node.get(_RULES) or () for text in rule.values())
    if not any(isinstance(text, str) and "string(" in text for text in texts):
        return []  # only the cost estimate of string() differs from other servers
    check = Check(parse(schema), path, (), options)
    check.errors()
    return check.warned


def _unpruned(schema: View) -> bool:
    if not has_defaults(schema) or not rules_of_structure.is_structural(schema):
        return False
    stack: list[Structural] = [parse(schema)]
    while stack:
        node = stack.pop()
        with deep_recursion():
            made: Default | None = default_of(node)
        if made is not None and made.pruned:
            return True
        stack += node.properties.values()
        stack += [below for below in (node.items, node.map_values) if below is not None]
    return False


def unknown_formats(schemas: Sequence[View | None]) -> list[str]:
    """Return the formats without effect in the schemas (UPD-009).

    The formats are in order of appearance, without duplicates.
    """
    found: dict[str, None] = {}
    for schema in schemas:
        for node in subschemas(schema):
            name = node.get("format")
            if name and not formats.has_effect((node["type"],) if node.get("type") else (), name):
                found[name] = None
    return list(found)


def set_warnings(new: Sequence[View | None], old: Sequence[View | None] = ()) -> list[str]:
    """Return the warnings about sets of objects, and about sets of arrays (UPD-009).

    Warn about a type of items only if the ``old`` schemas have no set with items of this type.
    """
    return [
        f"x-kubernetes-list-type: set for items of type {go_quote(kind)} is not supported by server-side apply or CEL"
        " validation rules"
        for kind in sorted(_types_of_sets(new) - _types_of_sets(old))
    ]


def _types_of_sets(schemas: Sequence[View | None]) -> set[str]:
    """Return "object" and "array" if the schemas have sets with items of these types."""
    found: set[str] = set()
    for schema in schemas:
        for node in subschemas(schema):
            items = node.get("items")
            if node.get("x-kubernetes-list-type") == "set" and isinstance(items, Mapping):
                found.add(items.get("type") or "")
    return found & {"array", "object"}


def format_warnings(new: Sequence[View | None], old: Sequence[View | None] = ()) -> list[str]:
    """Return the warnings about formats without effect that the old schemas do not have.

    See UPD-009.
    """
    known = frozenset(unknown_formats(old))
    return [f"unrecognized format {go_quote(name)}" for name in unknown_formats(new) if name not in known]
