"""Unusual characters and numbers in definitions and in the type of a body.

The errors are those of kube-apiserver.
"""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.definitions import definition, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, Answer, Client

JSON = "application/json"


def webhook(**client: Any) -> dict[str, Any]:
    """Return a definition with a conversion webhook."""
    wanted = definition(fresh_group())
    wanted["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client},
    }
    return wanted


def causes(answer: Answer) -> list[str]:
    """Return the messages of the causes of a refusal."""
    return [cause["message"] for cause in answer.expect(422)["details"]["causes"]]


@pytest.mark.rows("CRD-036")
@pytest.mark.parametrize(
    ("url", "told"),
    [
        (
            "https://%41/",
            'Required value: url must be a valid URL: parse "https://%41/": invalid URL escape "%41"'
            "; desired format: https://host[/path]",
        ),
        ("https://u%41:p%7e@x/", 'Invalid value: "uA:p~": user information is not permitted in the URL'),
        ("https://u!'():@x/", 'Invalid value: "u%21%27%28%29:": user information is not permitted in the URL'),
        ("https://$&+,;=@x/", 'Invalid value: "$&+,;=": user information is not permitted in the URL'),
    ],
)
def test_escaped_webhook_urls_are_refused(api: Client, url: str, told: str) -> None:
    assert causes(api.post(DEFINITIONS, webhook(url=url), dryRun="All")) == [told]


# upstream: the first byte of the path is dropped, even if it is not a slash
@pytest.mark.rows("CRD-036")
@pytest.mark.parametrize(("path", "count"), [("é", 2), ("/é", 1), ("xé", 2), ("éa/b", 2), ("é/", 2)])
def test_service_path_validation_drops_first_byte(api: Client, path: str, count: int) -> None:
    service = {"name": "a", "namespace": "b", "path": path}
    told = causes(api.post(DEFINITIONS, webhook(service=service), dryRun="All"))
    assert sum("segment[0]: a lowercase RFC 1123 subdomain must" in message for message in told) == 1
    assert len(told) == count


@pytest.mark.rows("CRD-023", "CRD-002")
def test_names_are_lowercased_per_character(api: Client) -> None:
    wanted = definition(fresh_group())
    wanted["spec"]["names"].update(kind="\u0130", singular="", listKind="\u212ax")
    made = api.post(DEFINITIONS, wanted, dryRun="All").expect(201)
    assert made["spec"]["names"]["singular"] == "i"
    inner = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    widgets = serve(api, schema={"openAPIV3Schema": {"type": "object", "properties": {"inner": inner}}})
    body = {**widgets.make("x"), "inner": {"apiVersion": "v1", "kind": "\u0130"}}
    api.post(widgets.path(), body, dryRun="All", fieldValidation="Ignore").expect(201)


@pytest.mark.rows("ERR-11", "DEC-002")
@pytest.mark.parametrize(("text", "quoted"), [('a"b', 'a\\"b'), ("a\n", "a\\n"), ("\u00a0", "\\u00a0"), ("é", "é")])
def test_errors_quote_unknown_kinds_and_versions(api: Client, text: str, quoted: str) -> None:
    wanted = definition(fresh_group())
    where = 'in scheme "pkg/runtime/scheme.go:111"'
    cannot = "cannot be handled as a CustomResourceDefinition"
    told = api.post(DEFINITIONS, {**wanted, "kind": text}).expect(400)["message"]
    assert told == (
        f'{text} in version "v1" {cannot}: '
        f'no kind "{quoted}" is registered for version "apiextensions.k8s.io/v1" {where}'
    )
    told = api.post(DEFINITIONS, {**wanted, "apiVersion": text}).expect(400)["message"]
    assert told == (
        f'CustomResourceDefinition in version "{quoted}" {cannot}: '
        f'no kind "CustomResourceDefinition" is registered for version "{quoted}" {where}'
    )


