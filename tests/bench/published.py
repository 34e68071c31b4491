"""Measure discovery and OpenAPI with 500 definitions, ten in each group."""

from __future__ import annotations

import json
import multiprocessing
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from apiext.conformance.support.definitions import is_true
from apiext.conformance.support.http_client import DEFINITIONS
from apiext.conformance.support.waiting import until
from tests.bench import wire
from tests.bench.rig import GROUP, Rig, definition
from tests.clients import kubectl

Row = tuple[str, float, str] | tuple[str, float, str, float]
COUNT = 500
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def _group(number: int) -> str:
    return f"g{number // 10:02}.{GROUP}"


def _definition(number: int, description: str = "") -> dict[str, Any]:
    found = definition(number)
    group = _group(number)
    found["metadata"]["name"] = f"{found['spec']['names']['plural']}.{group}"
    found["spec"]["group"] = group
    if description:
        found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = description
    return found


def _define(bench: Rig) -> None:
    for number in range(COUNT):
        bench.api.post(DEFINITIONS, _definition(number)).expect(201)
    last = f"{DEFINITIONS}/{_definition(COUNT - 1)['metadata']['name']}"
    until(lambda: is_true(bench.api.get(last).expect(200), "Established"), "the last definition is established", 60)


def _change(bench: Rig, number: int, text: str) -> float:
    """Change a definition's description; return the seconds until its OpenAPI hash changes.

    The hash is in the index of OpenAPI v3.
    """
    name = f"{DEFINITIONS}/{_definition(number)['metadata']['name']}"
    path = f"apis/{_group(number)}/v1"
    before = bench.api.get("/openapi/v3").expect(200)["paths"][path]
    stored = bench.api.get(name).expect(200)
    stored["spec"] = _definition(number, text)["spec"]
    began = time.perf_counter()
    bench.api.put(name, stored).expect(200)
    until(lambda: bench.api.get("/openapi/v3").json["paths"][path] != before, "the hash changes", 5, every=0.002)
    return time.perf_counter() - began


def _once(bench: Rig, path: str, accept: str = "") -> float:
    """Return the seconds of one request."""
    line = wire.Line(bench.address)
    began = time.perf_counter()
    line.ask(wire.request("GET", path, headers=f"Accept: {accept}\r\n" if accept else ""))
    took = time.perf_counter() - began
    line.socket.close()
    return took


def _again(bench: Rig, path: str, accept: str = "", rounds: int = 200) -> float:
    """Return the CPU seconds of a request whose response is cached."""
    request = wire.request("GET", path, headers=f"Accept: {accept}\r\n" if accept else "")
    before = bench.cpu()
    wire.run(bench.address, [request] * rounds)
    return (bench.cpu() - before) / rounds


def rows(bench: Rig, paced: Callable[[Rig, int], list[float]]) -> Iterator[Row]:
    """Yield the figures with 500 definitions; ``paced`` measures the latency of GETs."""
    before = bench.rss()
    _define(bench)
    yield (
        f"RSS per definition, {COUNT} definitions, no document asked for",
        (bench.rss() - before) * 1024 / COUNT,
        "KiB",
    )
    bench.restart()
    one = f"/openapi/v3/apis/{_group(77)}/v1"
    yield from _first_and_again(bench, "aggregated discovery", "/apis", AGGREGATED)
    yield from _first_and_again(bench, "index of OpenAPI v3", "/openapi/v3")
    yield "OpenAPI v3 of one version, first", _once(bench, one) * 1e3, "ms", 30.0
    yield "OpenAPI v3 of one version, remembered", _again(bench, one, rounds=2000) * 1e3, "ms CPU", 0.2
    yield "RSS per definition, restarted, one document asked for", (bench.rss() - before) * 1024 / COUNT, "KiB", 100.0
    for name, accept in (("JSON", "application/json"), ("protobuf", PROTOBUF)):
        yield f"OpenAPI v2 as {name}, first", _once(bench, "/openapi/v2", accept) * 1e3, "ms"
        yield f"OpenAPI v2 as {name}, remembered", _once(bench, "/openapi/v2", accept) * 1e3, "ms"
    yield "change of a definition until OpenAPI v3 shows it", _change(bench, 1, "one") * 1e3, "ms", 1000.0
    yield "OpenAPI v2 as JSON after that change", _once(bench, "/openapi/v2") * 1e3, "ms", 1000.0
    yield "RSS per definition, all documents asked for", (bench.rss() - before) * 1024 / COUNT, "KiB"
    yield from _kubectl(bench)
    bench.fill(1_000)
    ordered = sorted(paced(bench, 600))
    yield "GET p99, idle server", ordered[int(len(ordered) * 0.99)] * 1e3, "ms"
    ordered = sorted(_beside(bench, paced))
    yield "GET p99 while definitions change and OpenAPI v2 is read", ordered[int(len(ordered) * 0.99)] * 1e3, "ms", 5.0
    yield "GET longest meanwhile", ordered[-1] * 1e3, "ms"


def _first_and_again(bench: Rig, name: str, path: str, accept: str = "") -> Iterator[Row]:
    yield f"{name}, first", _once(bench, path, accept) * 1e3, "ms"
    yield f"{name}, remembered", _again(bench, path, accept) * 1e3, "ms CPU"


def _kubectl(bench: Rig) -> Iterator[Row]:
    """Measure the newest kubectl with an empty cache; yield no rows if there is no kubectl."""
    found = kubectl.found()
    if not found:
        return
    newest = found[max(found, key=lambda version: [int(part) for part in version.split(".")])]
    took = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as home:
            began = time.perf_counter()
            ended = subprocess.run(
                [newest, f"--server={bench.server.url}", "get", "crd", "-v=6"],
                capture_output=True, text=True, check=True, env={"HOME": home, "PATH": str(Path(newest).parent)},
            )  # fmt: skip
            took.append(time.perf_counter() - began)
    asked = re.findall(r"(?:GET |url=\")(\S+?)\"? ", ended.stderr)
    yield "kubectl get crd, nothing cached", min(took) * 1e3, "ms", 300.0
    yield "of its requests, discovery", float(sum(DEFINITIONS not in url for url in asked)), "requests", 2.0


def _beside(bench: Rig, paced: Callable[[Rig, int], list[float]]) -> list[float]:
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    other = context.Process(target=_publish_on, args=(bench.address, over), daemon=True)
    other.start()
    try:
        paced(bench, 50)
        return paced(bench, 600)
    finally:
        over.set()
        other.join(20)


def _publish_on(address: tuple[str, int], over: Event) -> None:
    line, turn = wire.Line(address), 0
    while not over.is_set():
        turn += 1
        number = turn % COUNT
        patch = {"spec": {"versions": _definition(number, f"turn {turn}")["spec"]["versions"]}}
        name = f"{DEFINITIONS}/{_definition(number)['metadata']['name']}"
        line.ask(wire.request("PATCH", name, json.dumps(patch).encode()))
        for path in ("/openapi/v2", "/openapi/v3", "/apis", f"/openapi/v3/apis/{_group(number)}/v1"):
            line.ask(wire.request("GET", path, headers=f"Accept: {AGGREGATED},application/json\r\n"))
