"""Label and field selectors as conditions on stored entries.

A term is one condition of a selector. For some terms, an index finds the entries (storage/indexes.py). The rows SEL-…
in BEHAVIOUR.md describe the selectors.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import lru_cache
from weakref import WeakKeyDictionary

from msgspec import Struct

from apiext.catalog.served import ServedVersion
from apiext.documents.document import Document, View
from apiext.meta import limits as meta_limits
from apiext.meta import status
from apiext.meta.options import ListOptions
from apiext.meta.selectors import FieldSelector, LabelSelector, Requirement, SelectorError
from apiext.storage.indexes import Dimension, Term
from apiext.storage.store import Entry
from apiext.text.quotes import go_quote
from apiext.verbs import limits

Predicate = Callable[[Entry], bool]
_NAME = Dimension("metadata.name", lambda entry: entry.name)
_NAMESPACE = Dimension("metadata.namespace", lambda entry: entry.namespace)


class Selection(Struct, frozen=True):
    """The selection of a list, watch or collection delete: all ``terms`` must hold.

    ``matches`` tests an entry, and is None if all objects are selected. ``name`` and ``namespace`` are set if only
    objects with exactly this name or namespace are selected. Selections with an equal ``key`` select the same objects
    of a version.
    """

    matches: Predicate | None
    name: str = ""
    key: tuple[str, str] = ("", "")
    terms: tuple[Term, ...] = ()
    namespace: str = ""

    @property
    def by_labels(self) -> bool:
        """Return whether there is a label selector.

        A conversion webhook may change labels, so callers test the converted objects.
        """
        return bool(self.key[0])

    @property
    def route(self) -> Term | None:
        """Return the term by which an index finds candidates.

        A term on the name has priority, else the term with the fewest values is chosen. Return None if no term lists
        its accepted values.
        """
        return _narrowest(self.terms)

    @property
    def route_unread(self) -> Term | None:
        """Like ``route``, but choose only from the terms on names and namespaces.

        These terms need no conversion.
        """
        return _narrowest(by_name(self))


EVERYTHING = Selection(None)


def select(served: ServedVersion, options: ListOptions, name: str = "") -> Selection:
    """Return the selection by the selectors in ``options``, and by ``name`` unless it is empty.

    Raise a 400 if a selector cannot be parsed or names an unknown field (SEL-001, SEL-005). If there are a ``name`` and
    a field selector, raise a 400 also if the field selector does not require this name.
    """
    if not options.label_selector and not options.field_selector and not name:
        return EVERYTHING
    labels, fields = parsed(options)
    terms = _field_terms([(_field(served, field), operator, value) for field, operator, value in fields.terms])
    if name:
        if fields.terms and fields.exact("metadata.name") != name:
            raise status.bad_request("fieldSelector metadata.name doesn't match requested name")
        terms.append(_field_term(_NAME, "=", name))
    terms += _label_terms(labels.requirements)
    key = (options.label_selector, f"{options.field_selector}#{name}")
    namespace = fields.exact("metadata.namespace") or ""
    return Selection(_all(terms), name or fields.exact("metadata.name") or "", key, tuple(terms), namespace)


async def selected(served: ServedVersion, options: ListOptions, name: str) -> Selection:
    """Like ``select``, but parse long selectors in a thread."""
    if len(options.label_selector) + len(options.field_selector) <= limits.SELECTOR_INLINE:
        return select(served, options, name)
    return await asyncio.to_thread(select, served, options, name)


def parsed(options: ListOptions) -> tuple[LabelSelector, FieldSelector]:
    """Return the label selector and the field selector; raise a 400 if one is invalid."""
    try:
        return LabelSelector.parse(options.label_selector), FieldSelector.parse(options.field_selector)
    except SelectorError as error:
        raise status.bad_request(str(error)) from error


def by_name(selection: Selection) -> tuple[Term, ...]:
    """Return the terms on names and namespaces.

    The name and namespace are equal in all versions and revisions of an object.
    """
    return tuple(term for term in selection.terms if term.dimension in (_NAME, _NAMESPACE))


def _narrowest(terms: Iterable[Term]) -> Term | None:
    return min(
        (term for term in terms if term.values is not None),
        key=lambda term: (term.dimension != _NAME, len(term.values or ())),
        default=None,
    )


def _all(terms: list[Term]) -> Predicate | None:
    if not terms:
        return None
    if len(terms) == 1:
        return terms[0].matches
    return lambda entry: all(term.matches(entry) for term in terms)


def _field_terms(asked: Sequence[tuple[Dimension, str, str]]) -> list[Term]:
    """Return the terms of a field selector.

    If there are more than limits.TERMS_APART terms, all ``!=`` values of a field become one term.
    """
    if len(asked) <= limits.TERMS_APART:
        return [_field_term(*one) for one in asked]
    unwanted: dict[Dimension, set[str | None]] = {}
    for dimension, operator, value in asked:
        if operator == "!=":
            unwanted.setdefault(dimension, set()).add(value)
    found = [_field_term(*one) for one in dict.fromkeys(asked) if one[1] != "!="]
    return found + [Term(dimension, _outside(values), None, values) for dimension, values in unwanted.items()]


def _outside(values: Set[str | None]) -> Callable[[str | None], bool]:
    return lambda found: found not in values


def _field_term(dimension: Dimension, operator: str, value: str) -> Term:
    if operator == "!=":
        return Term(dimension, lambda found: found != value, None, frozenset((value,)))
    return Term(dimension, lambda found: found == value, frozenset((value,)))


def _label_terms(requirements: Sequence[Requirement]) -> list[Term]:
    """Return the terms of a label selector.

    More than limits.TERMS_APART terms are merged, since each object is tested with all terms.
    """
    if len(requirements) <= limits.TERMS_APART:
        return [*map(_label_term, requirements)]
    values: dict[tuple[str, str], set[str]] = {}  # (operator, key) → values
    for one in requirements:
        place = (one.operator, one.key)
        if one.operator == "in" and place in values:
            values[place].intersection_update(one.values)
        else:
            values.setdefault(place, set()).update(one.values)
    found = [_label_term(one) for one in _tightest(values)]
    present = frozenset(key for operator, key in values if operator == "exists")
    absent = frozenset(key for operator, key in values if operator == "!")
    unwanted = {key: frozenset(given) for (operator, key), given in values.items() if operator == "notin"}
    dimension = Dimension(("labels", present, absent, frozenset(unwanted.items())), _Labels(present, absent, unwanted))
    return [*found, Term(dimension, lambda found: found is not None)]


def _tightest(values: Mapping[tuple[str, str], Set[str]]) -> Iterable[Requirement]:
    """Yield the narrowest requirement for each label and each of the operators in, gt and lt."""
    for (operator, key), given in values.items():
        if operator == "in":
            yield Requirement(key, "in", tuple(given))
        elif operator == "gt":
            yield Requirement(key, "gt", (max(given, key=int),))
        elif operator == "lt":
            yield Requirement(key, "lt", (min(given, key=int),))


class _Labels(Struct, frozen=True):
    """Tests the labels of an entry; returns a string if all conditions hold, else None.

    The labels must have all keys in ``present``, and no key in ``absent``. ``unwanted`` is key → values that the label
    must not have.
    """

    present: Set[str]
    absent: Set[str]
    unwanted: Mapping[str, Set[str]]

    def __call__(self, entry: Entry) -> str | None:
        labels = entry.labels
        if not self.present <= labels.keys() or not self.absent.isdisjoint(labels):
            return None
        unwanted = self.unwanted
        return None if unwanted and any(value in unwanted.get(key, ()) for key, value in labels.items()) else ""


_ABSENT = frozenset((None,))


@lru_cache(meta_limits.SELECTORS_SEEN)
def _label(key: str) -> Dimension:
    return Dimension(("label", key), lambda entry: entry.labels.get(key), key)


def _label_term(requirement: Requirement) -> Term:
    dimension, values = _label(requirement.key), frozenset(requirement.values)
    if requirement.operator == "in":
        return Term(dimension, values.__contains__, values)
    if requirement.operator == "notin":
        return Term(dimension, lambda found: found not in values, None, values)
    return Term(dimension, requirement.accepts, None, _ABSENT if requirement.operator == "exists" else None)


# --- fields ---

_FIELDS: WeakKeyDictionary[ServedVersion, dict[str, Dimension]] = WeakKeyDictionary()


def _field(served: ServedVersion, field: str) -> Dimension:
    if field == "metadata.name":
        return _NAME
    published = served.published
    # upstream: a cluster-scoped kind has metadata.namespace only if it is built in and selects no fields of its own
    plain = served.model.typed and published.selectable.keys() <= _METADATA
    if field == "metadata.namespace" and (field in published.selectable or plain):
        return _NAMESPACE
    selectable = published.selectable.get(field)
    if selectable is not None:
        known = _FIELDS.get(served)
        if known is None:
            known = _FIELDS[served] = {}
        if field not in known:  # one reader for all requests, so that they share its cache
            known[field] = Dimension((served.codec.view, field), FieldReader(served.codec.decode, selectable))
        return known[field]
    if plain:
        only = '"metadata.name", "metadata.namespace"'
        raise status.bad_request(f"{go_quote(field)} is not a known field selector: only {only}")
    raise status.bad_request(published.unselectable.format(label=field, quoted=go_quote(field)))


_METADATA = frozenset(("metadata.name", "metadata.namespace"))


class FieldReader:
    """Reads one field of entries in one version; caches the last limits.FIELD_VALUES values."""

    __slots__ = ("_decode", "_known", "_value")

    def __init__(self, decode: Callable[[bytes, int], Document], value: Callable[[View], str]) -> None:
        self._decode = decode
        self._value = value
        self._known: dict[Entry, str] = {}

    def __call__(self, entry: Entry) -> str:
        """Return the value as a string, empty if the object does not have the field (SEL-001)."""
        known = self._known
        value = known.get(entry)
        if value is None:
            value = self._value(entry.decoded(self._decode))
            if len(known) >= limits.FIELD_VALUES:
                del known[next(iter(known))]
            known[entry] = value
        return value
