"""Send the same requests to a server and a reference server, and print the differences.

The requests are about workload kinds.

    python -m tests.reference.compare --server URL --reference URL [--token TOKEN] [--steps create,patch] [--random N]

Each kind has a sample object. Steps: ``create`` (dry run, then stored), ``table``, ``status``, ``update``, ``apply``
(twice), ``patch`` (merge, JSON, strategic), ``delete``, and ``random``: dry runs with random fields of the OpenAPI
document, most of them slightly wrong. The exit code is 1 if there was a difference.
"""

import argparse
import http.client
import json
import random
import re
import ssl
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

SAMPLES = Path(__file__).parent / "samples.yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_UIDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIMES = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class Answer(NamedTuple):
    """The response of a server: its code, body and warnings."""

    code: int
    body: Any
    warnings: tuple[str, ...]


class Server:
    """A client of one of the two servers."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._token = token
        if parts.scheme == "https":
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(parts.netloc, context=context)
        else:
            self._connection = http.client.HTTPConnection(parts.netloc)

    def ask(self, method: str, path: str, body: Any = None, media: str = "", accept: str = "") -> Answer:
        """Send a request and return the response.

        All requests use one connection, which is opened again if it was closed.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": media or "application/json", "Accept": accept or "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            self._connection.request(method, path, data, headers)
            found = self._connection.getresponse()
        except (http.client.HTTPException, ConnectionError):
            self._connection.close()
            self._connection.request(method, path, data, headers)
            found = self._connection.getresponse()
        raw = found.read()
        if found.will_close:
            self._connection.close()
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = raw.decode(errors="replace")
        return Answer(found.status, answer, tuple(found.headers.get_all("Warning") or ()))


