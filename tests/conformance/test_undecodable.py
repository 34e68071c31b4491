"""Stored objects that cannot be decoded: the error of each verb, and their deletion.

The tests also cover the other objects of the collection.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.support.processes import Etcd, Server, running_server

PREFIX = "/undecodable"
UNSAFE = "ignoreStoreReadErrorWithClusterBreakingPotential"
TABLE = read_yaml(Path(__file__).with_name("undecodable.yaml"))
ANYTHING = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
CORRUPT = "StorageError: corrupt object, Code: 7, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: {}"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def flags(own_etcd: Etcd) -> list[str]:
    return ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix={PREFIX}"]


@pytest.fixture(scope="module")
def undecodable(tmp_path_factory: pytest.TempPathFactory, flags: list[str]) -> Iterator[Server]:
    with running_server(flags, tmp_path_factory.mktemp("undecodable")) as server:
        yield server


@pytest.fixture
def api(undecodable: Server) -> Client:
    return Client(undecodable.url)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def put(etcd: Etcd, key: str, value: str) -> None:
    etcd.call("kv/put", {"key": encoded(key), "value": encoded(value)})


def create_undecodable_objects(api: Client, etcd: Etcd) -> Resource:
    """Return a resource with valid objects a, f and g, and undecodable objects b to e."""
    things = serve(api, "things", schema=ANYTHING)
    made = {name: things.create(name) for name in "abcdefg"}
    cut = json.dumps(made["e"], separators=(",", ":"))[:-9]
    values = {"b": "no json", "c": "\\x00\\x01", "d": '{"a":1}', "e": cut}
    for name, value in values.items():
        put(etcd, key_of(things, name), value)
    until(lambda: api.get(things.path("e")).status == 500, "the server has seen the values", within=10)
    return things


def key_of(things: Resource, name: str) -> str:
    return f"{PREFIX}/{things.group}/{things.plural}/default/{name}"


def send_step(api: Client, things: Resource, step: dict[str, Any]) -> Any:
    name, _, query = step["path"].partition("?")
    path = things.path(*([name] if name else [])) + (f"?{query.replace('unsafe', UNSAFE)}" if query else "")
    method, body = step.get("method", "GET"), step.get("body")
    if "options" in step:
        body = {UNSAFE if key == "unsafe" else key: value for key, value in step["options"].items()}
    elif body is None and method in {"PUT", "POST", "PATCH"}:
        body = things.make(name or "b")
    headers = {"Content-Type": step.get("type", "application/json")} if body is not None else {}
    return api.request(method, path, json.dumps(body).encode() if body is not None else None, headers)


@pytest.mark.rows("RV-020", "ETC-006")
def test_each_verb_returns_upstream_errors(api: Client, own_etcd: Etcd) -> None:
    things = create_undecodable_objects(api, own_etcd)
    for step in TABLE["steps"]:
        answer = send_step(api, things, step)
        found = json.loads(re.sub(r"revision=\d+", "revision=R", answer.text))
        about = (step["name"], answer.status, found)
        if "items" in step:
            assert [it["metadata"]["name"] for it in found["items"]] == step["items"], about
            assert found["metadata"].get("remainingItemCount") == step.get("remaining"), about
        elif "deleted" in step:
            assert (answer.status, found["status"], found["code"]) == (200, "Success", 200), about
            assert found["details"] == {"name": step["deleted"], "kind": things.kind}, about
        elif "of_one" in step:
            place = key_of(things, step["of_one"]).removeprefix(PREFIX)
            text = CORRUPT.format(place, TABLE["faults"][step["of_one"]])
            assert (answer.status, found["reason"]) == (500, "InternalError"), about
            assert found["message"] == f"Internal error occurred: {text}", about
            assert found["details"] == {"causes": [{"message": text}]}, about
        elif "of_update" in step:
            assert (answer.status, found["message"]) == (500, TABLE["faults"][step["of_update"]]), about
            assert found.keys().isdisjoint(("reason", "details")), about
        elif "of_list" in step:
            check_list(things, step["of_list"], found, about)
        else:
            assert answer.status == step.get("status", 200), about
            text = step.get("message", "").replace("KEY", key_of(things, "a")).replace("GROUP", things.group)
            assert text in found.get("message", ""), about


def check_list(things: Resource, names: list[str], found: Any, about: object) -> None:
    keys = {name: key_of(things, name) for name in names}
    texts = {name: CORRUPT.format(key, TABLE["faults"][name]) for name, key in keys.items()}
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    resource = f"{things.plural}.{things.group}"
    message = f"failed to read one or more {resource} from the storage: {texts[names[0]]}{more}"
    assert (found["code"], found["reason"], found["message"]) == (500, "StorageReadError", message), about
    assert found["details"] == {
        "name": "list",
        "group": things.group,
        "kind": things.plural,
        "causes": [
            {"reason": "UnexpectedServerResponse", "message": texts[name], "field": keys[name]} for name in names
        ],
    }, about


@pytest.mark.rows("RV-020", "ETC-006")
def test_watch_delivers_events_beside_undecodable_objects(api: Client, own_etcd: Etcd) -> None:
    things = create_undecodable_objects(api, own_etcd)
    with api.watch(things.path(), resourceVersion="0") as watch:
        seen = [watch.next("ADDED")["object"]["metadata"]["name"] for _ in "abcdefg"]
        assert seen == list("abcdefg")  # for b to e the last readable state
        api.patch(things.path("a"), {"spec": {"n": 1}}).expect(200)
        assert watch.next("MODIFIED")["object"]["metadata"]["name"] == "a"
        api.delete(things.path("b"), **{UNSAFE: "true"}).expect(200)
        assert watch.next("DELETED")["object"]["metadata"]["name"] == "b"
    with api.watch(things.path()) as watch:
        ended = watch.next("ERROR")["object"]
        assert (ended["code"], ended["reason"]) == (500, "StorageReadError")


@pytest.mark.rows("RV-020", "ETC-006")
def test_definition_is_deleted_after_its_undecodable_objects(
    own_etcd: Etcd, undecodable: Server, flags: list[str], tmp_path: Path
) -> None:
    things = create_undecodable_objects(Client(undecodable.url), own_etcd)
    with running_server(flags, tmp_path) as server:  # this server has never read a valid state of b to e
        api = Client(server.url)
        listed = api.get(things.path(), resourceVersion="0").expect(500)
        assert listed["reason"] == "StorageReadError", "nothing is left out of a list without a word"
        name = f"{DEFINITIONS}/{things.plural}.{things.group}"
        api.delete(name).expect(200)
        for one in "bcde":
            assert api.get(name).status == 200
            api.delete(things.path(one), **{UNSAFE: "true"}).expect(200)
            assert f"{key_of(things, one)} at revision" in server.log_tail()
        until(lambda: api.get(name).status == 404, "the definition is gone", within=30)
