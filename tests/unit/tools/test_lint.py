"""Errors of definitions, checked without a server, and their output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apiext.tools import lint

GOOD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: foos, kind: Foo}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
"""
TWICE = GOOD + "          type: object\n"
UNKNOWN = GOOD + "          readOnly: true\n"
WRONG = GOOD.replace("type: object", "type: objct")
OLD = """\
apiVersion: apiextensions.k8s.io/v1beta1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec: {group: example.com, version: v1, names: {plural: foos, kind: Foo}}
"""


def lint_texts(text: str, mode: str = "Warn") -> list[str]:
    return [str(found) for found in lint.lint("f", text.encode(), mode)]


@pytest.mark.rows("CRD-009", "WRI-013", "SCH-002")
def test_lint_errors_and_warnings_have_line_numbers() -> None:
    assert lint_texts(GOOD) == ["foos.example.com"]
    assert lint_texts(WRONG) == [
        'f:14: error: spec.validation.openAPIV3Schema.type: Invalid value: "objct": must be object at the root',
        'f:14: error: spec.validation.openAPIV3Schema.type: Unsupported value: "objct": supported values: "array", '
        '"boolean", "integer", "number", "object", "string"',
    ]
    unknown = 'unknown field "spec.versions[0].schema.openAPIV3Schema.readOnly"'
    assert lint_texts(UNKNOWN) == [f"f:15: warning: {unknown}", "foos.example.com"]
    assert lint_texts(UNKNOWN, "Ignore") == ["foos.example.com"]
    cannot = 'CustomResourceDefinition in version "v1" cannot be handled as a CustomResourceDefinition'
    assert lint_texts(UNKNOWN, "Strict") == [f"f:15: error: {cannot}: strict decoding error: {unknown}"]
    [twice, _] = lint_texts(TWICE)
    assert twice == 'f:1: warning: yaml: unmarshal errors:\n  line 15: key "type" already set in map'
    assert lint_texts("a: [") == ["f:1: error: yaml: line 1: did not find expected node content"]
    [decoding] = lint_texts(GOOD.replace("group: example.com", "group: 3"))
    assert decoding.startswith(f"f:1: error: {cannot}: json: cannot unmarshal number into Go struct field ")


@pytest.mark.rows("B1-005", "B1-004")
def test_lint_warns_of_v1beta1_and_refuses_unknown_versions() -> None:
    [warned, name] = lint_texts(OLD)
    assert warned.startswith("f:1: warning: apiextensions.k8s.io/v1beta1 CustomResourceDefinition is deprecated")
    assert name == "foos.example.com"
    other = OLD.replace("v1beta1", "v2")
    assert lint_texts(other) == [
        'f:1: error: no matches for kind "CustomResourceDefinition" in version "apiextensions.k8s.io/v2"'
    ]


def test_lint_checks_all_documents_and_list_items() -> None:
    text = f"kind: ConfigMap\n---\n{WRONG}---\n{GOOD}"
    assert [one.split(":")[:2] for one in lint_texts(text)] == [["f", "16"], ["f", "16"], ["foos.example.com"]]
    item = "\n".join(f"  {line}" if line else "" for line in WRONG.splitlines())
    listed = "kind: List\napiVersion: v1\nitems:\n-\n" + item
    assert lint_texts(listed)[0].startswith("f:18: error: spec.validation.openAPIV3Schema.type")
    assert lint_texts("- a\n") == lint_texts("5\n") == lint_texts("kind: List\nitems: [5]\n") == lint_texts("") == []
    wrong = "json: cannot unmarshal {} into Go struct field decodeList.items of type []json.RawMessage"
    assert lint_texts("kind: List\nitems: 5\n") == [f"f:2: error: items: {wrong.format('number')}"]
    assert lint_texts("kind: CustomResourceDefinitionList\nitems: {}\n") == [
        f"f:2: error: items: {wrong.format('object')}"
    ]
    assert lint_texts("kind: List\nitems: null\n") == []
    as_json = json.dumps({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"})
    assert lint_texts(as_json)[0].startswith(
        "f:1: error: metadata.name: Required value: name or generateName is required"
    )


def test_lint_reads_crlf_files_and_yaml_flow_mappings() -> None:
    found = lint_texts(f"{GOOD}---\n{WRONG}".replace("\n", "\r\n"))
    assert [one.split(" ")[0] for one in found] == ["foos.example.com", "f:29:", "f:29:"]
    flow = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: 2024-01-01}}"
    assert lint_texts(flow)[0].startswith(
        'f:1: error: metadata.name: Invalid value: "2024-01-01": must be spec.names.plural'
    )
    assert lint_texts('{"kind": 1}}') == ["f:1: error: invalid character '}' after top-level value"]


def test_lint_command_output_and_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, wrong, other = tmp_path / "good.yaml", tmp_path / "wrong.yaml", tmp_path / "other.yaml"
    good.write_text(GOOD)
    wrong.write_text(WRONG)
    other.write_text("kind: ConfigMap\n")
    assert lint.run(["lint", str(good)]) == 0
    assert capsys.readouterr().out == f"{good}: foos.example.com is valid\n"
    assert lint.run(["lint", "--quiet", str(good)]) == 0
    assert capsys.readouterr().out == ""
    assert lint.run(["lint", str(good), str(wrong), "-o", "json"]) == 1
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first == {
        "file": str(wrong),
        "line": 14,
        "severity": "error",
        "name": "foos.example.com",
        "field": "spec.validation.openAPIV3Schema.type",
        "message": first["message"],
    }
    assert lint.run(["lint", str(other), str(good)]) == 0
    assert capsys.readouterr().err == f"apiext: {other} contains no CustomResourceDefinition\n"
    for more in ([], ["--quiet"], [str(other)], ["-o", "json"]):
        assert lint.run(["lint", str(other), *more]) == 1, "nothing was judged"
        assert "no CustomResourceDefinition" in capsys.readouterr().err
    assert lint.run(["lint", str(tmp_path / "missing.yaml")]) == 1
    assert "No such file" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        lint.run([])
    assert ended.value.code == 2


def test_lint_expands_directories_and_patterns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "good.yml").write_text(GOOD)
    (tmp_path / "a" / "kustomization.yaml").write_text("resources: [good.yml]")
    (tmp_path / "a" / "notes.txt").write_text("no: [yaml")
    monkeypatch.chdir(tmp_path)
    for given in ("a", "a/**/*.yml", "a/b/*"):
        assert lint.run(["lint", given]) == 0, given
        told = capsys.readouterr()
        assert told.out == f"{Path('a', 'b', 'good.yml')}: foos.example.com is valid\n"
    assert lint.run(["lint", "a/*.none"]) == 1
    assert "a/*.none: No such file or directory" in capsys.readouterr().err
