"""Make each field of full objects invalid in turn, and compare responses of two servers.

A request has one invalid field.

    python -m tests.reference.faults --reference URL --token TOKEN --record FILE [--kinds pods,jobs] [--faults N]
    python -m tests.reference.faults --server URL --recorded FILE [--show N]
    python -m tests.reference.faults --recorded FILE --rows apiext/conformance/field_faults.yaml

The first command sends the requests to a reference server and records its responses. The second sends the same requests
to another server and compares the code, the field of the first cause, and the message. The third writes the table of
the conformance test from recorded responses. ``full_objects.yaml`` has the objects. A fault is a value that is missing,
empty, malformed, too long, negative, too large, unknown or repeated, or a field that the object does not have.
``--faults`` limits the number of faults of each field of the type tree; the default is all. ``--update`` changes a
stored object instead of creating a new one. The exit code is 1 if a response differs.
"""

import argparse
import http.client
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.reference.compare import Answer, Drawing, Server

FULL = Path(__file__).parents[2] / "apiext/conformance/full_objects.yaml"
NEEDED = (
    (
        "/apis/node.k8s.io/v1/runtimeclasses",
        {"metadata": {"name": "r"}, "handler": "h", "overhead": {"podFixed": {"cpu": "10m"}}},
    ),
    ("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "sa"}}),
)
"""The path and body of objects to which the full objects refer."""
_GONE: Any = object()
_SKIPPED = frozenset(("apiVersion", "kind", "managedFields", "status"))
_LONG = "x" * 300
Steps = tuple[str | int, ...]


class Fault(NamedTuple):
    """A request with an invalid field: path of the kind, path of the field, value and body."""

    path: str
    steps: Steps
    value: Any
    body: Mapping[str, Any]

    @property
    def field(self) -> str:
        """The path of the field in the type tree."""
        return field_of(self.steps)


def field_of(steps: Steps) -> str:
    """Return the path of a field in the type tree: ``spec.containers.[].name``."""
    return ".".join("[]" if isinstance(step, int) else step for step in steps)


def broken_values(schema: Mapping[str, Any], value: Any) -> Iterator[Any]:
    """Yield wrong values for a field that the object has."""
    if "default" not in schema or value not in ("", 0):
        yield _GONE
    kind, form = schema.get("type"), str(schema.get("format"))
    if "int-or-string" in form:
        yield from (-1, 0, 70000, "150%", "Ab!", "")
    elif "oneOf" in schema:  # a quantity
        yield from ("-1", "0", "1m", "9Ei")
    elif kind == "integer":
        yield from (-1, 0, 1, 70000, 2**31 - 1)
        if form == "int64":
            yield 2**40
    elif kind == "boolean":
        yield not value
    elif kind == "array":
        yield []
        if value:
            yield [*value, value[0]]
    elif kind == "string" and form == "date-time":
        yield None
    elif kind == "string" and form == "byte":
        yield from ("", "eA==")
    elif kind == "string":
        yield from ("", "A b!", "a/../b", "/a", "a.b", _LONG)
        if schema.get("enum"):
            yield from schema["enum"]
    elif kind == "object" and "additionalProperties" in schema:
        first = next(iter(value.values()), "x")
        yield {}
        yield {"A b!": first}
        yield {_LONG: first}
        yield {**value, "plain": first}
        if isinstance(first, str):
            yield {**value, "plain": "A b!" if "oneOf" not in schema["additionalProperties"] else "-1"}
    elif kind == "object":
        yield {}


def added_values(drawing: Drawing, schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield values for a field that the object does not have."""
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        yield {}
    yield from (drawing.value(schema, 2) for _ in range(2))
    if kind == "string" and schema.get("format") is None:
        yield "A b!"
    if kind == "integer":
        yield from (-1, 1)


def places(drawing: Drawing, given: Mapping[str, Any], value: Any, steps: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Yield (path, wrong value) for each field of an object and each of its wrong values."""
    schema = drawing.schema(given)
    if isinstance(value, Mapping) and "properties" in schema:
        for name, below in schema["properties"].items():
            inner = drawing.schema(below)
            if name in _SKIPPED and len(steps) < 2:
                continue
            if name not in value or value[name] is None:
                if steps or name != "metadata":
                    yield from (((*steps, name), one) for one in added_values(drawing, inner))
                continue
            yield from (
                ((*steps, name), one) for one in broken_values(inner, value[name]) if steps or name != "metadata"
            )
            yield from places(drawing, inner, value[name], (*steps, name))
    elif isinstance(value, list) and value:
        inner = drawing.schema(schema["items"])
        for index, one in enumerate(value):
            if not isinstance(one, Mapping):
                yield from (((*steps, index), wrong) for wrong in broken_values(inner, one) if wrong is not _GONE)
            else:
                yield ((*steps, index), {})
            yield from places(drawing, inner, one, (*steps, index))


def broken(body: Mapping[str, Any], steps: Steps, value: Any) -> dict[str, Any]:
    """Return an object with another value at a path."""
    found: dict[str, Any] = json.loads(json.dumps(body))
    at: Any = found
    for step in steps[:-1]:
        at = at[step]
    if value is _GONE:
        del at[steps[-1]]
    else:
        at[steps[-1]] = value
    return found


def faults(document: Mapping[str, Any], sample: Mapping[str, Any], count: int, chance: random.Random) -> list[Fault]:
    """Return the faults of an object, at most ``count`` for each field of the type tree.

    0 means all.
    """
    base = sample["path"].replace("/namespaces/default/", "/namespaces/{namespace}/")
    content = document["paths"][base]["post"]["requestBody"]["content"]
    schema = next(iter(content.values()))["schema"]
    body = json.loads(json.dumps(sample["body"]))
    body["metadata"] = {**body.get("metadata", {}), "name": sample.get("name", "broken")}
    drawing = Drawing(document["components"]["schemas"], chance)
    by_field: dict[str, list[tuple[Steps, Any]]] = defaultdict(list)
    for steps, value in places(drawing, schema, body):
        by_field[field_of(steps)].append((steps, value))
    found: list[Fault] = []
    for some in by_field.values():
        chance.shuffle(some)
        own: list[Mapping[str, Any]] = [body]
        for steps, value in some:
            wrong = broken(body, steps, value)
            if wrong not in own:
                own.append(wrong)
                found.append(Fault(sample["path"], steps, value, wrong))
            if count and len(own) > count:
                break
    return found


def documents(server: Server, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return group and version → OpenAPI document, for the paths of all samples."""
    found: dict[str, Any] = {}
    for sample in samples:
        parts = sample["path"].split("/")
        page = "/".join(parts[1:3] if parts[1] == "api" else parts[1:4])
        if page not in found:
            found[page] = server.ask("GET", f"/openapi/v3/{page}").body
        found[sample["path"]] = found[page]
    return found


def answered(server: Server, method: str, path: str, body: Any) -> list[Any]:
    """Send a request; return its result as ``short`` does.

    The code is 0 if the server closed the connection.
    """
    try:
        return short(server.ask(method, path, body))
    except (http.client.HTTPException, ConnectionError):
        return [0, "", "no answer"]


def short(answer: Answer) -> list[Any]:
    """Return the code, the field of the first cause, and the message of a response."""
    if answer.code < 300:
        return [answer.code, "", ""]
    body = answer.body if isinstance(answer.body, dict) else {"message": str(answer.body)}
    causes = (body.get("details") or {}).get("causes") or [{}]
    return [answer.code, causes[0].get("field", ""), body.get("message", "")]


class Prepared:
    """Sends faults to a server.

    With ``update`` it first stores the full objects, and sends the faults as PUTs.
    """

    def __init__(self, server: Server, samples: Sequence[Mapping[str, Any]], *, update: bool) -> None:
        self._server = server
        self._stored: dict[str, Any] = {}
        for path, body in NEEDED:
            server.ask("POST", path, body)
        for sample in samples if update else ():
            name = sample.get("name", "broken")
            server.ask("DELETE", f"{sample['path']}/{name}?gracePeriodSeconds=0&propagationPolicy=Background")
            body = json.loads(json.dumps(sample["body"]))
            body["metadata"] = {**body.get("metadata", {}), "name": name}
            body["metadata"].pop("finalizers", None)
            body["metadata"].pop("ownerReferences", None)
            self._stored.setdefault(sample["path"], server.ask("POST", sample["path"], body).body)

    def ask(self, fault: Fault) -> list[Any]:
        """Send a fault; return the result as ``short`` does."""
        stored = self._stored.get(fault.path)
        if stored is None:
            return answered(self._server, "POST", f"{fault.path}?dryRun=All", fault.body)
        name = fault.body["metadata"].get("name", "broken")
        version = stored.get("metadata", {}).get("resourceVersion")
        body = {**fault.body, "metadata": {**fault.body["metadata"], "resourceVersion": version}}
        return answered(self._server, "PUT", f"{fault.path}/{name}?dryRun=All", body)


def record(given: argparse.Namespace, samples: Sequence[Mapping[str, Any]]) -> None:
    """Send all faults to the reference server, and write its responses to a file."""
    server = Server(given.reference, given.token)
    pages = documents(server, samples)
    chance = random.Random(given.seed)
    prepared = Prepared(server, samples, update=given.update)
    with Path(given.record).open("w") as out:
        for sample in samples:
            if not given.update:
                whole = {
                    **sample["body"],
                    "metadata": {**sample["body"].get("metadata", {}), "name": sample.get("name", "broken")},
                }
                answer = server.ask("POST", f"{sample['path']}?dryRun=All", whole)
                if answer.code >= 300:
                    print(
                        f"{sample['path']}: the full object is refused: {answer.body.get('message')}", file=sys.stderr
                    )
            for fault in faults(pages[sample["path"]], sample, given.faults, chance):
                row = {"path": fault.path, "steps": fault.steps, "body": fault.body, "answer": prepared.ask(fault)}
                if fault.value is not _GONE:
                    row["value"] = fault.value
                out.write(json.dumps(row) + "\n")


# --- the table of the conformance test ---

_TEMPLATES = {"podtemplates": "template", "cronjobs": "spec.jobTemplate"}
_WITH_TEMPLATES = frozenset(
    ("replicationcontrollers", "deployments", "replicasets", "statefulsets", "daemonsets", "jobs")
)
_MAX_VALUE, _MAX_TEXT = 150, 200
_STRUCT = "Invalid value: {"  # upstream writes Go's field names, this server those of JSON
_DECIDED = frozenset(
    (
        "services spec.ipFamilies",
        "services spec.ipFamilies.[]",
        "services spec.ipFamilyPolicy",
        "horizontalpodautoscalers spec.behavior.scaleUp.policies",
        "horizontalpodautoscalers spec.behavior.scaleDown.policies",
        "pods spec.serviceAccountName",  # upstream: an admission plug-in refuses the pod before validation
    )
)
"""Fields whose responses differ intentionally (docs/DIFFERENCES.md) or because of plug-ins; the table does not contain
them."""


def write_rows(given: argparse.Namespace, samples: Sequence[Mapping[str, Any]]) -> None:
    """Write the table of recorded faults.

    It has a refused fault of each field, and an accepted fault of each fourth field.
    """
    tables: dict[tuple[str, int], dict[str, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
    for line in Path(given.recorded).read_text().splitlines():
        row = json.loads(line)
        number = next((index for index, one in enumerate(samples) if is_from(one, row)), None)
        if number is None or row["answer"][0] not in (201, 422) or is_elsewhere(row, samples, number):
            continue
        found = table_row(row)
        if len(json.dumps(found.get("value"))) <= _MAX_VALUE and not any("/" in str(step) for step in row["steps"]):
            own = tables[row["path"], number][field_of(row["steps"])]
            code = row["answer"][0]
            if "says" in found or code not in own:
                own[code] = found
    with Path(given.rows).open("w") as out:
        out.write("# Answers of kube-apiserver to objects with one invalid field, from tests/reference/faults.py.\n")
        for (path, number), fields in tables.items():
            out.write(f"- path: {path}\n  sample: {number}\n  faults:\n")
            for index, answers in enumerate(fields.values()):
                chosen = (answers[code] for code in answers if code == 422 or index % 4 == 0)
                out.writelines(f"    - {json.dumps(one, ensure_ascii=False)}\n" for one in chosen)


def is_from(sample: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Report whether a recorded body is this sample with the fault of the row."""
    body = {**sample["body"], "metadata": {**sample["body"].get("metadata", {}), "name": sample.get("name", "broken")}}
    try:
        wrong = broken(body, tuple(row["steps"]), row.get("value", _GONE))
    except (LookupError, TypeError):
        return False
    return sample["path"] == row["path"] and wrong == row["body"]


def is_elsewhere(row: Mapping[str, Any], samples: Sequence[Mapping[str, Any]], number: int) -> bool:
    """Report whether the table omits a fault.

    It omits an intended difference, and a fault that another kind or object covers.
    """
    plural, steps = row["path"].rpartition("/")[2], row["steps"]
    if f"{plural} {field_of(steps)}" in _DECIDED:
        return True
    template = _TEMPLATES.get(plural, "spec.template" if plural in _WITH_TEMPLATES else "")
    name = field_of(steps)
    if template and name.startswith(f"{template}.") and name.count(".") > template.count(".") + 2:
        return True
    is_first = next(index for index, one in enumerate(samples) if one["path"] == row["path"]) == number
    if steps[0] == "metadata":
        return plural not in ("pods", "nodes") or not is_first
    return not is_first and not has(samples[number]["body"], steps)


def has(value: Any, steps: Sequence[str | int]) -> bool:
    """Report whether there is a value at a path."""
    try:
        for step in steps:
            value = value[step]
    except (LookupError, TypeError):
        return False
    return True


def table_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the table: path, value and result.

    The result is the code of a success, or the field and text of an error.
    """
    code, field, message = row["answer"]
    found = {"at": "/".join(map(str, row["steps"])), **({"value": row["value"]} if "value" in row else {})}
    if code == 201:
        return {**found, "code": code}
    _, mark, says = message.partition(f" is invalid: {field}: ")
    is_text = mark and len(says) < _MAX_TEXT and not says.startswith(_STRUCT)
    return {**found, "field": field, **({"says": says} if is_text else {})}


# --- comparing ---


class Count:
    """The numbers of equal and different responses for a kind or field."""

    def __init__(self) -> None:
        self.all = self.refused = self.verdict = self.path = self.text = self.refused_equal = 0

    def add(self, wanted: Sequence[Any], found: Sequence[Any]) -> None:
        """Count a pair of responses."""
        same_verdict = wanted[0] == found[0]
        same_path = same_verdict and wanted[1] == found[1]
        self.all += 1
        self.refused += wanted[0] >= 300
        self.verdict += same_verdict
        self.path += same_path
        self.refused_equal += same_path and wanted[0] >= 300
        self.text += same_path and wanted[2] == found[2]

    def line(self, name: str) -> str:
        """Return a line of the table."""
        shares = (100 * one / (self.all or 1) for one in (self.verdict, self.path, self.text))
        refused = 100 * self.refused_equal / (self.refused or 1)
        return f"{name:32} {self.all:6} {self.refused:8}" + "".join(f" {one:8.1f}" for one in (*shares, refused))


def compare(given: argparse.Namespace, samples: Sequence[Mapping[str, Any]]) -> int:
    """Send the recorded faults to a server, print the differences, and return the exit code.

    Print the table, too.
    """
    prepared = Prepared(Server(given.server, ""), samples, update=given.update)
    wanted_paths = {sample["path"] for sample in samples}
    kinds: dict[str, Count] = defaultdict(Count)
    fields: Counter[str] = Counter()
    shown: Counter[str] = Counter()
    whole = Count()
    for line in Path(given.recorded).read_text().splitlines():
        row = json.loads(line)
        if row["path"] not in wanted_paths:
            continue
        fault = Fault(row["path"], tuple(row["steps"]), row.get("value", _GONE), row["body"])
        found, wanted = prepared.ask(fault), row["answer"]
        plural = fault.path.rpartition("/")[2]
        kinds[plural].add(wanted, found)
        whole.add(wanted, found)
        if wanted[:2] != found[:2] or (given.texts and wanted[2] != found[2]):
            fields[f"{plural} {fault.field}"] += 1
            shown[fault.field] += 1
            if shown[fault.field] <= given.show:
                value = "(missing)" if fault.value is _GONE else json.dumps(fault.value)[:120]
                print(f"{plural} {'.'.join(map(str, fault.steps))} = {value}")
                print(f"    reference {wanted}\n    here      {found}")
    for name, count in fields.most_common(given.fields):
        print(f"{count:6} {name}")
    print(f"{'kind':32} {'faults':>6} {'refused':>8} {'verdict%':>8} {'path%':>8} {'text%':>8} {'refused%':>8}")
    for name, counts in kinds.items():
        print(counts.line(name))
    print(whole.line("all"))
    return 1 if fields else 0


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="")
    parser.add_argument("--reference", default="")
    parser.add_argument("--token", default="")
    parser.add_argument("--record", default="")
    parser.add_argument("--recorded", default="")
    parser.add_argument("--rows", default="")
    parser.add_argument("--kinds", default="")
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=3)
    parser.add_argument("--fields", type=int, default=0)
    parser.add_argument("--texts", action="store_true", help="differences of messages count, too")
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    samples = yaml.safe_load(FULL.read_text())
    samples = [one for one in samples if not given.kinds or one["path"].rpartition("/")[2] in given.kinds.split(",")]
    if given.record:
        record(given, samples)
        return 0
    if given.rows:
        write_rows(given, samples)
        return 0
    return compare(given, samples)


if __name__ == "__main__":
    sys.exit(main())
