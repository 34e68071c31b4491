"""The server starts with an unusable etcd or unreadable data: its error names the cause."""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support import tls
from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import pause, prompt, until
from tests.support.client_certificates import CN, ClientAuthority
from tests.support.processes import (
    ROOT,
    SERVE,
    Etcd,
    Server,
    errors,
    etcd_binary,
    free_port,
    running_etcd,
    running_server,
    start_process,
    stop,
)

OWN = ["--insecure", "--port=0"]
NO_ETCD = 4  # the exit code
OLDER = "/usr/bin/etcd"


def start_error(directory: Path, *flags: str) -> str:
    """Run a server that must exit soon because of etcd; return its error."""
    began = time.monotonic()
    ended = subprocess.run(
        [*SERVE, *OWN, f"--data-dir={directory}", "--etcd-wait=1", *flags],
        cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip
    assert (ended.returncode, "Traceback" in ended.stderr) == (NO_ETCD, False), ended.stderr
    prompt(time.monotonic() - began, 5, "it waits longer than --etcd-wait")
    return errors(ended.stderr)[-1]


# ---------------------------------------------------------------------- an etcd that cannot be used


def test_start_fails_if_etcd_is_down(tmp_path: Path) -> None:
    port = free_port()
    for url in (f"http://127.0.0.1:{port}", f"unix://{tmp_path}/no.sock", "http://nowhere.invalid:1"):
        said = start_error(tmp_path / "server", f"--etcd-servers={url}")
        assert said.startswith(f"etcd at {url} does not answer (etcd is not reachable: {url}: ")
        assert said.endswith("): start it, or omit --etcd-servers to use a store in this process")


def test_start_waits_for_a_silent_etcd(tmp_path: Path) -> None:
    ready, log = tmp_path / "ready", tmp_path / "log"
    with running_etcd(tmp_path / "etcd") as etcd, log.open("wb") as out:
        etcd.process.send_signal(signal.SIGSTOP)
        flags = [f"--etcd-servers={etcd.url}", f"--data-dir={tmp_path / 'server'}", f"--ready-file={ready}"]
        server = start_process([*SERVE, *OWN, *flags, "--etcd-wait=30"], out)
        try:
            until(lambda: b"no connection to etcd" in log.read_bytes(), "it says what it waits for")
            etcd.process.send_signal(signal.SIGCONT)
            url = str(json.loads(until(lambda: ready.exists() and ready.read_text(), "it is ready"))["url"])
            serve(Client(url)).create("a")
        finally:
            etcd.process.send_signal(signal.SIGCONT)
            stop(server)


@dataclass
class Sealed:
    """An etcd that accepts only clients with a certificate of its CA.

    ``flags`` are the flags of such a client.
    """

    url: str
    flags: dict[str, str]
    directory: Path

    def but(self, **other: str) -> list[str]:
        """Return the flags of a client; ``other`` replaces flags, and an empty value removes one."""
        found = {**self.flags, "etcd-servers": self.url, **{f"etcd-{name}": it for name, it in other.items()}}
        return [f"--{name}={value}" for name, value in found.items() if value]


@contextlib.contextmanager
def sealed(directory: Path, names: tuple[str, ...]) -> Iterator[Sealed]:
    """Run an etcd with a certificate for these names."""
    directory.mkdir(exist_ok=True)
    authority, clients = tls.authority("etcd-ca"), ClientAuthority(directory, "clients")
    ca, certificate, client = (
        directory / "ca.pem",
        tls.server_file(authority, directory, names),
        clients.issue(((CN, "a"),)),
    )
    ca.write_bytes(authority.pem)
    url, peer = f"https://localhost:{free_port()}", f"http://127.0.0.1:{free_port()}"
    command = [
        etcd_binary(), "--name=t", f"--data-dir={directory / 'data'}", "--log-level=error",
        f"--listen-client-urls={url.replace('localhost', '127.0.0.1')}", f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=t={peer}",
        f"--cert-file={certificate}", f"--key-file={certificate}", f"--trusted-ca-file={clients.file}",
        "--client-cert-auth",
    ]  # fmt: skip
    with (directory / "etcd.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        flags = {"etcd-cafile": str(ca), "etcd-certfile": str(client), "etcd-keyfile": str(client)}
        yield Sealed(url, flags, directory)
    finally:
        stop(process)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sealed]:
    """An etcd with a certificate for localhost, with which a server can start."""
    place = tmp_path_factory.mktemp("sealed")
    with sealed(place, ("localhost",)) as etcd, running_server([*OWN, *etcd.but()], place / "first"):
        yield etcd


LOOK = "): start it, or check --etcd-cafile, --etcd-certfile and --etcd-keyfile"


def test_server_stores_objects_in_an_etcd_with_tls(secure: Sealed, tmp_path: Path) -> None:
    flags = [*OWN, *secure.but(prefix=f"/{tmp_path.name}")]
    with running_server(flags, tmp_path) as server:
        made = serve(Client(server.url)).create("a")
    with running_server(flags, tmp_path) as server:
        path = f"/apis/{made['apiVersion']}/namespaces/default/widgets/a"
        assert Client(server.url).get(path).expect(200) == made


def test_start_fails_with_mismatched_etcd_certificates(secure: Sealed, own_etcd: Etcd, tmp_path: Path) -> None:
    stranger = str(ClientAuthority(tmp_path, "strangers").issue(((CN, "b"),)))
    other = tmp_path / "other.pem"
    other.write_bytes(tls.authority().pem)
    cases = {
        "another authority": (secure.but(cafile=str(other)), "certificate verify failed"),
        "that of the system": (secure.but(cafile=""), "certificate verify failed"),
        "no certificate": (secure.but(certfile="", keyfile=""), "certificate"),
        "a stranger's": (secure.but(certfile=stranger, keyfile=stranger), "certificate"),
        "another name": (
            secure.but(servers=secure.url.replace("localhost", "127.0.0.1")),
            "is not valid for '127.0.0.1'",
        ),
        "TLS to an etcd without": (secure.but(servers=own_etcd.url.replace("http", "https")), "etcd is not reachable"),
        "no TLS": (secure.but(servers=secure.url.replace("https", "http")), "closed by the server"),
    }
    with ThreadPoolExecutor(3) as pool:  # the servers wait most of the time
        told = [pool.submit(start_error, tmp_path / str(at), *flags) for at, (flags, _) in enumerate(cases.values())]
    for (name, (_, why)), answer in zip(cases.items(), told, strict=True):
        said = answer.result()
        assert said.startswith("etcd at http"), name
        assert (why in said, said.endswith(LOOK)) == (True, name != "no TLS"), f"{name}: {said}"


def test_start_fails_with_wrong_etcd_credentials(tmp_path: Path) -> None:
    with running_etcd(tmp_path / "etcd") as etcd:
        etcd.call("auth/user/add", {"name": "root", "password": "secret"})
        etcd.call("auth/role/add", {"name": "root"})
        etcd.call("auth/user/grant", {"user": "root", "role": "root"})
        etcd.call("auth/enable", {})
        for user in ("--etcd-user=root:guess", "--etcd-user=", "--etcd-user=nobody:"):
            said = start_error(tmp_path / "server", f"--etcd-servers={etcd.url}", user)
            assert said.startswith(f"etcd at {etcd.url} refuses the user (etcdserver: "), said
            assert said.endswith("): check --etcd-user")
        with running_server([*OWN, f"--etcd-servers={etcd.url}", "--etcd-user=root:secret"], tmp_path / "in") as server:
            serve(Client(server.url)).create("a")


# ---------------------------------------------------------------------- data that cannot be used


def put(etcd: Etcd, key: str, value: str) -> None:
    etcd.call("kv/put", {"key": _encoded(key), "value": _encoded(value)})


def get(etcd: Etcd, key: str) -> str:
    found = etcd.call("kv/range", {"key": _encoded(key)})["kvs"][0]
    return base64.b64decode(found.get("value", "")).decode()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_wrong_etcd_prefix_warns_and_changes_no_key(tmp_path: Path) -> None:
    def stored_keys(etcd: Etcd) -> Any:
        found = etcd.call("kv/range", {"key": _encoded("/right/"), "range_end": _encoded("/right0")})
        return [(it["key"], it["mod_revision"]) for it in found["kvs"]]

    with running_etcd(tmp_path / "etcd") as etcd:
        flags = [*OWN, f"--etcd-servers={etcd.url}"]
        with running_server([*flags, "--etcd-prefix=/right"], tmp_path / "first") as server:
            assert "--etcd-prefix" not in server.log_tail(), "there is nothing else"
            widgets = serve(Client(server.url))
            widgets.create("a")
        had = stored_keys(etcd)
        with running_server([*flags, "--etcd-prefix=/wrong"], tmp_path / "second") as server:
            text = "etcd has no keys under /wrong/ yet, but others, such as /right/"
            assert server.log_tail().count(text) == 1
            assert Client(server.url).get(widgets.path("a")).status == 404
        assert stored_keys(etcd) == had
        for prefix in ("/wrong", "/right"):
            with running_server([*flags, f"--etcd-prefix={prefix}"], tmp_path / prefix[1:]) as server:
                assert "has no keys under" not in server.log_tail()
                assert Client(server.url).get(widgets.path("a")).status == (200 if prefix == "/right" else 404)


@dataclass
class World:
    """An etcd with two definitions and an object of each; the server has stopped.

    Tests corrupt values of ``broken``.
    """

    etcd: Etcd
    directory: Path
    whole: Resource
    broken: Resource

    @property
    def flags(self) -> list[str]:
        """The flags of a server with this etcd."""
        return [*OWN, f"--etcd-servers={self.etcd.url}"]

    def key(self, path: str) -> str:
        """Return the key in etcd for a path below the prefix."""
        return f"/registry/{path}"

    @property
    def definition(self) -> str:
        """The key of the definition that tests corrupt."""
        return self.key(f"apiextensions.k8s.io/customresourcedefinitions/gizmos.{self.broken.group}")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The World, created once."""
    place = tmp_path_factory.mktemp("world")
    with running_etcd(place / "etcd") as etcd:
        with running_server([*OWN, f"--etcd-servers={etcd.url}"], place / "server") as server:
            whole, broken = serve(Client(server.url)), serve(Client(server.url), "gizmos")
            whole.create("a", color="red")
            broken.create("a", color="red")
        yield World(etcd, place, whole, broken)


@contextlib.contextmanager
def overwritten(world: World, directory: Path, key: str, value: str) -> Iterator[tuple[Server, Client]]:
    """Start a server with one corrupt value in etcd.

    Check that it serves and stores all other objects.
    """
    had = get(world.etcd, key) if world.etcd.call("kv/range", {"key": _encoded(key)}).get("kvs") else None
    put(world.etcd, key, value)
    try:
        with running_server(world.flags, directory) as server:
            api = Client(server.url)
            yield server, api
            assert api.get(world.whole.path("a")).expect(200)["spec"]["color"] == "red"
            name = f"n-{time.monotonic_ns()}"
            assert api.post(world.whole.path(), world.whole.make(name)).status == 201
            assert api.get("/openapi/v2").status == 200
            assert "Traceback" not in server.log_tail()
            assert get(world.etcd, key) == value, "what cannot be read is left alone"
    finally:
        if had is None:
            world.etcd.call("kv/deleterange", {"key": _encoded(key)})
        else:
            put(world.etcd, key, had)


TO_COME = '{"apiVersion":"{group}/v99","kind":"Gizmo","metadata":{"name":"bad","namespace":"default"}}'
OBJECTS = {
    "no JSON": ("not json", "object not decodable revision="),
    "cut off": ('{"apiVersion":"{group}/v1","metadata":{"na', "object not decodable revision="),
    "empty": ("", "object not decodable revision="),
    "a list": ("[1]", "json: cannot unmarshal array into Go value of type map"),
    "protobuf": ("k8s\x00abc", "object not decodable revision="),
    "sealed": ("k8s:enc:aescbc:v1:k:abc", "data from the storage is not transformable revision=0: "),
    "a version to come": (
        TO_COME,
        "request to convert CR from an invalid group/version: {group}/v99",
    ),
}


@pytest.mark.rows("RV-020", "ETC-006", "VER-011")
@pytest.mark.parametrize("value", OBJECTS.values(), ids=OBJECTS)
def test_unreadable_object_fails_lists_but_not_other_objects(
    world: World, tmp_path: Path, value: tuple[str, str]
) -> None:
    group = world.broken.group
    text, says = (it.replace("{group}", group) for it in value)
    with overwritten(world, tmp_path, world.key(f"{group}/gizmos/default/bad"), text) as (server, api):
        for query in ("", "?limit=500", "?resourceVersion=0"):  # this server has read no earlier state
            assert says in api.get(world.broken.path() + query).expect(500)["message"], query
        assert api.get(world.broken.path("bad")).status == 500
        assert api.get(world.broken.path("a")).status == 200
        assert api.patch(world.broken.path("a"), {"spec": {"note": tmp_path.name}}).status == 200
        assert f"{group}/gizmos/default/bad at revision" in server.log_tail()


DEFINITION_FAULTS = {
    "no JSON": (lambda _: "not json", "cannot be read: "),
    "a version to come": (
        lambda it: it.replace("apiextensions.k8s.io/v1beta1", "apiextensions.k8s.io/v7"),
        'no kind "CustomResourceDefinition" is registered for version "apiextensions.k8s.io/v7"',
    ),
    "no version": (
        lambda it: it.replace('"apiVersion":"apiextensions.k8s.io/v1beta1",', "", 1),
        'no kind "CustomResourceDefinition" is registered for version ""',
    ),
    "a wrong type": (
        lambda it: it.replace('"type":"object"', '"type":7', 1).replace('"generation":1', '"generation":2', 1),
        "json: cannot unmarshal number into Go struct field JSONSchemaProps.spec.validation.openAPIV3Schema."
        "properties.type of type string",
    ),
}


@pytest.mark.rows("RV-020", "ETC-006", "ETC-003")
@pytest.mark.parametrize("fault", DEFINITION_FAULTS.values(), ids=DEFINITION_FAULTS)
def test_unreadable_definition_is_logged_and_fails_reads(world: World, tmp_path: Path, fault: Any) -> None:
    spoil, says = fault
    name, had = f"gizmos.{world.broken.group}", get(world.etcd, world.definition)
    wrong = spoil(had)
    assert wrong != had
    with overwritten(world, tmp_path, world.definition, wrong) as (server, api):
        log = server.log_tail().replace('\\"', '"')  # lines of the log are JSON
        assert (name in log, says in log, api.get("/readyz").status) == (True, True, 200), log
        for path in (f"{DEFINITIONS}/{name}", DEFINITIONS, f"{DEFINITIONS}?resourceVersion=0"):
            told = api.get(path).expect(500)["message"]
            assert name in told, told
        assert api.delete(f"{DEFINITIONS}/{name}").status == 500
        assert api.get(world.broken.path()).status == 404
        put(world.etcd, world.definition, had)
        until(lambda: api.get(world.broken.path("a")).status == 200, "once it is mended, its objects are back", 10)
        put(world.etcd, world.definition, wrong)
        until(lambda: api.get(f"{DEFINITIONS}/{name}").status == 500, "it is spoiled under a server that knew it", 10)
        assert api.get(world.broken.path("a")).status == 200, "what it knew of it still holds"


@pytest.mark.rows("RV-020", "ETC-006")
def test_mistyped_definition_with_unchanged_guard_fails_reads(world: World, tmp_path: Path) -> None:
    """With an unchanged guard key, the server assumes that the definition was validated."""
    had = get(world.etcd, world.definition)
    name = f"gizmos.{world.broken.group}"
    with overwritten(world, tmp_path, world.definition, had.replace('"type":"object"', '"type":7', 1)) as (_, api):
        for path in (f"{DEFINITIONS}/{name}", world.broken.path("a"), world.broken.path()):
            told = api.get(path).expect(500)["message"]
            assert name in told, told
            assert ": json: cannot unmarshal" in told, told


BUILT_IN = {
    "no JSON": ("not json", ""),
    "a wrong type": ('{"kind":"{kind}","apiVersion":"v1","metadata":{"name":"bad"},"{field}":7}',
                     "json: cannot unmarshal"),
    "a version to come": ('{"kind":"{kind}","apiVersion":"v7","metadata":{"name":"bad"}}',
                          'no kind "{kind}" is registered for version "v7"'),
    "another kind": ('{"kind":"Else","apiVersion":"v1","metadata":{"name":"bad"}}',
                     'no kind "Else" is registered for version "v1"'),
}  # fmt: skip


@pytest.mark.rows("RV-020", "ETC-006")
@pytest.mark.parametrize("what", BUILT_IN)
def test_unreadable_built_in_object_fails_lists(world: World, tmp_path: Path, what: str) -> None:
    for kind, field, place in (("Namespace", "spec", "namespaces"), ("ConfigMap", "data", "configmaps/default")):
        value, says = (it.replace("{kind}", kind).replace("{field}", field) for it in BUILT_IN[what])
        with overwritten(world, tmp_path / kind, world.key(f"{place}/bad"), value) as (_, api):
            told = api.get(f"/api/v1/{place.partition('/')[0]}").expect(500)["message"]
            assert f"{place}/bad, ResourceVersion: 0" in told, told
            assert says in told, told


@pytest.mark.parametrize("value", ["not json", '{"metadata":{"name":"bad"},"webhooks":7}'], ids=["no JSON", "typed"])
def test_unreadable_webhook_configuration_denies_writes(world: World, tmp_path: Path, value: str) -> None:
    key = world.key("admissionregistration.k8s.io/validatingwebhookconfigurations/bad")
    put(world.etcd, key, value)
    try:
        with running_server(world.flags, tmp_path) as server:
            api = Client(server.url)
            told = api.post(world.whole.path(), world.whole.make("judged")).expect(500)["message"]
            assert "validatingwebhookconfigurations/bad, " in told or "unable to read bad: " in told
            assert api.get(world.whole.path("a")).status == 200
            world.etcd.call("kv/deleterange", {"key": _encoded(key)})
            until(lambda: api.post(world.whole.path(), world.whole.make("judged")).status == 201, "it is gone", 10)
            api.delete(world.whole.path("judged")).expect(200)
    finally:
        world.etcd.call("kv/deleterange", {"key": _encoded(key)})


def test_garbage_collector_keeps_dependents_of_unreadable_owner(world: World, tmp_path: Path) -> None:
    with running_server(world.flags, tmp_path / "first") as server:
        api = Client(server.url)
        owner = api.post(world.broken.path(), world.broken.make("owner")).expect(201)
        reference = {key: owner[key] for key in ("apiVersion", "kind")}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        owned = {"metadata": {"name": "owned", "ownerReferences": [reference]}}
        api.post("/api/v1/namespaces/default/configmaps", owned).expect(201)
    key = world.key(f"{world.broken.group}/gizmos/default/owner")
    with overwritten(world, tmp_path / "second", key, "not json") as (server, api):
        pause(2.0)  # time for the garbage collector
        assert api.get("/api/v1/namespaces/default/configmaps/owned").status == 200
        world.etcd.call("kv/deleterange", {"key": _encoded(key)})
        gone = "/api/v1/namespaces/default/configmaps/owned"
        until(lambda: api.get(gone).status == 404, "what nobody owns any more is collected", 15)
        put(world.etcd, key, "not json")


def test_start_fails_with_a_damaged_store_file(tmp_path: Path) -> None:
    with running_server([*OWN, "--store=sqlite"], tmp_path) as server:
        widgets = serve(Client(server.url))
        made = widgets.create("a")
    store = tmp_path / "store.db"
    had = store.read_bytes()
    store.write_bytes(b"nonsense" * 8192)
    assert start_error(tmp_path, "--store=sqlite").startswith(f"{store} is damaged (file is not a database): ")
    store.write_bytes(had)
    with running_server([*OWN, "--store=sqlite"], tmp_path) as server:
        assert Client(server.url).get(widgets.path("a")).expect(200) == made
