"""Bodies of an allowed size that need the most memory: single bodies, and thirty at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import APPLY, JSON_PATCH, MERGE, Answer
from tests.hostile.harness import Victim, at_once, refusal

SERVICES, CONFIG_MAPS = "/api/v1/namespaces/default/services", "/api/v1/namespaces/default/configmaps"
STRATEGIC, YAML, PROTOBUF = (
    "application/strategic-merge-patch+json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
)
KEYED = {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}
MAP = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": KEYED}
SET = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
SPEC = {"type": "object", "properties": {"map": MAP, "set": SET}, "x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True)
class Attack:
    """A request to the custom resource.

    ``body(widgets, part)`` returns a body, which is ``part`` times smaller than the largest.
    """

    method: str
    path: str
    body: Callable[[Resource, int], str | bytes]
    media: str = "application/json"
    query: dict[str, object] = field(default_factory=lambda: {"dryRun": "All"})
    headers: dict[str, str] = field(default_factory=dict)

    def request(self, victim: Victim, widgets: Resource, part: int = 1) -> Callable[[], Answer]:
        """Return a function that sends the request; the body is created only once."""
        path = self.path.format(widgets=widgets.path())
        headers = {**self.headers, **({"Content-Type": self.media} if self.method != "GET" else {})}
        body = self.body(widgets, part) if self.method != "GET" else None
        return lambda: victim.api.request(self.method, path, body, headers, timeout=120, **self.query)


def compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def core(kind: str, **rest: object) -> str:
    return compact({"apiVersion": "v1", "kind": kind, "metadata": {"name": "attack"}} | rest)


def message(number: int, raw: bytes) -> bytes:
    """Return a field of a protobuf message with the type bytes."""
    size, length = len(raw), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((number << 3 | 2,)) + bytes((*length, size)) + raw


def service_message(ports: int) -> bytes:
    metadata, spec = message(1, message(1, b"attack")), message(2, b"\x0a\x00" * ports)
    kind = message(1, message(1, b"v1") + message(2, b"Service"))
    return b"k8s\0" + kind + message(2, metadata + spec)


def ports(count: int) -> list[dict[str, object]]:
    return [{"name": f"p{number}", "port": number} for number in range(1, count)]


def merged(count: int) -> str:
    order = [{"port": port["port"], "protocol": "TCP"} for port in ports(count)]
    return compact({"spec": {"ports": ports(count), "$setElementOrder/ports": order}})


def members(count: int, value: object) -> dict[str, object]:
    return {f"{number:x}": value for number in range(count)}


def flow(widgets: Resource, count: int) -> str:
    head = f"apiVersion: {widgets.group}/v1\nkind: {widgets.kind}\nmetadata: {{name: attack}}\n"
    return head + "spec: {any: {" + ",".join(f"{number:x}: a" for number in range(count)) + "}}\n"


def question(count: int) -> str:
    return compact({
        "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "spec": {"a": [{}] * count},
    })  # fmt: skip


OBJECT = {"a": 1}
QUESTIONS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
APPLIED = {"dryRun": "All", "fieldManager": "m"}
ATTACKS = {
    "empty ports": Attack("POST", SERVICES, lambda _, of: core("Service", spec={"ports": [{}] * (390_000 // of)})),
    "ports": Attack("POST", SERVICES, lambda _, of: core("Service", spec={"ports": ports(65_000 // of)})),
    "ports in protobuf": Attack("POST", SERVICES, lambda _, of: service_message(1_500_000 // of), PROTOBUF),
    "ports merged": Attack("PATCH", f"{SERVICES}/small", lambda _, of: merged(45_000 // of), STRATEGIC),
    "a question": Attack("POST", QUESTIONS, lambda _, of: question(350_000 // of)),
    "members": Attack("POST", CONFIG_MAPS, lambda _, of: core("ConfigMap", data=members(240_000 // of, ""))),
    "finalizers": Attack(
        "POST", CONFIG_MAPS,
        lambda _, of: core("ConfigMap", metadata={"name": "attack", "finalizers": [""] * (600_000 // of)}),
    ),
    "objects": Attack("POST", "{widgets}", lambda it, of: compact(it.make("attack", any=[OBJECT] * (330_000 // of)))),
    "objects applied": Attack(
        "PATCH", "{widgets}/attack",
        lambda it, of: compact(it.make("attack", any=members(190_000 // of, {}))), APPLY, APPLIED,
    ),
    "objects merged": Attack(
        "PATCH", "{widgets}/small", lambda _, of: compact({"spec": {"any": [OBJECT] * (330_000 // of)}}), MERGE,
    ),
    "objects added": Attack(
        "PATCH", "{widgets}/small",
        lambda _, of: compact([{"op": "add", "path": "/spec/any", "value": [OBJECT] * (330_000 // of)}]), JSON_PATCH,
    ),
    "items of a map": Attack(
        "POST", "{widgets}",
        lambda it, of: compact(it.make("attack", map=[{"k": f"{n:x}"} for n in range(190_000 // of)])),
    ),
    "items of a set": Attack(
        "POST", "{widgets}", lambda it, of: compact(it.make("attack", set=[f"{n:x}" for n in range(370_000 // of)]))
    ),
    "flow of YAML": Attack("POST", "{widgets}", lambda it, of: flow(it, 240_000 // of), YAML),
    "colons of YAML": Attack("POST", "{widgets}", lambda _, of: "{" + "a:" * (1_400_000 // of) + "}", YAML),
    "a large object patched": Attack("PATCH", "{widgets}/large", lambda _, __: '{"spec":{"b":1}}', MERGE),
    "a large object in YAML": Attack("GET", "{widgets}/large", lambda _, __: "", headers={"Accept": YAML}, query={}),
}  # fmt: skip


@pytest.fixture(scope="module")
def widgets(victim: Victim) -> Resource:
    """A custom resource with any fields, a small and a large object, and a small service.

    The large object has the maximum size.
    """
    api = victim.api
    found = serve(api, schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC}}})
    found.create("small", any=[])
    found.create("large", any=[{}] * 90_000)
    service = core("Service", spec={"ports": ports(2)}).replace("attack", "small")
    api.post(SERVICES, service, {"Content-Type": "application/json"}).expect(201)
    return found


@pytest.mark.parametrize("name", ATTACKS)
def test_server_survives_one_hostile_body(victim: Victim, widgets: Resource, name: str) -> None:
    send = ATTACKS[name].request(victim, widgets)
    with victim.attacked():
        answer = send()
    print(answer.status, answer.raw[:200])
    if answer.status >= 400:
        refusal(answer)


# bodies that need different memory; other bodies of these kinds need no more
AT_ONCE = {
    "a question": (30, 1), "ports in protobuf": (30, 8), "ports merged": (30, 16), "members": (16, 8),
    "objects": (30, 1), "items of a map": (16, 4), "flow of YAML": (16, 8), "colons of YAML": (8, 1),
    "a large object patched": (30, 1), "a large object in YAML": (16, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_ONCE)
def test_server_survives_concurrent_hostile_bodies(victim: Victim, widgets: Resource, name: str) -> None:
    victim.needs_bound()
    count, part = AT_ONCE[name]
    send = ATTACKS[name].request(victim, widgets, part)
    with victim.attacked():
        answers = at_once(count, lambda _: send())
    codes = [refusal(answer) if answer.status >= 400 else answer.status for answer in answers]
    print(sorted(codes))


def test_server_restarts_after_hostile_bodies(victim: Victim, widgets: Resource) -> None:
    victim.restart()
    victim.api.get(widgets.path("large")).expect(200)
