"""The pytest plugin of the project: options, server fixtures, and counts of behaviour rows."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from apiext.conformance.support.http_client import Client
from tests.clients.matrix import Families
from tests.support import processes
from tests.support.behaviour import BehaviourRows
from tests.support.etcd_binaries import NoBinary, find_binary
from tests.support.overdue import Overdue
from tests.support.processes import (
    PLAIN_FLAGS,
    REFERENCE_FLAGS,
    Etcd,
    Server,
    named_or_running,
    running_etcd,
    running_server,
)
from tests.support.tiers import Tiers

STORES = ("sqlite", "memory", "etcd")
MIGRATIONS = "/apis/storagemigration.k8s.io/v1beta1"
pytest_plugins = ["apiext.conformance.fixtures"]

EXAMPLES = 40  # examples of each law on CI; `scripts/test long` tries ten times as many
hypothesis.settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, database=None, max_examples=EXAMPLES
)
hypothesis.settings.register_profile("dev", deadline=None, max_examples=EXAMPLES)
hypothesis.settings.register_profile("long", deadline=None, print_blob=True, max_examples=10 * EXAMPLES)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--server", metavar="URL", help="test this running server instead of starting one")
    parser.addoption(
        "--store", choices=STORES, default=STORES[0], help="where servers keep objects whose test names no store"
    )


def pytest_configure(config: pytest.Config) -> None:
    asyncio.set_event_loop(None)  # without this, looptime creates an event loop that is never closed
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a background job; programs under test would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "has(*facts): what a look at the server must find for the test")
    config.pluginmanager.register(BehaviourRows(), "behaviour-rows")
    config.pluginmanager.register(Families(), "client-families")
    config.pluginmanager.register(Overdue(), "overdue")
    config.pluginmanager.register(Tiers(), "tiers")


def pytest_report_header() -> str:
    """Return the line of the report header with the etcd of this run."""
    try:
        etcd = find_binary(os.environ.get("ETCD_BINARY"))
    except NoBinary as error:
        return f"etcd: {error}"
    return f"etcd: {etcd.text}, {etcd.path}"


@pytest.fixture(scope="session")
def own_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd that tests may read and write directly."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture(scope="session", autouse=True)
def _store(request: pytest.FixtureRequest) -> None:
    """Set the store of ``--store`` for servers whose test names no store."""
    chosen: str = request.config.getoption("--store")
    if chosen == "etcd" and not request.config.getoption("--server"):
        etcd: Etcd = request.getfixturevalue("own_etcd")
        processes.store[:] = [f"--etcd-servers={etcd.url}"]
    elif chosen == "memory":
        processes.store[:] = [processes.MEMORY]


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with default admission on plain http, or the server of ``--server``."""
    with named_or_running(request.config.getoption("--server"), PLAIN_FLAGS, tmp_path_factory.mktemp("server")) as it:
        yield it


@pytest.fixture(scope="session")
def reference_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server configured like the recorded reference server, or the server of ``--server``."""
    with named_or_running(
        request.config.getoption("--server"), REFERENCE_FLAGS, tmp_path_factory.mktemp("reference")
    ) as it:
        yield it


@pytest.fixture(scope="session")
def obliging(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the APIs that --runtime-config enables, without controllers for them.

    With ``--server``, it is the server of this option.
    """
    if url := request.config.getoption("--server"):
        if Client(url).get(MIGRATIONS).status == 404:
            pytest.skip("the server of --server does not serve storagemigration.k8s.io/v1beta1")
        yield Server(url)
        return
    plain = ["--insecure", "--port=0", "--runtime-config=storagemigration.k8s.io/v1beta1=true", "--controllers=*,-svm"]
    with running_server(plain, tmp_path_factory.mktemp("obliging")) as started:
        yield started
