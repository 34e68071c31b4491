"""Encryption at rest, with the format of kube-apiserver.

The server reads values of kube-apiserver, writes the same format, and changes keys while it runs.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiext.conformance.support.cases import read
from apiext.conformance.support.definitions import is_true, serve
from apiext.conformance.support.http_client import DEFINITIONS, MERGE, Client
from apiext.conformance.support.waiting import until
from tests.plugin import MIGRATIONS
from tests.support.processes import SERVE, Etcd, Server, errors, running_etcd, running_server
from tests.support.shared import ROOT

RECORDED = read(Path(__file__).with_name("sealed_values.yaml"))
SECRETS, MAPS = "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/configmaps"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
FIRST, SECOND, SHORT = b"0123456789abcdef" * 2, b"abcdef0123456789" * 2, b"0123456789abcdef"


def provider(kind: str, **keys: bytes) -> dict[str, Any]:
    named = [{"name": name, "secret": base64.b64encode(value).decode()} for name, value in keys.items()]
    return {kind: {"keys": named}}


def configuration(*rules: tuple[list[str], list[dict[str, Any]]]) -> str:
    document = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": names, "providers": providers} for names, providers in rules],
    }
    return yaml.safe_dump(document)


PLAIN: dict[str, Any] = {"identity": {}}
REFERENCE = configuration(
    (["secrets"], [provider("aescbc", key1=FIRST, key0=SECOND), PLAIN]),
    (["configmaps", "crontabs.stable.example.com"], [provider("secretbox", box=SECOND), PLAIN]),
    (["*.*"], [provider("aesgcm", gk=SHORT), PLAIN]),
)


def put(etcd: Etcd, key: str, value: bytes) -> None:
    etcd.call("kv/put", {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value).decode()})


def remove(etcd: Etcd, key: str) -> None:
    etcd.call("kv/deleterange", {"key": base64.b64encode(key.encode()).decode()})


def stored(etcd: Etcd, key: str) -> bytes:
    found = etcd.call("kv/range", {"key": base64.b64encode(key.encode()).decode()})["kvs"]
    return base64.b64decode(found[0]["value"])


def migrate_secrets(api: Client) -> None:
    path = f"{MIGRATIONS}/storageversionmigrations"
    api.post(path, {"metadata": {"name": "s"}, "spec": {"resource": {"resource": "secrets"}}}).expect(201)
    until(lambda: is_true(api.get(f"{path}/s").expect(200), "Succeeded"), "secrets are written again")


def keys(etcd: Etcd, prefix: str) -> dict[str, bytes]:
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    bounds = {"key": base64.b64encode(prefix.encode()).decode(), "range_end": base64.b64encode(end.encode()).decode()}
    found = etcd.call("kv/range", bounds).get("kvs", [])
    return {base64.b64decode(kv["key"]).decode(): base64.b64decode(kv["value"]) for kv in found}


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd with encrypted values of a cluster.

    The encryption authenticates the keys, so they need kube-apiserver's prefix.
    """
    with running_etcd(tmp_path_factory.mktemp("sealed-etcd")) as started:
        for row in RECORDED:
            put(started, row["key"], base64.b64decode(row["value"]))
        yield started


