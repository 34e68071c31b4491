"""A KMS provider: the key for writes, keys of other servers, and errors of the plug-in."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiext.kms import limits, metrics
from apiext.kms import provider as provider_module
from apiext.kms.envelope import KEY, SEED, packed, tail
from apiext.kms.plugin import PluginError
from apiext.kms.provider import KeyUnavailable, Provider, faults_of
from tests.support.kms_plugin import NOTE, turned
from tests.unit.kms.fake import FakePlugin

pytestmark = [pytest.mark.looptime, pytest.mark.rows("OPS-003")]
DATA = b"x" * 60


class Rig:
    """A provider with a plug-in in memory; its clock is the event loop's."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.group = group
        self.plugin = FakePlugin()
        self.provider = Provider("p", self.plugin, asyncio.get_running_loop().time)

    async def start(self) -> None:
        await self.provider.start(self.group)

    def stored(self, seed: bytes = b"s" * 32, key_id: str = "key-2", kind: int = SEED) -> bytes:
        """Return a value that another server stored, encrypted with a key of the plug-in."""
        return packed(DATA, tail(kind, key_id, turned(key_id, seed), {NOTE: b"by " + key_id.encode()}))


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """Return a provider that the test starts; time is real before."""
    async with asyncio.TaskGroup() as group:
        made = Rig(group)
        yield made
        await made.provider.stop()
        assert made.plugin.closed


def hashed(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


async def test_seed_is_kept_while_the_plugin_key_id_is_unchanged(rig: Rig) -> None:
    await rig.start()
    first = rig.provider.current_key()
    assert first.key_id == "key-1"
    assert [method for method, _ in rig.plugin.calls] == ["Status", "Encrypt"]
    await asyncio.sleep(10 * provider_module.KMS_POLL + 1)
    assert rig.plugin.count("Encrypt") == 1
    assert rig.plugin.count("Status") == 11
    last = rig.provider.current_key()
    assert (last.seed, last.tail) == (first.seed, first.tail)
    assert "seed=" not in repr(last)


async def test_new_key_id_of_the_plugin_creates_a_new_seed(rig: Rig) -> None:
    await rig.start()
    before = rig.provider.current_key()
    old = packed(DATA, before.tail)
    rig.plugin.key_id = "key-2"
    await asyncio.sleep(provider_module.KMS_POLL + 1)
    after = rig.provider.current_key()
    assert (after.key_id, after.seed == before.seed) == ("key-2", False)
    assert rig.provider.data_and_key(old)[1].key == before.seed
    assert rig.provider.data_and_key(packed(DATA, after.tail))[1].key == after.seed
    assert rig.plugin.count("Decrypt") == 0


async def test_key_encrypts_for_three_minutes_without_a_status(rig: Rig) -> None:
    await rig.start()
    rig.plugin.die()
    await asyncio.sleep(limits.KMS_WRITES - 1)
    assert rig.plugin.count("Status") == pytest.approx(
        1 + (limits.KMS_WRITES - provider_module.KMS_POLL) / provider_module.KMS_POLL_FAILED, abs=1
    )
    rig.provider.current_key()
    await asyncio.sleep(2)
    with pytest.raises(KeyUnavailable, match=f'encryptedDEKSource with keyID hash "{hashed("key-1")}" expired at .*Z'):
        rig.provider.current_key()
    rig.plugin.fault = None
    await asyncio.sleep(provider_module.KMS_POLL_FAILED)
    assert rig.provider.current_key().key_id == "key-1"
    assert rig.plugin.count("Encrypt") == 1


FAULTS: list[tuple[dict[str, dict[str, Any]], str]] = [
    ({"Status": {"healthz": "sick"}}, "got unexpected healthz status: sick"),
    ({"Status": {"version": "v1"}}, "expected KMSv2 API version v2, got v1"),
    ({"Status": {"version": "v2beta1"}},
     "KMSv2 API version should not change after the initial status response version v2, got v2beta1"),
    ({"Status": {"key_id": ""}}, 'got invalid KMSv2 KeyID hash "": keyID is empty'),
    ({"Status": {"key_id": "k" * 1025}},
     f'got invalid KMSv2 KeyID hash "{hashed("k" * 1025)}": keyID is 1025 bytes, which exceeds the max size of 1024'),
    ({"Status": {"healthz": "", "version": ""}},
     "[got unexpected healthz status: , expected KMSv2 API version v2, got ]"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "why"), FAULTS, ids=range(len(FAULTS)))
async def test_invalid_status_responses_are_unhealthy(rig: Rig, changed: dict[str, dict[str, Any]], why: str) -> None:
    await rig.start()
    rig.plugin.changed = changed
    await asyncio.sleep(provider_module.KMS_POLL + 1)
    assert rig.provider.fault == f"kmsv2 Provider p is not healthy, error: {why}"
    assert faults_of([rig.provider]) == f"kms-provider-0: {rig.provider.fault}"
    rig.provider.current_key()  # the last key is still used


ROTATIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"key_id": "key-9"}, "<nil>", hashed("key-9")),
    ({"ciphertext": b""}, "failed to validate encrypted DEK source: encrypted DEK source is empty", ""),
    ({"ciphertext": b"x" * 1025},
     "failed to validate encrypted DEK source: encrypted DEK source is 1025 bytes, which exceeds the max size of 1024",
     ""),
    ({"annotations": {"plain": b""}},
     'failed to validate annotations: annotations: Invalid value: "plain": should be a domain with at least two '
     "segments separated by dots", ""),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "why", "told"), ROTATIONS, ids=range(len(ROTATIONS)))
