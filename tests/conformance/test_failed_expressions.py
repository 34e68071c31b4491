"""With --v=2 the server logs each expression that fails without an error for the client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.support.processes import Server, log_lines, running_server

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@pytest.fixture(scope="module", params=["2", "1"])
def logging_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, bool]]:
    """A server, and whether it logs expressions that fail."""
    flags = ["--insecure", "--port=0", f"--v={request.param}"]
    with running_server(flags, tmp_path_factory.mktemp("telling")) as server:
        yield server, request.param == "2"


def log_lines_with(server: Server, text: str) -> list[str]:
    """Return the log lines about expressions that contain a text: the message, then the fields."""
    assert isinstance(server.log, Path)
    found = [line for line in log_lines(server.log.read_text()) if line["logger"] == "apiext.verbose"]
    told = [
        f"{line['message']}:" + "".join(f" {name}={json.dumps(line[name])}" for name in list(line)[4:])
        for line in found
    ]
    return [line for line in told if text in line]


def check_log(logging_server: tuple[Server, bool], text: str, line: str) -> None:
    """Check that the log has this line about a text, or no line with --v=1."""
    server, told = logging_server
    if told:
        until(lambda: log_lines_with(server, text), "the line is written", within=5)
        assert log_lines_with(server, text) == [line]
    else:
        assert not log_lines_with(server, text)


def serve_with_rule(api: Client, **rule: Any) -> Resource:
    """Serve a custom resource with a rule for its spec."""
    spec = {"type": "object", "properties": {"x": {"type": "integer"}}, "x-kubernetes-validations": [rule]}
    return serve(api, schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})


@pytest.mark.rows("CEL-009")
@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("string(1 / (self.x - self.x))", "division by zero"),
        ("''", "messageExpression should evaluate to a non-empty string"),
        ("'a\\nb'", "messageExpression should not contain line breaks"),
    ],
)
def test_failed_message_expression_of_a_rule_is_logged(
    logging_server: tuple[Server, bool], expression: str, error: str
) -> None:
    api = Client(logging_server[0].url)
    widgets = serve_with_rule(api, rule="self.x > 5", message="too small", messageExpression=expression)
    refused = api.post(widgets.path(), widgets.make("a", x=1)).expect(422)
    assert refused["message"].endswith("too small")
    name = f"widgets.{widgets.group}"
    line = f'messageExpression evaluation failed: definition="{name}" rule="self.x > 5" error="{error}"'
    check_log(logging_server, name, line)


VALIDATION = {"expression": "object.spec.x > 5", "message": "too small", "messageExpression": "string(1 / 0)"}


@pytest.mark.rows("CEL-009", "ADM-006")
@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            {"validations": [VALIDATION]},
            'messageExpression evaluation failed: policy="NAME" rule="object.spec.x > 5" error="division by zero"',
        ),
        (
            {"validations": [{"expression": "object.spec.y > 5"}], "failurePolicy": "Ignore"},
            'policy failed and is ignored: policy="NAME" '
            "error=\"expression 'object.spec.y > 5' resulted in error: no such key: y\"",
        ),
        (
            {
                "validations": [{"expression": "true"}],
                "auditAnnotations": [{"key": "k", "valueExpression": "string(object.spec.y)"}],
                "failurePolicy": "Ignore",
            },
            'policy failed and is ignored: policy="NAME" '
            "error=\"expression 'string(object.spec.y)' resulted in error: no such key: y\"",
        ),
        (
            {
                "validations": [{"expression": "false"}],
                "matchConditions": [{"name": "m", "expression": "object.spec.y > 5"}],
                "failurePolicy": "Ignore",
            },
            'match condition of a policy failed and is ignored: name="NAME" '
            "error=\"expression 'object.spec.y > 5' resulted in error: no such key: y\"",
        ),
    ],
    ids=["message", "validation", "audit annotation", "match condition"],
)
def test_failed_policy_expression_is_logged(
    logging_server: tuple[Server, bool], more: dict[str, Any], told: str
) -> None:
    api = Client(logging_server[0].url)
    widgets = serve_with_rule(api, rule="true")
    name = f"p.{widgets.group}"
    rules = [{"apiGroups": [widgets.group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["widgets"]}]
    spec = {"matchConstraints": {"resourceRules": rules}, **more}
    api.post(POLICIES, {"metadata": {"name": name}, "spec": spec}).expect(201)
    bound = {"policyName": name, "validationActions": ["Deny"]}
    api.post(BINDINGS, {"metadata": {"name": name}, "spec": bound}).expect(201)
    answer = api.post(widgets.path(), widgets.make("a", x=1))
    if "failurePolicy" in more:
        answer.expect(201)
    else:
        assert answer.expect(422)["message"].endswith("denied request: too small")
    check_log(logging_server, f'"{name}"', told.replace("NAME", name))
