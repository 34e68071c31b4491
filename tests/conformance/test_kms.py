"""Values that are encrypted with keys of a KMS plug-in.

They have kube-apiserver's format, and several servers can read them. Tests that take seconds (a stopped or slow
plug-in, changed keys) have the mark ``long``.
"""

from __future__ import annotations

import base64
import hmac
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from apiext.conformance.support.cases import read
from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import DEFINITIONS, MERGE, Client
from apiext.conformance.support.waiting import prompt, until
from tests.conformance.test_encryption import (
    MAPS,
    PLAIN,
    SECRETS,
    changed,
    configuration,
    keys,
    put,
    remove,
    stored,
)
from tests.support.kms_plugin import NOTE, Plugin, message, provider, running_plugin, turned
from tests.support.kms_plugin import read as decoded
from tests.support.processes import Etcd, running_etcd, running_server

OF_KUBE = read(Path(__file__).with_name("kms_values.yaml"))
PREFIX = b"k8s:enc:kms:v2:pair:"
SEALED = ["secrets", "crontabs.stable.example.com"]
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CRONTABS = {
    "metadata": {"name": "crontabs.stable.example.com"},
    "spec": {
        "group": "stable.example.com",
        "scope": "Namespaced",
        "names": {"plural": "crontabs", "kind": "CronTab"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": OPEN}}],
    },
}
BAD = "/registry/secrets/default/bad"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugin]:
    """The plug-in of all servers."""
    with running_plugin(tmp_path_factory.mktemp("kms") / "kms.sock") as running:
        yield running


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd with values that kube-apiserver wrote."""
    with running_etcd(tmp_path_factory.mktemp("kms-etcd")) as started:
        for row in OF_KUBE:
            put(started, row["key"], base64.b64decode(row["value"]))
        yield started


@pytest.fixture(scope="module")
def servers(etcd: Etcd, plugin: Plugin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Client]]:
    """Clients of two servers with this etcd."""
    directory = tmp_path_factory.mktemp("kms-servers")
    file = directory / "encryption.yaml"
    file.write_text(configuration((SEALED, [provider(plugin, "pair"), PLAIN])))
    flags = ["--insecure", "--port=0", f"--etcd-servers={etcd.url}", f"--encryption-provider-config={file}"]
    with running_server(flags, directory / "one") as one, running_server(flags, directory / "two") as two:
        clients = [Client(one.url), Client(two.url)]
        clients[0].post(DEFINITIONS, CRONTABS).expect(201)
        for client in clients:
            until(lambda client=client: client.get(OF_KUBE[1]["path"]).status == 200, "crontabs are served")  # type: ignore[misc]
        yield clients


@pytest.fixture
def api(servers: list[Client]) -> Client:
    """A client of the first server."""
    return servers[0]


@pytest.mark.rows("OPS-003", "ETC-003")
@pytest.mark.parametrize("row", OF_KUBE, ids=lambda row: row["name"])
def test_values_of_kube_apiserver_are_read(servers: list[Client], row: dict[str, Any]) -> None:
    for api in servers:
        seen = api.get(row["path"]).expect(200)
        del seen["metadata"]["resourceVersion"]
        del seen["metadata"]["managedFields"]
        assert seen == row["shown"]


@pytest.mark.rows("OPS-003")
def test_stored_values_have_the_form_of_kube_apiserver(api: Client, etcd: Etcd) -> None:
    api.post(SECRETS, {"metadata": {"name": "form"}, "stringData": {"word": "sesame"}}).expect(201)
    key = "/registry/secrets/default/form"
    value = stored(etcd, key)
    assert value.startswith(PREFIX)
    found = decoded("EncryptedObject", value.removeprefix(PREFIX))
    theirs = decoded("EncryptedObject", base64.b64decode(OF_KUBE[0]["value"]).removeprefix(PREFIX))
    assert [field.name for field, _ in found.ListFields()] == [field.name for field, _ in theirs.ListFields()]
    assert found.SerializeToString(deterministic=True) == value.removeprefix(PREFIX)
    assert found.encryptedDEKSourceType == theirs.encryptedDEKSourceType == 1
    assert (found.keyID, dict(found.annotations)) == ("key-1", {NOTE: b"by key-1"})
    info, nonce, sealed = found.encryptedData[:32], found.encryptedData[32:44], found.encryptedData[44:]
    own = hmac.digest(turned("key-1", found.encryptedDEKSource), info + b"\x01", "sha256")
    assert base64.b64encode(b"sesame") in AESGCM(own).decrypt(nonce, sealed, key.encode())
    assert changed(api, f"{SECRETS}/form", {}) is False


def encode_value(**fields: Any) -> bytes:
    """Return a stored value with a new seed, or with these fields."""
    whole = {
        "encryptedData": b"x" * 70,
        "keyID": "key-1",
        "encryptedDEKSource": turned("key-1", b"s" * 32),
        "annotations": {NOTE: b"by key-1"},
        "encryptedDEKSourceType": 1,
    }
    return PREFIX + bytes(message("EncryptedObject", **whole | fields).SerializeToString())


def encrypted_secret(kind: int, key: bytes) -> bytes:
    """Return a stored secret that is encrypted with a key (kind 0) or with a seed (kind 1)."""
    plain = b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"bad","namespace":"default","uid":"u"}}'
    info, nonce = os.urandom(32 * kind), os.urandom(12)
    own = hmac.digest(key, info + b"\x01", "sha256") if kind else key
    data = info + nonce + AESGCM(own).encrypt(nonce, plain, BAD.encode())
    source = turned("key-1", key)
    return encode_value(encryptedData=data, encryptedDEKSource=source, encryptedDEKSourceType=kind)


SOURCE = "failed to validate encrypted DEK source: encrypted DEK source is"
NOTES = "failed to validate annotations:"
DECRYPT = "failed to decrypt DEK, error: rpc error: code ="
TWO = "should be a domain with at least two segments separated by dots"
SHORT = "the stored data was shorter than the required size"
# recorded from kube-apiserver v1.36.3: case → (value, error)
VALUES: dict[str, tuple[bytes, str]] = {
    "a key": (encrypted_secret(0, b"k" * 16), ""),
    "a long seed": (encrypted_secret(1, b"s" * 40), ""),
    "an unknown field": (encrypted_secret(1, b"t" * 32) + b"\xfa\x01\x01a", ""),
    "nothing": (PREFIX, "encrypted data is empty"),
    "garbage": (PREFIX + b"\xff\xff\xff", "proto: cannot parse invalid wire-format data"),
    "half": (encode_value()[:60], "proto: cannot parse invalid wire-format data"),
    "no data": (encode_value(encryptedData=b""), "encrypted data is empty"),
    "another type": (encode_value(encryptedDEKSourceType=2), "unknown encryptedDEKSourceType: 2"),
    "no source": (encode_value(encryptedDEKSource=b""), f"{SOURCE} empty"),
    "a long source": (
        encode_value(encryptedDEKSource=b"x" * 1025),
        f"{SOURCE} 1025 bytes, which exceeds the max size of 1024",
    ),
    "no key id": (encode_value(keyID=""), "failed to validate key id: keyID is empty"),
    "a long key id": (
        encode_value(keyID="k" * 1025),
        "failed to validate key id: keyID is 1025 bytes, which exceeds the max size of 1024",
    ),
    "an annotation": (
        encode_value(annotations={"plain": b""}),
        f'{NOTES} annotations: Invalid value: "plain": {TWO}',
    ),
    "an empty annotation": (encode_value(annotations={"": b""}), f"{NOTES} annotations: Required value"),
    "a long label": (
        encode_value(annotations={"a" * 64 + ".b": b""}),
        f'{NOTES} annotations: Invalid value: "{"a" * 64}": must be no more than 63 characters',
    ),
    "large annotations": (
        encode_value(annotations={"a.b": b"x" * 32768}),
        f"{NOTES} total size of annotations is 32771, which exceeds the max size of 32768",
    ),
    "an unknown key": (encode_value(keyID="key-9"), f"{DECRYPT} NotFound desc = no key key-9"),
    "not annotated": (encode_value(annotations={}), f"{DECRYPT} InvalidArgument desc = not what was annotated"),
    "no info": (encode_value(encryptedData=b"x" * 31), SHORT),
    "no nonce": (encode_value(encryptedData=b"x" * 40), SHORT),
    "a changed value": (encode_value(), "cipher: message authentication failed"),
    "a short seed": (
        encode_value(encryptedDEKSource=turned("key-1", b"short")),
        "invalid seed length 5 used for key generation",
    ),
    "a short key": (
        encode_value(encryptedDEKSource=turned("key-1", b"short"), encryptedDEKSourceType=0),
        "crypto/aes: invalid key size 5",
    ),
    "another provider": (b"k8s:enc:kms:v2:other:x", "no matching prefix found"),
}


NOT_TRANSFORMABLE = "data from the storage is not transformable revision=0: "


@pytest.mark.rows("OPS-003", "RV-020")
def test_invalid_values_get_the_errors_of_kube_apiserver(api: Client, etcd: Etcd) -> None:
    found = {}
    for name, (value, why) in VALUES.items():
        put(etcd, BAD, value)
        answer = api.get(f"{SECRETS}/bad")
        found[name] = answer.json["message"] if answer.status == 500 else answer.json["metadata"]["name"]
        listed = api.get(SECRETS)
        text = f"Key: {BAD}, ResourceVersion: 0, AdditionalErrorMsg: {NOT_TRANSFORMABLE}{why}"
        assert (text in listed.json["message"]) if why else listed.status == 200
    remove(etcd, BAD)
    begins = f"Internal error occurred: StorageError: corrupt object, Code: 7, Key: {BAD.removeprefix('/registry')}, "
    begins += f"ResourceVersion: 0, AdditionalErrorMsg: {NOT_TRANSFORMABLE}"
    assert found == {name: f"{begins}{why}" if why else "bad" for name, (_, why) in VALUES.items()}
    assert api.get(SECRETS).status == 200


@pytest.mark.rows("OPS-003", "RV-017")
def test_servers_decrypt_values_written_by_a_peer(servers: list[Client], etcd: Etcd) -> None:
    one, two = servers
    since = two.get(SECRETS).expect(200)["metadata"]["resourceVersion"]
    with two.watch(f"{SECRETS}?resourceVersion={since}") as watch:
        for number in range(5):
            for api in servers:
                api.post(SECRETS, {"metadata": {"name": f"s-{number}-{servers.index(api)}"}}).expect(201)
        wanted = [f"s-{number}-{which}" for number in range(5) for which in (0, 1)]
        assert [next(iter(watch))["object"]["metadata"]["name"] for _ in wanted] == wanted
    for name in wanted:
        assert one.get(f"{SECRETS}/{name}").json == two.get(f"{SECRETS}/{name}").json
    values = [stored(etcd, f"/registry/secrets/default/{name}").removeprefix(PREFIX) for name in wanted]
    assert len({decoded("EncryptedObject", value).encryptedDEKSource for value in values}) == 2


@pytest.mark.rows("OPS-003", "HLT-002", "MTR-001")
def test_health_checks_and_metrics_report_the_plugin(api: Client) -> None:
    api.post(SECRETS, {"metadata": {"name": "told"}}).expect(201)
    codes = [api.get(f"/{name}/kms-providers").status for name in ("healthz", "livez", "readyz")]
    assert codes == [200, 404, 200]
    lines = [line[3:-3] for line in api.get("/readyz?verbose").text.splitlines() if line.startswith("[+]")]
    assert lines[2:6] == ["etcd", "etcd-readiness", "kms-providers", "informer-sync"]
    text = api.get("/metrics").text
    for part in (
        'envelope_encryption_key_id_hash_total{transformation_type="to_storage",provider_name="pair",',
        'envelope_encryption_key_id_hash_last_timestamp_seconds{transformation_type="from_storage",',
        'envelope_encryption_key_id_hash_status_last_timestamp_seconds{provider_name="pair",',
        'envelope_encryption_dek_source_cache_size{provider_name="pair"}',
        'envelope_encryption_kms_operations_latency_seconds_count{provider_name="pair",method_name='
        '"/v2.KeyManagementService/Decrypt",grpc_status_code="OK"}',
        "storage_envelope_transformation_cache_misses_total",
        "storage_data_key_generation_duration_seconds_count 1",
        'storage_transformation_operations_total{resource="secrets",transformation_type="to_storage",'
        'transformer_prefix="k8s:enc:kms:v2:pair:",status="OK"}',
    ):
        assert f"apiserver_{part}" in text


# --- tests with their own server ---


class Story:
    """A server that a test starts and stops, and its plug-in."""

    def __init__(self, directory: Path, etcd: Etcd, prefix: str) -> None:
        self.plugin = Plugin(str(directory / "kms.sock"))
        self.file = directory / "encryption.yaml"
        self.prefix = prefix
        self.etcd = etcd
        self.flags = [
            "--insecure", "--port=0", f"--etcd-servers={etcd.url}", f"--etcd-prefix=/{prefix}",
            f"--encryption-provider-config={self.file}", "--encryption-provider-config-automatic-reload=true",
        ]  # fmt: skip

    def use(self, *rules: tuple[list[str], list[dict[str, Any]]]) -> None:
        """Write a configuration atomically."""
        draft = self.file.with_suffix(".draft")
        draft.write_text(configuration(*rules))
        draft.replace(self.file)

    def key_ids(self, resource: str) -> list[str]:
        """Return the ids of the plug-in keys with which the objects of a resource are encrypted."""
        found = keys(self.etcd, f"/{self.prefix}/{resource}/").values()
        return [decoded("EncryptedObject", value.split(b":", 5)[5]).keyID for value in found]


@pytest.fixture
def story(tmp_path: Path, own_etcd: Etcd, request: pytest.FixtureRequest) -> Iterator[Story]:
    """A new Story with its own prefix."""
    made = Story(tmp_path, own_etcd, f"kms-{request.node.name.replace('_', '-')[:60]}")
    yield made
    made.plugin.stop()


@pytest.mark.long
@pytest.mark.rows("OPS-003", "HLT-003")
def test_server_starts_and_recovers_without_the_plugin(story: Story, tmp_path: Path) -> None:
    story.use((["secrets", "customresourcedefinitions.apiextensions.k8s.io"], [provider(story.plugin, timeout="1s")]))
    story.plugin.start()
    with running_server(story.flags, tmp_path / "server") as server:
        api = Client(server.url)
        api.post(SECRETS, {"metadata": {"name": "a"}}).expect(201)
        widgets = serve(api)
        widgets.create("w", color="red")
    story.plugin.stop()
    why = "Internal error occurred: got unexpected nil transformer"
    with running_server(story.flags, tmp_path / "server") as server:
        api = Client(server.url)
        assert api.get(f"{SECRETS}/a").expect(500)["message"] == why
        assert api.post(SECRETS, {"metadata": {"name": "b"}}).expect(500)["message"] == why
        api.post(MAPS, {"metadata": {"name": "a"}}).expect(201)
        codes = [api.get(path).status for path in ("/livez/ping", "/readyz", "/readyz/kms-providers")]
        assert codes == [200, 500, 500]
        assert api.get(widgets.path()).status not in (200, 404)
        story.plugin.start()
        until(lambda: api.get("/readyz").status == 200, "the plug-in is found", within=30)
        until(lambda: api.get(f"{SECRETS}/a").status == 200, "the secret opens", within=30)
        until(lambda: api.get(widgets.path()).status == 200, "the definition is served again", within=30)
        assert [item["metadata"]["name"] for item in api.get(widgets.path()).json["items"]] == ["w"]
        api.post(SECRETS, {"metadata": {"name": "b"}}).expect(201)


@pytest.mark.long
@pytest.mark.rows("OPS-003")
def test_slow_or_stopped_plugin_delays_only_encrypted_values(story: Story, tmp_path: Path) -> None:
    plugin = story.plugin
    plugin.start()
    story.use((["secrets"], [provider(plugin, timeout="2s"), PLAIN]))
    with (
        running_server(story.flags, tmp_path / "one") as one,
        running_server(story.flags, tmp_path / "two") as two,
    ):
        api, other = Client(one.url), Client(two.url)
        api.post(SECRETS, {"metadata": {"name": "mine"}}).expect(201)
        until(lambda: other.get(f"{SECRETS}/mine").status == 200, "the other server has its key")
        with api.watch(f"{SECRETS}?resourceVersion=0") as watch:
            events = iter(watch)
            assert next(events)["object"]["metadata"]["name"] == "mine"
            plugin.delay = 1.5
            theirs = other.post(SECRETS, {"metadata": {"name": "theirs"}}).expect(201)["metadata"]["resourceVersion"]
            began = time.monotonic()
            api.get(MAPS).expect(200)  # a consistent read, which does not wait
            seen = api.get(f"{SECRETS}/mine?resourceVersion=0").expect(200)
            prompt(time.monotonic() - began, 1)
            assert seen["metadata"]["name"] == "mine"
            assert api.get(f"{SECRETS}/theirs").expect(200)["metadata"]["resourceVersion"] == theirs
            assert next(events)["object"]["metadata"]["name"] == "theirs"
        plugin.delay = 0.0
        plugin.stop()
        for writer in (api, other):
            writer.post(SECRETS, {"metadata": {"generateName": "later-"}}).expect(201)
        until(lambda: api.get("/readyz/kms-providers").status == 500, "its end is told", within=40)
        assert api.get(SECRETS).status == 200
        assert api.get("/livez").status == 200
        plugin.garbage = b"\xff\xff"
        plugin.start()
        until(lambda: "invalid wire-format data" in api.get("/readyz/kms-providers").text, "garbage is told", within=40)
        plugin.garbage = None
        until(lambda: api.get("/readyz/kms-providers").status == 200, "it is back", within=40)


@pytest.mark.long
@pytest.mark.rows("OPS-003", "ETC-009")
def test_keys_and_plugins_change_without_a_restart(story: Story, tmp_path: Path) -> None:
    plugin, second = story.plugin, Plugin(str(tmp_path / "second.sock"))
    plugin.start()
    first_rule = ["secrets"], [provider(plugin, "first", timeout="1s"), PLAIN]
    story.use(first_rule)
    with running_server(story.flags, tmp_path / "server") as server:
        api = Client(server.url)
        for name in ("a", "b"):
            api.post(SECRETS, {"metadata": {"name": name}}).expect(201)
        plugin.key_id = "key-2"

        def key_is_renewed() -> bool:
            api.get("/readyz/kms-providers")  # requests the plug-in's status if the last one is old
            name = api.post(SECRETS, {"metadata": {"generateName": "probe-"}}).expect(201)["metadata"]["name"]
            api.delete(f"{SECRETS}/{name}").expect(200)
            return changed(api, f"{SECRETS}/a", {})

        until(key_is_renewed, "the new key is used", within=90)
        assert sorted(story.key_ids("secrets")) == ["key-1", "key-2"]
        assert not changed(api, f"{SECRETS}/a", {})

        failed = 'reloads_total{status="failure"'
        story.use((["secrets"], [provider(second, "second", timeout="1s"), *first_rule[1]]))
        until(lambda: failed in api.get("/metrics").text, "a plug-in that is not there is refused", within=40)
        assert api.patch(f"{SECRETS}/b", {"metadata": {"labels": {"a": "b"}}}, MERGE).status == 200
        assert stored(story.etcd, f"/{story.prefix}/secrets/default/b").startswith(b"k8s:enc:kms:v2:first:")
        second.start()
        until(lambda: changed(api, f"{SECRETS}/b", {}), "it is used when it is there", within=60)
        assert stored(story.etcd, f"/{story.prefix}/secrets/default/b").startswith(b"k8s:enc:kms:v2:second:")
        story.use((["secrets"], [PLAIN, provider(second, "second"), first_rule[1][0]]))
        until(lambda: changed(api, f"{SECRETS}/b", {}), "sealing ends", within=30)
        assert b"k8s:enc" not in stored(story.etcd, f"/{story.prefix}/secrets/default/b")
        assert api.get(f"{SECRETS}/a").status == 200
    second.stop()
