"""Errors: the fields that each Status has, and texts that clients compare."""

from __future__ import annotations

import pytest

from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import DEFINITIONS, Client


@pytest.mark.rows("ERR-01", "ERR-02", "ERR-07", "ERR-08", "ERR-09")
def test_an_invalid_object_names_every_cause(api: Client) -> None:
    widgets = serve(api)
    answer = api.post(widgets.path(), widgets.make("a", color=3, size=-1)).expect(422)
    assert answer["kind"] == "Status"
    assert answer["apiVersion"] == "v1"
    assert (answer["status"], answer["reason"], answer["code"]) == ("Failure", "Invalid", 422)
    causes = {cause["field"]: cause for cause in answer["details"]["causes"]}
    assert causes["spec.color"]["reason"] == "FieldValueTypeInvalid"
    assert causes["spec.size"]["message"] == (
        "Invalid value: -1: spec.size in body should be greater than or equal to 0"
    )
    assert answer["message"].startswith(f'Widget.{widgets.group} "a" is invalid: [')


@pytest.mark.rows("ERR-04")
def test_a_create_of_an_existing_name_is_a_409(api: Client) -> None:
    widgets = serve(api)
    widgets.create("a")
    answer = api.post(widgets.path(), widgets.make("a")).expect(409)
    assert (answer["reason"], answer["message"]) == ("AlreadyExists", f'widgets.{widgets.group} "a" already exists')


@pytest.mark.rows("ERR-03", "SRV-003")
@pytest.mark.parametrize("path", ["/apis/none.example.com/v1/widgets", "/apis/none.example.com", "/apis/x/y/z/a/b"])
def test_unknown_paths_are_plain_text(api: Client, path: str) -> None:
    answer = api.get(path)
    assert (answer.status, answer.text) == (404, "404 page not found\n")
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.rows("ERR-03", "DIS-109")
@pytest.mark.differs("an aggregator has another text for unknown paths")
@pytest.mark.parametrize("path", ["/nosuch", "/api/v2", "/healthz/nosuch"])
def test_unknown_paths_outside_the_api_list_the_known_paths(api: Client, path: str) -> None:
    assert api.get(path).expect(404) == api.get("/").expect(200)


@pytest.mark.rows("ERR-11", "ERR-12", "ERR-13", "DEC-002")
def test_a_body_must_fit_its_url(api: Client) -> None:
    widgets = serve(api)
    made = widgets.create("a")
    other_version = api.post(widgets.path(), {**widgets.make("b"), "apiVersion": f"{widgets.group}/v2"}).expect(400)
    assert "does not match the expected API version" in other_version["message"]
    other_name = api.put(widgets.path("a"), {**made, "metadata": {**made["metadata"], "name": "b"}}).expect(400)
    assert other_name["message"] == "the name of the object (b) does not match the name on the URL (a)"
    other_place = widgets.make("c")
    other_place["metadata"]["namespace"] = "kube-system"
    assert api.post(widgets.path(), other_place).expect(400)["reason"] == "BadRequest"
    assert "Object 'Kind' is missing" in api.post(widgets.path(), {}).expect(400)["message"]


@pytest.mark.rows("ERR-14", "SRV-017")
def test_unsupported_verbs_are_a_405(api: Client) -> None:
    widgets = serve(api, subresources={"status": {}})
    widgets.create("a")
    refused = api.post(f"/apis/{widgets.group}/v1/namespaces/default/widgets/a/status", widgets.make("a")).expect(405)
    assert refused["reason"] == "MethodNotAllowed"
    assert refused["message"].startswith("create is not supported on resources of kind")
    assert api.request("BREW", widgets.path()).status in (400, 405)


