"""lightkube: generic resources, patches of each kind, server-side apply, lists and watches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from lightkube import ApiError, Client
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.types import PatchType

MANIFESTS = Path(__file__).parents[1] / "manifests"


def manifest(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((MANIFESTS / name).read_text(encoding="utf-8"))
    return read


def refusal(call: Callable[[], object]) -> int:
    """Return the status code of a refused call."""
    try:
        call()
    except ApiError as error:
        return int(error.response.status_code)
    raise AssertionError("it was not refused")


def main() -> None:
    client = Client(field_manager="story", namespace="default")
    definition = CustomResourceDefinition.from_dict(manifest("resourcedefinition.yaml"))
    name = definition.metadata.name
    client.create(definition)
    client.wait(CustomResourceDefinition, name, for_conditions=["Established"])
    crontabs = create_namespaced_resource("stable.example.com", "v1", "CronTab", "crontabs")
    spec = manifest("my-crontab.yaml")["spec"]
    client.create(crontabs(metadata=ObjectMeta(name="one", labels={"team": "night"}), spec=spec))
    patched = client.patch(crontabs, "one", {"spec": {"replicas": 2}}, patch_type=PatchType.MERGE)
    assert patched.spec["replicas"] == 2
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 3}]
    assert client.patch(crontabs, "one", operations, patch_type=PatchType.JSON).spec["replicas"] == 3
    strategic = PatchType.STRATEGIC
    assert refusal(lambda: client.patch(crontabs, "one", {"spec": {}}, patch_type=strategic)) == 415
    applied = crontabs(
        apiVersion="stable.example.com/v1",
        kind="CronTab",
        metadata=ObjectMeta(name="two"),
        spec={**spec, "replicas": 1},
    )
    client.apply(applied)
    applied.spec["replicas"] = 4
    assert client.apply(applied).spec["replicas"] == 4
    assert sorted(it.metadata.name for it in client.list(crontabs)) == ["one", "two"]
    assert [it.metadata.name for it in client.list(crontabs, labels={"team": "night"})] == ["one"]
    stale = client.get(crontabs, "one")
    client.patch(crontabs, "one", {"spec": {"image": "other"}}, patch_type=PatchType.MERGE)
    assert refusal(lambda: client.replace(stale)) == 409
    seen: list[tuple[str, str]] = []
    for event, thing in client.watch(crontabs):  # begins with the existing objects
        seen.append((event, thing.metadata.name))
        if len(seen) == 2:
            client.delete(crontabs, "one")
        if event == "DELETED":
            break
    assert seen == [("ADDED", "one"), ("ADDED", "two"), ("DELETED", "one")], seen
    client.deletecollection(crontabs)
    assert list(client.list(crontabs)) == []
    client.delete(CustomResourceDefinition, name)


if __name__ == "__main__":
    main()
