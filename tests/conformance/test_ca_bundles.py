"""Validation of a conversion webhook's CA bundle, and definitions with an invalid one."""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from apiext.conformance.support import tls
from apiext.conformance.support.definitions import Resource, condition, definition, fresh_group, is_true
from apiext.conformance.support.http_client import APPLY, DEFINITIONS, MERGE, Answer, Client
from apiext.conformance.support.waiting import until

BAD = base64.b64encode(b"x").decode()
MALFORMED = "failed to parse certificate: x509: malformed certificate"
NO_BLOCK = "unable to parse bytes as PEM block"
SEEN = {"status": "False", "reason": "InvalidCABundle", "message": "The conversion webhook CABundle is invalid"}


def encoded(text: str) -> str:
    """Encode a text as a caBundle."""
    return base64.b64encode(text.encode()).decode()


def with_bundle(bundle: str | None) -> dict[str, Any]:
    """Return a definition in a new group whose webhook has this bundle; None: no bundle."""
    wanted = definition(fresh_group())
    client = {"url": "https://127.0.0.1:1/"} | ({"caBundle": bundle} if bundle is not None else {})
    wanted["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client},
    }
    return wanted


def set_ca_bundle(api: Client, wanted: dict[str, Any], bundle: str | None) -> Answer:
    """Change the bundle of a stored definition."""
    patch = {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}}
    return api.patch(f"{DEFINITIONS}/{wanted['metadata']['name']}", patch, MERGE)


def wait_for_established(api: Client, wanted: dict[str, Any], reason: str) -> dict[str, Any]:
    """Wait until the condition Established has this reason, and return it."""
    path = f"{DEFINITIONS}/{wanted['metadata']['name']}"

    def found() -> dict[str, Any] | None:
        seen = condition(api.get(path).expect(200), "Established")
        return seen if seen is not None and seen["reason"] == reason else None

    return until(found, f"{path} is {reason}", within=10)


@pytest.mark.rows("CRD-037", "CND-004", "CND-005")
@pytest.mark.parametrize("bundle", [BAD, encoded(" \n"), encoded("-----BEGIN CERTIFICATE-----\n")])
def test_definition_with_invalid_ca_bundle_is_not_established(api: Client, bundle: str) -> None:
    wanted = with_bundle(bundle)
    api.post(DEFINITIONS, wanted).expect(201)
    seen = wait_for_established(api, wanted, "InvalidCABundle")
    assert {name: seen[name] for name in SEEN} == SEEN
    path, group = f"{DEFINITIONS}/{wanted['metadata']['name']}", wanted["spec"]["group"]
    assert is_true(api.get(path).expect(200), "NamesAccepted")
    assert api.get(f"/apis/{group}/v1").status == 404  # discovery lists only established definitions
    # controllers accept another name, and change no other condition
    api.patch(path, {"spec": {"names": {"shortNames": ["wd"]}}}, MERGE).expect(200)
    until(lambda: api.get(path).expect(200)["status"]["acceptedNames"].get("shortNames"), "the name is accepted")
    again = wait_for_established(api, wanted, "InvalidCABundle")
    assert again == seen
    # the definition is not established, so another invalid bundle is accepted
    set_ca_bundle(api, wanted, encoded("y")).expect(200)
    set_ca_bundle(api, wanted, tls.authority().bundle).expect(200)
    assert wait_for_established(api, wanted, "InitialNamesAccepted")["status"] == "True"