@pytest.fixture(scope="module")
def sealed(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with this etcd and the configuration of that kube-apiserver."""
    directory = tmp_path_factory.mktemp("sealed")
    (directory / "encryption.yaml").write_text(REFERENCE)
    flags = ["--insecure", "--port=0", f"--etcd-servers={etcd.url}"]
    with running_server([*flags, f"--encryption-provider-config={directory / 'encryption.yaml'}"], directory) as server:
        yield server


@pytest.fixture
def api(sealed: Server) -> Client:
    """A client of that server."""
    return Client(sealed.url)


@pytest.mark.rows("OPS-003", "ETC-003", "ETC-004")
@pytest.mark.parametrize("row", [row for row in RECORDED if "path" in row], ids=lambda row: row["name"])
def test_values_of_kube_apiserver_are_read(api: Client, row: dict[str, Any]) -> None:
    seen = api.get(row["path"]).expect(200)
    del seen["metadata"]["resourceVersion"]
    del seen["metadata"]["managedFields"]
    assert seen == row["shown"]


@pytest.mark.rows("OPS-003")
def test_each_resource_is_encrypted_by_its_rule(api: Client, etcd: Etcd) -> None:
    api.post(SECRETS, {"metadata": {"name": "a"}, "stringData": {"word": "sesame"}}).expect(201)
    api.post(MAPS, {"metadata": {"name": "a"}, "data": {"word": "sesame"}}).expect(201)
    api.post(ACCOUNTS, {"metadata": {"name": "a"}}).expect(201)
    widgets = serve(api)
    widgets.create("a", color="sesame")
    for key, prefix in (
        ("secrets/default/a", b"k8s:enc:aescbc:v1:key1:"),
        ("configmaps/default/a", b"k8s:enc:secretbox:v1:box:"),
        ("serviceaccounts/default/a", b"k8s:enc:aesgcm:v1:gk:"),
        (f"{widgets.group}/widgets/default/a", b"k8s:enc:aesgcm:v1:gk:"),
        (f"apiextensions.k8s.io/customresourcedefinitions/widgets.{widgets.group}", b"k8s:enc:aesgcm:v1:gk:"),
        ("namespaces/default", b"k8s:enc:aesgcm:v1:gk:"),
    ):
        assert stored(etcd, f"/registry/{key}").startswith(prefix)
    everything = keys(etcd, "/registry/")
    assert not any(b"sesame" in value for value in everything.values())
    own = {key: value for key, value in everything.items() if key.startswith("/registry/.apiext/")}
    assert own
    assert not any(value.startswith(b"k8s:enc:") for value in own.values())


CASES = [
    (
        SECRETS,
        "secrets",
        b"k8s:enc:aescbc:v1:other:" + b"x" * 48,
        "no matching key was found for the provided AES transformer",
    ),
    (SECRETS, "secrets", b"k8s:enc:aescbc:v1:key1:" + b"x" * 31, "the stored data is not a multiple of the block size"),
    (SECRETS, "secrets", b"k8s:enc:kms:v2:x", "no matching prefix found"),
    (MAPS, "configmaps", b"k8s:enc:secretbox:v1:box:" + b"x" * 60, "output array was not large enough for encryption"),
    (ACCOUNTS, "serviceaccounts", b"k8s:enc:aesgcm:v1:gk:" + b"x" * 60, "cipher: message authentication failed"),
]


@pytest.mark.rows("OPS-003", "RV-020", "ETC-006")
@pytest.mark.parametrize(("path", "resource", "value", "why"), CASES, ids=lambda part: str(part)[-12:])
def test_undecryptable_value_fails_only_reads_that_include_it(
    api: Client, etcd: Etcd, path: str, resource: str, value: bytes, why: str
) -> None:
    listed = api.get(path).expect(200)
    key = f"/registry/{resource}/default/bad"
    with api.watch(f"{path}?resourceVersion={listed['metadata']['resourceVersion']}") as watch:
        put(etcd, key, value)
        # upstream: the error contains no revision
        fault = f"data from the storage is not transformable revision=0: {why}"
        text = f"StorageError: corrupt object, Code: 7, Key: {{}}, ResourceVersion: 0, AdditionalErrorMsg: {fault}"
        told = f"failed to read one or more {resource} from the storage: {text.format(key)}"
        until(lambda: api.get(path).status == 500, "the bad value is seen")
        begun = api.get(f"{path}?watch=true&timeoutSeconds=1")  # upstream: a 429 or 504; here the same as a list
        lists = [answer.expect(500) for answer in (api.get(path), api.get(f"{path}?limit=500"), api.delete(path))]
        for status in (*lists, begun.expect(200)["object"]):
            assert (status["message"], status["reason"]) == (told, "StorageReadError")
            cause = {"reason": "UnexpectedServerResponse", "message": text.format(key), "field": key}
            assert status["details"]["causes"] == [cause]
        body = {"metadata": {"name": "bad"}}
        alone = text.format(key.removeprefix("/registry"))
        for answer, cause in (
            (api.get(f"{path}/bad"), alone),
            (api.put(f"{path}/bad", body), fault),
            (api.patch(f"{path}/bad", {"metadata": {"labels": {"a": "b"}}}, MERGE), fault),
            (api.delete(f"{path}/bad"), alone),
        ):
            assert answer.expect(500)["message"] == f"Internal error occurred: {cause}"
            assert answer.json["details"] == {"causes": [{"message": cause}]}
        assert api.post(path, body).expect(409)["reason"] == "AlreadyExists"
        made = api.post(path, {"metadata": {"generateName": "good-"}}).expect(201)["metadata"]["name"]
        assert next(iter(watch))["object"]["metadata"]["name"] == made
    api.get(f"{path}/recorded").expect(200)
    api.get("/api/v1/namespaces").expect(200)
    assert api.get("/readyz").status == 200
    assert stored(etcd, key) == value
    remove(etcd, key)
    until(lambda: api.get(path).status == 200, "the list is whole again")


@pytest.mark.rows("OPS-003", "MTR-001")
def test_metrics_count_encryptions(api: Client) -> None:
    api.post(SECRETS, {"metadata": {"generateName": "counted-"}}).expect(201)
    text = api.get("/metrics").text
    labels = 'resource="secrets",transformation_type="to_storage",transformer_prefix="key1:",status="OK"'
    assert f"apiserver_storage_transformation_operations_total{{{labels}}}" in text
    assert "apiserver_encryption_config_controller_last_config_info" in text


def changed(api: Client, path: str, body: dict[str, Any]) -> bool:
    """Report whether a patch changes the resourceVersion."""
    before = api.get(path).expect(200)["metadata"]["resourceVersion"]
    return bool(api.patch(path, body, MERGE).expect(200)["metadata"]["resourceVersion"] != before)


def configuration_hash(api: Client) -> str:
    """Return the hash of the current configuration, from the metrics."""
    (told,) = re.findall(r'last_config_info\{.*hash="([^"]+)"', api.get("/metrics").text)
    return str(told)


@pytest.mark.rows("OPS-003", "ETC-009")
def test_keys_are_rotated_without_a_restart(own_etcd: Etcd, tmp_path: Path) -> None:
    file = tmp_path / "encryption.yaml"

    def use(*providers: dict[str, Any]) -> None:
        draft = tmp_path / "draft"
        draft.write_text(configuration((["secrets", "configmaps"], [*providers]), (["*.*"], [*providers, PLAIN])))
        draft.replace(file)

    def is_written_with(prefix: bytes) -> bool:
        name = api.post(MAPS, {"metadata": {"generateName": "probe-"}}).expect(201)["metadata"]["name"]
        return stored(own_etcd, f"/rotated/configmaps/default/{name}").startswith(prefix)

    use(PLAIN)
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", "--etcd-prefix=/rotated"]
    encryption = [f"--encryption-provider-config={file}", "--encryption-provider-config-automatic-reload=true"]
    migrating = f"--runtime-config={MIGRATIONS.removeprefix('/apis/')}=true"
    with running_server([*flags, *encryption, migrating], tmp_path / "server") as server:
        api = Client(server.url)
        for name in ("a", "b"):
            api.post(SECRETS, {"metadata": {"name": name}}).expect(201)
        widgets = serve(api)
        for number in range(3):
            widgets.create(f"w{number}", color="red")
        key, objects = "/rotated/secrets/default/a", f"/rotated/{widgets.group}/widgets/"
        assert stored(own_etcd, key).startswith(b"k8s\0") or stored(own_etcd, key).startswith(b"{")

        use(provider("aescbc", one=FIRST), PLAIN)
        until(lambda: is_written_with(b"k8s:enc:aescbc:v1:one:"), "the first key is used", within=30)
        assert changed(api, f"{SECRETS}/a", {})
        assert stored(own_etcd, key).startswith(b"k8s:enc:aescbc:v1:one:")
        assert not changed(api, f"{SECRETS}/a", {})

        use(provider("secretbox", two=SECOND), provider("aescbc", one=FIRST), PLAIN)
        until(lambda: is_written_with(b"k8s:enc:secretbox:v1:two:"), "the second key is used", within=30)
        assert changed(api, f"{SECRETS}/a", {})
        command = [*SERVE[:-1], "migrate", "--rewrite", f"widgets.{widgets.group}", f"--server={server.url}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=dict(os.environ))
        assert done.returncode == 0, done.stderr
        found = [value[:25] for value in keys(own_etcd, objects).values()]
        assert found == [b"k8s:enc:secretbox:v1:two:"] * 3
        migrate_secrets(api)
        assert stored(own_etcd, "/rotated/secrets/default/b").startswith(b"k8s:enc:secretbox:v1:two:")
        codes = [api.get(f"/{name}/kms-providers").status for name in ("healthz", "livez", "readyz")]
        assert codes == [200, 404, 200]

        before = configuration_hash(api)
        use(provider("secretbox", two=SECOND))
        until(lambda: configuration_hash(api) != before, "the second key is the only one", within=30)
        assert [api.get(f"{SECRETS}{each}").status for each in ("", "/a", "/b")] == [200, 200, 200]
        use(provider("aesgcm", three=FIRST), provider("secretbox", two=SECOND))
        until(lambda: is_written_with(b"k8s:enc:aesgcm:v1:three:"), "the third key is used", within=30)
        assert api.get(SECRETS).status == 200
        use(provider("aesgcm", three=FIRST))
        until(lambda: api.get(SECRETS).status == 500, "what was left is told", within=30)
        use(provider("secretbox", two=SECOND), provider("aesgcm", three=FIRST))
        until(lambda: api.get(SECRETS).status == 200, "it is back with its key", within=30)
        file.write_text("no configuration")
        until(lambda: 'reloads_total{status="failure"' in api.get("/metrics").text, "a bad file is told", within=30)
        assert api.get(f"{SECRETS}/a").status == 200
        assert is_written_with(b"k8s:enc:secretbox:v1:two:")


@pytest.mark.rows("OPS-003")
@pytest.mark.parametrize(
    ("text", "flags", "why"),
    [
        ("", [], "is empty"),
        (configuration((["Secrets"], [PLAIN])), [], "resource name should not contain capital letters"),
        (
            configuration((["secrets"], [{"kms": {"name": "a", "endpoint": "unix:///a"}}])),
            [],
            "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.",
        ),
        (None, ["--encryption-provider-config-automatic-reload=true"], "must be set with --encryption-provider-config"),
    ],
)
def test_invalid_configurations_end_the_start(tmp_path: Path, text: str | None, flags: list[str], why: str) -> None:
    if text is not None:
        (tmp_path / "encryption.yaml").write_text(text)
        flags = [f"--encryption-provider-config={tmp_path / 'encryption.yaml'}"]
    command = [*SERVE, "--insecure", "--port=0", f"--data-dir={tmp_path}", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    [told] = errors(done.stderr)
    assert why in told


@pytest.mark.rows("OPS-003")
def test_encrypted_value_without_configuration_is_an_error(own_etcd: Etcd, tmp_path: Path) -> None:
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", "--etcd-prefix=/unsealed"]
    with running_server(flags, tmp_path) as server:
        api = Client(server.url)
        put(own_etcd, "/unsealed/secrets/default/a", b"k8s:enc:aescbc:v1:one:x")
        until(lambda: api.get(SECRETS).status == 500, "the value is seen")
        why = "identity transformer tried to read encrypted data"
        told = api.get(f"{SECRETS}/a").expect(500)["message"]
        assert told.endswith(f"data from the storage is not transformable revision=0: {why}")
        assert api.get(DEFINITIONS).status == 200