def settled(value: Any) -> Any:
    """Remove or replace parts that always differ between servers: uids, times, revisions."""
    if isinstance(value, dict):
        return {
            _UIDS.sub("UID", key): settled(below)
            for key, below in value.items()
            if key not in ("resourceVersion", "selfLink") and not (key == "description" and "type" in value)
        }
    if isinstance(value, list):
        return [settled(below) for below in value]
    if isinstance(value, str):
        return _TIMES.sub("TIME", _UIDS.sub("UID", value))
    return value


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Yield the paths where two values differ."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in sorted(wanted.keys() | found.keys()):
            yield from differences(wanted.get(key), found.get(key), f"{path}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (left, right) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(left, right, f"{path}[{index}]")
    elif wanted != found:
        yield f"{path}: reference {json.dumps(wanted)[:300]} here {json.dumps(found)[:300]}"


class Comparison:
    """Sends requests to both servers, and counts the differences."""

    def __init__(self, here: Server, there: Server) -> None:
        self.here = here
        self.there = there
        self.requests: Counter[str] = Counter()
        self.different: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()

    def ask(self, step: str, method: str, path: str, *rest: Any, shown: str = "") -> Answer:
        """Send a request to both servers and print the differences of the responses.

        Return the response of the reference server.
        """
        there, here = self.there.ask(method, path, *rest), self.here.ask(method, path, *rest)
        self.requests[step] += 1
        found = list(differences(settled(there._asdict()), settled(here._asdict())))
        if there.code != here.code:
            verdict = "accepted here only" if here.code < 300 else "refused here only" if there.code < 300 else "code"
            self.verdicts[f"{step}: {verdict}"] += 1
        if found:
            self.different[step] += 1
            found.sort(key=lambda line: not line.startswith((".code", ".body.message")))
            print(f"{step}: {method} {path} {shown}")
            for line in found[:12]:
                print(f"    {line}")
        return there


def sampled(sample: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the sample object with a name."""
    body = json.loads(json.dumps(sample["body"]))
    return {**body, "metadata": {**body.get("metadata", {}), "name": sample.get("name", name)}}


def walk(compare: Comparison, sample: Mapping[str, Any], steps: set[str]) -> None:
    """Create, read, change and delete an object on both servers."""
    path = sample["path"]
    body = sampled(sample, "sample")
    name = body["metadata"]["name"]
    own = f"{path}/{name}"
    compare.ask("create", "POST", f"{path}?dryRun=All&fieldManager=m", body)
    kind = compare.ask("create", "POST", f"{path}?fieldManager=m", body).body
    typed = {"apiVersion": kind.get("apiVersion"), "kind": kind.get("kind")}
    if "table" in steps:
        compare.ask("table", "GET", own, None, "", TABLE)
    changed = {"metadata": {"annotations": {"x": "y"}, "labels": {"l": "m"}}}
    if "patch" in steps:
        compare.ask("patch", "PATCH", f"{own}?fieldManager=m", changed, "application/merge-patch+json")
        operations = [{"op": "add", "path": "/metadata/labels/n", "value": "o"}]
        compare.ask("patch", "PATCH", f"{own}?fieldManager=n", operations, "application/json-patch+json")
        again = {"metadata": {"labels": {"p": "q"}}, **sample["body"]}
        compare.ask("patch", "PATCH", f"{own}?fieldManager=o", again, "application/strategic-merge-patch+json")
    if "status" in steps and isinstance(kind.get("status"), dict):
        compare.ask("status", "GET", f"{own}/status")
        status = sample.get("status", {"conditions": []})
        compare.ask(
            "status", "PATCH", f"{own}/status?fieldManager=s", {"status": status}, "application/merge-patch+json"
        )
    if "scale" in steps:
        compare.ask("scale", "GET", f"{own}/scale")
        compare.ask("scale", "PATCH", f"{own}/scale", {"spec": {"replicas": 5}}, "application/merge-patch+json")
        compare.ask("scale", "GET", own)
        compare.ask("scale", "PATCH", f"{own}/scale", {"spec": {"replicas": -1}}, "application/merge-patch+json")
    if "apply" in steps:
        for _ in range(2):
            compare.ask(
                "apply", "PATCH", f"{own}?fieldManager=a&force=true", {**typed, **body}, "application/apply-patch+yaml"
            )
    if "update" in steps:
        compare.ask("update", "PUT", f"{own}?fieldManager=m", {**typed, **body})
        compare.ask("update", "PUT", f"{own}?fieldManager=m&dryRun=All", {**typed, "metadata": {"name": name}})
    if "delete" in steps:
        compare.ask("delete", "DELETE", f"{own}?dryRun=All")
        compare.ask("delete", "DELETE", own)
        compare.ask("delete", "GET", own)


# --- random objects ---

_WORDS = (
    "a",
    "b-c",
    "x",
    "",
    "Always",
    "TCP",
    "A_B",
    "10.0.0.1",
    "1Gi",
    "-5",
    "50%",
    "kubernetes.io/x",
    "Orphan",
    "80",
)


class Drawing:
    """Draws random values by the schemas of an OpenAPI document."""

    def __init__(self, schemas: Mapping[str, Any], chance: random.Random) -> None:
        self._schemas = schemas
        self._chance = chance

    def schema(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a schema merged with the schema of its ``$ref``."""
        for one in (given, *given.get("allOf", ())):
            if "$ref" in one:
                return {**self._schemas[one["$ref"].rpartition("/")[2]], **given}
        return given

    def value(self, given: Mapping[str, Any], depth: int = 0) -> Any:
        """Return a random value of a schema."""
        schema, chance = self.schema(given), self._chance
        if schema.get("enum"):
            return chance.choice([*schema["enum"], *schema["enum"], "Wrong"])
        kind = schema.get("type")
        if kind == "object" and "properties" in schema:
            return self.filled({}, schema, depth + 1)
        if kind == "object" and "additionalProperties" in schema:
            return {word: self.value(schema["additionalProperties"], depth + 1) for word in chance.sample(_WORDS, 2)}
        if kind == "array":
            return [self.value(schema["items"], depth + 1) for _ in range(chance.choice((0, 1, 1, 2)))]
        if kind == "boolean":
            return chance.random() < 0.5
        if kind == "integer":
            return chance.choice((0, 1, 2, 5, 80, 420, 30, -1, 70000))
        if kind == "string" and schema.get("format") == "date-time":
            return "2026-01-02T03:04:05Z"
        if kind == "string" and schema.get("format") == "byte":
            return "eA=="
        if "int-or-string" in str(schema.get("format")) or "oneOf" in schema:
            return chance.choice((0, 1, 80, "50%", "http", "1Gi", "100m"))
        return chance.choice(_WORDS) if kind == "string" else {}

    def filled(self, value: dict[str, Any], schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """Add random values of required fields and of some other fields to an object; return it."""
        properties = schema.get("properties", {})
        share = max(0.05, 0.35 - depth * 0.06) if depth < 7 else 0
        for name, below in properties.items():
            wanted = name in schema.get("required", ()) or self._chance.random() < share
            if name in ("apiVersion", "kind", "metadata", "managedFields") or name in value or not wanted:
                continue
            value[name] = self.value(below, depth)
        return value

    def vary(self, body: dict[str, Any], given: Mapping[str, Any]) -> str:
        """Change one random field of an object; return its path."""
        schema = self.schema(given)
        at: Any = body
        way = ""
        while True:
            properties = schema.get("properties", {})
            if isinstance(at, list) and at:
                index = self._chance.randrange(len(at))
                at, schema, way = at[index], self.schema(schema["items"]), f"{way}[{index}]"
                if not isinstance(at, dict | list):
                    return way
                continue
            if not isinstance(at, dict) or not properties:
                return way
            names = [name for name in properties if name not in ("apiVersion", "kind") and (way or name != "metadata")]
            inner = [name for name in names if isinstance(at.get(name), dict | list) and at[name]]
            if inner and self._chance.random() < 0.75:
                name = self._chance.choice(inner)
                at, schema, way = at[name], self.schema(properties[name]), f"{way}.{name}"
                continue
            name = self._chance.choice(names)
            if name in at and self._chance.random() < 0.2:
                del at[name]
            else:
                at[name] = self.value(properties[name], 2)
            return f"{way}.{name}"


def draw(compare: Comparison, samples: list[Mapping[str, Any]], count: int, seed: int) -> None:
    """Send random objects as dry runs, each with one to three random changes."""
    chance = random.Random(seed)
    documents: dict[str, Any] = {}
    for index in range(count):
        sample = chance.choice(samples)
        parts = sample["path"].split("/")
        page = "/".join(parts[1:3] if parts[1] == "api" else parts[1:4])
        if page not in documents:
            documents[page] = compare.there.ask("GET", f"/openapi/v3/{page}").body
        document = documents[page]
        base = sample["path"].replace("/namespaces/default/", "/namespaces/{namespace}/")
        content = document["paths"][base]["post"]["requestBody"]["content"]
        schema = next(iter(content.values()))["schema"]
        body = sampled(sample, f"r{index}")
        drawing = Drawing(document["components"]["schemas"], chance)
        ways = [drawing.vary(body, schema) for _ in range(chance.choice((1, 1, 2, 3)))]
        wanted = {key: value for key, value in body.items() if key != "metadata"}
        compare.ask(
            "random", "POST", f"{sample['path']}?dryRun=All&fieldManager=m", body, shown=f"{ways} {json.dumps(wanted)}"
        )


def main() -> int:
    """Compare two servers; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--token", default="")
    parser.add_argument("--steps", default="create,table,patch,status,scale,apply,update,delete")
    parser.add_argument("--kinds", default="")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    samples = yaml.safe_load(SAMPLES.read_text())
    samples = [one for one in samples if not given.kinds or one["path"].rpartition("/")[2] in given.kinds.split(",")]
    compare = Comparison(Server(given.server, ""), Server(given.reference, given.token))
    steps = set(given.steps.split(",")) - {""}
    for sample in samples:
        for server in (compare.here, compare.there):
            name = sample.get("name", "sample")
            server.ask("DELETE", f"{sample['path']}/{name}?gracePeriodSeconds=0&propagationPolicy=Background")
    for sample in samples if steps else ():
        walk(compare, sample, steps)
    if given.random:
        draw(compare, samples, given.random, given.seed)
    for step, count in compare.requests.items():
        print(f"{step}: {count} requests, {compare.different[step]} different")
    for verdict, count in compare.verdicts.items():
        print(f"{verdict}: {count}")
    return 1 if compare.different else 0


if __name__ == "__main__":
    sys.exit(main())
