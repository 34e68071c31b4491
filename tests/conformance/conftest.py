"""Shared fixtures: a server whose etcd a test can read, and a conversion webhook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apiext.conformance.support.conversion_webhook import PREFIX, Webhook, answer, crontab, running_webhook
from tests.support.processes import Etcd, Server, running_server


@pytest.fixture(scope="session")
def converting(tmp_path_factory: pytest.TempPathFactory, own_etcd: Etcd) -> Iterator[Server]:
    """A server on the shared etcd."""
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix={PREFIX}"]
    with running_server(flags, tmp_path_factory.mktemp("converting")) as server:
        yield server


@pytest.fixture(scope="session")
def converting_webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """A conversion webhook, shared by all tests of the process."""
    with running_webhook(tmp_path_factory.mktemp("webhook")) as webhook:
        yield webhook


@pytest.fixture
def hook(converting_webhook: Webhook) -> Webhook:
    """The webhook without recorded requests; it converts CronTabs."""
    converting_webhook.forget()
    converting_webhook.answer = answer(crontab)
    return converting_webhook
