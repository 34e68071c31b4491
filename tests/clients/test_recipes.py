"""Run the commands of recipes as a reader runs them, with kubectl."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.clients import toolchain
from tests.clients.conftest import KUBECTLS
from tests.support.processes import ROOT, free_port, running_server


class Recipe(NamedTuple):
    """A page of docs/recipes, the flags of its server, and the expected refusals.

    The refusals are in order.
    """

    page: str
    flags: list[str]
    refusals: list[str]
    output: list[str]
    before: str = ""


DEFINITION = """
kubectl create -f crontabs.yaml
kubectl wait --for=condition=Established crd/crontabs.stable.example.com
"""
OBJECT = """
kubectl create -f - <<'YAML'
apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: backup}
spec: {cronSpec: "0 3 * * *"}
YAML
"""
RECIPES = [
    Recipe(
        "admission-webhooks-and-policies",
        ["--insecure"],
        [
            "ValidatingAdmissionPolicy 'few-replicas' with binding 'few-replicas' denied request: at most five",
            'admission webhook "schedules.stable.example.com" denied the request: too often',
        ],
        [],
        DEFINITION,
    ),
    Recipe(
        "convert-between-versions",
        ["--insecure"],
        [],
        ["minute:", "cronSpec: 0 3 * * *", '"event": "migrated"', '["v2"]'],
        DEFINITION + OBJECT,
    ),
    Recipe(
        "rbac",
        ["--authorization-mode=RBAC"],
        ['User "alice" cannot list resource "crontabs"'],
        ["rolebinding.rbac.authorization.k8s.io/devs-read created", "No resources found", "[get list watch]", "no\n"],
    ),
]


@pytest.mark.skipif(not KUBECTLS, reason="no kubectl on this machine: put one on PATH or name some in KUBECTL_PATHS")
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.page)
def test_recipe_commands_print_the_documented_output(recipe: Recipe, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "recipes" / f"{recipe.page}.md").read_text(encoding="utf-8")
    port = str(free_port())
    listening = f"for try in {{1..300}}; do sleep 0.1; (: </dev/tcp/localhost/{port}) 2>/dev/null && break; done"
    text = text.replace("9443", port).replace("& sleep 2\n", f"& {listening}\n")  # a busy machine takes longer
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (tmp_path / "crontabs.yaml").write_text(page.partition("<<'EOF'\n")[2].partition("EOF\n")[0], encoding="utf-8")
    for name, content in re.findall(r"^`(\w+\.py)`[^\n]*:\n\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(content, encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    commands = re.sub(r"^(?:apiext serve|until apiext check) .*\n", "", "".join(blocks), flags=re.MULTILINE)
    script = "trap 'kill $(jobs -p) 2>/dev/null' EXIT\n" + recipe.before + commands
    kubectl = list(KUBECTLS.values())[-1]
    with running_server([*recipe.flags, "--port=0"], tmp_path / "server") as server:
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{Path(kubectl).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "APIEXT_DATA_DIR": str(tmp_path / "server"),
            "KUBECONFIG": "" if "kubeconfig merge" in script else str(server.ready["kubeconfig"]),
        }
        said = toolchain.run(["bash", "-c", script], tmp_path, 120, environment).stdout
    refused = re.findall(r"^(?:error|Error|The \w+ \".*\" is invalid|apiext: (?!context)|bash: ).*", said, re.MULTILINE)
    assert len(refused) == len(recipe.refusals), said
    for line, expected in zip(refused, recipe.refusals, strict=True):
        assert expected in line, said
    position = 0
    for expected in recipe.output:
        assert expected in said[position:], said
        position = said.index(expected, position)