@pytest.mark.rows("ERR-15", "SRV-012", "NEG-004")
def test_media_types_are_named_when_refused(api: Client) -> None:
    widgets = serve(api)
    widgets.create("a")
    strategic = api.patch(widgets.path("a"), {}, "application/strategic-merge-patch+json").expect(415)
    assert strategic["message"] == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )
    html = api.get(widgets.path("a"), {"Accept": "text/html"})
    assert html.status == 406
    assert html.json["message"].startswith("only the following media types are accepted: application/json")
    assert api.post(widgets.path(), "x", {"Content-Type": "text/plain"}).status == 415


@pytest.mark.rows("WRI-013", "WRI-014", "PRU-008")
def test_unknown_fields_are_dropped_warned_of_or_refused(api: Client) -> None:
    widgets = serve(api)
    body = widgets.make("a", colour="red")
    warned = api.post(widgets.path(), body)
    assert warned.expect(201)["spec"] == {"note": "none"}
    assert warned.warnings == ['299 - "unknown field \\"spec.colour\\""']
    strict = api.post(widgets.path(), widgets.make("b", colour="red"), fieldValidation="Strict").expect(400)
    assert strict["message"].endswith('strict decoding error: unknown field "spec.colour"')
    quiet = api.post(widgets.path(), widgets.make("c", colour="red"), fieldValidation="Ignore")
    assert (quiet.status, quiet.warnings) == (201, [])


# upstream: the warning with which all warnings exceed 4,096 characters is still sent. From then on, each warning is cut
# to 256 characters, and further warnings are sent only while the sent ones have fewer than 4,096 characters.
@pytest.mark.rows("WRI-014")
@pytest.mark.parametrize(
    ("length", "count", "told"), [(256, 16, 16), (256, 17, 17), (256, 18, 17), (100, 60, 41), (1000, 40, 16)]
)
def test_limits_of_the_size_of_warnings(api: Client, length: int, count: int, told: int) -> None:
    widgets = serve(api)
    text = 'unknown field "spec.{}"'
    names = [f"{number:02}".ljust(length - len(text.format("")), "x") for number in range(count)]
    warned = api.post(f"{widgets.path()}?dryRun=All", widgets.make("a", **dict.fromkeys(names, 1)))
    cut = 256 if sum(len(text.format(name)) for name in names) > 4096 else length
    wanted = [text.format(name)[:cut].replace('"', '\\"') for name in names[:told]]
    assert warned.warnings == [f'299 - "{value}"' for value in wanted]


@pytest.mark.rows("WRI-014")
@pytest.mark.differs("an answer may have hundreds of Warning headers, which Python's http.client does not read")
@pytest.mark.parametrize("query", ["", "?dryRun=All&fieldManager=m"])
def test_many_warnings_can_be_read(api: Client, query: str) -> None:
    widgets = serve(api)
    made = widgets.make("many", **{f"f{number}": 1 for number in range(300)})
    answer = api.post(f"{widgets.path()}{query}", made)  # Python's http.client accepts at most a hundred header lines
    answer.expect(201)
    assert len(answer.warnings) == 64
    assert answer.warnings[-1] == '299 - "237 more warnings are not shown"'
    assert sum(len(f"{name}: {value}\r\n".encode()) for name, value in answer.headers.items()) < 32 * 1024
    assert len("\n".join(answer.headers.values()).split("\n")) < 100


@pytest.mark.rows("ERR-16", "WRI-025")
def test_a_body_has_a_limit(api: Client) -> None:
    widgets = serve(api)
    answer = api.post(widgets.path(), widgets.make("big", color="x" * (3 * 1024 * 1024)))
    assert answer.status == 413
    assert answer.json["message"] == "Request entity too large: limit is 3145728"
    api.get(widgets.path()).expect(200)


@pytest.mark.rows("CRD-005", "CRD-020", "STR-002")
def test_a_bad_definition_is_refused_with_upstreams_paths(api: Client) -> None:
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "wrong.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {}}}},
                }
            ],
        },
    }
    message = api.post(DEFINITIONS, body).expect(422)["message"]
    assert 'metadata.name: Invalid value: "wrong.example.com": must be spec.names.plural+"."+spec.group' in message
    assert "spec.validation.openAPIV3Schema.properties[spec].type: Required value" in message


