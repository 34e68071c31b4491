"""Write fields and names of built-in kinds into apiext/go_types/types/*.yaml.

``gen-types 1.37.2`` fetches k8s.io/api, k8s.io/kube-aggregator and k8s.io/kubernetes from the Go module proxy into
Go's module cache. It reads fields, types and protobuf numbers from types.go. It reads required fields, defaults,
enumerations and list types from the OpenAPI documents. It reads resources, verbs, short names and categories from
api/discovery.

The command keeps the parts that are written by hand: descriptions, columns, rules, functions, and defaults without a
marker. It copies no description from upstream. It does not change files without an entry in FILES.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

TYPES = Path(__file__).resolve().parent.parent / "apiext/go_types/types"
STORED_VERBS = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}


@dataclass(frozen=True)
class Source:
    """The Go package of a file, the prefix of its OpenAPI models, and its first kinds."""

    package: str
    models: str
    kinds: tuple[str, ...]


def api(path: str, *kinds: str) -> Source:
    return Source(f"k8s.io/api/{path}", f"io.k8s.api.{path.replace('/', '.')}", kinds)


FILES: Mapping[str, Source] = {
    "pods": api(
        "core/v1", "Pod", "PodTemplate", "ReplicationController", "PersistentVolumeClaim", "Binding", "ComponentStatus"
    ),
    "cluster": api(
        "core/v1", "Node", "PersistentVolume", "Endpoints", "ResourceQuota", "LimitRange", "TopologySelectorTerm"
    ),
    "scheduling_alpha": api(
        "scheduling/v1alpha3",
        "WorkloadPodGroupSchedulingPolicy",
        "WorkloadPodGroupSchedulingConstraints",
        "WorkloadPodGroupDisruptionMode",
        "WorkloadPodGroupResourceClaim",
    ),
    "apps": api("apps/v1", "Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "ControllerRevision"),
    "batch": api("batch/v1", "Job", "CronJob"),
    "autoscaling": api("autoscaling/v2", "HorizontalPodAutoscaler"),
    "policy": api("policy/v1", "PodDisruptionBudget", "Eviction"),
    "networking": api("networking/v1", "Ingress", "IngressClass", "NetworkPolicy", "IPAddress", "ServiceCIDR"),
    "discovery": api("discovery/v1", "EndpointSlice"),
    "storage": api(
        "storage/v1",
        "StorageClass",
        "VolumeAttachment",
        "CSIDriver",
        "CSINode",
        "CSIStorageCapacity",
        "VolumeAttributesClass",
    ),
    "node": api("node/v1", "RuntimeClass"),
    "scheduling": api("scheduling/v1", "PriorityClass"),
    "certificates": api("certificates/v1", "CertificateSigningRequest", "ClusterTrustBundle", "PodCertificateRequest"),
    "resource": api(
        "resource/v1", "DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"
    ),
    "flowcontrol": api("flowcontrol/v1", "FlowSchema", "PriorityLevelConfiguration"),
    "autoscaling_v1": api("autoscaling/v1", "HorizontalPodAutoscaler"),
    "apiregistration": Source(
        "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1",
        "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1",
        ("APIService",),
    ),
}
# kinds that only subresources accept, or that are a version of a row in another file
WITHOUT_RESOURCE = frozenset(
    ("k8s.io/api/core/v1.Binding", "k8s.io/api/policy/v1.Eviction", "k8s.io/api/autoscaling/v1.HorizontalPodAutoscaler")
)
SHARED = "meta"  # the file that all files use; it is written by hand
META = "k8s.io/apimachinery/pkg/apis/meta/v1"
HAND_WRITTEN = {"ResourceList": "MilliQuantity{}"}  # type → its replacement, since Go code rounds the values
SCALARS = {
    "string": "string",
    "bool": "bool",
    "int32": "int32",
    "int64": "int64",
    "float64": "float",
    "[]byte": "bytes",
    f"{META}.Time": "Time",
    f"{META}.MicroTime": "MicroTime",
    f"{META}.ObjectMeta": "ObjectMeta",
    "k8s.io/apimachinery/pkg/types.NodeName": "string",
    "k8s.io/apimachinery/pkg/util/intstr.IntOrString": "IntOrString",
    "k8s.io/apimachinery/pkg/api/resource.Quantity": "Quantity",
    "k8s.io/apimachinery/pkg/runtime.RawExtension": "json",
}
STRUCTS = frozenset(
    ("Time", "MicroTime", "Quantity", "IntOrString", "ObjectMeta")
)  # scalars in the files, but structs in Go, which always prints them
IGNORED = frozenset(("TypeMeta", "ListMeta"))


# --- Go sources ---


@dataclass
class GoField:
    """A field of a Go struct; ``go`` is its type with full package names, without the pointer."""

    json: str
    go: str
    pointer: bool
    omitempty: bool
    omitzero: bool
    inline: bool
    number: int


@dataclass
class Package:
    """The types of a Go package.

    ``structs`` is name → fields, ``named`` is name → type, and ``enums`` is name → names of its constants.
    ``constants`` is name → value, or package and name of the constant that it equals.
    """

    path: str
    structs: dict[str, list[GoField]] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    enums: dict[str, list[str]] = field(default_factory=dict)
    constants: dict[str, str | tuple[str, str]] = field(default_factory=dict)


_IMPORT = re.compile(r'^(?:import )?\s*(?:(\w+)\s+)?"([^"]+)"$', re.M)
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.M | re.S)
_NAMED = re.compile(r"^type (\w+) ([\w.\[\]*]+)$", re.M)
_ENUM = re.compile(r"^// \+enum\n(?://.*\n)*type (\w+) string$", re.M)
# A = "a", A Type = "a", A = Type("a"), or A = Type(v1.A)
_CONSTANT = re.compile(r'^\s*(\w+)\s+(?:(\w+)\s+)?=\s*(?:(\w+)\()?(?:"([^"]*)"|(\w+)\.(\w+)\))', re.M)
_FIELD = re.compile(r"^\t(?:(\w+)\s+)?([\w.\[\]*]+)\s+`([^`]*)`", re.M)


def package(path: str, folder: Path) -> Package:
    text = "\n".join(file.read_text() for file in sorted(folder.glob("*types*.go")))
    imports = {alias or path.rpartition("/")[2]: path for alias, path in _IMPORT.findall(text)}
    found = Package(path)
    for name, body in _STRUCT.findall(text):
        found.structs[name] = [one for one in (go_field(m, path, imports) for m in _FIELD.finditer(body)) if one]
    for name, of in _NAMED.findall(text):
        found.named[name] = full(of, path, imports)
    found.enums = {name: [] for name in _ENUM.findall(text)}
    for name, type_, conversion, value, alias, other in _CONSTANT.findall(text):
        found.constants[name] = (imports[alias], other) if alias else value
        if (type_ or conversion) in found.enums:
            found.enums[type_ or conversion].append(name)
    return found


def go_field(match: re.Match[str], path: str, imports: Mapping[str, str]) -> GoField | None:
    own, of, tags = match.groups()
    name, *options = re.search(r'json:"([^"]*)"', tags)[1].split(",")  # type: ignore[index]
    if of.rpartition(".")[2] in IGNORED or name == "-":
        return None
    number = re.search(r'protobuf:"\w+,(\d+),', tags)
    inline = not name and ("inline" in options or not own)
    embedded = (own or of.rpartition(".")[2]).lstrip("*")
    return GoField(
        embedded[:1].lower() + embedded[1:] if inline else name,
        full(of.removeprefix("*"), path, imports),
        of.startswith("*"),
        "omitempty" in options or "omitzero" in options,
        "omitzero" in options,
        inline,
        int(number[1]) if number else 0,
    )


def full(of: str, path: str, imports: Mapping[str, str]) -> str:
    """Return a Go type with full package names.

    ``map[string]v1.X`` becomes ``map[]k8s.io/api/core/v1.X``.
    """
    if of == "[]byte":
        return of
    if of.startswith("[]"):
        return f"[]{full(of[2:].removeprefix('*'), path, imports)}"
    if of.startswith("map["):
        return f"map[]{full(of.partition(']')[2], path, imports)}"
    if "." in of:
        alias, _, name = of.partition(".")
        return f"{imports[alias]}.{name}"
    return of if of in SCALARS else f"{path}.{of}"


# --- one release ---


class Release:
    """The modules of a release in Go's module cache."""

    def __init__(self, version: str) -> None:
        minor = version.partition(".")[2]
        self.modules = {
            name: download(name, number)
            for name, number in (
                ("k8s.io/api", f"v0.{minor}"),
                ("k8s.io/kube-aggregator", f"v0.{minor}"),
                ("k8s.io/kubernetes", f"v{version}"),
            )
        }
        self.packages: dict[str, Package] = {}
        self.models: dict[str, Any] = {}
        kubernetes = self.modules["k8s.io/kubernetes"]
        for file in sorted((kubernetes / "api/openapi-spec/v3").glob("*.json")):
            self.models |= json.loads(file.read_text()).get("components", {}).get("schemas", {})
        self.resources = {}
        for file in sorted((kubernetes / "api/discovery").glob("*__*.json")):
            document = json.loads(file.read_text())
            group, _, of = document.get("groupVersion", "").rpartition("/")
            for one in document.get("resources", ()):
                self.resources[group, of, one["name"]] = one

    def package(self, path: str) -> Package:
        if path not in self.packages:
            module = next(name for name in self.modules if path.startswith(f"{name}/"))
            self.packages[path] = package(path, self.modules[module] / path.removeprefix(f"{module}/"))
        return self.packages[path]


