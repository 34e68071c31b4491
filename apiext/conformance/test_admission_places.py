"""Webhooks whose service or host has an unusual name.

Only a call of the webhook reports that a name is invalid.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from apiext.conformance.support.admission import VALIDATING, configured, rule, webhook
from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import Client

pytestmark = pytest.mark.rows("ADM-008", "VER-009")

NO_CLIENT = "could not get REST client: "
NO_PAIR = "host must be a URL or a host:port pair: "
CONTROL = "net/url: invalid control character in URL"
REFUSED = [
    ("a b", rf'{NO_PAIR}"https://a b.n.svc:443"'),
    ("127.0.0.1:1/", rf'{NO_PAIR}"https://[127.0.0.1:1/.n.svc]:443"'),
    ("[::1]", rf'{NO_PAIR}"https://[[::1].n.svc]:443"'),
    ("a[b", rf'{NO_PAIR}"https://a[b.n.svc:443"'),
    ("a\\b", rf'{NO_PAIR}"https://a\\b.n.svc:443"'),
    ("a{b}", rf'{NO_PAIR}"https://a{{b}}.n.svc:443"'),
    ("a|ü", rf'{NO_PAIR}"https://a|ü.n.svc:443"'),
    ("/a", rf'{NO_PAIR}"https:///a.n.svc:443"'),
    ("a%20b", rf'{NO_PAIR}"https://a%20b.n.svc:443"'),
    ("a%b", r'parse "http://https://a%b.n.svc:443": invalid URL escape "%b."'),
    ("a%zz", r'parse "http://https://a%zz.n.svc:443": invalid URL escape "%zz"'),
    ("a\tb", rf'parse "http://https://a\tb.n.svc:443": {CONTROL}'),
    ("a\r\nX: y", rf'parse "http://https://[a\r\nX: y.n.svc]:443": {CONTROL}'),
    ("a\0b", rf'parse "http://https://a\x00b.n.svc:443": {CONTROL}'),
    ("a\x7fb", rf'parse "http://https://a\x7fb.n.svc:443": {CONTROL}'),
]
CALLED = [
    ("ümlaut", "%C3%BCmlaut", "xn--mlaut-jva"),
    ("ÜMlaut", "%C3%9CMlaut", "xn--mlaut-jva"),
    ("ß", "%C3%9F", "xn--zca"),
    ("日本", "%E6%97%A5%E6%9C%AC", "xn--wgv71a"),
    ("a。b", "a%E3%80%82b", "a.b"),
    ("ﬀ", "%EF%AC%80", "ff"),
    ("🎉", "%F0%9F%8E%89", "xn--dk8h"),
]
PARTS = ["a/b", "a?b", "a#b", "a@b"]


def refusal(api: Client, client: dict[str, Any]) -> str:
    """Return the error of a write that makes the server call a webhook with this clientConfig."""
    widgets = serve(api)
    with configured(api, VALIDATING, webhook("v", client, rule(widgets), timeoutSeconds=3)):
        message: str = api.post(widgets.path(), widgets.make("a")).expect(500)["message"]
    return message.removeprefix('Internal error occurred: failed calling webhook "v.example.com": ')


def service(name: str) -> dict[str, Any]:
    return {"service": {"name": name, "namespace": "n"}}


@pytest.mark.parametrize(("name", "why"), REFUSED, ids=[repr(name) for name, _ in REFUSED])
def test_service_names_that_give_an_invalid_url(api: Client, name: str, why: str) -> None:
    assert refusal(api, service(name)) == f"{NO_CLIENT}{why}".replace("a\\b", "a\\\\b")


@pytest.mark.parametrize(("name", "shown", "asked"), CALLED)
@pytest.mark.differs("services of webhooks are found by Service objects, not by DNS")
def test_service_names_outside_ascii(api: Client, name: str, shown: str, asked: str) -> None:
    post = re.escape(f'failed to call webhook: Post "https://{shown}.n.svc:443/?timeout=3s": ')
    where = r"( on [0-9a-f.:\[\]]+)?"  # Go's resolver adds the name server
    assert re.fullmatch(
        rf"{post}dial tcp: lookup {re.escape(asked)}\.n\.svc{where}: no such host", refusal(api, service(name))
    )


def test_a_webhook_url_with_a_host_outside_ascii(api: Client) -> None:
    post = r'failed to call webhook: Post "https://B%C3%9Ccher\.invalid/x\?timeout=3s": '
    found = refusal(api, {"url": "https://BÜcher.invalid/x"})
    assert re.match(rf"{post}dial tcp: lookup xn--bcher-kva\.invalid( on \S+)?: no such host", found)


@pytest.mark.differs("a delimiter in the name of a service becomes a delimiter of the URL")
@pytest.mark.parametrize("name", PARTS)
def test_service_names_with_url_delimiters(api: Client, name: str) -> None:
    assert refusal(api, service(name)) == f'{NO_CLIENT}{NO_PAIR}"https://{name}.n.svc:443"'


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
@pytest.mark.parametrize("name", ["ümlaut", "a b"])
def test_the_failure_policy_applies_to_unusual_service_names(api: Client, name: str, policy: str) -> None:
    widgets = serve(api)
    hook = webhook("v", service(name), rule(widgets), failurePolicy=policy, timeoutSeconds=3)
    with configured(api, VALIDATING, hook):
        api.post(widgets.path(), widgets.make("a")).expect(201 if policy == "Ignore" else 500)
