"""Webhooks that convert CronTabs between hostPort and host/port, and webhooks that fail.

An answer function (``Answer`` in admission_webhook.py) makes the response of a webhook from a request.
"""

from __future__ import annotations

import multiprocessing
import re
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from apiext.conformance.support.admission_webhook import (
    START_WITHIN,
    Answer,
    Raw,
    Review,
    Webhook,
    document,
    endless,
    fixtures,
    page,
    reset,
    running_webhook,
)
from apiext.conformance.support.definitions import establish, fresh_group
from apiext.conformance.support.http_client import Client

__all__ = ["Webhook", "fixtures", "running_webhook"]  # the names that tests of conversion need

Convert = Callable[[dict[str, Any], str], dict[str, Any]]
Spoil = Callable[[list[dict[str, Any]]], Any]

PREFIX = "/conversion"  # key prefix of the server that tests of conversion share
TEXT = {"type": "string"}
CRONTAB_SCHEMAS: dict[str, dict[str, Any]] = {
    "v1beta1": {"type": "object", "properties": {"hostPort": TEXT}},
    "v1": {"type": "object", "properties": {"host": TEXT, "port": TEXT}},
}


def crontab(given: dict[str, Any], api_version: str) -> dict[str, Any]:
    """Return a CronTab in another version: ``hostPort`` in v1beta1, ``host`` and ``port`` in v1."""
    found = {**given, "apiVersion": api_version}
    if api_version.endswith("/v1beta1"):
        host, port = found.pop("host", None), found.pop("port", None)
        if host is not None or port is not None:
            found["hostPort"] = f"{host or ''}:{port or ''}"
    elif "hostPort" in found:
        host, _, port = found.pop("hostPort").partition(":")
        found |= {"host": host, "port": port}
    return found


def renamed(given: dict[str, Any], api_version: str) -> dict[str, Any]:
    """Return an object in another version; only the apiVersion changes."""
    return {**given, "apiVersion": api_version}


def answer(convert: Convert = crontab) -> Answer:
    """Return the answer function of a webhook that converts objects."""

    def act(request: Review) -> Review:
        wanted = request["desiredAPIVersion"]
        return {"result": {"status": "Success"}, "convertedObjects": [convert(it, wanted) for it in request["objects"]]}

    return act


def failed(message: str = "") -> Answer:
    """Return the answer function of a webhook that reports a failure."""
    result = {"status": "Failed", **({"message": message} if message else {})}
    return lambda _: {"result": result}


def spoiled(spoil: Spoil, convert: Convert = crontab, **response: Any) -> Answer:
    """Return the answer function of a webhook with invalid converted objects or response fields.

    ``spoil`` changes the objects in place, or returns other objects.
    """

    def act(request: Review) -> Review:
        found = answer(convert)(request)
        assert isinstance(found, dict)
        objects = found["convertedObjects"]
        changed = spoil(objects)
        return {**found, "convertedObjects": objects if changed is None else changed, **response}

    return act


def slowly(seconds: float, then: Answer) -> Answer:
    """Return an answer function that waits before it answers."""

    def act(request: Review) -> Review | Raw:
        threading.Event().wait(seconds)
        return then(request)

    return act


def first_metadata(**values: Any) -> Spoil:
    """Return a function that sets fields in the metadata of the first object, for ``spoiled``."""

    def spoil(objects: list[dict[str, Any]]) -> None:
        objects[0]["metadata"] = {**objects[0]["metadata"], **values}

    return spoil


def first_field(**values: Any) -> Spoil:
    """Return a function that sets fields of the first object, for ``spoiled``.

    The value None deletes a field.
    """

    def spoil(objects: list[dict[str, Any]]) -> None:
        for name, value in values.items():
            objects[0][name] = value
            if value is None:
                del objects[0][name]

    return spoil


def _hundred_megabytes(exchange: Any) -> None:
    exchange.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n")
    for _ in range(1600):
        try:
            exchange.wfile.write(b" " * 65536)
        except OSError:
            break
    exchange.close_connection = True