OTHER_KINDS = (
    ("apiextensions.k8s.io/v1", "CustomResourceDefinitionList", "v1.CustomResourceDefinitionList"),
    ("apiextensions.k8s.io/v1beta1", "ConversionReview", "v1beta1.ConversionReview"),
    ("apiextensions.k8s.io/v1beta1", "DeleteOptions", "v1.DeleteOptions"),
    ("v1", "Status", "v1.Status"),
)


@pytest.mark.rows("ERR-11", "DEC-002")
@pytest.mark.parametrize(("version", "kind", "known"), OTHER_KINDS)
def test_other_kinds_beside_definitions_cannot_be_converted(api: Client, version: str, kind: str, known: str) -> None:
    told = api.post(DEFINITIONS, {"apiVersion": version, "kind": kind}).expect(400)["message"]
    assert told == (
        f'{kind} in version "{version.rpartition("/")[2]}" cannot be handled as a CustomResourceDefinition: '
        f"converting ({known}) to (apiextensions.CustomResourceDefinition): unknown conversion"
    )


@pytest.mark.rows("ERR-11", "DEC-001")
@pytest.mark.parametrize(
    "number", ["1.50", "1e2", "1E+2", "0.1e1", "9223372036854775808", "-123456789012345678901234567890.5", "1.5e300"]
)
def test_errors_quote_numbers_as_written(api: Client, number: str) -> None:
    port = f'"conversion": {{"webhook": {{"clientConfig": {{"service": {{"port": {number}}}}}}}}}'
    text = f'{{"metadata": {{"name": "a{number}"}}, "spec": {{"scope": "{number}", "group": "x", {port}}}}}'
    told = api.request("POST", DEFINITIONS, text, {"Content-Type": "application/json"}).expect(400)["message"]
    place = "ServiceReference.spec.conversion.webhook.clientConfig.service.port of type int32"
    assert told.endswith(f": json: cannot unmarshal number {number} into Go struct field {place}")


def definition_text(**texts: str) -> str:
    """Return the JSON of a definition, with texts inserted before the fields of its parts."""
    group = fresh_group()

    def part(name: str, members: str) -> str:
        return f"{{{texts.get(name, '')}{members}}}"

    schema = part("schema", '"type": "object"')
    version = part("version", f'"name": "v1", "storage": true, "schema": {{"openAPIV3Schema": {schema}}}')
    names = '{"plural": "widgets", "kind": "Widget"}'
    spec = part("spec", f'"scope": "Namespaced", "group": "{group}", "names": {names}, "versions": [{version}]')
    metadata = part("metadata", f'"name": "widgets.{group}"')
    kind = '"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1"'
    return part("root", f'{kind}, "metadata": {metadata}, "spec": {spec}')


@pytest.mark.rows("ERR-11", "CRD-009", "DEC-003")
@pytest.mark.parametrize(
    ("texts", "notes"),
    [
        ({"spec": '"zz": 1, "scope": "x", "aa": 2, '}, ["?spec.zz", "?spec.aa", "=spec.scope"]),
        (
            {"root": '"y": [{"a,[": 1}, "}"], ', "metadata": '"zz": 1, "name": "b", "aa": {"a": 1, "a": 2}, '},
            ["?y", "?metadata.zz", "?metadata.aa", "=metadata.name"],
        ),
        (
            {"metadata": '"ownerReferences": [{"zz": 1, "aa": 1}], "labels": {"a": "1", "a": "2"}, "bb": 1, '},
            [
                "?metadata.ownerReferences[0].zz",
                "?metadata.ownerReferences[0].aa",
                "=metadata.labels.a",
                "?metadata.bb",
            ],
        ),
        (
            {"version": '"qq": 1, "served": true, "served": false, ', "schema": '"yy": 1, "type": "x", '},
            [
                "?spec.versions[0].qq",
                "=spec.versions[0].served",
                "?spec.versions[0].schema.openAPIV3Schema.yy",
                "=spec.versions[0].schema.openAPIV3Schema.type",
            ],
        ),
    ],
)
def test_field_warnings_follow_the_order_of_the_body(api: Client, texts: dict[str, str], notes: list[str]) -> None:
    words = {"?": "unknown", "=": "duplicate"}
    told = [f'{words[note[0]]} field "{note[1:]}"' for note in notes]
    body, kind = definition_text(**texts), {"Content-Type": "application/json"}
    refused = api.request("POST", f"{DEFINITIONS}?dryRun=All&fieldValidation=Strict", body, kind).expect(400)["message"]
    assert refused.partition("strict decoding error: ")[2] == ", ".join(told)
    warned = api.request("POST", f"{DEFINITIONS}?dryRun=All", body, kind)
    assert warned.warnings == ['299 - "{}"'.format(text.replace('"', '\\"')) for text in told]


