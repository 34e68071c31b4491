"""Tests with Go clients.

They are managers of controller-runtime, the typed clientset of definitions, and the libraries of Helm and Flux.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from apiext.conformance.support.definitions import establish
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.clients import toolchain
from tests.clients.kubectl import MANIFESTS
from tests.support.processes import Server

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EXTRAS = (
    "installed, caches filled", "converted and reconciled", "selected by fields", "only metadata", "scaled",
    "applied in the other version", "typed client", "informers without types", "watched until a condition",
    "discovered", "removed with what they own", "done",
)  # fmt: skip
FLUX = (
    "applied in stages", "nothing drifts", "drift is told", "drift is corrected, and who made it forgotten",
    "a field of others is let alone", "what is immutable is refused", "or made anew", "what is invalid is told",
    "what is not ready is named", "ready by kstatus", "applied in another version", "pruned", "and gone", "done",
)  # fmt: skip


@pytest.fixture
def environment(secure_server: Server, tmp_path: Path) -> dict[str, str]:
    """Environment variables with the address and credentials of the server, for a program."""
    return {"KUBECONFIG": str(secure_server.ready["kubeconfig"]), "HOME": str(tmp_path)}


@pytest.mark.client("controller-runtime manager")
@pytest.mark.rows("KUB-006", "RV-013", "SSA-001", "NEG-002", "PAR-001", "WRI-018")
def test_controller_runtime_manager_elects_watches_and_applies(
    secure: Client, environment: dict[str, str], tmp_path: Path
) -> None:
    program = toolchain.go_build("go_envtest", "./manager")
    establish(secure, yaml.safe_load((MANIFESTS / "resourcedefinition.yaml").read_text(encoding="utf-8")))
    said = toolchain.succeed([program], tmp_path, 120, environment)
    for step in (
        "elected",
        "owned object applied",
        "owned object follows",
        "owned object comes back",
        "event recorded",
        "owned object collected",
        "done",
    ):
        assert f"\n{step}\n" in f"\n{said}", said[-4000:]
    lease = secure.get(f"{LEASES}/story").expect(200)
    assert lease["spec"]["holderIdentity"] == "", "the lease was not released"


@pytest.mark.client("controller-runtime manager")
@pytest.mark.rows("KUB-006", "RV-013", "SSA-001", "NEG-002", "DIS-101", "OAS-001", "RV-010", "WRI-018")
def test_controller_runtime_program_completes_advanced_steps(environment: dict[str, str], tmp_path: Path) -> None:
    program = toolchain.go_build("go_envtest", "./extras")
    said = toolchain.succeed([program], tmp_path, 60, environment)
    assert [line for line in said.splitlines() if line in EXTRAS] == list(EXTRAS), said[-4000:]


@pytest.mark.long  # the first build of its modules takes minutes
@pytest.mark.client("Flux's ResourceManager")
@pytest.mark.rows("KUB-006", "SSA-001", "NEG-002", "CND-004", "NSP-005", "WRI-018")
def test_flux_applies_detects_drift_and_prunes(environment: dict[str, str], tmp_path: Path) -> None:
    program = toolchain.go_build("go_flux")
    said = toolchain.succeed([program], tmp_path, 60, environment)
    assert [line for line in said.splitlines() if line in FLUX] == list(FLUX), said[-4000:]


@pytest.mark.client("apiextensions clientset (protobuf)")
@pytest.mark.rows("KUB-006", "NEG-002", "KUB-003", "CRD-008", "UPD-005")
def test_the_typed_clientset_speaks_protobuf(secure: Client, environment: dict[str, str], tmp_path: Path) -> None:
    program = toolchain.go_build("go_envtest", "./clientset")
    said = toolchain.succeed([program], tmp_path, 60, environment)
    assert said.endswith("done\n")
    assert 'spec.scope: Unsupported value: "Everywhere": supported values: "Cluster", "Namespaced"' in said
    until(lambda: secure.get("/apis/stable.example.com").status == 404, "the definition is gone")


@pytest.mark.client("Helm 4's action library")
@pytest.mark.rows("KUB-006", "SSA-001", "NEG-002", "KUB-003", "DIS-101", "OAS-001")
def test_helm_installs_upgrades_and_uninstalls(secure: Client, environment: dict[str, str], tmp_path: Path) -> None:
    program = toolchain.go_build("go_helm")
    chart = str(toolchain.HERE / "go_helm" / "chart")
    said = toolchain.succeed([program, chart], tmp_path, 180, environment)
    for way in ("server-side", "client-side"):
        for step in ("installed", "upgraded", "rolled back", "uninstalled"):
            assert f"{way} {step}\n" in said, said[-4000:]
        assert f"{way} refused: " in said
    assert "spec.replicas in body should be less than or equal to 10" in said
    names = [it["metadata"]["name"] for it in secure.get("/api/v1/namespaces/apps/secrets").expect(200)["items"]]
    assert names == [], "releases are left over"


@pytest.mark.client("Helm 3's action library")
@pytest.mark.rows("KUB-006", "KUB-003", "NEG-002", "WRI-016", "UPD-004")
def test_helm_3_installs_upgrades_and_uninstalls(secure: Client, environment: dict[str, str], tmp_path: Path) -> None:
    program = toolchain.go_build("go_helm3")
    chart = str(toolchain.HERE / "go_helm" / "chart")
    said = toolchain.succeed([program, chart], tmp_path, 180, environment)
    assert [line.partition(":")[0] for line in said.splitlines() if line[0].islower()] == [
        "installed",
        "upgraded",
        "rolled back",
        "refused",
        "uninstalled",
    ], said[-4000:]
    assert "spec.replicas in body should be less than or equal to 10" in said
    assert secure.get("/api/v1/namespaces/apps/secrets").expect(200)["items"] == []
