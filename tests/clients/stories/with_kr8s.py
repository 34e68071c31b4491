"""kr8s: a definition and its objects, from creation to deletion, with a concurrent watch."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import yaml

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # warnings of this library are no errors
    import kr8s
    from kr8s.objects import APIObject, CustomResourceDefinition, new_class

MANIFESTS = Path(__file__).parents[1] / "manifests"


def manifest(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((MANIFESTS / name).read_text(encoding="utf-8"))
    return read


def main() -> None:
    api = kr8s.api()
    assert api.version()["major"] == "1"
    definition = CustomResourceDefinition(manifest("resourcedefinition.yaml"), api=api)
    definition.create()
    definition.wait("condition=Established", timeout=10)
    kind = new_class(kind="CronTab", version="stable.example.com/v1", plural="crontabs", namespaced=True, scalable=True)
    crontab: APIObject = kind(manifest("my-crontab.yaml"), namespace="default", api=api)
    seen: list[tuple[str, str]] = []
    there, gone = threading.Event(), threading.Event()

    def follow() -> None:
        for event, thing in kr8s.watch("crontabs.stable.example.com", namespace="default", api=api):
            seen.append((event, thing.name))
            there.set()
            if event == "DELETED":
                gone.set()
                return

    watcher = threading.Thread(target=follow, daemon=True)
    watcher.start()
    crontab.create()
    assert there.wait(10)  # the watch does not report changes before its beginning
    assert crontab.exists()
    crontab.patch({"spec": {"replicas": 2}})
    crontab.label(team="night")
    crontab.annotate({"example.com/note": "kept"})
    crontab.refresh()
    assert crontab.spec.replicas == 2
    crontab.scale(5)
    listed = list(
        kr8s.get("crontabs.stable.example.com", namespace="default", label_selector={"team": "night"}, api=api)
    )
    assert [(it.name, it.spec.replicas) for it in listed] == [(crontab.name, 5)], listed
    again = kind.get(crontab.name, namespace="default", api=api)
    assert again.annotations["example.com/note"] == "kept"
    try:
        kind.get("missing", namespace="default", api=api)
    except kr8s.NotFoundError:
        pass
    else:
        raise AssertionError("found what is not there")
    crontab.delete()
    assert gone.wait(10), seen
    assert seen[0][0] == "ADDED"
    assert "MODIFIED" in [event for event, _ in seen]
    definition.delete()
    definition.wait("delete", timeout=10)


if __name__ == "__main__":
    main()
