"""The pytest plug-in of ``apiext conformance``.

The option --server selects the server under test.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import ssl
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from apiext.conformance.areas import area_of, areas
from apiext.conformance.replay.look import NAMESPACES, delete_namespaces
from apiext.conformance.replay.recorded import LEFT_OUT, decision
from apiext.conformance.support import http_client
from apiext.conformance.support.target import Target

pytest_plugins = ["apiext.conformance.fixtures"]
_AREA = "conformance area"
PARTS = ("", "-token", "-ca", "-cert", "-key")
"""Suffixes of the options that begin with --server, in the order of the arguments of ``target``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the server and its user."""
    parser.addoption("--server", metavar="URL", help="the server under test")
    parser.addoption("--server-token", default="", help="bearer token")
    parser.addoption(
        "--server-ca", default="", help="CA bundle of an https server; by default, its certificate is not verified"
    )
    parser.addoption("--server-cert", default="", help="client certificate")
    parser.addoption("--server-key", default="", help="key of the client certificate")


def pytest_configure(config: pytest.Config) -> None:
    """Register markers and the report."""
    config.addinivalue_line("markers", "rows(*ids): numbered behaviours that the test shows")
    config.addinivalue_line("markers", "differs(why): the reason why kube-apiserver answers differently")
    config.addinivalue_line("markers", "has(*facts): facts that the server must have for the test")
    config.addinivalue_line("markers", "needs(*paths): paths that the server must serve for the test")
    config.pluginmanager.register(Report(), "conformance-report")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Target:
    """Return the server that --server selects."""
    return named(request.config)


@pytest.fixture(scope="session")
def reference_server(server: Target) -> Target:
    """Return ``server`` for the recorded scenarios.

    The scenarios need no server of their own, since they create all their objects.
    """
    return server


@pytest.fixture(scope="session")
def obliging(server: Target) -> Target:
    """Return ``server`` for a test of kinds that are disabled by default.

    Skip the test if the server lacks them.
    """
    if not server.serves("/apis/storagemigration.k8s.io/v1beta1"):
        pytest.skip("the server does not serve storagemigration.k8s.io/v1beta1")
    return server


@pytest.fixture(scope="module", autouse=True)
def _definitions_deleted(server: Target) -> Iterator[None]:
    """Delete the definitions that a module's tests created.

    Many definitions slow down OpenAPI and discovery.
    """
    yield
    api = server.client()
    for path in [path for path in http_client.made if not path.startswith(NAMESPACES)]:
        api.delete(path)
        del http_client.made[path]


@pytest.fixture(scope="session", autouse=True)
def _retries(foreign: bool) -> None:
    """Repeat requests that another implementation rejects with 429 while it fills its cache."""
    http_client.attempts = _ATTEMPTS if foreign else 1


@pytest.fixture(scope="session", autouse=True)
def _namespaces_deleted(server: Target) -> Iterator[None]:
    """Delete the namespaces that tests created."""
    yield
    delete_namespaces(server.client(), [path.rpartition("/")[2] for path in http_client.made])


def named(config: pytest.Config) -> Target:
    """Return the server that the options select."""
    return target(*(config.getoption(f"--server{part}") or "" for part in PARTS))


def target(url: str, token: str, ca: str, certificate: str, key: str) -> Target:
    """Return the server with this URL and these credentials."""
    tls = None
    if url.startswith("https:"):
        tls = ssl.create_default_context(cafile=ca or None)
        if not ca:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if certificate:
            tls.load_cert_chain(certificate, key)
    return Target(url, {"Authorization": f"Bearer {token}"} if token else {}, tls)


_BUILT_IN = re.compile(
    r"(?P<core>/api)(?:/|$)|(?P<all>/apis)/?(?:\?|$)|/apis/(?P<group>(?!apiextensions)[a-z.]+\.k8s\.io|apps|autoscaling|batch|policy)/"
)
_CORE = "/api/v1"
_ATTEMPTS = 10
_served: dict[str, bool] = {}


def why_skipped(config: pytest.Config) -> str:
    """Return the reason to count a failed test as skipped, else an empty text.

    Only another implementation gives a reason: its last answer is one that decided.yaml lists, or a request of the test
    got a 404 because the server lacks a built-in group.
    """
    return _decision(config) or _missing_root(config)


def _missing_root(config: pytest.Config) -> str:
    """Return a reason if another implementation lacks a built-in group that the test needs.

    A request of the test got a 404. Return an empty text without such a request, and for a server of this project.
    """
    for found in filter(None, map(_BUILT_IN.match, sorted(http_client.absent))):
        root = _CORE if found["core"] else found["all"] or f"/apis/{found['group']}"
        if root not in _served:
            _served[root] = named(config).serves(root)
        if not _served[root] and _is_foreign(config):
            return f"the server does not serve {root}"
    return ""


def _decision(config: pytest.Config) -> str:
    """Return a reason if another implementation gave an answer that decided.yaml lists.

    From these answers this project differs on purpose. Return an empty text for other answers and on a server of this
    project.
    """
    for answer in tuple(http_client.answers):
        one = decision(answer.status, answer.text)
        if one and _is_foreign(config):
            return f"kube-apiserver differs, see docs/DIFFERENCES.md: {one['status']} where {one['why']}"
    return ""


def _is_foreign(config: pytest.Config) -> bool:
    return named(config).version.get("compiler") != "python"


class Report:
    """Counts outcomes by area; prints the table of areas and the reasons of skipped tests."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._reasons: dict[str, Counter[str]] = defaultdict(Counter)
        self._steps: dict[str, Counter[str]] = defaultdict(Counter)
        self.idle: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record the area of a test.

        Add the last requests and answers to the report of a failed test. Count a failed test as skipped if
        ``why_skipped`` returns a reason.
        """
        report = yield
        module = item.nodeid.partition("::")[0].rpartition("/")[2].removesuffix(".py")
        report.user_properties.append((_AREA, area_of(module).name))
        if report.failed:
            exchanges = "\n\n".join(http_client.exchanges)  # read before why_skipped sends requests
            if why := why_skipped(item.config):
                report.outcome, report.longrepr = "skipped", (str(item.path), 0, why)
            elif exchanges:
                report.sections.append(("last requests and answers", exchanges))
        return report

    def pytest_runtest_setup(self) -> None:
        """Delete the recorded requests and answers of the previous test."""
        http_client.exchanges.clear()
        http_client.answers.clear()
        http_client.absent.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the outcome of a test, or a failure in its set-up or clean-up."""
        area = str(dict(report.user_properties).get(_AREA, ""))
        if report.failed:
            self._counts[area]["failed"] += 1
        elif report.skipped:
            self._counts[area]["skipped"] += 1
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self._reasons[area][reason.removeprefix("Skipped: ")] += 1
        elif report.when == "call":
            self._counts[area]["passed"] += 1
        if report.when == "call":
            self._steps[area].update(str(value) for name, value in report.user_properties if name == LEFT_OUT)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a run without ``-k`` if the server serves an area, but no test of this area ran."""
        if exitstatus == 0 and not session.config.option.keyword and not session.config.option.collectonly:
            self.idle = self.idle_areas(named(session.config).serves)
            if self.idle:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def idle_areas(self, serves: Callable[[str], bool]) -> list[str]:
        """Return the areas whose paths the server serves, but of which no test ran."""
        idle = [it for it in areas() if not self._counts[it.name]["passed"] + self._counts[it.name]["failed"]]
        return [it.name for it in idle if all(serves(path) for path in it.needs)]

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """Print the table of areas and the reasons of skipped tests.

        Print nothing for --collect-only or a usage error.
        """
        if terminalreporter.config.option.collectonly or exitstatus == pytest.ExitCode.USAGE_ERROR:
            return
        write = terminalreporter.write_line
        write("")
        write(f"{'area':32} {'passed':>7} {'failed':>7} {'skipped':>8}")
        for area in areas():
            counts = self._counts.get(area.name, Counter())
            write(f"{area.name:32} {counts['passed']:7} {counts['failed']:7} {counts['skipped']:8}")
        for area_name, reasons in self._reasons.items():
            for reason, count in reasons.most_common():
                write(f"skipped in {area_name}: {count}: {reason}")
        for area_name, steps in self._steps.items():
            for step in steps:
                write(f"not compared in {area_name}: {step}")
        for area_name in self.idle:
            write(f"no test of {area_name} ran, although the server serves this area")

    @property
    def total(self) -> Counter[str]:
        """The number of tests for each outcome, in all areas."""
        return sum(self._counts.values(), Counter())