def download(module: str, version: str) -> Path:
    with tempfile.TemporaryDirectory() as outside:
        command = ["go", "mod", "download", "-json", f"{module}@{version}"]
        done = subprocess.run(command, cwd=outside, check=True, capture_output=True, text=True)
    return Path(json.loads(done.stdout)["Dir"])


# --- files ---


class Writer:
    """Writes the files; each type is in the first file that uses it."""

    def __init__(self, release: Release) -> None:
        self.release = release
        self.known = dict.fromkeys(read(SHARED), SHARED)
        self.place: dict[str, str] = {}  # full Go name → file
        self.messages: dict[str, str] = {}  # protobuf message → full Go name
        self.tables: dict[str, dict[str, Any]] = {}
        for file in sorted(TYPES.glob("*.yaml")):
            if file.stem not in FILES:
                for name, entry in read(file.stem).items():
                    if isinstance(entry, dict) and "fields" in entry:
                        self.messages.setdefault(entry.get("message", name), f"{file.stem}.{name}")

    def write(self) -> None:
        for file, source in FILES.items():
            self.file = file
            self.source = source
            self.before = read(file)
            self.uses: set[str] = set()
            self.table: dict[str, Any] = {}
            for kind in source.kinds:
                self.add(f"{source.package}.{kind}", kind=f"{source.package}.{kind}" not in WITHOUT_RESOURCE)
            head: dict[str, Any] = {"models": source.models}
            version = source.package.rpartition("/")[2]
            if version != "v1":
                head["package"] = version
            if self.uses:
                head["uses"] = [one for one in FILES if one in self.uses]
            text = f"# {source.package.removeprefix('k8s.io/')}; fields by scripts/gen-types, the rest by hand.\n"
            text += "".join(f"{name}: {inline(value)}\n" for name, value in head.items())
            text += "".join(entry_text(name, entry) for name, entry in self.table.items())
            (TYPES / f"{file}.yaml").write_text(text)

    def add(self, full_name: str, *, kind: bool = False) -> str:
        """Add a type and the types of its fields.

        Return the name of the type in the text of a field.
        """
        path, _, name = full_name.rpartition(".")
        place = self.place.get(full_name)
        if place is not None:
            if place != self.file:
                self.uses.add(place)
            return name
        if name in self.known or (path == META and name in self.known):
            return name
        home = self.release.package(path) if not path.startswith("k8s.io/apimachinery") else None
        if home is None:
            raise SystemExit(f"{full_name} is not in {SHARED}.yaml: add it to this file")
        if path != self.source.package:
            raise SystemExit(f"{full_name} is in no file yet: add it to a file before {self.file}")
        self.place[full_name] = self.file
        if name in home.named:
            self.table[name] = ""  # keeps the order
            of = HAND_WRITTEN.get(name) or self.written(home.named[name])
            values = sorted({self.constant(home, one) for one in home.enums.get(name, ())})
            self.table[name] = " ".join([of, *(one if re.fullmatch(r"\S+", one) else f"'{one}'" for one in values)])
            return name
        entry: dict[str, Any] = {}
        self.table[name] = entry
        self.fill(name, home.structs[name], entry, kind=kind)
        return name

    def constant(self, home: Package, name: str) -> str:
        value = home.constants[name]
        return value if isinstance(value, str) else self.constant(self.release.package(value[0]), value[1])

    def written(self, go: str) -> str:
        if go.startswith("[]") and go != "[]byte":
            return f"{self.written(go[2:])}[]"
        if go.startswith("map[]"):
            return f"{self.written(go[5:])}{{}}"
        return SCALARS.get(go) or self.add(go)

    def fill(self, name: str, fields: list[GoField], entry: dict[str, Any], *, kind: bool) -> None:
        before = self.before.get(name) or {}
        model = self.release.models.get(f"{self.source.models}.{name}") or {}
        own: dict[str, str] = {}
        is_kind = any(one.go == f"{META}.ObjectMeta" and one.number == 1 for one in fields) and (
            "x-kubernetes-group-version-kind" in model
        )
        if "doc" in before:
            entry["doc"] = before["doc"]
        if is_kind:
            entry["kind"] = {**before.get("kind", {}), **(self.resource(name) if kind else {})}
        lists: dict[str, Any] = {}
        defaults = dict(before.get("defaults") or {})
        for one in fields:
            if is_kind and one.json == "metadata":
                continue
            flags = "&" if one.inline else "?" * one.pointer + "!" * (not one.omitempty)
            if one.inline:  # only the model of the outer struct has the fields of an embedded struct
                self.release.models.setdefault(f"{self.source.models}.{one.go.rpartition('.')[2]}", model)
            of = self.written(one.go)
            if not one.inline and not one.pointer and self.is_struct(of):
                flags = ""  # Go always prints structs
            if of in STRUCTS and not one.pointer and not one.omitzero:
                flags = "!"
            text = f"{of}{flags} = {one.number}"
            told = described(before, one.json)
            own[one.json] = f"{text} | {told}" if told else text
            property_ = (model.get("properties") or {}).get(one.json) or {}
            found = semantics(property_)
            if found is not None:
                lists[one.json] = found
            default = property_.get("default")
            if default not in (None, {}) and (default or one.pointer):
                defaults[one.json] = default
        required = [one for one in model.get("required", ()) if one in own]
        if self.messages.setdefault(name, f"{self.source.package}.{name}") != f"{self.source.package}.{name}":
            package, _, _version = self.source.package.rpartition("/")
            entry["message"] = f"{package.rpartition('/')[2].capitalize()}{name}"
        if model.get("x-kubernetes-map-type") == "atomic":
            entry["atomic"] = True
        if required:
            entry["required"] = required
        entry["fields"] = own
        if lists:
            entry["lists"] = lists
        if "fill" in before:
            entry["fill"] = before["fill"]
        if defaults:
            entry["defaults"] = defaults
        for word in ("union", "holds_empty", "rules"):
            if word in before:
                entry[word] = before[word]

    def is_struct(self, name: str) -> bool:
        return any(name in one.structs for one in self.release.packages.values())

    def resource(self, kind: str) -> dict[str, Any]:
        """Return the row of a kind, with its names, verbs and scope from discovery."""
        model = self.release.models[f"{self.source.models}.{kind}"]
        gvk = model["x-kubernetes-group-version-kind"][0]
        group, version = gvk["group"], gvk["version"]
        every = self.release.resources
        names = [name for (g, v, name), one in every.items() if (g, v, one["kind"]) == (group, version, kind)]
        found = min((name for name in names if "/" not in name), key=len)
        told = every[group, version, found]
        row: dict[str, Any] = {"group": group} if group else {}
        row |= {"version": version, "resource": found, "namespaced": told["namespaced"]}
        if set(told["verbs"]) != STORED_VERBS:
            row["verbs"] = told["verbs"]
        if told.get("shortNames"):
            row["short"] = told["shortNames"]
        if told.get("categories"):
            row["category"] = told["categories"]
        if (group, version, f"{found}/status") in every:
            row["status"] = True
        return row