@pytest.mark.rows("ERR-11", "DEC-001")
@pytest.mark.parametrize(
    ("member", "told"),
    [
        ('"minimum": 1e400', "number 1e400 into Go struct field JSONSchemaProps.{}.minimum of type float64"),
        ('"maxLength": -1e400', "number -1e400 into Go struct field JSONSchemaProps.{}.maxLength of type int64"),
        ('"default": 1e400', "number 1e400 into Go value of type float64"),
        ('"pattern": 1e400', "number into Go struct field JSONSchemaProps.{}.pattern of type string"),
        ('"more": 1e400', None),
    ],
)
def test_schema_numbers_beyond_float64_are_refused(api: Client, member: str, told: str | None) -> None:
    body = definition_text(schema=f"{member}, ")
    answer = api.request("POST", f"{DEFINITIONS}?dryRun=All", body, {"Content-Type": "application/json"})
    if told is None:
        answer.expect(201)
        assert answer.warnings == ['299 - "unknown field \\"spec.versions[0].schema.openAPIV3Schema.more\\""']
        return
    place = "spec.versions.schema.openAPIV3Schema"
    assert answer.expect(400)["message"].endswith(f": json: cannot unmarshal {told.format(place)}")


# upstream: a null does not change a field that cannot be null
@pytest.mark.rows("DEC-003", "CRD-009")
@pytest.mark.parametrize(
    ("place", "members", "then"),
    [
        ("schema", '"description": "x", "description": null', {"description": "x"}),
        ("schema", '"description": "x", "description": null, "description": null', {"description": "x"}),
        ("schema", '"description": null, "description": "x"', {"description": "x"}),
        ("schema", '"maxProperties": 1, "maxProperties": null', {}),
        ("schema", '"required": ["a"], "required": null', {}),
        ("schema", '"externalDocs": {"url": "x"}, "externalDocs": null', {}),
        ("schema", '"default": {"a": 1}, "default": null', {}),
        (
            "schema",
            '"properties": {"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, '
            '"default": {"b": 1, "b": null}}}',
            {
                "properties": {
                    "a": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": {"b": None}}
                }
            },
        ),
        ("schema", '"properties": {"a": {"type": "string", "type": null}}', {"properties": {"a": {"type": "string"}}}),
        (
            "schema",
            '"properties": {"a": {"type": "array", "items": {"type": "string", "type": null, "format": null}}}',
            {"properties": {"a": {"type": "array", "items": {"type": "string"}}}},
        ),
        ("metadata", '"labels": {"name": "b", "name": null}', {"labels": {"name": ""}}),
        ("metadata", '"labels": {"a": "b"}, "labels": null', {}),
        ("metadata", '"generateName": null, "name": null', {}),
    ],
)
def test_duplicate_null_in_definition_keeps_or_clears_value(
    api: Client, place: str, members: str, then: dict[str, Any]
) -> None:
    answer = api.request(
        "POST", f"{DEFINITIONS}?dryRun=All", definition_text(**{place: f"{members}, "}), {"Content-Type": JSON}
    )
    made = answer.expect(201)
    schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found = schema if place == "schema" else made["metadata"]
    assert {name: value for name, value in found.items() if name not in ALWAYS_THERE} == then


