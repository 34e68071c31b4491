"""Freshness of the parameters that policies read."""

import asyncio
from typing import Any, cast

import orjson
import pytest

from apiext.admission.metrics import Metrics
from apiext.admission.params import ConfigurationError, Params
from apiext.admission.plugin_services import PluginServices
from apiext.scheduling.loop_budget import LoopBudget
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import PREFIX, Server, server, until

KEY = f"{PREFIX}/configmaps/d/limits"


def limits(value: str) -> bytes:
    metadata = {"name": "limits", "namespace": "d", "labels": {"for": "policies"}}
    return orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"most": value}})


def params(one: Server, *, workers: bool) -> Params:
    services = PluginServices(cast(Any, None), cast(Any, None), Metrics(), workers=workers)
    return Params(one.live, one.store, services)


@pytest.mark.rows("ADM-020")
@pytest.mark.parametrize("workers", [True, False])
@pytest.mark.parametrize("ref", [{"name": "limits"}, {"selector": {"matchLabels": {"for": "policies"}}}])
async def test_params_written_by_another_worker_are_read(ref: dict[str, Any], workers: bool) -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        etcd.put(KEY, limits("1"))
        await one.store.fresh()
        etcd.hold()
        etcd.put(KEY, limits("2"))
        async with asyncio.TaskGroup() as group:
            etcd.calls.clear()
            finding = group.create_task(params(one, workers=workers).find(("v1", "ConfigMap"), ref, "d", LoopBudget()))
            await until(lambda: etcd.calls or finding.done())
            assert finding.done() is not workers
            etcd.release()
        (found,) = finding.result()
        assert found is not None
        assert found["data"]["most"] == ("2" if workers else "1")
        assert bool(etcd.calls) is workers, "a server that is alone asks nobody"
        if workers:
            etcd.down = True
            with pytest.raises(ConfigurationError):
                await params(one, workers=workers).find(("v1", "ConfigMap"), ref, "d", LoopBudget())
            etcd.down = False


@pytest.mark.rows("ADM-020")
async def test_uncached_parameter_is_read_from_etcd() -> None:
    """upstream: a client that has just created the parameter gets no error that it is missing."""
    etcd = FakeEtcd()
    ref = {"name": "limits", "parameterNotFoundAction": "Deny"}
    async with server(etcd) as one:
        await one.store.fresh()
        etcd.hold()  # the watch delivers no events
        etcd.put(KEY, limits("1"))
        (found,) = await params(one, workers=False).find(("v1", "ConfigMap"), ref, "d", LoopBudget())
        assert found is not None
        assert found["data"]["most"] == "1"
        with pytest.raises(ConfigurationError, match="no params found"):
            await params(one, workers=False).find(("v1", "ConfigMap"), {**ref, "name": "other"}, "d", LoopBudget())
        etcd.release()


@pytest.mark.rows("ADM-020")
@pytest.mark.parametrize("bound", [1, 2])
async def test_params_over_the_limit_are_a_configuration_error(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain skips no parameter silently, since the policy could deny the write."""
    monkeypatch.setattr("apiext.admission.limits.ADMISSION_PARAMS", bound)
    etcd = FakeEtcd()
    ref = {"selector": {"matchLabels": {"for": "policies"}}}
    async with server(etcd) as one:
        for name in ("limits", "more"):
            etcd.put(f"{PREFIX}/configmaps/d/{name}", limits("1").replace(b'"limits"', f'"{name}"'.encode()))
        await one.store.fresh()
        finding = params(one, workers=True).find(("v1", "ConfigMap"), ref, "d", LoopBudget())
        if bound == 2:
            assert len(await finding) == 2
        else:
            with pytest.raises(ConfigurationError, match="more than 1 params found"):
                await finding
