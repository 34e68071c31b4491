"""Replace the parts of answers that differ between runs by symbols.

The rules are in ``apiext/conformance/reference/README.md``. First, answers are parsed. Second, they are read in order,
to name the values that the server generated (revisions, uids, names). Third, these values are replaced by their names.
"""

from __future__ import annotations

import base64
import bisect
import hashlib
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from apiext.conformance.replay.play import Played, Reply, counts
from apiext.conformance.replay.recorded import CANON, SERVER_MANAGER, USER_AGENT

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_AGE = re.compile(r"(?=.)(?:\d+y)?(?:\d+d)?(?:\d+h)?(?:\d+m)?(?:\d+s)?")
_GENERATED = "[bcdfghjklmnpqrstvwxz2456789]{5}"
_PREFIX_KEPT = 58  # maximum number of bytes of generateName in a generated name
_DAYS = timedelta(days=2)


class _Yaml(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML in which booleans and numbers have only the forms of JSON, and dates are strings."""


_PLAIN_SCALARS = {
    "bool": (r"true|false", "tf"),
    "int": (r"-?(?:0|[1-9][0-9]*)", "-0123456789"),
    "float": (r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", "-0123456789"),
}
_REPLACED = {f"tag:yaml.org,2002:{name}" for name in (*_PLAIN_SCALARS, "timestamp")}
_Yaml.yaml_implicit_resolvers = {
    first: [row for row in rows if row[0] not in _REPLACED]
    for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _name, (_pattern, _first) in _PLAIN_SCALARS.items():
    _Yaml.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), list(_first))


def normalise(played: Played) -> list[dict[str, Any] | None]:
    """Return the answers of a run in the form of the recordings.

    Return None for a step without an answer.
    """
    answers = _Answers(played)
    steps = played.scenario.steps
    parsed = [
        None if reply is None else answers.parse(reply, step) for step, reply in zip(steps, played.replies, strict=True)
    ]
    for index, (step, answer) in enumerate(zip(steps, parsed, strict=True)):
        if answer is not None:
            if "filter" in step and "body" in answer:
                answer["body"] = _own_parts(answer["body"], step["filter"])
            answers.learn(index, step, answer)
    return [
        None if answer is None else _compared(step, answers.rewritten(answer))
        for step, answer in zip(steps, parsed, strict=True)
    ]


def _compared(step: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    if (parts := step.get("compare")) is not None:
        return {name: part for name, part in answer.items() if name in parts or name == "timedOut"}
    if not answer["headers"]:
        del answer["headers"]
    return answer


class _Answers:
    """The names for generated values in one run, and the replacement of values by these names."""

    def __init__(self, played: Played) -> None:
        self.label = played.label
        self.manager = (
            re.compile(rf'(\\*"manager\\*": ?\\*"){re.escape(played.manager)}(?=\\*")') if played.manager else None
        )
        self.sent = "\n".join(played.sent)
        asked = json.dumps(played.scenario.steps)
        self.given_uids = set(_UUID.findall(asked))
        self.uids: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.revisions: dict[int, str] = {}
        self.order: list[int] = []
        self.managers = _managers(played, self.sent)
        self.hashes = self._version_hashes(asked)

    # ------------------------------------------------------------------ parsing

    def canonical(self, text: str) -> str:
        """Replace the label of the run and the server's field manager by fixed names.

        A run has its label in the names of its API groups, in place of CANON.
        """
        if self.manager:
            text = self.manager.sub(rf"\g<1>{SERVER_MANAGER}", text)
        return text.replace(self.label, CANON).replace(self.label.capitalize(), CANON.capitalize())

    def parse(self, reply: Reply, step: dict[str, Any]) -> dict[str, Any]:
        """Return an answer in the form of the recordings.

        Replace the label and the server's field manager, but no other generated value.
        """
        answer: dict[str, Any] = {"status": reply.status, "headers": {}}
        if reply.timed_out:
            answer["timedOut"] = True
        if reply.events is not None:
            answer["events"] = [self._event(line) for line in reply.events if counts(line, reply.bookmarks)]
            if "closed" in step:
                answer["closed"] = reply.closed
            return answer
        answer["headers"] = {
            name: sorted(map(self.canonical, value)) if isinstance(value, list) else self.canonical(value)
            for name, value in reply.headers.items()
        }
        if not reply.stream:
            self._parse_body(answer, reply, "watch=" in step.get("path", ""))
        return answer

    def _event(self, line: str) -> Any:
        line = self.canonical(line)
        try:
            return json.loads(line)
        except ValueError:
            return {"unparsable": line[:200]}

    def _parse_body(self, answer: dict[str, Any], reply: Reply, watched: bool) -> None:
        kind = reply.headers.get("Content-Type", "")
        if "protobuf" in kind:
            answer["binary"] = {"prefix": reply.text[:4].encode("utf-8", "surrogateescape").hex()}
            return
        text = self.canonical(reply.text)
        if watched and reply.status == 200 and text.startswith('{"type"'):
            lines = [line for line in text.splitlines() if line.strip() and counts(line, True)]
            answer["events"] = [json.loads(line) for line in lines]
            return
        try:
            if "json" in kind or text[:1] in "{[":
                answer["body"] = json.loads(text)
            elif "yaml" in kind:
                answer["body"] = yaml.load(text, Loader=_Yaml)
                answer["yaml"] = True
            elif text:
                answer["text"] = text
        except (ValueError, yaml.YAMLError):
            answer["text"] = text

    # ------------------------------------------------------------------ naming

    def learn(self, index: int, step: dict[str, Any], answer: dict[str, Any]) -> None:
        """Assign names to the values that the server generated in this answer."""
        body = json.dumps(answer.get("body"))
        for prefix in re.findall(r'"generateName": ?"([^"]+)"', json.dumps(step.get("body", step.get("raw", "")))):
            kept = prefix[:_PREFIX_KEPT]
            for name in re.findall(rf"(?<![a-zA-Z0-9]){re.escape(kept)}{_GENERATED}(?![a-z0-9])", body):
                self._name(name, kept)
        parts = step.get("compare")
        if parts is not None and not {"body", "events"} & set(parts):
            return
        fresh: set[int] = set()
        self._scan([answer.get("body"), answer.get("events")], fresh)
        highest = max(self.revisions, default=0)
        for count, revision in enumerate(sorted(fresh - self.revisions.keys())):
            self.revisions[revision] = f"rv@{index}{f'.{count}' if count else ''}{'!' if revision < highest else ''}"
        self.order = sorted(self.revisions)

    def _name(self, name: str, kept: str) -> None:
        self.names.setdefault(name, f"{kept}<gen{len(self.names) + 1}>")

    def _scan(self, value: Any, fresh: set[int]) -> None:
        if isinstance(value, list):
            for item in value:
                self._scan(item, fresh)
        if not isinstance(value, dict) or (value.get("type") == "BOOKMARK" and "object" in value):
            return
        metadata = value.get("metadata")
        if isinstance(metadata, dict):
            self._scan_metadata(metadata, fresh, _is_list(value))
        for item in value.values():
            self._scan(item, fresh)

    def _scan_metadata(self, metadata: dict[str, Any], fresh: set[int], listed: bool) -> None:
        revision = metadata.get("resourceVersion")
        if isinstance(revision, str) and revision.isdigit() and int(revision) and not listed:
            fresh.add(int(revision))
        prefix, name, uid = metadata.get("generateName"), metadata.get("name"), metadata.get("uid")
        if prefix and isinstance(prefix, str) and isinstance(name, str):
            kept = prefix[:_PREFIX_KEPT]
            if name.startswith(kept) and len(name) == len(kept) + 5:
                self._name(name, kept)
        if isinstance(uid, str) and _UUID.fullmatch(uid) and uid not in self.given_uids:
            self.uids.setdefault(uid, f"uid{len(self.uids) + 1}")

    def _version_hashes(self, asked: str) -> dict[str, str]:
        """Return storageVersionHash of a kind in this run → that of the kind in the recordings."""
        versions = {*re.findall(r"\bv\d+(?:(?:alpha|beta)\d+)?\b", asked), "v1"}
        kinds = set(re.findall(r'"kind": ?"([A-Za-z0-9]+)"', asked))
        return {
            _version_hash(f"{self.label}{rest}/{version}/{kind}"): _version_hash(f"{CANON}{rest}/{version}/{kind}")
            for rest in (".example.com", "-b.example.com", ".k8s.io")
            for version in versions
            for kind in kinds
        }

    # ------------------------------------------------------------------ rewriting

    def rewritten(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer with symbols in place of generated values."""
        for part in ("body", "events"):
            if part in answer:
                answer[part] = self.value(answer[part], False)
        if "text" in answer:
            answer["text"] = self.text(answer["text"])
        answer["headers"] = {
            name: [self.text(item) for item in value] if isinstance(value, list) else self.text(value)
            for name, value in answer["headers"].items()
        }
        return answer

    def revision(self, text: str, listed: bool) -> str:
        """Return the symbol of a revision.

        A revision is known if an object in an answer has it; each known revision has its own symbol. For a list, and
        for an unknown revision, return the symbol of the nearest known revision that is equal or lower, followed by ~.
        If no known revision is equal or lower, return rv~. The text 0 and texts that are not numbers stay unchanged.
        """
        if not text.isdigit() or int(text) == 0:
            return text
        number = int(text)
        below = bisect.bisect_right(self.order, number)
        if not listed and below and self.order[below - 1] == number:
            return self.revisions[number]
        return (self.revisions[self.order[below - 1]] if below else "rv") + "~"

    def text(self, text: str) -> str:
        """Replace the generated values in a string."""
        for name, symbol in self.names.items():
            text = text.replace(name, symbol)
        if len(text) < 8:
            return text
        if "-" in text:
            text = _UUID.sub(lambda found: self._uid(found[0]), text)
            text = _TIME.sub(lambda found: "<time>" if _recent(found[0]) else found[0], text)
        if "esource version: " in text or "esourceVersion" in text:
            for pattern, rewrite in _REVISIONS_IN_TEXT:
                text = pattern.sub(lambda found, rewrite=rewrite: rewrite(self, found), text)  # type: ignore[misc]
        for mark, pattern, replacement in _TEXTS:
            if mark in text:
                text = pattern.sub(replacement, text)
        if r"{\"manager\":" in text:
            text = _QUOTED.sub(lambda found: _managers_in_order(found[0]), text)
        if "): errors:\n" in text:
            head, _, lines = text.partition("errors:\n")
            text = f"{head}errors:\n" + "\n".join(sorted(lines.split("\n")))
        if text.endswith("field not declared in schema") and "typed patch" not in text and "errors:" not in text:
            text = re.sub(r"\.\S+(?=: field not declared in schema$)", "<field>", text)
        return text

    def _uid(self, uid: str) -> str:
        return self.uids.get(uid) or (uid if uid in self.given_uids else "<uuid>")

    def value(self, value: Any, in_definition: bool) -> Any:
        """Replace the generated values in a JSON value."""
        if isinstance(value, list):
            return [self.value(item, in_definition) for item in value]
        if isinstance(value, str):
            return self.text(value)
        if not isinstance(value, dict):
            return value
        in_definition = in_definition or value.get("kind") == "CustomResourceDefinition"
        bookmark = value.get("type") == "BOOKMARK"
        listed = _is_list(value)
        out: dict[str, Any] = {}
        for key, item in value.items():
            name = self.text(key)
            if key == "metadata" and isinstance(item, dict):
                out[name] = self._metadata(item, listed, in_definition)
            elif key == "storageVersionHash" and isinstance(item, str):
                out[name] = self.hashes.get(item, item)
            elif key == "object" and bookmark and isinstance(item, dict):
                out[name] = self.value(item, False) | {
                    "metadata": self._metadata(item.get("metadata", {}), True, False)
                }
            else:
                out[name] = self.value(item, in_definition)
        return _in_order(out, in_definition)

    def _metadata(self, metadata: dict[str, Any], listed: bool, in_definition: bool) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, item in metadata.items():
            if key == "resourceVersion" and isinstance(item, str):
                out[key] = self.revision(item, listed)
            elif key == "continue" and isinstance(item, str) and item:
                out[key] = self._token(item)
            elif key == "managedFields" and isinstance(item, list):
                out[key] = self._managed_fields(item, in_definition)
            elif key == "selfLink":
                out[key] = "<selfLink>"
            else:
                out[key] = self.value(item, False)
        return out

    def _managed_fields(self, entries: list[Any], in_definition: bool) -> list[Any]:
        out = [self.value(entry, False) for entry in entries]
        for entry in out:
            if in_definition and entry.get("subresource") == "status" and entry.get("manager") not in self.managers:
                entry["manager"] = "<server>"
        return sorted(out, key=_manager_key)

    def _token(self, token: str) -> str:
        try:
            fields = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            if isinstance(fields["rv"], int) and fields["rv"] > 0:
                fields["rv"] = self.revision(str(fields["rv"]), True)
        except (ValueError, TypeError, KeyError):
            return "<opaque continue>"
        return f"<continue {self.text(self.canonical(json.dumps(fields, sort_keys=True)))}>"


def _managers(played: Played, sent: str) -> set[str]:
    """Return the names of field managers that clients used.

    All other managers are the server's own.
    """
    agents = [USER_AGENT, *((step.get("headers") or {}).get("User-Agent", "") for step in played.scenario.steps)]
    named = re.findall(r"fieldManager=([^&\s]*)", sent) + re.findall(r'"manager":"([^"]*)"', sent)
    return {agent.split("/")[0] for agent in agents} | set(named)


def _too_large(answers: _Answers, found: re.Match[str]) -> str:
    asked = found[2] if found[2] in answers.sent else "<rv>"
    return f"{found[1]}{asked}{found[3]}<rv>"


_Rewrite = Callable[[_Answers, "re.Match[str]"], str]
_REVISIONS_IN_TEXT: list[tuple[re.Pattern[str], _Rewrite]] = [
    (re.compile(r'(resourceVersion\\*":\s*\\*")(\d+)'), lambda a, m: m[1] + a.revision(m[2], False)),
    (re.compile(r"(Too large resource version: )(\d+)(, current: )\d+"), _too_large),
    (re.compile(r"(too old resource version: )(\d+) \(\d+\)"), lambda a, m: f"{m[1]}{a.revision(m[2], False)} (<rv>)"),
    (
        re.compile(r"(ResourceVersion in (?:precondition|object meta): )(\d+)"),
        lambda a, m: m[1] + a.revision(m[2], False),
    ),
    (
        re.compile(r"(ResourceVersion in the precondition \()(\d+)(\).*in record \()(\d+)(\))"),
        lambda a, m: m[1] + a.revision(m[2], False) + m[3] + a.revision(m[4], False) + m[5],
    ),
]
_TEXTS = [
    ("Key: /", re.compile(rf"Key: \S*?/(?={CANON}|apiextensions\.k8s\.io/)"), "Key: <prefix>/"),
    (
        "/",
        re.compile(rf"^/(?!apis/|openapi/)\S*?/(?={CANON}\.)"),
        "<prefix>/",
    ),  # etcd keys in the causes of a Status
    ("able revision=", re.compile(r"(?<=able revision=)\d+"), "<rv>"),
    ("selfType", re.compile(r"selfType\d+"), "selfType<n>"),
    ("0xc0", re.compile(r"0xc[0-9a-f]{8,}"), "<addr>"),
    ("->", re.compile(r"127\.0\.0\.1:\d+->"), "127.0.0.1:<port>->"),
    ("?hash=", re.compile(r"\?hash=[0-9A-F]+"), "?hash=<hash>"),
]


def _recent(text: str) -> bool:
    try:
        moment = datetime.fromisoformat(text[:19]).replace(tzinfo=UTC)
    except ValueError:
        return False
    return abs(datetime.now(UTC) - moment) < _DAYS


def _manager_key(entry: dict[str, Any]) -> list[str]:
    return [str(entry.get(name)) for name in ("operation", "manager", "apiVersion", "subresource")]


def _managers_in_order(quoted: str) -> str:
    """Return the JSON string of an encoded object with its managedFields in a fixed order.

    The server sorts managedFields by time in seconds, so their order depends on the speed of the run.
    """
    mark = '"managedFields":['
    if r"\"managedFields\"" not in quoted:
        return quoted
    text = json.loads(quoted)
    start = text.index(mark) + len(mark)
    entries, at, decoder = [], start, json.JSONDecoder()
    while text[at - 1] in "[,":
        entry, end = decoder.raw_decode(text, at)
        entries.append((_manager_key(entry), text[at:end]))
        at = end + 1
    return json.dumps(text[:start] + ",".join(shown for _, shown in sorted(entries)) + text[at - 1 :])


def _is_list(value: dict[str, Any]) -> bool:
    kind = str(value.get("kind", ""))
    items = value.get("items")
    return (
        kind == "Table"
        or (isinstance(items, list) and "spec" not in value)
        or (kind.endswith("List") and "items" in value)
    )


def _version_hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _in_order(value: dict[str, Any], in_definition: bool) -> dict[str, Any]:
    """Sort lists whose order has no meaning, and hide the ages in Tables."""
    kind = value.get("kind")
    if (kind == "Table" and "columnDefinitions" in value) or "rows" in value:
        _hide_ages(value)
    if kind == "Status":
        _sort_causes(value)
    elif kind == "APIResourceList" and isinstance(value.get("resources"), list):
        value["resources"].sort(key=lambda resource: str(resource.get("name")))
    if in_definition and "acceptedNames" in value and isinstance(value.get("conditions"), list):
        value["conditions"].sort(key=lambda condition: str(condition.get("type")))
    return value


def _hide_ages(table: dict[str, Any]) -> None:
    columns = [column.get("type") for column in table.get("columnDefinitions") or []]
    for row in table.get("rows") or []:
        cells = row.get("cells") or []
        for index, cell in enumerate(cells):
            if not isinstance(cell, str):
                continue
            dated = columns[index] == "date" if index < len(columns) else bool(re.fullmatch(r"\d+s", cell))
            if dated and _AGE.fullmatch(cell):
                cells[index] = "<age>"


def _sort_causes(status: dict[str, Any]) -> None:
    causes = (status.get("details") or {}).get("causes") or []
    if len(causes) < 2:
        return
    parts = list(
        dict.fromkeys(
            (f"{cause['field']}: " if cause.get("field") else "") + str(cause.get("message", "")) for cause in causes
        )
    )
    joined = f"[{', '.join(parts)}]"
    message = status.get("message") or ""
    if message.endswith(joined):
        status["message"] = message[: -len(joined)] + f"[{', '.join(sorted(parts))}]"
    causes.sort(key=lambda cause: json.dumps(cause, sort_keys=True))


def _own_parts(body: Any, keep: str) -> Any:
    """Return a server-wide document with only the entries that belong to the scenario.

    ``keep`` is the name of the field with the entries; "own" stands for all fields that may have entries. For any
    ``keep``, ``components.schemas`` is reduced to the schemas of the scenario. The fields continue and
    remainingItemCount of the metadata are removed, since they depend on the other entries.
    """
    if not isinstance(body, dict):
        return body
    out = dict(body)
    for key in ["items", "groups", "paths", "definitions", "rows"] if keep == "own" else [keep]:
        part = out.get(key)
        if isinstance(part, list):
            out[key] = [item for item in part if CANON in json.dumps(item)]
        elif isinstance(part, dict):
            out[key] = {name: item for name, item in part.items() if CANON in name}
    schemas = (out.get("components") or {}).get("schemas")
    if schemas is not None:
        own = {name: schema for name, schema in schemas.items() if CANON in name}
        out["components"] = {**out["components"], "schemas": own}
    if isinstance(out.get("metadata"), dict):
        dropped = ("remainingItemCount", "continue")
        out["metadata"] = {name: item for name, item in out["metadata"].items() if name not in dropped}
    return out
