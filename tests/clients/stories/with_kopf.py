"""An operator written with kopf.

It sets a finalizer and a status, and prints a line when it has cleaned up.
"""

from __future__ import annotations

from typing import Any

import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False  # no events: another test covers them
    settings.persistence.finalizer = "stable.example.com/kopf"


@kopf.on.create("stable.example.com", "v1", "crontabs")
@kopf.on.update("stable.example.com", "v1", "crontabs")
def scheduled(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    patch.status["phase"] = "Scheduled"
    patch.status["replicas"] = spec.get("replicas", 1)


@kopf.on.delete("stable.example.com", "v1", "crontabs")
def cleaned(name: str, **_: Any) -> None:
    print(f"cleaned up {name}", flush=True)
