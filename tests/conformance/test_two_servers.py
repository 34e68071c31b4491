"""Two servers on one etcd: what one stores the other serves, at once and consistently."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.definitions import definition, establish, fresh_group, serve
from tests.support.http_client import DEFINITIONS, Client
from tests.support.processes import Etcd, running_server
from tests.support.waiting import busy, until


@pytest.fixture
def pair(own_etcd: Etcd, tmp_path: Path) -> Iterator[tuple[Client, Client]]:
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/{tmp_path.name}"]
    with running_server(flags, tmp_path / "one") as one, running_server(flags, tmp_path / "two") as two:
        yield Client(one.url), Client(two.url)


@pytest.mark.rows("ETC-010", "RV-017")
def test_a_definition_of_one_is_served_by_the_other_within_a_second(pair: tuple[Client, Client]) -> None:
    one, two = pair
    wanted = definition(fresh_group())
    group = wanted["spec"]["group"]
    establish(one, wanted)
    began = time.monotonic()
    two.get(f"/apis/{group}/v1/widgets").expect(200)
    assert time.monotonic() - began < 1 * busy()


@pytest.mark.rows("RV-017", "WRI-005")
def test_a_write_through_one_is_read_through_the_other(pair: tuple[Client, Client]) -> None:
    one, two = pair
    widgets = serve(one)
    for number in range(50):
        made = widgets.create(f"w{number}")
        assert two.get(widgets.path(f"w{number}")).expect(200) == made
        changed = {**made, "spec": {"color": "red"}}
        two.put(widgets.path(f"w{number}"), changed).expect(200)
        assert one.get(widgets.path(f"w{number}")).expect(200)["spec"]["color"] == "red"
        assert one.put(widgets.path(f"w{number}"), changed).status == 409


@pytest.mark.rows("DEL-004", "DEL-005")
def test_no_object_survives_a_definition_deleted_through_the_other(pair: tuple[Client, Client]) -> None:
    one, two = pair
    widgets = serve(one)
    held = widgets.make("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    one.post(widgets.path(), held).expect(201)
    name = f"{DEFINITIONS}/widgets.{widgets.group}"
    two.delete(name).expect(200)
    refused = one.post(widgets.path(), widgets.make("late"))
    assert refused.status == 403
    assert "create not allowed while custom resource definition is terminating" in refused.expect(403)["message"]
    patch = {"metadata": {"finalizers": None}}
    one.patch(widgets.path("held"), patch).expect(200)
    until(lambda: two.get(name).status == 404, "the definition is gone", 10)
    assert one.get(widgets.path()).status == 404
