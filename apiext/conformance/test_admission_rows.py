"""Admission plug-ins of built-in kinds: a table of kube-apiserver's answers.

Each case uses its own namespace.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, read
from apiext.conformance.support.http_client import MERGE, Client
from apiext.conformance.test_builtin_kinds import at

ROWS = [Case(row) for row in read(Path(__file__).with_name("admission_rows.yaml"))]
NAMESPACES = "/api/v1/namespaces"


def prepared(api: Client, case: dict[str, Any]) -> str:
    """Return the name of a new namespace with the labels and objects of a case.

    The namespace also has a default service account.
    """
    name = f"a-{secrets.token_hex(4)}"
    api.post(NAMESPACES, {"metadata": {"name": name, "labels": case.get("labels") or {}}}).expect(201)
    account = api.post(f"{NAMESPACES}/{name}/serviceaccounts", {"metadata": {"name": "default"}})
    assert account.status in (201, 409), account.text
    for path, body in (case.get("objects") or {}).items():
        for one in body:
            api.post(path.format(ns=name), one).expect(201)
    return name


def taken(api: Client, namespace: str, step: dict[str, Any]) -> dict[str, Any]:
    """Send the request of a step; return its answer in the form of a row."""
    method = next(way for way in ("post", "patch", "delete") if way in step)
    path = step[method].format(ns=namespace)
    if method == "post":
        answer = api.post(path, step["body"])
    else:
        answer = api.patch(path, step["body"], step.get("kind", MERGE)) if method == "patch" else api.delete(path)
    found: dict[str, Any] = {"code": answer.status}
    if answer.status >= 400:
        found["message"] = answer.json["message"].replace(namespace, "NAMESPACE")
    if answer.warnings:
        found["warnings"] = [
            json.loads(text.partition(" - ")[2]).replace(namespace, "NAMESPACE") for text in answer.warnings
        ]
    if step.get("shows") and answer.status < 400:
        found["shows"] = {path: at(answer.json, path) for path in step["shows"]}
    return found


@pytest.mark.parametrize("case", ROWS, ids=case_name)
def test_rows(api: Client, case: Case) -> None:
    namespace = prepared(api, case)
    try:
        for step in case["steps"]:
            wanted = {key: step[key] for key in ("code", "message", "warnings", "shows") if key in step}
            assert taken(api, namespace, step) == wanted, step
    finally:
        api.delete(f"{NAMESPACES}/{namespace}")