async def test_failed_key_rotation_keeps_the_last_key(rig: Rig, changed: dict[str, Any], why: str, told: str) -> None:
    await rig.start()
    rig.plugin.key_id = "key-2"
    rig.plugin.changed = {"Encrypt": changed}
    await asyncio.sleep(provider_module.KMS_POLL + 1)
    fault = rig.provider.fault
    assert fault.startswith('kmsv2 Provider p is not healthy, error: failed to rotate DEK uid="')
    assert f'useSeed=true, errState=<nil>, errGen={why}, statusKeyIDHash="{hashed("key-2")}", ' in fault
    assert f'encryptKeyIDHash="{told}", stateKeyIDHash="{hashed("key-1")}", expirationTimestamp=' in fault
    assert rig.provider.current_key().key_id == "key-1"
    rig.plugin.changed = {}
    await asyncio.sleep(provider_module.KMS_POLL_FAILED)
    assert rig.provider.current_key().key_id == "key-2"


async def test_missing_first_key_prevents_encrypt_and_decrypt() -> None:
    async with asyncio.TaskGroup() as group:
        rig = Rig(group)
        rig.plugin.changed = {"Encrypt": {"key_id": "other"}}
        await rig.start()
        assert "errState=got unexpected nil transformer" in rig.provider.fault
        assert rig.provider.fault.endswith('stateKeyIDHash="", expirationTimestamp=0001-01-01T00:00:00Z')
        for work in (rig.provider.current_key, lambda: rig.provider.data_and_key(rig.stored())):
            with pytest.raises(KeyUnavailable, match="got unexpected nil transformer"):
                work()
        await rig.provider.fetch([rig.stored()])
        assert rig.plugin.count("Decrypt") == 0
        await rig.provider.stop()


async def test_probe_refreshes_an_expired_health_status(rig: Rig) -> None:
    await rig.start()
    rig.plugin.die()
    assert rig.provider.probe() == ""
    await asyncio.sleep(limits.KMS_TTL + 1)
    assert rig.plugin.count("Status") == 1
    assert rig.provider.probe() == ""
    await asyncio.sleep(0.1)
    why = "failed to perform status section of the healthz check for KMS Provider p, error: rpc error: code ="
    assert rig.provider.probe() == f"{why} Unavailable desc = gone"
    rig.plugin.fault = None
    await asyncio.sleep(limits.KMS_TTL_FAILED)
    rig.provider.probe()
    await asyncio.sleep(0.1)
    assert rig.provider.probe() == ""


async def test_concurrent_fetches_decrypt_a_foreign_key_once(rig: Rig) -> None:
    await rig.start()
    rig.plugin.gate.clear()
    stored = rig.stored()
    waits = [rig.group.create_task(rig.provider.fetch([stored, stored])) for _ in range(5)]
    await asyncio.sleep(0.1)
    waits[0].cancel()
    rig.plugin.gate.set()
    await asyncio.wait(waits)
    assert rig.provider.data_and_key(stored) == rig.provider.data_and_key(rig.stored())
    assert rig.provider.data_and_key(stored)[1].key == b"s" * 32
    assert rig.plugin.count("Decrypt") == 1
    uids = [uid for method, uid in rig.plugin.calls if method == "Decrypt"]
    assert len(uids[0]) == 36