# upstream: each error is reported, however deep it is
@pytest.mark.rows("ERR-07")
def test_every_error_in_deep_lists_is_reported(api: Client) -> None:
    step = {"type": "object", "required": ["op"], "properties": {"op": {"type": "string"}}}
    item = {"type": "object", "properties": {"m": {"type": "array", "items": step}, "n": {"type": "string"}}}
    of_lists = {"type": "object", "properties": {"rules": {"type": "array", "items": item}}}
    widgets = serve(api, schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": of_lists}}})
    rules = [{"n": number, "m": [{}, {"op": number}]} for number in range(300)]
    answer = api.post(f"{widgets.path()}?dryRun=All", widgets.make("a", rules=rules)).expect(422)
    wanted = {f"spec.rules[{number}].{end}" for number in range(300) for end in ("n", "m[0].op", "m[1].op")}
    assert {cause["field"] for cause in answer["details"]["causes"]} == wanted


EVERYWHERE = ["/api/v1/secrets", "/apis/rbac.authorization.k8s.io/v1/roles", "/api/v1/watch/secrets"]
NOWHERE = [
    "/api/v1/secrets/x", "/api/v1/watch/secrets/x", "/api/v1/serviceaccounts/x/token",
    "/apis/authorization.k8s.io/v1/localsubjectaccessreviews", "/api/v1/proxy/secrets",
    "/apis/authorization.k8s.io/v1/watch/localsubjectaccessreviews",
    "/apis/authorization.k8s.io/v1/watch/subjectaccessreviews",
]  # fmt: skip


@pytest.mark.rows("ERR-14")
@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_writes_in_all_namespaces(api: Client, method: str) -> None:
    body = {"metadata": {"name": "x"}} if method in {"POST", "PUT", "PATCH"} else None
    for path in EVERYWHERE:
        refused = api.request(method, f"{path}?labelSelector=of=nobody", body)
        assert refused.status == 405, path
        assert method == "HEAD" or refused.json["reason"] == "MethodNotAllowed"
    for path in NOWHERE:
        refused = api.request(method, path, body)
        assert refused.status == 404, path
        assert method == "HEAD" or refused.json["message"] == "the server could not find the requested resource"


NOT_SERVED = [
    "/api/v1/nowheres/x", "/api/v1/namespaces/default/nowheres/x", "/api/v1/secrets/x",
    "/apis/coordination.k8s.io/v1/leases/x", "/apis/authentication.k8s.io/v1/tokenreviews/x",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/clusterroles/x",
]  # fmt: skip


@pytest.mark.rows("ERR-14")
@pytest.mark.parametrize("path", NOT_SERVED)
@pytest.mark.needs("/api")
def test_a_404_leaves_the_connection_open(api: Client, path: str) -> None:
    connection = api.connect(20)
    for asked, code in (("/api", 200), *[(f"{path}?resourceVersion=0", 404)] * 3, ("/api", 200)):
        connection.request("GET", asked, headers=api.headers)
        socket = connection.sock
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, connection.sock) == (code, socket), asked
    connection.close()


@pytest.mark.rows("ERR-14")
@pytest.mark.parametrize("more", ["", "?watch=1", "?watch=true&fieldSelector=metadata.name%3Dx"])
def test_reviews_are_only_created(api: Client, more: str) -> None:
    for path in (
        "authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews",
        "authentication.k8s.io/v1/tokenreviews",
    ):
        refused = api.get(f"/apis/{path}{more}").expect(405)
        assert refused["reason"] == "MethodNotAllowed"


@pytest.mark.rows("ERR-14")
@pytest.mark.parametrize("path", NOWHERE)
def test_reads_of_missing_paths_are_a_404(api: Client, path: str) -> None:
    missing = api.get(path).expect(404)
    assert missing["message"] == "the server could not find the requested resource"
