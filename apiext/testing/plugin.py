"""Fixtures of pytest: a server and a namespace.

``kube_api`` is a server for the whole run, ``kube_namespace`` is a namespace for one test.
"""

import os
import secrets
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # imported when a test needs a server
    from apiext.testing.server import Server

_SERVER = pytest.StashKey["Server"]()
# attribute that Python clients, also the client in kopf, set from KUBECONFIG when they are imported
_READ_ONCE = "KUBE_CONFIG_DEFAULT_LOCATION"
_READERS = [
    f"{client}.config{part}" for client in ("kubernetes", "kubernetes_asyncio") for part in ("", ".kube_config")
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that select a running server, or the flags of a new server."""
    group = parser.getgroup("apiext")
    group.addoption("--kube-api-url", metavar="URL", default="", help="test against this running server")
    parser.addini("kube_api_flags", "flags of `apiext serve` for the fixture kube_api", type="args", default=[])


@pytest.fixture(scope="session")
def kube_api(request: pytest.FixtureRequest) -> "Iterator[Server]":
    """Yield a server for all tests of this process.

    KUBECONFIG refers to this server until the tests end.
    """
    from apiext.testing.server import Server

    url = request.config.getoption("--kube-api-url")
    with Server(*request.config.getini("kube_api_flags"), url=url) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setitem(os.environ, name, value)
        for reader in filter(None, map(sys.modules.get, _READERS)):
            patch.setattr(reader, _READ_ONCE, str(server.kubeconfig), raising=False)
        request.config.stash[_SERVER] = server
        yield server


@pytest.fixture
def kube_namespace(kube_api: "Server") -> Iterator[str]:
    """Yield the name of a new namespace.

    After the test, the namespace is deleted with all its objects; the fixture does not wait until the deletion ends.
    """
    name = f"test-{secrets.token_hex(4)}"
    kube_api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    kube_api.api.delete(f"/api/v1/namespaces/{name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of the server's log to the report of a failed test that uses ``kube_api``."""
    report = yield
    server = item.config.stash.get(_SERVER, None)
    if server is not None and report.failed and "kube_api" in getattr(item, "fixturenames", ()):
        report.sections.append(("apiext server", server.log_tail()))
    return report
