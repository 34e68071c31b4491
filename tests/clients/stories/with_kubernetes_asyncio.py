"""kubernetes_asyncio: typed and custom objects, with a watch during the writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import yaml
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.api_client import ApiClient

MANIFESTS = Path(__file__).parents[1] / "manifests"
WHERE = ("stable.example.com", "v1", "default", "crontabs")


def manifest(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((MANIFESTS / name).read_text(encoding="utf-8"))
    return read


async def established(definitions: Any, name: str) -> None:
    async with watch.Watch().stream(
        definitions.list_custom_resource_definition, field_selector=f"metadata.name={name}", timeout_seconds=20
    ) as stream:
        async for event in stream:
            conditions = event["object"].status.conditions or []
            if any(it.type == "Established" and it.status == "True" for it in conditions):
                return
    raise AssertionError("never established")


async def follow(objects: Any, since: str, seen: list[str]) -> None:
    async with watch.Watch().stream(
        objects.list_namespaced_custom_object, *WHERE, resource_version=since, timeout_seconds=20
    ) as stream:
        async for event in stream:
            seen.append(event["type"])
            if event["type"] == "DELETED":
                return


async def refusal(call: Awaitable[object]) -> int:
    """Return the status code of a refused call."""
    try:
        await call
    except client.ApiException as error:
        return int(error.status)
    raise AssertionError("it was not refused")


async def story(api: Any) -> None:
    definitions, objects = client.ApiextensionsV1Api(api), client.CustomObjectsApi(api)
    wanted = manifest("resourcedefinition.yaml")
    await definitions.create_custom_resource_definition(wanted)
    await established(definitions, wanted["metadata"]["name"])
    crontab = manifest("my-crontab.yaml")
    name = crontab["metadata"]["name"]
    made = await objects.create_namespaced_custom_object(*WHERE, crontab)
    seen: list[str] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(follow(objects, made["metadata"]["resourceVersion"], seen))
        operations = [{"op": "add", "path": "/spec/replicas", "value": 2}]
        patched = await objects.patch_namespaced_custom_object(*WHERE, name, operations)
        assert patched["spec"]["replicas"] == 2
        merged = await objects.patch_namespaced_custom_object(
            *WHERE, name, {"spec": {"replicas": 3}}, _content_type="application/merge-patch+json"
        )
        assert merged["spec"]["replicas"] == 3
        assert await refusal(objects.replace_namespaced_custom_object(*WHERE, name, made)) == 409
        listed = await objects.list_namespaced_custom_object(*WHERE)
        assert [it["metadata"]["name"] for it in listed["items"]] == [name]
        await objects.delete_namespaced_custom_object(*WHERE, name)
    assert seen == ["MODIFIED", "MODIFIED", "DELETED"], seen
    await definitions.delete_custom_resource_definition(wanted["metadata"]["name"])


async def main() -> None:
    await config.load_kube_config()
    async with ApiClient() as api:
        await story(api)


if __name__ == "__main__":
    asyncio.run(main())
