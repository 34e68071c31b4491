"""Encryption at rest: keys of a resource, stored forms, and errors.

Errors are those of values without a matching key.
"""

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.conformance.support.cases import Case
from apiext.conformance.support.cases import load as load_cases
from apiext.meta.names import GroupResource
from apiext.storage.ciphers import AES_CBC, AES_GCM, IDENTITY, OPERATIONS, SECRETBOX, CipherEncryptions, Provider, Rule
from apiext.storage.encryption import PLAIN, Encryption, EncryptionError, Secret
from apiext.storage.encryption_config import ConfigurationError, hash_of, load, parse

SECRETS = GroupResource("", "secrets")
KEY = "/registry/secrets/default/a"
OLD, NEW = b"abcdef0123456789abcdef0123456789", b"0123456789abcdef0123456789abcdef"
KINDS = (AES_CBC, AES_GCM, SECRETBOX)
PREFIXES = {kind: f"k8s:enc:{kind}:v1:".encode() for kind in KINDS}


def encryption(*providers: Provider) -> Encryption:
    found = CipherEncryptions([Rule(("secrets",), providers)]).of(SECRETS)
    assert found is not None
    return found


def provider_with_keys(kind: str, *names: str) -> Provider:
    return Provider(kind, tuple(Secret(kind, name, NEW if name.startswith("new") else OLD) for name in names))


@pytest.mark.rows("OPS-003")
@pytest.mark.parametrize("case", load_cases(__file__, "encryption_configs"), ids=lambda case: case.name)
def test_configuration_file_is_loaded_or_refused(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "encryption.yaml"
    path.write_text(case.file)
    if case.then:
        with pytest.raises(ConfigurationError) as refused:
            load(str(path))
        assert str(refused.value).replace(str(path), "FILE") == case.then
    else:
        assert load(str(path)).hash == hash_of(path.read_bytes())


def test_missing_configuration_file_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    with pytest.raises(ConfigurationError) as refused:
        load(path)
    assert str(refused.value) == (
        "error while parsing file: error while loading file: error reading encryption provider configuration file "
        f'"{path}": open {path}: no such file or directory'
    )


def test_secrets_are_in_no_repr() -> None:
    text = base64.b64encode(NEW).decode()
    rules = parse(
        b"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n"
        b"  providers: [{aesgcm: {keys: [{name: a, secret: %b}]}}]\n" % text.encode(),
        "x",
    )
    assert rules[0].providers[0].keys[0].value == NEW
    assert "0123456789" not in repr(rules)


@pytest.mark.rows("OPS-003")
@pytest.mark.parametrize(
    ("resource", "group", "name"),
    [
        ("secrets", "", "own"),
        ("configmaps", "", "core"),
        ("crontabs", "example.com", "group"),
        ("deployments", "apps", "any"),
        ("guards", ".apiext", ""),
    ],
)
def test_most_specific_rule_selects_the_key(resource: str, group: str, name: str) -> None:
    rules = [
        Rule(("secrets",), (provider_with_keys(AES_GCM, "own"),)),
        Rule(("*.example.com",), (provider_with_keys(AES_GCM, "group"),)),
        Rule(("*.",), (provider_with_keys(AES_GCM, "core"),)),
        Rule(("*.*",), (provider_with_keys(AES_GCM, "any"),)),
    ]
    found = CipherEncryptions(rules).of(GroupResource(group, resource))
    assert (found.secret.name if found is not None else "") == name


def test_resource_without_rule_is_not_encrypted() -> None:
    assert CipherEncryptions([Rule(("secrets",), (Provider(IDENTITY),))]).of(GroupResource("", "configmaps")) is None


@pytest.mark.rows("OPS-003")
@pytest.mark.parametrize("kind", KINDS)
@given(plain=st.binary(max_size=200))
def test_encrypted_values_are_decrypted(kind: str, plain: bytes) -> None:
    way = encryption(provider_with_keys(kind, "new"))
    stored = way.encrypt(KEY, plain)
    assert stored.startswith(PREFIXES[kind] + b"new:")
    assert way.decrypt(KEY, stored) == (plain, Secret(kind, "new", NEW))
    assert way.encrypt(KEY, plain) != stored


@pytest.mark.rows("OPS-003")
@pytest.mark.parametrize("kind", KINDS)
def test_first_key_encrypts_and_all_keys_decrypt(kind: str) -> None:
    before, plain = encryption(provider_with_keys(kind, "old")), b"{}\n"
    between = encryption(provider_with_keys(kind, "new", "old"), Provider(IDENTITY))
    stored = before.encrypt(KEY, plain)
    assert between.decrypt(KEY, stored)[1] == before.secret != between.secret
    assert between.decrypt(KEY, plain) == (plain, PLAIN)
    assert encryption(provider_with_keys(kind, "new")).decrypt(KEY, between.encrypt(KEY, plain))[1] == between.secret
    away = encryption(Provider(IDENTITY), provider_with_keys(kind, "old"))
    assert away.encrypt(KEY, plain) == plain
    assert away.secret == PLAIN
    assert away.decrypt(KEY, stored) == (plain, before.secret)


def test_provider_may_be_listed_twice() -> None:
    stored = encryption(provider_with_keys(AES_GCM, "old")).encrypt(KEY, b"x")
    both = encryption(provider_with_keys(AES_GCM, "new"), provider_with_keys(AES_GCM, "old"))
    assert both.decrypt(KEY, stored) == (b"x", Secret(AES_GCM, "old", OLD))


AES_NONE = "no matching key was found for the provided AES transformer"
SHORT = "the stored data was shorter than the required size"


@pytest.mark.rows("OPS-003")
@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (b"k8s:enc:aescbc:v1:other:xxx", AES_NONE),
        (b"k8s:enc:aesgcm:v1:other:xxx", AES_NONE),
        (b"k8s:enc:secretbox:v1:other:x", "no matching key was found for the provided Secretbox transformer"),
        (b"k8s:enc:aescbc:v1:new:" + b"x" * 15, SHORT),
        (b"k8s:enc:aescbc:v1:new:" + b"x" * 31, "the stored data is not a multiple of the block size"),
        (b"k8s:enc:aescbc:v1:new:" + b"x" * 48, "invalid PKCS7 data (empty or not padded)"),
        (b"k8s:enc:aescbc:v1:new:" + b"x" * 16, "invalid PKCS7 data (empty or not padded)"),
        (b"k8s:enc:aesgcm:v1:new:abc", SHORT),
        (b"k8s:enc:aesgcm:v1:new:" + b"x" * 40, "cipher: message authentication failed"),
        (b"k8s:enc:secretbox:v1:new:" + b"x" * 39, SHORT),
        (b"k8s:enc:secretbox:v1:new:" + b"x" * 60, "output array was not large enough for encryption"),
        (b"k8s:enc:kms:v2:a:x", "no matching prefix found"),
        (b"k8s:enc:zzz", "no matching prefix found"),
    ],
)
def test_undecryptable_values_have_error_texts_of_upstream(stored: bytes, why: str) -> None:
    way = encryption(
        provider_with_keys(AES_CBC, "new"),
        provider_with_keys(AES_GCM, "new"),
        provider_with_keys(SECRETBOX, "new"),
        Provider(IDENTITY),
    )
    with pytest.raises(EncryptionError) as refused:
        way.decrypt(KEY, stored)
    assert str(refused.value) == why


