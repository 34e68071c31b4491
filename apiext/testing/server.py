"""Start a server for tests, apply manifests, delete test objects, and stop the server."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from apiext.testing import child, documents, inventory, limits, proxies
from apiext.testing.directories import Directory
from apiext.testing.documents import Manifest, Source
from apiext.testing.inventory import DEFINITIONS, Resource
from apiext.tools import limits as tools_limits
from apiext.tools.access import Access, from_kubeconfig
from apiext.tools.api import Answer, Api
from apiext.tools.envtest import source_directory

MANAGER = "apiext-testing"


class ServerNotReady(Exception):
    """The server did not become ready, or it is not running.

    After a failed start, the text is the end of the server's log, unless the log is empty.
    """


class ApiError(Exception):
    """The server returned an error.

    ``code`` is the HTTP status, the text is the message of the Status.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.message)
        self.code = answer.code


class Server:
    """A server with its own port and directory.

    Port and directory are released at the end of the ``with`` block. ``flags`` are flags of ``apiext serve``. The
    server keeps objects in memory, unless flags or the environment select a store, a configuration file, or several
    processes. With ``secure``, the server uses https with its own certificates and a token; otherwise it uses http
    without authentication. With the ``url`` of a running server, this class uses this server and starts none.
    """

    def __init__(self, *flags: str, secure: bool = False, url: str = "") -> None:
        self._flags = [*flags] if secure else ["--insecure", *flags]
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._kept: frozenset[str] = frozenset()
        self._api: Api | None = None
        self._log = Path(os.devnull)
        self._running = self.url = url.rstrip("/")
        self.kubeconfig = Path(os.devnull)
        self.token = ""
        self.ca_file = ""

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and wait until it is ready.

        Raise ServerNotReady if it does not become ready.
        """
        directory = self._stack.enter_context(Directory())
        try:
            access = self._join(directory.path) if self._running else self._serve(directory)
            self._api = Api(access, MANAGER)
            self._kept = frozenset(inventory.objects(self._api))
        except BaseException:
            self.stop()
            raise

    def _join(self, directory: Path) -> Access:
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(_kubeconfig(self.url)))
        return Access(self.url)

    def _serve(self, own: Directory) -> Access:
        directory = own.path
        ready, self._log = directory / "ready.json", directory / "server.log"
        command = [
            sys.executable, "-P", "-m", "apiext", "serve", "--port=0", f"--data-dir={directory / 'data'}",
            f"--ready-file={ready}", *_store(self._flags), *self._flags,
        ]  # fmt: skip
        self._process = child.start(command, self._log, _environment(), [own.descriptor])
        deadline = time.monotonic() + tools_limits.TOOL_WAIT
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerNotReady(self.log_tail() or "the server did not become ready")
            time.sleep(0.005)
        facts = json.loads(ready.read_bytes())
        self.url, self.kubeconfig = str(facts["url"]).rstrip("/"), Path(facts["kubeconfig"])
        access = from_kubeconfig(self.kubeconfig)
        self.token = access.headers.get("Authorization", "").removeprefix("Bearer ")
        authority = directory / "data" / "pki" / "ca.crt"
        self.ca_file = str(authority) if access.tls is not None and authority.exists() else ""
        return access

    def stop(self) -> None:
        """Stop the server and delete its data; a server that this class did not start keeps running."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(limits.STOP_WITHIN)
            process.kill()
            process.wait()
        api, self._api = self._api, None
        if api is not None:
            api.close()
        self._stack.close()

    def log_tail(self) -> str:
        """Return the end of the server's log; empty for a server that this class did not start."""
        with suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - limits.LOG_TAIL))
            return log.read().decode("utf-8", "replace").strip()
        return ""

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which kubectl, Helm and client libraries find the server."""
        return {"KUBECONFIG": str(self.kubeconfig), **proxies.bypass(self.url)}

    def apply(self, source: Source, namespace: str = "default") -> list[dict[str, Any]]:
        """Apply files, directories or objects as kubectl does in a server-side apply.

        The options of kubectl would be ``--server-side --force-conflicts``. Definitions and namespaces are applied
        first; this method waits until the definitions are established. ``namespace`` is for objects without a
        namespace. Return the stored objects. Raise ApiError if the server returns an error, or if a definition is not
        established in time. Raise OSError and ValueError as ``documents.read`` does. Raise ValueError for an object
        without a name, before any object is applied.
        """
        found = []
        manifests = documents.read(source)
        for manifest in manifests:
            documents.check_name(manifest)
        for number, manifest in enumerate(manifests):
            found.append(self._applied(manifest, namespace))
            following = manifests[number + 1]["kind"] if number + 1 < len(manifests) else ""
            if manifest["kind"] == "CustomResourceDefinition" != following:
                for definition in found:
                    if definition["kind"] == "CustomResourceDefinition":
                        self._wait_established(definition["metadata"]["name"])
        return found

    def _applied(self, manifest: Manifest, namespace: str) -> dict[str, Any]:
        resource, collection = self._resource_of(manifest)
        metadata = manifest.get("metadata") or {}
        space = (metadata.get("namespace") or namespace) if resource.namespaced else ""
        answer = self.api.apply(resource.path(collection, space, str(metadata["name"])), manifest, MANAGER)
        if answer.code not in (200, 201):
            raise ApiError(answer)
        return dict(answer.document)

    def _resource_of(self, manifest: Manifest) -> tuple[Resource, str]:
        """Return the resource of an object and the path of its collection.

        Raise ApiError if its kind is not served.
        """
        api_version = str(manifest["apiVersion"])
        base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        for resource in inventory.resources(self.api):
            if resource.kind == manifest["kind"]:
                for collection in resource.collections:
                    if collection == f"{base}/{resource.plural}":
                        return resource, collection
        text = f'no matches for kind "{manifest["kind"]}" in version "{api_version}"'
        raise ApiError(Answer(404, {"message": text}))

    def _wait_established(self, name: str) -> None:
        deadline = time.monotonic() + limits.RESET_WAIT
        while True:
            answer = self.api.get(f"{DEFINITIONS}/{name}")
            conditions = (answer.document.get("status") or {}).get("conditions") or ()
            by_type = {one["type"]: one for one in conditions}
            if (by_type.get("Established") or {}).get("status") == "True":
                return
            refused: Mapping[str, str] = next((one for one in by_type.values() if one["status"] == "False"), {})
            if time.monotonic() > deadline or refused.get("type") == "NamesAccepted":
                raise ApiError(Answer(409, {"message": f"{name} is not served: {refused.get('message', '')}"}))
            time.sleep(0.005)

    def reset(self) -> None:
        """Delete all objects that were created since the start, and remove their finalizers.

        Objects that existed at the start are not deleted. Raise StillThere if objects remain after limits.RESET_WAIT
        seconds.
        """
        inventory.empty(self.api, self._kept)

    @property
    def api(self) -> Api:
        """A client for plain requests to the server.

        Raises ServerNotReady if the server is not running.
        """
        if self._api is None:
            raise ServerNotReady("the server is not running")
        return self._api


def _store(flags: Sequence[str]) -> list[str]:
    """Return the flag for a store in memory.

    Return no flag if flags or the environment select a store, a configuration file, or several processes.
    """
    chosen = ("--store", "--etcd-servers", "--workers", "--config")
    named = any(flag.partition("=")[0] in chosen for flag in flags)
    variables = ("APIEXT_STORE", "APIEXT_ETCD_SERVERS", "APIEXT_WORKERS", "APIEXT_CONFIG")
    by_environment = any(name in os.environ for name in variables)
    return [] if named or by_environment else ["--store=memory"]


def _environment() -> dict[str, str]:
    """Return the environment in which the server finds this package from any working directory."""
    home, given = source_directory(), os.environ.get("PYTHONPATH", "")
    if home is None:
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(home), given)))}


def _kubeconfig(url: str) -> Mapping[str, Any]:
    named: Sequence[tuple[str, str, Mapping[str, str]]] = (
        ("clusters", "cluster", {"server": url}),
        ("contexts", "context", {"cluster": "apiext", "namespace": "default"}),
    )
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "apiext",
        **{many: [{"name": "apiext", one: value}] for many, one, value in named},
    }
