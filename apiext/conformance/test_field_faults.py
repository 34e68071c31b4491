"""An object of each kind with one invalid field gets the error of kube-apiserver.

``field_faults.yaml`` has the answers of kube-apiserver, ``full_objects.yaml`` has the objects.
``tests/reference/faults.py`` writes ``field_faults.yaml``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.http_client import Client

HERE = Path(__file__)
SAMPLES: list[dict[str, Any]] = read_yaml(HERE.with_name("full_objects.yaml"))
KINDS: list[dict[str, Any]] = read_yaml(HERE.with_name("field_faults.yaml"))
NEEDED: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {"metadata": {"name": "r"}, "handler": "h", "overhead": {"podFixed": {"cpu": "10m"}}},
    ),
    ("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "sa"}}),
)


@pytest.fixture(autouse=True)
def named_by_pods(api: Client) -> Iterator[None]:
    """Create the stored objects to which full pods refer."""
    for path, body in NEEDED:
        api.post(path, body)
    yield
    for path, body in NEEDED:
        api.delete(f"{path}/{body['metadata']['name']}")


def broken(sample: Mapping[str, Any], row: Mapping[str, Any]) -> Any:
    """Return a copy of an object with the value of a row at the row's path, ``at``.

    A row is an item of ``faults`` in field_faults.yaml. A row without a value removes the field.
    """
    body = json.loads(json.dumps(sample["body"]))
    body["metadata"] = {**body.get("metadata", {}), "name": sample.get("name", "broken")}
    *steps, last = (int(step) if step.isdecimal() else step for step in row["at"].split("/"))
    holder = body
    for step in steps:
        holder = holder[step]
    if "value" in row:
        holder[last] = row["value"]
    else:
        del holder[last]
    return body


@pytest.mark.rows("DIS-102")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind['path'].rpartition('/')[2]}-{kind['sample']}")
def test_a_broken_field(api: Client, kind: dict[str, Any]) -> None:
    different = []
    for row in kind["faults"]:
        answer = api.post(f"{kind['path']}?dryRun=All", broken(SAMPLES[kind["sample"]], row))
        found = [answer.status]
        if answer.status == 422:
            cause = answer.json["details"]["causes"][0]
            found += [cause["field"], *([cause["message"]] if "says" in row else [])]
        wanted = [row.get("code", 422), *(row[name] for name in ("field", "says") if name in row)]
        if found != wanted:
            different.append((row["at"], row.get("value"), wanted, found))
    assert not different