async def test_failed_decrypt_is_cached_for_seconds(rig: Rig) -> None:
    await rig.start()
    stored, other = rig.stored(), rig.stored(b"t" * 32)
    rig.plugin.fault = PluginError(5, "no such key", reached=True)
    for _ in range(3):
        await rig.provider.fetch([stored])
        with pytest.raises(KeyUnavailable) as refused:
            rig.provider.data_and_key(stored)
        assert str(refused.value) == "failed to decrypt DEK, error: rpc error: code = NotFound desc = no such key"
        assert (refused.value.status, refused.value.tried) == ("NotFound", True)
    assert rig.plugin.count("Decrypt") == 1
    with pytest.raises(KeyUnavailable) as unknown:
        rig.provider.data_and_key(other)
    assert not unknown.value.tried
    rig.plugin.fault = None
    await asyncio.sleep(limits.KMS_TTL_FAILED)
    await rig.provider.fetch([stored])
    assert rig.provider.data_and_key(stored)[0] == DATA


async def test_unresponsive_plugin_limits_decrypt_calls(rig: Rig) -> None:
    await rig.start()
    rig.plugin.gate.clear()
    began = asyncio.get_running_loop().time()
    many = [rig.stored(b"%032d" % number) for number in range(100)]
    await rig.provider.fetch(many)
    assert asyncio.get_running_loop().time() - began == pytest.approx(rig.plugin.timeout, abs=0.5)
    assert rig.plugin.count("Decrypt") == limits.KMS_CALLS
    for stored in many:
        with pytest.raises(KeyUnavailable, match="code = DeadlineExceeded"):
            rig.provider.data_and_key(stored)
    rig.plugin.gate.set()
    await asyncio.sleep(limits.KMS_TTL_FAILED)
    await rig.provider.fetch(many)
    assert all(rig.provider.data_and_key(stored)[0] == DATA for stored in many)


@pytest.mark.parametrize(
    ("kind", "key", "why"),
    [
        (SEED, b"short", "invalid seed length 5 used for key generation"),
        (KEY, b"short", "crypto/aes: invalid key size 5"),
        (KEY, b"k" * 40, "crypto/aes: invalid key size 40"),
    ],
)
async def test_keys_of_invalid_size_are_refused(rig: Rig, kind: int, key: bytes, why: str) -> None:
    await rig.start()
    stored = rig.stored(key, kind=kind)
    await rig.provider.fetch([stored])
    with pytest.raises(KeyUnavailable, match=why):
        rig.provider.data_and_key(stored)


async def test_number_of_cached_keys_is_limited(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.start()
    monkeypatch.setattr(limits, "KMS_KEYS", 10)
    for number in range(30):
        await rig.provider.fetch([rig.stored(b"%032d" % number)])
    assert metrics.KEYS.slot("p").value == 10
    assert len(rig.provider._aliases) == len(rig.provider._keys) == 10
    first = rig.stored(b"%032d" % 0)
    await rig.provider.fetch([first])
    assert rig.provider.data_and_key(first)[0] == DATA


async def test_internal_error_ends_with_the_next_poll(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.start()

    async def broken(*_: object) -> bytes:
        raise RuntimeError("a fault")

    monkeypatch.setattr(rig.plugin, "status", broken)
    monkeypatch.setattr(rig.plugin, "decrypt", broken)
    await asyncio.sleep(provider_module.KMS_POLL + 1)
    assert rig.provider.fault == "a fault"
    await rig.provider.fetch([rig.stored()])
    with pytest.raises(KeyUnavailable, match="failed to decrypt DEK, error: a fault"):
        rig.provider.data_and_key(rig.stored())
    monkeypatch.undo()
    await asyncio.sleep(provider_module.KMS_POLL_FAILED)
    assert rig.provider.fault == ""


async def test_number_of_key_labels_in_metrics_is_limited() -> None:
    for number in range(3 * limits.KMS_LABELS):
        metrics.used(metrics.TO_STORAGE, "many", hashed(str(number)))
    lines = list(metrics.USED.lines())
    assert len(lines) <= limits.KMS_LABELS
    assert any(hashed(str(3 * limits.KMS_LABELS - 1)) in line for line in lines)