BROKEN: dict[str, Answer] = {
    "500": lambda _: page(500, b"no way", "text/plain"),
    "reset in the body": lambda _: Raw(reset),
    "endless": lambda _: Raw(endless),
    "100 MB": lambda _: Raw(_hundred_megabytes),
    "invalid JSON": lambda _: page(200, b'{"apiVersion": "apiextensions.k8s.io/v1", "kind"'),
    "HTML": lambda _: page(200, b"<html><body>hello</body></html>", "text/html"),
    "no review": lambda _: document({"apiVersion": "v1", "kind": "Status"}),
    "redirect": lambda _: page(302, b"", Location="https://127.0.0.1:1/elsewhere"),
    "wrong uid": spoiled(lambda _: None, uid="another"),
    "too few": spoiled(lambda objects: objects[:-1]),
    "too many": spoiled(lambda objects: [*objects, objects[0]]),
    "not a list": spoiled(lambda _: {"items": []}),
    "another name": spoiled(first_metadata(name="another")),
    "another namespace": spoiled(first_metadata(namespace="another")),
    "another uid": spoiled(first_metadata(uid="another")),
    "another kind": spoiled(first_field(kind="Another")),
    "another group": spoiled(first_field(apiVersion="another.example.com/v1")),
    "null metadata": spoiled(first_field(metadata=None)),
    "null object": spoiled(lambda objects: [None, *objects[1:]]),
    "failed": failed("the webhook is tired"),
    "failed without a word": failed(),
}
"""Name → invalid answer of a webhook; the client receives a 500 for each of them."""


def crontab_definition(
    group: str,
    client_config: dict[str, Any],
    storage: str = "v1beta1",
    reviews: tuple[str, ...] = ("v1", "v1beta1"),
    schemas: dict[str, dict[str, Any]] | None = None,
    **version: Any,
) -> dict[str, Any]:
    """Return the CronTab definition of Kubernetes' documentation with a conversion webhook.

    ``version`` are further fields for each version.
    """
    versions = [
        {"name": name, "served": True, "storage": name == storage, "schema": {"openAPIV3Schema": schema}, **version}
        for name, schema in (schemas or CRONTAB_SCHEMAS).items()
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"crontabs.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "shortNames": ["ct"]},
            "versions": versions,
            "conversion": conversion(client_config, reviews),
        },
    }


def conversion(client_config: dict[str, Any], reviews: tuple[str, ...] = ("v1", "v1beta1")) -> dict[str, Any]:
    """Return a ``spec.conversion`` that calls a webhook."""
    return {
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": list(reviews), "clientConfig": client_config},
    }


@dataclass(frozen=True)
class CronTabs:
    """The CronTabs of one group on a server, in any of its versions."""

    api: Client
    group: str

    def path(self, version: str, name: str = "", namespace: str = "default") -> str:
        """Return the path of a collection or an object.

        An empty namespace stands for all namespaces.
        """
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"/apis/{self.group}/{version}{inside}/crontabs" + (f"/{name}" if name else "")

    def create(self, version: str, name: str, namespace: str = "default", **fields: Any) -> dict[str, Any]:
        """Create an object in a version; ``fields`` are its fields besides metadata."""
        metadata = {"name": name, **fields.pop("metadata", {})}
        body = {"apiVersion": f"{self.group}/{version}", "kind": "CronTab", "metadata": metadata, **fields}
        made: dict[str, Any] = self.api.post(self.path(version, "", namespace), body).expect(201)
        return made

    def get(self, version: str, name: str, **query: object) -> dict[str, Any]:
        """Read an object in a version."""
        found: dict[str, Any] = self.api.get(self.path(version, name), None, **query).expect(200)
        return found


def serve_crontabs(api: Client, hook: Webhook, path: str = "/convert", **definition: Any) -> CronTabs:
    """Define CronTabs with a conversion webhook in a new group.

    Wait until the definition is established.
    """
    group = fresh_group()
    establish(api, crontab_definition(group, hook.client_config(path), **definition))
    return CronTabs(api, group)


@contextmanager
def in_another_process(convert: Convert = renamed) -> Iterator[tuple[dict[str, Any], Callable[[], int]]]:
    """Run a webhook in another process.

    Yield its clientConfig, and a function that returns its number of reviews.
    """
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as directory:
        process = multiprocessing.Process(target=_serve, args=(Path(directory), convert, theirs), daemon=True)
        process.start()
        try:
            assert ours.poll(START_WITHIN), "the webhook's process says nothing"
            config: dict[str, Any] = ours.recv()

            def count() -> int:
                ours.send("count")
                assert ours.poll(START_WITHIN), "the webhook's process says nothing more"
                return int(ours.recv())

            yield config, count
        finally:
            process.kill()
            process.join(START_WITHIN)


def _serve(directory: Path, convert: Convert, told: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with running_webhook(directory) as hook:
        hook.answer = answer(convert)
        told.send(hook.client_config("/convert"))
        while told.recv():
            told.send(len(hook.reviews))


def reason(message: str) -> str:
    """Return the reason for a failed conversion, without the key and revision before it."""
    return re.sub(r"^.*?: object not decodable revision=[0-9]+: ", "", message)
