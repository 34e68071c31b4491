"""``apiext envtest-assets``: a directory for KUBEBUILDER_ASSETS with this server in it."""

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import apiext
from apiext.config import KUBERNETES_VERSION
from apiext.etcd.binaries import NoBinary, find_binary

LAUNCHER = """\
#!/bin/sh
# Runs apiext in the place of kube-apiserver. Certificates and tokens of a run lie beside those of envtest, which takes
# them away at the end; so suites that run at the same time never meet. As under envtest nothing
# collects garbage: suites name owners that are not there. APIEXT_CONTROLLERS=* and --controllers=* turn that on.
export APIEXT_IGNORE_UNSUPPORTED_FLAGS="${{APIEXT_IGNORE_UNSUPPORTED_FLAGS-true}}"
export APIEXT_CONTROLLERS="${{APIEXT_CONTROLLERS-*,-garbage-collector-controller}}"
# kube-apiserver has no apiextensions.k8s.io/v1beta1 any more, and some operators go by what discovery lists.
# --runtime-config=apiextensions.k8s.io/v1beta1=true turns it on.
apis="apiextensions.k8s.io/v1beta1=false,${{APIEXT_RUNTIME_CONFIG-}}"
before=
for flag in "$@"; do
    case $before in --runtime-config) apis="$apis,$flag" ;; esac
    before=$flag
    case $flag in
        --runtime-config=*) apis="$apis,${{flag#*=}}" ;;
        --cert-dir=*) export APIEXT_DATA_DIR="${{APIEXT_DATA_DIR:-${{flag#*=}}/apiext}}" ;;
        --version | --version=*) echo "Kubernetes v{version}"; exit 0 ;;
    esac
done
{path}exec {python} -P -m apiext serve "$@" --runtime-config="$apis"
"""


class AssetsError(Exception):
    """The directory cannot be made; the text says why."""


def write(directory: Path, etcd: str = "", kubectl: str = "", search: str | None = None) -> list[str]:
    """Make the directory, or bring it up to date; return what is missing in words. Raises AssetsError.

    ``etcd`` and ``kubectl`` are binaries to link; none: the ones that are found, ``search`` being PATH by default.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _write_launcher(directory / "kube-apiserver")
        _link(directory / "etcd", find_binary(etcd or None).path)
        found = kubectl or shutil.which("kubectl", path=search)
        if found:
            _link(directory / "kubectl", Path(found))
            return []
    except (OSError, NoBinary) as error:
        raise AssetsError(str(error)) from error
    (directory / "kubectl").unlink(missing_ok=True)
    return ["no kubectl is on PATH: suites that call it will fail, all others will not; name one with --kubectl"]


def _write_launcher(path: Path) -> None:
    text = LAUNCHER.format(version=KUBERNETES_VERSION, path=_import_path(), python=shlex.quote(sys.executable))
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(0o755)
    temporary.replace(path)  # a suite that is starting sees the old one or the new one


def source_directory() -> Path | None:
    """Return what must be on PYTHONPATH for others to find the package; None when it is installed."""
    home = Path(apiext.__file__).parents[1]
    return None if home.name in ("site-packages", "dist-packages") else home


def _import_path() -> str:
    """Return what the launcher must say for Python to find the package when it is run from its sources."""
    home = source_directory()
    if home is None:
        return ""
    return f'export PYTHONPATH={shlex.quote(str(home))}"${{PYTHONPATH:+:$PYTHONPATH}}"\n'


def _link(path: Path, target: Path) -> None:
    if not target.exists():
        raise AssetsError(f"{target} is not there")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.symlink_to(target.absolute())
    temporary.replace(path)


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``apiext envtest-assets``."""
    found = argparse.ArgumentParser(
        prog="apiext envtest-assets",
        description="Write a directory for KUBEBUILDER_ASSETS: a kube-apiserver that is this server, etcd and kubectl. "
        "The envtest suite of an operator then runs on it unchanged.",
    )
    found.add_argument("directory", metavar="DIR", help="made if it is not there; files of these names are replaced")
    found.add_argument(
        "--etcd", default="", metavar="FILE", help="etcd to link (default: the one that serve would run)"
    )
    found.add_argument("--kubectl", default="", metavar="FILE", help="kubectl to link (default: the one on PATH)")
    return found


def run(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Run the command; 1 when the directory cannot be made."""
    options = parser().parse_args(list(arguments))
    directory = Path(options.directory).absolute()
    try:
        missing = write(directory, options.etcd, options.kubectl, environment.get("PATH"))
    except AssetsError as error:
        print(f"apiext: {error}", file=sys.stderr)
        return 1
    for text in missing:
        print(f"apiext: {text}", file=sys.stderr)
    print(f"export KUBEBUILDER_ASSETS={shlex.quote(str(directory))}")
    return 0
