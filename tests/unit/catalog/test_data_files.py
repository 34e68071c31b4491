"""scripts/gen-proto reports errors in the data files of built-in kinds.

A report names the file and the type. If there are errors, the script writes no file.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from apiext.go_types import compiling

ROOT = Path(__file__).parents[3]
META = compiling.read_tables()["meta"]
CORRECT = """
uses: [meta]
RankClass:
  doc: RankClass ranks things.
  kind:
    group: ranking.k8s.io
    version: v1
    resource: rankclasses
    namespaced: false
    rules:
      - {path: metadata.name, required: true}
      - {path: spec.rank, min: 0}
      - {path: "spec.parts[].labels{}", format: dns1123_label}
      - {path: "spec.parts[]", type: Part}
  required: [metadata, spec]
  fields:
    spec: RankSpec = 2 | The wanted state.
RankSpec:
  required: [rank]
  fields:
    Base: Base& = 1
    rank: Rank! = 2 | The rank.
    parts: Part[] = 3 | The parts.
  lists: {parts: {keys: [name], merge: name}}
  defaults: {rank: 1, size: 2}
Base:
  fields:
    size: int32? = 1 | The size.
Part:
  rules: [{path: name, required: true}]
  fields:
    name: string = 1 | The name.
    labels: string{} = 2 | Labels.
  zero: [name]
Rank: int32
"""


def tables(text: str) -> dict[str, Any]:
    return {"meta": META, "ranking": yaml.safe_load(text)}


def test_a_correct_file_has_no_errors() -> None:
    types = compiling.check(tables(CORRECT))
    assert types["ranking"].row("RankSpec")["fields"].keys() == {"size", "rank", "parts"}


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("uses: [meta]", "uses: [mets]", "uses: there is no file types/mets.yaml"),
        ("  zero: [name]", "  zeros: [name]", "Part: unknown key zeros; there are atomic, defaults, doc, fields, fill"),
        ("  zero: [name]", "  fill: no_such", "Part: apiext/go_types/filling.py has no function no_such"),
        ("  zero: [name]", "  zero: [nam]", "Part: zero: there is no field nam"),
        ("spec: RankSpec =", "spec: RankSpek =", "RankClass: spec: there is no type RankSpek in this file or its `us"),
        ("parts: Part[] =", "parts: Prat[] =", "RankSpec: parts: there is no type Prat"),
        ("Base: Base& =", "Base: Rank& =", "RankSpec: Base: there is no struct Rank"),
        ("Rank: int32", "Rank: int23", "Rank: there is no type int23"),
        ("Rank: int32", "Rank: {doc: x}", "Rank: a type is the name of a scalar, or has `fields`"),
        ("string = 1", "string = one", "Part: name: 'string = one | The name.' is no field: <type><flags> = <number>"),
        ("RankSpec = 2", "RankSpec = 1", "RankClass: spec: metadata has the number 1"),
        ("Part[] = 3", "Part[] = 2", "RankSpec: parts: rank has the number 2"),
        ("required: [rank]", "required: [rnk]", "RankSpec: required: there is no field rnk"),
        ("lists: {parts:", "lists: {part:", "RankSpec: lists: there is no field part"),
        ("keys: [name]", "keys: [nam]", "RankSpec: lists of parts: Part has no field nam"),
        ("keys: [name]", "key: [name]", "RankSpec: lists of parts: unknown key key; there are atomic, granular, keys"),
        ("size: 2}", "sice: 2}", "RankSpec: defaults: there is no field sice"),
        ("path: spec.rank", "path: spec.rnk", "RankClass: rule of spec.rnk: RankSpec has no field rnk"),
        ("path: spec.rank", "path: spec.rank.x", "RankClass: rule of spec.rank.x: int32 has no field x"),
        (
            "path: spec.rank",
            'path: "spec.rank[]"',
            "RankClass: rule of spec.rank[]: the type of rank is int32, not a list",
        ),
        ("metadata.name", "metadata.nam", "RankClass: rule of metadata.nam: metadata has no field nam"),
        ("type: Part}", "type: Base}", "RankClass: rule of spec.parts[]: the type Base has no rules"),
        (
            "dns1123_label",
            "dns_label",
            "rule of spec.parts[].labels{}: apiext/meta/syntax.py has no function dns_label",
        ),
        ("[{path: name,", "[{paths: name,", "Part: the rule {'paths': 'name', 'required': True} has no path"),
    ],
)
def test_errors_name_file_and_type(before: str, after: str, error: str) -> None:
    assert CORRECT.count(before) == 1
    with pytest.raises(ValueError, match=re.escape(error)) as raised:
        compiling.check(tables(CORRECT.replace(before, after)))
    (line,) = str(raised.value).splitlines()
    assert line.startswith("types/ranking.yaml: ")


def test_all_errors_are_reported_at_once() -> None:
    text = CORRECT.replace("RankSpec = 2", "RankSpec = 1").replace("Rank: int32", "Rank: int23")
    with pytest.raises(ValueError, match="number 1") as raised:
        compiling.check(tables(text))
    assert len(str(raised.value).splitlines()) == 2


def test_an_unknown_key_of_a_row_is_reported_with_file_and_kind() -> None:
    text = CORRECT.replace("namespaced: false", "namespaced: false\n    upsert: true")
    error = "^types/ranking.yaml: RankClass: Object contains unknown field `upsert`"
    with pytest.raises(ValueError, match=error):
        compiling.compiled(tables(text))


def gen_proto() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_proto", ROOT / "scripts" / "gen_proto.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("Part[] = 3", "Part[] = 2", "types/ranking.yaml: RankSpec: parts: rank has the number 2"),
        ("Part[] = 3", "Part[] = 19000", "k8s.proto does not compile"),  # a reserved number: only protoc finds this
    ],
)
def test_an_error_changes_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: str, after: str, error: str
) -> None:
    script = gen_proto()
    all_tables = {**compiling.read_tables(), "ranking": yaml.safe_load(CORRECT.replace(before, after))}
    monkeypatch.setattr(compiling, "read_tables", lambda: all_tables)
    (tmp_path / "proto").symlink_to(ROOT / "proto")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    with pytest.raises(SystemExit) as raised:
        script.main(check=False)
    assert raised.value.code == error
    assert [path.name for path in tmp_path.iterdir()] == ["proto"]
