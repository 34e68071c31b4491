"""Selectors as predicates over stored entries (SEL rows)."""

from collections.abc import Callable
from dataclasses import dataclass

from apiext.catalog.served import ServedVersion
from apiext.meta import status
from apiext.meta.options import ListOptions
from apiext.meta.selectors import FieldSelector, LabelSelector, SelectorError
from apiext.storage.store import Entry

Predicate = Callable[[Entry], bool]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list, watch or collection delete asks for; ``matches`` is None when that is everything.

    ``name`` is set when metadata.name must equal it; ``key`` is equal for equal selections.
    """

    matches: Predicate | None
    name: str = ""
    key: tuple[str, str] = ("", "")


EVERYTHING = Selection(None)


def select(served: ServedVersion, options: ListOptions, name: str = "") -> Selection:
    """Return the selection; 400 for selectors that cannot be parsed or name unknown fields (SEL-001, SEL-005)."""
    if not options.label_selector and not options.field_selector and not name:
        return EVERYTHING
    try:
        labels = LabelSelector.parse(options.label_selector)
        terms = FieldSelector.parse(options.field_selector)
    except SelectorError as error:
        raise status.bad_request(str(error)) from error
    checks: list[Predicate] = []
    wanted = name
    for field, operator, value in terms.terms:
        reader = _field_reader(served, field)
        equal = operator != "!="
        if field == "metadata.name" and equal:
            wanted = wanted or value
        checks.append(_compare(reader, value, equal))
    if name:
        checks.append(lambda entry: entry.name == name)
    if not labels.empty:
        checks.append(lambda entry: labels.matches(entry.labels))
    key = (options.label_selector, f"{options.field_selector}#{name}")
    if not checks:
        return Selection(None, wanted, key)
    if len(checks) == 1:
        return Selection(checks[0], wanted, key)
    return Selection(lambda entry: all(check(entry) for check in checks), wanted, key)


def _compare(reader: Callable[[Entry], str], value: str, equal: bool) -> Predicate:
    if equal:
        return lambda entry: reader(entry) == value
    return lambda entry: reader(entry) != value


def _field_reader(served: ServedVersion, field: str) -> Callable[[Entry], str]:
    if field == "metadata.name":
        return lambda entry: entry.name
    if field == "metadata.namespace" and (served.namespaced or served.typed):
        return lambda entry: entry.namespace
    selectable = served.selectable.get(field)
    if selectable is not None:
        return lambda entry: selectable(served.decode(entry.raw, entry.revision))
    if served.typed:
        raise status.bad_request(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')
    raise status.bad_request(f"field label not supported: {field}")
