"""What tests share: a server of kinds that are served on request, one whose etcd can be read, and a webhook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.conversion_webhook import PREFIX, Webhook, answer, crontab, running_webhook
from tests.support.http_client import Client
from tests.support.processes import Etcd, Server, running_server

MIGRATIONS = "/apis/storagemigration.k8s.io/v1beta1"


@pytest.fixture(scope="session")
def obliging(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that serves also the versions on request, and where no migration runs; or the one of --server."""
    if url := request.config.getoption("--server"):
        if Client(url).get(MIGRATIONS).status == 404:
            pytest.skip("the server of --server does not serve storagemigration.k8s.io/v1beta1")
        yield Server(url)
        return
    flags = ["--insecure", "--port=0", "--runtime-config=storagemigration.k8s.io/v1beta1=true", "--controllers=*,-svm"]
    with running_server(flags, tmp_path_factory.mktemp("obliging")) as started:
        yield started


@pytest.fixture
def api(request: pytest.FixtureRequest, api: Client) -> Client:
    """A client of the server; of the obliging one for rows of a kind that is served on request."""
    rows = request.node.callspec.params.values() if hasattr(request.node, "callspec") else ()
    if any(isinstance(row, dict) and row.get("on_request") for row in rows):
        return Client(request.getfixturevalue("obliging").url)
    return api


@pytest.fixture(scope="session")
def converting(tmp_path_factory: pytest.TempPathFactory, own_etcd: Etcd) -> Iterator[Server]:
    """A server on the shared etcd."""
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix={PREFIX}"]
    with running_server(flags, tmp_path_factory.mktemp("converting")) as server:
        yield server


@pytest.fixture(scope="session")
def converting_webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """A webhook."""
    with running_webhook(tmp_path_factory.mktemp("webhook")) as webhook:
        yield webhook


@pytest.fixture
def hook(converting_webhook: Webhook) -> Webhook:
    """The webhook with nothing said to it yet, converting CronTabs."""
    converting_webhook.forget()
    converting_webhook.answer = answer(crontab)
    return converting_webhook
