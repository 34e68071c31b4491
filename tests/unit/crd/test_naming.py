"""The accepted names of a definition, given the other definitions of its group."""

from __future__ import annotations

import time
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, load
from apiext.conformance.support.waiting import prompt
from apiext.crd.conditions import find, is_true, same_condition, with_condition, with_status, without_condition
from apiext.crd.definition import CustomResourceDefinition, Names, from_document, names_of
from apiext.crd.naming import NameIndex, Naming, decide_names

pytestmark = pytest.mark.rows("CND-001", "CND-002", "CND-003", "CND-004")


def _names(text: str) -> dict[str, Any]:
    """Return names from ``plural singular short+short Kind ListKind``.

    A dash means that the name is missing.
    """
    plural, singular, short, kind, list_kind = ["" if name == "-" else name for name in text.split()]
    names = {"plural": plural, "singular": singular, "kind": kind, "listKind": list_kind}
    return names | ({"shortNames": short.split("+")} if short else {})


def _definition(requested: str, accepted: str, conditions: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{requested.split(maxsplit=1)[0]}.example.com"},
        "spec": {"group": "example.com", "names": _names(requested)},
        "status": {"acceptedNames": _names(accepted), "conditions": conditions or []},
    }


_NONE = "- - - - -"


def _decide(asking: CustomResourceDefinition, group: list[CustomResourceDefinition]) -> Naming:
    """Return the accepted names of a definition.

    ``group`` contains all definitions of its group.
    """
    index = NameIndex()
    for number, definition in enumerate(group):
        index.put(str(number), "example.com", definition)
    return decide_names(asking, index.taken("example.com"))


@pytest.mark.parametrize("case", load(__file__, "naming"), ids=case_name)
def test_accepted_names_and_conditions_are_decided(case: Case) -> None:
    established = {"type": "Established", **case.established} if case.established else None
    asking = _definition(case.asks, case.has or _NONE, [established] if established else None)
    group = [_definition(names, names) for names in case.others or ()]
    definitions = [from_document(document) for document in (*group, asking)]
    naming = _decide(definitions[-1], definitions)
    assert naming.accepted == names_of(_names(case.gets))
    assert [naming.names_condition[key] for key in ("status", "reason", "message")] == case.names
    assert [naming.established_condition[key] for key in ("status", "reason", "message")] == case.then


def test_categories_never_conflict() -> None:
    one = _definition("a a - A AList", "a a - A AList")
    two = _definition("b b - B BList", _NONE)
    one["status"]["acceptedNames"]["categories"] = ["all"]
    two["spec"]["names"]["categories"] = ["all"]
    definitions = [from_document(one), from_document(two)]
    naming = _decide(definitions[1], definitions)
    assert naming.accepted.categories == ("all",)
    assert naming.names_condition["status"] == "True"


def test_short_names_are_compared_in_linear_time() -> None:
    document = _definition("a a - A AList", "a a - A AList")
    for place, last in ((document["spec"]["names"], ["more"]), (document["status"]["acceptedNames"], [])):
        place["shortNames"] = [*(f"s{number}" for number in range(30_000)), *last]
    asking = from_document(document)
    began = time.process_time()
    naming = _decide(asking, [asking])
    prompt(time.process_time() - began, 0.5)  # a linear search for each name takes ten times as long
    assert naming.accepted.short_names[-1] == "more"


@pytest.mark.parametrize("wrong", [1, True, ["a"], {}, [], [1]], ids=str)
@pytest.mark.parametrize("place", ["kind", "plural", "singular", "listKind"])
def test_name_of_wrong_type_raises_type_error(place: str, wrong: Any) -> None:
    for part in ("acceptedNames", "names"):
        document = _definition("a a - A AList", "a a - A AList")
        (document["spec"] if part == "names" else document["status"])[part][place] = wrong
        with pytest.raises(TypeError, match=" in the place of a text"):
            from_document(document)


@pytest.mark.parametrize("wrong", [{"shortNames": 1}, {"shortNames": "ab"}, {"categories": [1]}, [], 1, "x"], ids=str)
def test_name_lists_of_wrong_type_raise_type_error(wrong: Any) -> None:
    document = _definition("a a - A AList", "a a - A AList")
    document["spec"]["names"] = {**document["spec"]["names"], **wrong} if isinstance(wrong, dict) else wrong
    with pytest.raises(TypeError, match=" in the place of "):
        from_document(document)


def test_names_that_are_null_are_absent() -> None:
    nulls = {"plural": None, "singular": None, "kind": None, "listKind": None, "categories": None, "shortNames": [None]}
    assert names_of(nulls) == Names(short_names=("",))
    assert names_of(None) == Names()


def test_accepted_names_omit_empty_fields_in_status() -> None:
    assert names_of(_names("things - - - ThingList")).document() == {
        "plural": "things",
        "kind": "",
        "listKind": "ThingList",
    }


@pytest.mark.rows("CND-010")
def test_condition_update_keeps_order_and_transition_time() -> None:
    first = with_condition(None, {"type": "A", "status": "False", "reason": "x", "message": ""}, "t1")
    both = with_condition(first, {"type": "B", "status": "True", "reason": "y", "message": ""}, "t2")
    same = with_condition(both, {"type": "A", "status": "False", "reason": "z", "message": "m"}, "t3")
    assert same[0] == {"type": "A", "status": "False", "reason": "z", "message": "m", "lastTransitionTime": "t1"}
    turned = with_condition(same, {"type": "A", "status": "True", "reason": "z", "message": "m"}, "t4")
    assert [(item["type"], item["lastTransitionTime"]) for item in turned] == [("A", "t4"), ("B", "t2")]
    assert without_condition(turned, "A") == [turned[1]]
    assert find(turned, "C") is None
    document = with_status({"metadata": {}}, conditions=turned)
    assert is_true(document, "A")
    assert not is_true(document, "C")
    assert same_condition(turned[0], {"type": "A", "status": "True", "reason": "z", "message": "m"})
    assert not same_condition(turned[0], {"type": "A", "status": "True", "reason": "z", "message": "n"})
    assert not same_condition(None, turned[0])
