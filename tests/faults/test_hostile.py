"""A hostile client: the cost to other clients of one request or one connection.

The request has an allowed size.
"""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from apiext.conformance.support.definitions import Resource, definition, serve
from apiext.conformance.support.http_client import APPLY, DEFINITIONS, TABLE, Client
from apiext.conformance.support.waiting import busy, pause, prompt, until
from tests.support.processes import Server, running_server
from tests.support.strain import memory, slowness, spent

STRATEGIC = "application/strategic-merge-patch+json"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "card": {"type": "string", "format": "creditcard"},
                "host": {"type": "string", "format": "hostname"},
                "time": {"type": "string", "format": "duration"},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "objects": {
                    "type": "object",
                    "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}},
                },
                "lists": {
                    "type": "object",
                    "additionalProperties": {"type": "array", "items": {"type": "string"}},
                },
            },
        }
    },
}
Send = Callable[[Client, Resource], int]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for these tests only, since other tests would be delayed."""
    with running_server(["--insecure", "--port=0"], tmp_path_factory.mktemp("hostile")) as started:
        yield started


@pytest.fixture(scope="module")
def widgets(server: Server) -> Resource:
    """A custom resource with fields that are expensive to validate, and some objects."""
    found = serve(Client(server.url), schema={"openAPIV3Schema": SCHEMA})
    for number in range(600):
        body = found.make(f"w{number}")
        body["metadata"]["labels"] = {"n": str(number)}
        found.api.post(found.path(), body).expect(201)
    return found


def dry_run_create(body: Callable[[Resource], dict[str, Any]]) -> Send:
    """Return a function that creates an object as a dry run."""
    return lambda api, widgets: api.post(widgets.path(), body(widgets), dryRun="All").status


def list_widgets(query: str) -> Send:
    """Return a function that lists the widgets."""
    return lambda api, widgets: api.get(f"{widgets.path()}?{query}").status


def dry_run_definition(schema: dict[str, Any], versions: int = 1) -> Send:
    """Return a function that creates a definition as a dry run."""

    def send(api: Client, _: Resource) -> int:
        body = definition("hostile.example.com", schema={"openAPIV3Schema": schema})
        body["spec"]["versions"] *= versions
        return api.post(DEFINITIONS, body, dryRun="All").status

    return send


def patch_retained_keys(api: Client, _: Resource) -> int:
    """Patch a map with many keys, all of which are retained."""
    keys = {f"k{number}": "v" for number in range(20_000)}
    api.post(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": keys})
    return api.patch(f"{CONFIG_MAPS}/large", {"data": {"$retainKeys": [*keys], **keys}}, STRATEGIC).status


def apply_wrong_types(api: Client, widgets: Resource) -> int:
    """Apply many items of a wrong type below a long name."""
    body = widgets.make("a", lists={LONG: [1] * 5_000})
    return api.patch(widgets.path("a"), body, APPLY, fieldManager="m").status


def send_duplicate_field(api: Client, widgets: Resource) -> int:
    """Send a duplicate field, and many items in a field with a long name."""
    text = json.dumps(widgets.make("a", any={LONG * 10: [1] * 500_000})).replace('"kind"', '"kind":"x","kind"', 1)
    return api.post(f"{widgets.path()}?dryRun=All", text, {"Content-Type": "application/json"}).status


def service(**spec: Any) -> Send:
    """Return a function that creates a service as a dry run."""
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hostile"}, "spec": spec}
    return lambda api, _: api.post("/api/v1/namespaces/default/services", body, dryRun="All").status


def create_webhook(api: Client, _: Resource) -> int:
    """Create a webhook with many review versions, as a dry run."""
    hook = {"name": "a.b.c", "admissionReviewVersions": [f"v{number}" for number in range(60_000)]}
    body = {"apiVersion": f"{HOOKS}/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "a"}}
    path = f"/apis/{HOOKS}/v1/validatingwebhookconfigurations"
    return api.post(path, {**body, "webhooks": [hook]}, dryRun="All").status


LONG = "k" * 100_000  # a long field name
HOOKS = "admissionregistration.k8s.io"
PORTS = [{"name": f"p{number}", "port": number, "nodePort": number} for number in range(1, 50_000)]
KEYS = [f"k{number}" for number in range(30_000)]
COSTLY: dict[str, tuple[Send, int]] = {
    "wrong members": (dry_run_create(lambda it: it.make("a", map=dict.fromkeys(KEYS, 1))), 422),
    "card": (dry_run_create(lambda it: it.make("a", card="1h" * 1_400_000)), 422),
    "host": (dry_run_create(lambda it: it.make("a", host="a." * 1_400_000)), 422),
    "time": (dry_run_create(lambda it: it.make("a", time="1h" * 1_400_000)), 201),
    "labels not there": (list_widgets("labelSelector=" + ",".join(f"!k{number}" for number in range(8_000))), 200),
    "other labels": (list_widgets("labelSelector=" + ",".join(f"n!=x{number}" for number in range(6_000))), 200),
    "other fields": (
        list_widgets("fieldSelector=" + ",".join(f"metadata.name!=x{number}" for number in range(2_800))),
        200,
    ),
    "long timeout": (list_widgets("timeout=" + "1s" * 30_000), 200),
    "map keys": (
        dry_run_definition(
            {
                "type": "object",
                "properties": {
                    "spec": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": KEYS,
                        "items": {"type": "object", "properties": {"k1": {"type": "string"}}},
                    }
                },
            }
        ),
        422,
    ),
    "versions": (dry_run_definition({"type": "object"}, 15_000), 422),
    "retained": (patch_retained_keys, 200),
    "unknown below a long name": (
        dry_run_create(lambda it: it.make("a", objects={LONG: dict.fromkeys(KEYS[:3_000], 1)})),
        201,
    ),
    "wrong below a long name": (dry_run_create(lambda it: it.make("a", lists={LONG * 10: [""] * 400_000 + [1]})), 422),
    "applied below a long name": (apply_wrong_types, 400),
    "twice above a long name": (send_duplicate_field, 201),
    "enumeration of a long name": (
        dry_run_definition({"type": "object", "properties": {LONG: {"type": "integer", "enum": [0] * 5_000}}}),
        201,
    ),
    "keywords of a long name": (
        dry_run_definition(
            {"type": "object", "properties": {LONG: {"type": "string", **dict.fromkeys(KEYS[:3_000], 1)}}}
        ),
        201,
    ),
    "ports": (service(ports=[{"name": port["name"], "port": port["port"]} for port in PORTS]), 201),
    "ports of nodes": (service(type="NodePort", ports=PORTS), 201),
    "unnamed ports of nodes": (
        service(type="NodePort", ports=[{"name": port["name"], "port": port["port"]} for port in PORTS]),
        500,
    ),
    "families": (service(ipFamilies=["IPv4"] * 300_000), 422),
    "review versions": (create_webhook, 422),
}
"""Name → a request that had quadratic cost or blocked the interpreter, and its status code."""


@pytest.mark.parametrize("name", COSTLY)
def test_one_request_has_bounded_cpu_and_memory(server: Server, widgets: Resource, name: str) -> None:
    send, code = COSTLY[name]
    slow, _ = slowness()
    took, had = spent(server), memory(server, "VmHWM")
    assert send(widgets.api, widgets) == code
    took, grown = spent(server) - took, memory(server, "VmHWM") - had
    print(f"{took:.2f} s of CPU, {grown:.0f} MiB")
    prompt(took, 6.0 * max(slow, slowness()[0]), "CPU")
    assert grown < 250


def connected(server: Server) -> socket.socket:
    """Return a plain connection to the server."""
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname or "", parts.port or 80), timeout=60)


def longest_wait_of_others(server: Server, harm: Callable[[], object]) -> float:
    """Return the longest duration of a GET by another client during an attack."""
    over, waits = threading.Event(), [0.0]
    api = Client(server.url)

    def ask() -> None:
        while not over.is_set():
            began = time.monotonic()
            assert api.get("/readyz").status == 200
            waits.append(time.monotonic() - began)
            pause(0.002)

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        harm()
    finally:
        over.set()
        asker.join()
    return max(waits)


def pipeline_requests(server: Server, _: Resource) -> None:
    """Send thousands of pipelined requests that are cheap to answer."""
    request = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with connected(server) as line:
        sender = threading.Thread(target=line.sendall, args=(request * 12_000 + last,))
        sender.start()
        received = 0
        while piece := line.recv(1 << 20):
            received += piece.count(b"HTTP/1.1 200 OK")
        sender.join()
    assert received == 12_001


def apply_many_fields(_: Server, widgets: Resource) -> None:
    """Apply many fields to a missing object."""
    body = widgets.make("applied", any={f"k{number}": 1 for number in range(120_000)})
    widgets.api.patch(widgets.path("applied"), json.dumps(body), APPLY, fieldManager="x", dryRun="All").expect(201)


def list_encoded(accept: str) -> Callable[[Server, Resource], None]:
    """Return a function that lists in a format for which the server encodes the whole list."""

    def show(_: Server, widgets: Resource) -> None:
        assert widgets.api.get(widgets.path(), {"Accept": accept}).status == 200

    return show


def delete_collection(_: Server, widgets: Resource) -> None:
    """Delete a collection as a dry run."""
    assert len(widgets.api.delete(widgets.path(), dryRun="All").expect(200)["items"]) == 600


def match_large_policy(_: Server, widgets: Resource) -> None:
    """Write an object that a policy with thousands of expressions matches."""
    form = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    rule = {"operations": ["*"], "apiGroups": [widgets.group], "apiVersions": ["*"], "resources": ["*"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"object.metadata.name != 'n{number}'"} for number in range(3_000)],
    }
    policies = f"/apis/{form['apiVersion']}/validatingadmissionpolicies"
    widgets.api.post(policies, {**form, "metadata": {"name": "many"}, "spec": spec}).expect(201)
    binding = {"policyName": "many", "validationActions": ["Deny"]}
    bound = {**form, "kind": f"{form['kind']}Binding", "metadata": {"name": "many"}, "spec": binding}
    widgets.api.post(f"/apis/{form['apiVersion']}/validatingadmissionpolicybindings", bound).expect(201)
    try:
        until(lambda: widgets.api.post(widgets.path(), widgets.make("n7"), dryRun="All").status == 422, "it is refused")
    finally:
        widgets.api.delete(f"{policies}/many").expect(200)


def send_numbers(_: Server, widgets: Resource) -> None:
    """Send many numbers, which the response contains."""
    body = widgets.make("numbered", any={"list": [1.2345678901234567e-300] * 60_000})
    widgets.api.post(widgets.path(), body, dryRun="All").expect(201)


def read_metrics(_: Server, widgets: Resource) -> None:
    """Request the metrics repeatedly."""
    for _ in range(20):
        assert widgets.api.get("/metrics").status == 200


def list_searched_table(_: Server, widgets: Resource) -> None:
    """List a large object as a Table whose columns have recursive and multiplied paths."""
    stars = ",".join("*" * 2_000)
    columns = [{"name": "X", "type": "string", "jsonPath": path} for path in (*["..q"] * 20, f".spec.l[{stars}]")]
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    large = serve(widgets.api, schema=schema, additionalPrinterColumns=columns)
    large.api.post(large.path(), {**large.make("a"), "spec": {"l": [[1]] * 90_000}}).expect(201)
    table = large.api.get(large.path(), {"Accept": TABLE}).expect(200)
    assert table["rows"][0]["cells"] == ["a", *[None] * 21]


HARM: dict[str, Callable[[Server, Resource], None]] = {
    "pipelined": pipeline_requests,
    "applied": apply_many_fields,
    "a table in YAML": list_encoded(TABLE.replace("/json", "/yaml")),
    "a list of metadata in YAML": list_encoded("application/yaml;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
    "a collection deleted": delete_collection,
    "a policy of many expressions": match_large_policy,
    "numbers": send_numbers,
    "metrics": read_metrics,
    "a table of a large object": list_searched_table,
}


@pytest.mark.parametrize("name", HARM)
def test_other_clients_get_responses_during_expensive_requests(server: Server, widgets: Resource, name: str) -> None:
    for _ in range(3):  # an attack delays other clients each time, a short pause of the machine only once
        load = busy()
        waited = longest_wait_of_others(server, lambda: HARM[name](server, widgets))
        print(f"others waited {waited:.3f} s")
        if waited < 0.25 * max(load, busy()):
            return
    prompt(waited, 0.25, "others waited")


@pytest.mark.parametrize("whole", [True, False], ids=["in one piece", "in pieces"])
def test_oversized_request_head_is_rejected(server: Server, *, whole: bool) -> None:
    fields = b"".join(b"X-%d: %b\r\n" % (number, b"v" * 60_000) for number in range(100))
    with connected(server) as line:
        try:
            for at in range(0, len(fields), len(fields) if whole else 50_000):
                line.sendall((b"GET /version HTTP/1.1\r\nHost: x\r\n" if not at else b"") + fields[at : at + 50_000])
                pause(0.001)
            answer = line.recv(4096)
        except ConnectionError:
            answer = b""
    assert not answer or answer.startswith(b"HTTP/1.1 431 ")


def test_busy_worker_thread_does_not_delay_shutdown(tmp_path: Path) -> None:
    with running_server(["--insecure", "--port=0"], tmp_path) as server:
        assert server.process is not None
        widgets = serve(Client(server.url))
        body = json.dumps(widgets.make("a", labels={f"k {number}": "v v" for number in range(100_000)})).encode()
        head = (
            f"POST {widgets.path()} HTTP/1.1\r\nHost: x\r\nContent-Type: application/yaml\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        lines = [connected(server) for _ in range(6)]
        for line in lines:
            line.sendall(head.encode() + body)
        pause(0.5)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        took = time.monotonic() - began
        for line in lines:
            line.close()
        print(f"ended after {took:.1f} s")
        prompt(took, 10)
