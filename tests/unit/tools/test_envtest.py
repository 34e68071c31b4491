"""The directory for KUBEBUILDER_ASSETS."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from pathlib import Path

import pytest

from apiext.config import CONTROLLERS, KUBERNETES_VERSION
from apiext.conformance.support.waiting import until
from apiext.tools import envtest
from tests.support.processes import free_port

ETCD = "#!/bin/sh\necho 'etcd Version: 3.5.21'\n"


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """Return a directory with an etcd and a kubectl."""
    found = tmp_path / "bin"
    found.mkdir()
    for name, text in (("etcd", ETCD), ("kubectl", "#!/bin/sh\n")):
        (found / name).write_text(text)
        (found / name).chmod(0o755)
    return found


def test_assets_directory_has_launcher_and_links(tmp_path: Path, bin_dir: Path) -> None:
    directory = tmp_path / "of envtest"
    for _ in range(2):  # the second call updates it
        assert envtest.write(directory, str(bin_dir / "etcd"), search=str(bin_dir)) == []
    assert sorted(path.name for path in directory.iterdir()) == ["etcd", "kube-apiserver", "kubectl"]
    assert (directory / "etcd").readlink() == bin_dir / "etcd"
    assert (directory / "kubectl").readlink() == bin_dir / "kubectl"
    assert os.access(directory / "kube-apiserver", os.X_OK)
    told = subprocess.run([directory / "kube-apiserver", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == f"Kubernetes v{KUBERNETES_VERSION}\n"


def test_launcher_imports_nothing_from_working_directory(tmp_path: Path, bin_dir: Path) -> None:
    directory, suite = tmp_path / "assets", tmp_path / "suite"
    envtest.write(directory, str(bin_dir / "etcd"), search=str(bin_dir))
    suite.mkdir()
    for name in ("json", "logging", "apiext"):
        (suite / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    command = [directory / "kube-apiserver", "--help"]
    told = subprocess.run(command, cwd=suite, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize(
    ("environment", "flags", "runs"),
    [({}, [], False), ({"APIEXT_CONTROLLERS": "*"}, [], True), ({}, ["--controllers=*"], True)],
)
def test_launcher_runs_controllers_on_request(
    tmp_path: Path, bin_dir: Path, environment: dict[str, str], flags: list[str], runs: bool
) -> None:
    envtest.write(tmp_path / "assets", str(bin_dir / "etcd"), search=str(bin_dir))
    launcher = (tmp_path / "assets" / "kube-apiserver").read_text().replace("-m apiext serve", "-m apiext config print")
    asked = subprocess.run(
        ["sh", "-c", launcher, "kube-apiserver", *flags], env={**os.environ, **environment}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    [line] = [line for line in asked.stdout.splitlines() if "controllers:" in line]
    assert [name for name in sorted(CONTROLLERS) if f"-{name}" not in line] == (sorted(CONTROLLERS) if runs else [])


@pytest.mark.parametrize("written", [["--cert-dir={0}"], ["--cert-dir", "{0}"]], ids=["one word", "two words"])
def test_launcher_puts_data_directory_into_cert_dir(tmp_path: Path, bin_dir: Path, written: list[str]) -> None:
    envtest.write(tmp_path / "assets", str(bin_dir / "etcd"), search=str(bin_dir))
    launcher = (tmp_path / "assets" / "kube-apiserver").read_text().replace("-m apiext serve", "-m apiext config print")
    flags = [flag.format(tmp_path / "run") for flag in written]
    command = ["sh", "-c", launcher, "kube-apiserver", *flags]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    [line] = [line for line in printed.splitlines() if line.startswith("data-dir:")]
    assert f"{tmp_path}/run/apiext" in line


OLD = "apiextensions.k8s.io/v1beta1"


@pytest.mark.rows("DIS-101", "B1-001")
@pytest.mark.parametrize(
    ("environment", "flags", "wanted"),
    [
        ({}, [], {OLD: "false"}),
        ({}, ["--runtime-config=api/all=true"], {OLD: "false", "api/all": "true"}),
        ({}, ["--runtime-config", "a.b/v1=true", "--v=1"], {OLD: "false", "a.b/v1": "true"}),
        ({}, [f"--runtime-config=a.b/v1=true,{OLD}=true"], {OLD: "true", "a.b/v1": "true"}),
        ({}, [f"--runtime-config={OLD}"], {OLD: "true"}),
        ({"APIEXT_RUNTIME_CONFIG": f"{OLD}=true"}, [], {OLD: "true"}),
    ],
)
def test_launcher_serves_v1beta1_definitions_on_request(
    tmp_path: Path, bin_dir: Path, environment: dict[str, str], flags: list[str], wanted: dict[str, str]
) -> None:
    envtest.write(tmp_path / "assets", str(bin_dir / "etcd"), search=str(bin_dir))
    launcher = (tmp_path / "assets" / "kube-apiserver").read_text().replace("-m apiext serve", "-m apiext config print")
    asked = subprocess.run(
        ["sh", "-c", launcher, "kube-apiserver", *flags], env={**os.environ, **environment}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    [told] = [line.split(": ")[1].split(" ")[0] for line in asked.stdout.splitlines() if "runtime-config:" in line]
    found = [pair.partition("=") for pair in told.strip("'\"").split(",") if pair]
    assert {name: value or "true" for name, _, value in found} == wanted


def printed_configuration(tmp_path: Path, etcd: str, *flags: str) -> str:
    """Return the configuration with which the launcher of a directory starts the server."""
    envtest.write(tmp_path / "assets", etcd, str(tmp_path / "bin" / "kubectl"))
    launcher = (tmp_path / "assets" / "kube-apiserver").read_text().replace("-m apiext serve", "-m apiext config print")
    asked = subprocess.run(["sh", "-c", launcher, "x", *flags], capture_output=True, text=True, check=True)
    return asked.stdout


@pytest.mark.parametrize("flags", [["--etcd-servers=http://a:1"], ["--etcd-servers", "http://a:1"]])
def test_launcher_uses_memory_store_without_etcd(tmp_path: Path, bin_dir: Path, flags: list[str]) -> None:
    more = ["--v", "1", *flags, "--etcd-prefix=/x y"]
    told = printed_configuration(tmp_path, "", *more)
    assert ('store: "memory"  # environment' in told, 'etcd-servers: ""  # default' in told) == (True, True)
    assert 'etcd-prefix: "/x y"  # flag' in told
    told = printed_configuration(tmp_path, str(bin_dir / "etcd"), *more)
    assert ('store: ""  # default' in told, 'etcd-servers: "http://a:1"  # flag' in told) == (True, True)


@pytest.mark.parametrize("form", ["--listen-client-urls={}", "-listen-client-urls={}", "--listen-client-urls {}"])
def test_etcd_stand_in_reports_health_and_stops(tmp_path: Path, bin_dir: Path, form: str) -> None:
    envtest.write(tmp_path / "assets", search=str(bin_dir))
    stand_in, url = tmp_path / "assets" / "etcd", f"http://127.0.0.1:{free_port()}"
    told = subprocess.run([stand_in, "--version"], capture_output=True, text=True, check=True).stdout
    assert told.startswith("etcd Version: 3.")
    assert (
        "listen-client-urls" in subprocess.run([stand_in, "--help"], capture_output=True, text=True, check=True).stdout
    )
    arguments = ["--data-dir=/nowhere", *form.format(url).split(" "), "--listen-peer-urls=http://127.0.0.1:0"]
    with subprocess.Popen([stand_in, *arguments], cwd=tmp_path) as running:

        def healthy() -> bool:
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                    return bool(answer.read() == b'{"health":"true"}')
            except OSError:
                return False

        until(healthy, "the health check is answered")
        running.terminate()
        assert running.wait(10) == 0


def test_missing_kubectl_is_reported_and_not_linked(tmp_path: Path, bin_dir: Path) -> None:
    directory = tmp_path / "assets"
    envtest.write(directory, str(bin_dir / "etcd"), search=str(bin_dir))
    (bin_dir / "kubectl").unlink()
    [told] = envtest.write(directory, str(bin_dir / "etcd"), search=str(bin_dir))
    assert "there is no kubectl on PATH" in told
    assert not (directory / "kubectl").is_symlink()


def test_failed_creation_of_assets_directory_is_reported(
    tmp_path: Path, bin_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(envtest.AssetsError):
        envtest.write(tmp_path / "assets", str(tmp_path / "no-etcd"))
    with pytest.raises(envtest.AssetsError, match="does not exist"):
        envtest.write(tmp_path / "assets", str(bin_dir / "etcd"), str(tmp_path / "no-kubectl"))
    (tmp_path / "file").write_text("")
    assert envtest.run([str(tmp_path / "file" / "below"), "--etcd", str(bin_dir / "etcd")]) == 1
    assert capsys.readouterr().err.startswith("apiext: ")


def test_envtest_command_prints_export_of_assets(
    tmp_path: Path, bin_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(tmp_path / "of envtest"), "--etcd", str(bin_dir / "etcd")]
    assert envtest.run(arguments, {"PATH": str(bin_dir)}) == 0
    assert capsys.readouterr().out == f"export KUBEBUILDER_ASSETS='{tmp_path}/of envtest'\n"
