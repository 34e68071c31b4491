"""Find installed kubectls, and run one as a user would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.clients import toolchain
from tests.support.shared import ROOT

MANIFESTS = Path(__file__).with_name("manifests")
MODULE = Path(__file__).with_name("go_kubectl")


def found() -> dict[str, str]:
    """Return version → path of the installed kubectls.

    They are the kubectls in $KUBECTL_PATHS, on PATH, beside that of the Cloud SDK, and of Debian.
    """
    paths = [path for path in os.environ.get("KUBECTL_PATHS", "").split(os.pathsep) if path]
    if on_path := shutil.which("kubectl"):
        real = Path(on_path).resolve()
        neighbours = (
            sorted(real.parent.glob("kubectl.1.*")) if real.parent.parts[-2:] == ("google-cloud-sdk", "bin") else []
        )
        # kubectl of the Cloud SDK only starts one of the versions beside it
        paths += [str(path) for path in neighbours] or [on_path]
    debian = ROOT / ".venv" / "debian" / "usr" / "bin" / "kubectl"
    paths += [str(debian)] if debian.exists() else []
    return {name: path for path in dict.fromkeys(paths) if (name := _version(path))}


def of_modules() -> str:
    """Return the version of kubectl in go_kubectl/go.mod, which is newer than any package.

    Return an empty string if Go is not installed.
    """
    if shutil.which("go") is None:
        return ""
    named = re.search(r"k8s\.io/kubectl v0\.(\S+)", MODULE.joinpath("go.mod").read_text(encoding="utf-8"))
    assert named, "go_kubectl/go.mod names the version of kubectl"
    return f"1.{named[1]}"


def built(version: str) -> str:
    """Build the kubectl of ``of_modules`` if necessary; return its path.

    Skip the test with the reason if this fails.
    """
    place, minor = "k8s.io/component-base/version", version.split(".")[1]
    values = {"gitVersion": f"v{version}", "gitMajor": "1", "gitMinor": minor}
    linked = " ".join(f"-X {place}.{key}={it}" for key, it in values.items())
    return toolchain.go_build(MODULE.name, linked=linked, name="kubectl")


def _version(path: str) -> str:
    told = subprocess.run([path, "version", "--client", "-o", "yaml"], capture_output=True, text=True, check=False)
    version = re.search(r"gitVersion: v?(\d+\.\d+\.\d+)", told.stdout)
    return version[1] if version else ""


@dataclass
class Kubectl:
    """A kubectl with the kubeconfig of a server.

    Each has its own home directory, so that they share no cache.
    """

    path: str
    version: tuple[int, ...]
    kubeconfig: str
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the process; GOGC=off saves a fifth of the time of short commands."""
        return {**os.environ, "HOME": str(self.home), "KUBECONFIG": self.kubeconfig, "GOGC": "off"}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command that runs until it is stopped, such as a watch."""
        return subprocess.Popen(
            [self.path, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=MANIFESTS,
            env=self.environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command and wait for its exit."""
        return subprocess.run(
            [self.path, *arguments], capture_output=True, text=True, cwd=MANIFESTS, timeout=60, check=False,
            env={**self.environment, **environment}, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def __call__(self, *arguments: str, **environment: str) -> str:
        """Run a command that must succeed; return its output."""
        ended = self.run(*arguments, **environment)
        assert ended.returncode == 0, f"kubectl {' '.join(arguments)}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def fails(self, *arguments: str) -> str:
        """Run a command that must fail; return its error."""
        ended = self.run(*arguments)
        assert ended.returncode != 0, f"kubectl {' '.join(arguments)} succeeded: {ended.stdout}"
        return ended.stderr