def test_errors_of_several_keys_are_reported_together() -> None:
    stored = encryption(provider_with_keys(AES_GCM, "a")).encrypt(KEY, b"x")
    with pytest.raises(EncryptionError) as refused:
        encryption(provider_with_keys(AES_GCM, "new"), Provider(AES_GCM, (Secret(AES_GCM, "a", NEW),))).decrypt(
            KEY, stored
        )
    assert str(refused.value) == f"[{AES_NONE}, cipher: message authentication failed]"


def test_all_padding_bytes_are_checked() -> None:
    way = encryption(provider_with_keys(AES_CBC, "new"))
    prefix = PREFIXES[AES_CBC] + b"new:"
    stored = bytearray(way.encrypt(KEY, b"x" * 12))[len(prefix) :]
    stored[12] ^= 1  # a byte of the initialization vector: changes the first byte of the padding
    with pytest.raises(EncryptionError) as refused:
        way.decrypt(KEY, prefix + bytes(stored))
    assert str(refused.value) == "invalid padding on input"


def test_value_copied_to_another_etcd_key_is_not_decrypted() -> None:
    way = encryption(provider_with_keys(AES_GCM, "new"))
    with pytest.raises(EncryptionError):
        way.decrypt(f"{KEY}b", way.encrypt(KEY, b"x"))


def test_encryption_operations_are_counted() -> None:
    way = encryption(provider_with_keys(SECRETBOX, "counted"))
    counted = [
        OPERATIONS.slot("secrets", what, prefix, status)
        for what, prefix, status in (
            ("to_storage", "counted:", "OK"),
            ("from_storage", "counted:", "OK"),
            ("from_storage", "k8s:enc:secretbox:v1:", "OK"),
            ("from_storage", "unknown", "unknown-non-grpc"),
        )
    ]
    before = [slot.value for slot in counted]
    way.decrypt(KEY, way.encrypt(KEY, b"x"))
    with pytest.raises(EncryptionError):
        way.decrypt(KEY, b"x")
    assert [slot.value - known for slot, known in zip(counted, before, strict=True)] == [1, 1, 1, 1]