@pytest.mark.rows("CRD-037", "CND-005", "ERR-20")
def test_definition_with_invalid_ca_bundle_is_not_served(api: Client) -> None:
    wanted = with_bundle(encoded("garbage"))
    (version,) = wanted["spec"]["versions"]
    version["subresources"] = {"status": {}}
    wanted["spec"]["versions"] = [{**version, "name": "v1beta1"}, {**version, "name": "v1", "storage": False}]
    wanted["spec"]["versions"].append({**version, "name": "v0", "storage": False, "served": False})
    api.post(DEFINITIONS, wanted).expect(201)
    wait_for_established(api, wanted, "InvalidCABundle")
    group = wanted["spec"]["group"]
    stored, other = (Resource(api, group, "widgets", "Widget", version) for version in ("v1beta1", "v1"))
    for widgets in (stored, other):
        body = widgets.make("a")
        answers = [
            api.get(widgets.path()),
            api.get(f"/apis/{group}/{widgets.version}/widgets"),
            api.get(widgets.path(), watch="1", timeoutSeconds="1"),
            api.get(widgets.path("a")),
            api.get(widgets.path("a"), resourceVersion="0"),
            api.get(f"{widgets.path('a')}/status"),
            api.get(f"{widgets.path('a')}/nonsense"),
            api.post(widgets.path(), body),
            api.post(widgets.path(namespace="nowhere"), body),
            api.put(widgets.path("a"), body),
            api.patch(widgets.path("a"), {}, MERGE),
            api.patch(widgets.path("a"), body, APPLY, fieldManager="m"),
            api.delete(widgets.path("a")),
            api.delete(widgets.path()),
        ]
        assert {answer.status for answer in answers} == {500}
        for answer in answers:
            assert answer.json["message"] == "Internal error occurred: error resolving resource"
            assert answer.json["reason"] == "InternalError"
    for path in (f"/apis/{group}", f"/apis/{group}/v1", f"/apis/{group}/v0/namespaces/default/widgets"):
        assert api.get(path).status == 404
    assert group not in {found["name"] for found in api.get("/apis").expect(200)["groups"]}
    set_ca_bundle(api, wanted, tls.authority().bundle).expect(200)
    wait_for_established(api, wanted, "InitialNamesAccepted")
    stored.create("a")
    assert [one["metadata"]["name"] for one in api.get(stored.path()).expect(200)["items"]] == ["a"]
    assert "connection refused" in api.get(other.path("a")).expect(500)["message"]


@pytest.mark.rows("CRD-037", "DEL-004")
def test_definition_with_invalid_ca_bundle_can_be_deleted(api: Client) -> None:
    wanted = with_bundle(encoded("garbage"))
    api.post(DEFINITIONS, wanted).expect(201)
    wait_for_established(api, wanted, "InvalidCABundle")
    path = f"{DEFINITIONS}/{wanted['metadata']['name']}"
    api.delete(path).expect(200)
    until(lambda: api.get(path).status == 404, "the definition is gone", within=10)


@pytest.mark.rows("CRD-037", "CND-004")
def test_schema_property_named_ca_bundle_is_not_a_bundle(api: Client) -> None:
    schema = {"type": "object", "properties": {"caBundle": {"type": "string"}}}
    wanted = definition(fresh_group(), schema={"openAPIV3Schema": schema})
    api.post(DEFINITIONS, wanted).expect(201)
    assert wait_for_established(api, wanted, "InitialNamesAccepted")["status"] == "True"


# upstream: an empty bundle is equal to a missing one
@pytest.mark.rows("CRD-037", "CND-005")
def test_webhook_with_blank_ca_bundle_is_called(api: Client) -> None:
    wanted = with_bundle(encoded(" \n\t"))
    (version,) = wanted["spec"]["versions"]
    wanted["spec"]["versions"].append({**version, "name": "v2", "storage": False})
    api.post(DEFINITIONS, wanted).expect(201)
    wait_for_established(api, wanted, "InvalidCABundle")
    group = wanted["spec"]["group"]
    first, second = (Resource(api, group, "widgets", "Widget", version) for version in ("v1", "v2"))
    until(lambda: api.get(first.path()).status != 404, "it is served though it is not established", within=10)
    first.create("a")
    told = api.get(second.path("a")).expect(500)["message"]
    assert told.endswith("connect: connection refused")


@pytest.mark.rows("CRD-037")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x", NO_BLOCK),
        (" ", NO_BLOCK),
        ("-----BEGIN CERTIFICATE-----\neA==\n-----END CERTIFICATE-----\n", MALFORMED),
        ("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----", MALFORMED),
        ("-----BEGIN PRIVATE KEY-----\neA==\n-----END PRIVATE KEY-----\n", "no valid certificate authority data seen"),
        (
            "-----BEGIN PRIVATE KEY-----\neA==\n-----END PRIVATE KEY----- \t\r\n",
            "no valid certificate authority data seen",
        ),
        ("-----BEGIN PRIVATE KEY-----\neA==\n-----END PRIVATE KEY-----\n\n", NO_BLOCK),
        ("-----BEGIN PRIVATE KEY-----\neA==\n-----END PRIVATE KEY-----\n\r", NO_BLOCK),
        ("\n", NO_BLOCK),
        ("\r\n\n", NO_BLOCK),
    ],
)
def test_invalid_ca_bundle_does_not_replace_a_valid_one(api: Client, text: str, told: str) -> None:
    check_refused(api, text, told)


