"""A loop with the official client.

It lists, watches, resumes after a closed connection, and prints the events.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import urllib3
from kubernetes import client, config, watch

CRONTABS = ("stable.example.com", "v1", "default", "crontabs")
PAUSE = 0.2  # seconds before a retry

never = threading.Event()


def names(listed: dict[str, Any]) -> set[str]:
    """Return the names in a list."""
    return {it["metadata"]["name"] for it in listed["items"]}


def changes(api: client.CustomObjectsApi) -> Iterator[str]:
    """Yield ``+name`` for each added and ``-name`` for each deleted object, without a limit."""
    known: set[str] = set()
    since = ""
    while True:
        try:
            if not since:
                listed = api.list_namespaced_custom_object(*CRONTABS)
                now, since = names(listed), listed["metadata"]["resourceVersion"]
                yield from (f"-{name}" for name in known - now)
                yield from (f"+{name}" for name in now - known)
                known = now
            read = api.list_namespaced_custom_object
            for event in watch.Watch().stream(read, *CRONTABS, resource_version=since, timeout_seconds=300):
                metadata = event["object"]["metadata"]
                name, since = metadata["name"], metadata["resourceVersion"]
                if event["type"] == "DELETED":
                    known.discard(name)
                    yield f"-{name}"
                elif name not in known:
                    known.add(name)
                    yield f"+{name}"
        except client.ApiException as error:
            if error.status == 410:
                since = ""
            print(f"# {error.status}", flush=True)
            never.wait(PAUSE)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            print(f"# {error}", flush=True)
            never.wait(PAUSE)


if __name__ == "__main__":
    config.load_kube_config()
    for change in changes(client.CustomObjectsApi()):
        print(change, flush=True)
