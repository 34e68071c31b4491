"""Fixtures of all conformance tests.

A pytest plug-in provides the fixture ``server``, which has ``client()``.
"""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.areas import area_of
from apiext.conformance.replay.look import Look, look
from apiext.conformance.support.http_client import Client


@pytest.fixture(scope="session")
def foreign(server: Any) -> bool:
    """Return whether the server is another implementation, such as kube-apiserver."""
    answer = server.client().get("/version")
    return bool(answer.status != 200 or answer.json["compiler"] != "python")


@pytest.fixture
def api(request: pytest.FixtureRequest, server: Any) -> Client:
    """Return a client of the server.

    A parameter of a test has ``on_request`` if its kind is disabled by default. For such a test, the server is the
    fixture ``obliging``, which serves these kinds.
    """
    rows = request.node.callspec.params.values() if hasattr(request.node, "callspec") else ()
    on_request = any(isinstance(row, dict) and row.get("on_request") for row in rows)
    client: Client = (request.getfixturevalue("obliging") if on_request else server).client()
    return client


@pytest.fixture(autouse=True)
def _judged(request: pytest.FixtureRequest) -> None:
    """Skip a test that the server of --server cannot pass.

    The reasons are:

    - the test or its parameter is marked ``differs``, and the server is another implementation;
    - the server does not serve a path in the mark ``needs`` of the test, or in ``needs`` of its area;
    - the server lacks a fact (see ``Look``) in the mark ``has`` of the test;
    - the test has an admission webhook, and the server does not serve the configurations of webhooks, or runs on
      another machine.
    """
    mark = request.node.get_closest_marker("differs")
    if mark and request.config.getoption("--server") and request.getfixturevalue("foreign"):
        pytest.skip(f"kube-apiserver differs, see docs/DIFFERENCES.md: {mark.args[0]}")
    for row in request.node.callspec.params.values() if hasattr(request.node, "callspec") else ():
        why = row.get("differs") if isinstance(row, dict) else None
        if why and request.config.getoption("--server") and request.getfixturevalue("foreign"):
            pytest.skip(f"kube-apiserver differs, see docs/DIFFERENCES.md: {why}")
    if not request.config.getoption("--server") or not request.module.__name__.startswith("apiext.conformance."):
        return
    needs = list(area_of(request.module.__name__.rpartition(".")[2]).needs)
    needs += [path for mark in request.node.iter_markers("needs") for path in mark.args]
    if absent := [fact for mark in request.node.iter_markers("has") for fact in mark.args if fact not in seen(request)]:
        pytest.skip(f"the server lacks: {', '.join(absent)}")
    if "hook" in request.fixturenames:
        needs.append("/apis/admissionregistration.k8s.io/v1")
        if not getattr(request.getfixturevalue("server"), "is_local", True):
            pytest.skip("the server runs on another machine, so it cannot call a webhook on this machine")
    if needs:
        serves = request.getfixturevalue("serves")
        if missing := [path for path in needs if not serves(path)]:
            pytest.skip(f"the server does not serve {', '.join(missing)}")


def seen(request: pytest.FixtureRequest) -> frozenset[str]:
    """Return the names of the facts of the server (see ``Look``)."""
    return frozenset(request.getfixturevalue("facts").facts)


@pytest.fixture(scope="session")
def facts(server: Any) -> Look:
    """Return the facts of the server; for this, create and delete a definition and a namespace."""
    return look(server.client())


@pytest.fixture(scope="session")
def serves(server: Any) -> Any:
    """Return the function path → whether the server answers a GET with 200.

    The function requests each path only once, and caches the result.
    """
    known: dict[str, bool] = {}

    def asked(path: str) -> bool:
        if path not in known:
            known[path] = server.client().get(path).status == 200
        return known[path]

    return asked
