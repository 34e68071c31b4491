"""pykube-ng: discovered classes, updates by a merge patch of the whole object, watches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pykube
import yaml
from pykube.objects import APIObject

MANIFESTS = Path(__file__).parents[1] / "manifests"


class Definition(APIObject):
    """A CustomResourceDefinition of v1; pykube itself has only v1beta1."""

    version, endpoint, kind = "apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition"


def manifest(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((MANIFESTS / name).read_text(encoding="utf-8"))
    return read


def main() -> None:
    api = pykube.HTTPClient(pykube.KubeConfig.from_env())
    assert api.version[0] == "1"
    definition = Definition(api, manifest("resourcedefinition.yaml"))
    definition.create()
    for event in Definition.objects(api).filter(field_selector={"metadata.name": definition.name}).watch():
        conditions = event.object.obj["status"].get("conditions") or []
        if any(it["type"] == "Established" and it["status"] == "True" for it in conditions):
            break
    kind = pykube.object_factory(api, "stable.example.com/v1", "CronTab")
    crontab = kind(api, manifest("my-crontab.yaml"))
    crontab.create()
    since = crontab.obj["metadata"]["resourceVersion"]
    crontab.obj["spec"]["replicas"] = 2
    crontab.labels["team"] = "night"
    crontab.update()
    crontab.reload()
    assert crontab.obj["spec"]["replicas"] == 2
    assert crontab.exists()
    chosen = kind.objects(api).filter(namespace="default", selector={"team": "night"})
    assert [it.name for it in chosen] == [crontab.name]
    crontab.patch({"spec": {"image": "other"}})
    assert kind.objects(api).get(name=crontab.name).obj["spec"]["image"] == "other"
    crontab.delete(propagation_policy="Background")
    seen = []
    for event in kind.objects(api).filter(namespace="default").watch(since=since):
        seen.append(event.type)
        if event.type == "DELETED":
            break
    assert seen == ["MODIFIED", "MODIFIED", "DELETED"], seen
    assert kind.objects(api).get_or_none(name=crontab.name) is None
    definition.delete()


if __name__ == "__main__":
    main()