ALWAYS_THERE = ("type", "name", "uid", "generation", "creationTimestamp", "managedFields")


@pytest.mark.rows("DEC-003", "CRD-009")
def test_trailing_null_keeps_parts_of_a_definition(api: Client) -> None:
    whole = definition_text(schema='"x-kubernetes-preserve-unknown-fields": true, ')
    for end in '"spec": null', '"metadata": null', '"metadata": null, "status": null, "spec": null, "kind": null':
        body = f"{whole[:-1]}, {end}}}"
        made = api.request("POST", f"{DEFINITIONS}?dryRun=All", body, {"Content-Type": JSON}).expect(201)
        assert made["metadata"]["name"] == f"widgets.{made['spec']['group']}"
    for last in '"type": null', '"type": null, "scope": "Cluster", "scope": null':
        body = whole.replace('"type": "object"', f'"type": "object", {last}')
        made = api.request("POST", f"{DEFINITIONS}?dryRun=All", body, {"Content-Type": JSON})
        assert made.expect(201)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"] == "object"
    wrong = whole.replace('"type": "object"', '"type": 1, "type": null')
    refused = api.request("POST", f"{DEFINITIONS}?dryRun=All", wrong, {"Content-Type": JSON}).expect(400)["message"]
    assert "cannot unmarshal number into Go struct field JSONSchemaProps." in refused


# upstream: decodes custom objects in sorted order and reports the first error, but first an invalid time
@pytest.mark.rows("ERR-11", "MET-001")
@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        (
            '"labels": 1, "annotations": "x", "finalizers": [], ',
            "number into Go struct field ObjectMeta.metadata.labels",
        ),
        ('"uid": {}, "finalizers": [{}], ', "object into Go struct field ObjectMeta.metadata.uid"),
        ('"finalizers": [{}], "generation": "x", ', "object into Go struct field ObjectMeta.metadata.finalizers"),
    ],
)
def test_error_reports_first_wrong_type_in_metadata(api: Client, metadata: str, told: str) -> None:
    body = definition_text(metadata=metadata)
    for media_type in ("application/json", "application/yaml"):
        refused = api.request("POST", DEFINITIONS, body, {"Content-Type": media_type}).expect(400)["message"]
        if media_type == "application/json":
            assert f": json: cannot unmarshal {told} of type" in refused
        else:  # decoded from sorted JSON
            first = sorted(name for name in ("annotations", "finalizers", "generation", "labels") if name in metadata)[
                0
            ]
            assert f"ObjectMeta.metadata.{first} of type" in refused


# printable characters are those of Unicode 15.0, in all versions of Python: two of 15.0, then two of 15.1 and 16.0
@pytest.mark.rows("CRD-031", "WRI-011")
@pytest.mark.parametrize(
    ("char", "prints"), [("\U0001fa77", True), ("\U00031350", True), ("\U0002ebf0", False), ("\U0001fae9", False)]
)
def test_printable_characters_are_those_of_unicode_15(api: Client, char: str, prints: bool) -> None:
    wanted = definition(fresh_group(), deprecated=True, deprecationWarning=f"old {char}")
    assert api.post(DEFINITIONS, wanted, dryRun="All").status == (201 if prints else 422)
    wanted = definition(fresh_group())
    assert api.post(DEFINITIONS, wanted, dryRun="All", fieldManager=char).status == (201 if prints else 422)
    shown = char if prints else f"\\U{ord(char):08x}"
    wanted["spec"]["names"]["kind"] = f"{char}."
    told = causes(api.post(DEFINITIONS, wanted, dryRun="All"))
    assert any(message.startswith(f'Invalid value: "{shown}."') for message in told), told