def semantics(told: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the merge rules in the OpenAPI property of a field, None without merge rules."""
    found: dict[str, Any] = {}
    if told.get("x-kubernetes-list-type") == "map":
        found["keys"] = told["x-kubernetes-list-map-keys"]
    elif told.get("x-kubernetes-list-type") == "set":
        found["set"] = True
    if told.get("x-kubernetes-list-type") == "atomic" and told.get("format") == "byte":
        found["atomic"] = True
    map_type = told.get("x-kubernetes-map-type")
    if map_type == "granular" or (map_type == "atomic" and "additionalProperties" in told):
        found[map_type] = True
    strategy = told.get("x-kubernetes-patch-strategy", "")
    if "merge" in strategy.split(","):
        found["merge"] = told.get("x-kubernetes-patch-merge-key", "")
    if strategy not in ("", "merge"):
        found["patch"] = strategy
    return found or None


def described(entry: Mapping[str, Any], name: str) -> str:
    text: str = (entry.get("fields") or {}).get(name, "")
    return text.partition(" | ")[2]


def read(file: str) -> dict[str, Any]:
    path = TYPES / f"{file}.yaml"
    return yaml.safe_load(path.read_text()) if path.exists() else {}


# --- text ---


def entry_text(name: str, entry: Any) -> str:
    if isinstance(entry, str):
        return f"{name}: {entry}\n"
    return f"{name}:\n" + "".join(lines(entry, "  "))


def lines(entry: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Yield the lines of a mapping; long values are on separate lines."""
    for name, value in entry.items():
        short = f"{indent}{name}: {inline(value, flow=False)}\n"
        if isinstance(value, dict) and value and (name in ("fields", "kind") or len(short) > 120):
            yield f"{indent}{name}:\n"
            yield from lines(value, f"{indent}  ")
        elif isinstance(value, list) and len(short) > 120:
            yield f"{indent}{name}:\n"
            yield from (f"{indent}  - {inline(one)}\n" for one in value)
        else:
            yield short


def inline(value: Any, *, flow: bool = True) -> str:
    """Return a value as one line of YAML; with ``flow``, quote it as required inside brackets."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {inline(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, str):
        text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
        plain = text.removesuffix("\n...\n").removesuffix("\n")
        return (
            json.dumps(value, ensure_ascii=False)
            if flow and re.search(r"[,\[\]{}]", plain) and plain == value
            else plain
        )
    return json.dumps(value)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: scripts/gen-types 1.37.2")
    Writer(Release(sys.argv[1])).write()