def check_refused(api: Client, text: str, told: str) -> None:
    """Create a definition with a valid bundle, and check the refusal of another bundle.

    The refusal must have this message.
    """
    wanted = with_bundle(tls.authority().bundle)
    api.post(DEFINITIONS, wanted).expect(201)
    wait_for_established(api, wanted, "InitialNamesAccepted")
    refused = set_ca_bundle(api, wanted, encoded(text)).expect(422)
    cause = {
        "reason": "FieldValueInvalid",
        "message": f'Invalid value: "{encoded(text)}": unable to load root certificates: {told}',
        "field": "spec.conversion.webhookClientConfig.caBundle",
    }
    assert refused["details"]["causes"] == [cause]
    assert wait_for_established(api, wanted, "InitialNamesAccepted")["status"] == "True"
    for bundle in (tls.authority().bundle, None):
        set_ca_bundle(api, wanted, bundle).expect(200)
    assert set_ca_bundle(api, wanted, encoded(text)).status == 422


ODD = ec.generate_private_key(ec.SECP256K1())
KEY = ec.generate_private_key(ec.SECP256R1())
UNREADABLE = {
    "2.5.29.14": "subject key identifier",
    "2.5.29.15": "key usage",
    "2.5.29.17": "subject alternative names",
    "2.5.29.19": "basic constraints",
    "2.5.29.30": "NameConstraints extension",
    "2.5.29.31": "CRL distribution points",
    "2.5.29.32": "certificate policies",
    "2.5.29.33": "policy mappings extension",
    "2.5.29.35": "authority key identifier",
    "2.5.29.36": "policy constraints extension",
    "2.5.29.37": "extended key usages",
    "2.5.29.54": "inhibit any policy extension",
    "1.3.6.1.5.5.7.1.1": "authority info access",
}


def certificate(key: ec.EllipticCurvePrivateKey, extensions: dict[str, bytes]) -> str:
    """Return a certificate with these values of extensions, as PEM."""
    now, name = datetime.now(UTC), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "odd")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    for identifier, value in extensions.items():
        extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(identifier), value)
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.rows("CRD-037")
def test_certificate_with_curve_unknown_to_go_is_refused(api: Client) -> None:
    check_refused(api, certificate(ODD, {}), "failed to parse certificate: x509: unsupported elliptic curve")


@pytest.mark.rows("CRD-037")
def test_certificate_with_undecodable_extension_is_refused(api: Client) -> None:
    wanted = with_bundle(tls.authority().bundle)
    api.post(DEFINITIONS, wanted).expect(201)
    wait_for_established(api, wanted, "InitialNamesAccepted")
    for identifier, name in UNREADABLE.items():
        for value in (b"abc", b"", b"\x30\x05\x00"):
            told = set_ca_bundle(api, wanted, encoded(certificate(KEY, {"1.2.3.4": b"x", identifier: value}))).expect(
                422
            )
            text = told["details"]["causes"][0]["message"]
            assert text.endswith(f"failed to parse certificate: x509: invalid {name}"), (identifier, value, text)
    good = {"1.2.3.4": b"abc", "2.5.29.19": b"\x30\x03\x01\x01\xff", "2.5.29.15": b"\x03\x02\x01\x06"}
    set_ca_bundle(api, wanted, encoded(certificate(KEY, good))).expect(200)


def certificate_with_serial(serial: int) -> str:
    """Return a certificate with a serial number of one byte, as PEM."""
    return ssl.DER_cert_to_PEM_cert(tls.numbered(serial))


@pytest.mark.rows("CRD-037")
def test_certificate_serial_number_must_not_be_negative(api: Client) -> None:
    wanted = with_bundle(encoded(certificate_with_serial(0)))
    api.post(DEFINITIONS, wanted).expect(201)
    assert wait_for_established(api, wanted, "InitialNamesAccepted")["status"] == "True"
    check_refused(api, certificate_with_serial(-5), "failed to parse certificate: x509: negative serial number")
    wanted = with_bundle(encoded(certificate_with_serial(-5)))
    api.post(DEFINITIONS, wanted).expect(201)
    wait_for_established(api, wanted, "InvalidCABundle")
    set_ca_bundle(api, wanted, encoded(certificate_with_serial(-5) + certificate_with_serial(0))).expect(
        200
    )  # one valid certificate is enough
    wait_for_established(api, wanted, "InitialNamesAccepted")
