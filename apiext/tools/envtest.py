"""``apiext envtest-assets``: create a KUBEBUILDER_ASSETS directory with this server."""

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import apiext
from apiext.config import CONTROLLERS, KUBERNETES_VERSION
from apiext.tools import envtest_etcd

LAUNCHER = """\
#!/bin/sh
# Runs apiext in place of kube-apiserver. Its certificates and tokens are in the directory of envtest's certificates,
# which envtest deletes at the end. So suites can run at the same time. As under envtest, no controller of
# kube-controller-manager runs: there is no garbage collection, and namespaces stay Terminating.
# APIEXT_CONTROLLERS=* or --controllers=* starts all controllers.
export APIEXT_IGNORE_UNSUPPORTED_FLAGS="${{APIEXT_IGNORE_UNSUPPORTED_FLAGS-true}}"
export APIEXT_CONTROLLERS="${{APIEXT_CONTROLLERS-{controllers}}}"
# kube-apiserver no longer serves apiextensions.k8s.io/v1beta1. Some operators use this version if discovery lists it.
# --runtime-config=apiextensions.k8s.io/v1beta1=true enables it.
apis="apiextensions.k8s.io/v1beta1=false,${{APIEXT_RUNTIME_CONFIG-}}"
before=
for flag in "$@"; do
    shift
    case $before in
        --runtime-config) apis="$apis,$flag" ;;
        --cert-dir) export APIEXT_DATA_DIR="${{APIEXT_DATA_DIR:-$flag/apiext}}" ;;
    esac
    {keep}
    before=$flag
    case $flag in
        --runtime-config=*) apis="$apis,${{flag#*=}}" ;;
        --cert-dir=*) export APIEXT_DATA_DIR="${{APIEXT_DATA_DIR:-${{flag#*=}}/apiext}}" ;;
        --version | --version=*) echo "Kubernetes v{version}"; exit 0 ;;
    esac
done
{path}{store}exec {python} -P -m apiext serve "$@" --runtime-config="$apis"
"""


IN_MEMORY = """\
# The etcd in this directory stores nothing, so the server keeps objects in memory.
[ -n "${{APIEXT_ETCD_SERVERS-}}" ] || export APIEXT_STORE="${{APIEXT_STORE-memory}}"
"""
KEEP = 'set -- "$@" "$flag"'
KEEP_UNLESS_OF_ETCD = f"""case $before,$flag in
        --etcd-servers,* | *,--etcd-servers | *,--etcd-servers=*) ;;
        *) {KEEP} ;;
    esac"""
ETCD = """\
#!/bin/sh
exec {python} -I -S {file} "$@"
"""


class AssetsError(Exception):
    """The directory cannot be created; the text is the reason."""


def write(directory: Path, etcd: str = "", kubectl: str = "", search: str | None = None) -> list[str]:
    """Create or update the directory; return texts about missing parts. Raise AssetsError.

    ``etcd`` is a binary to link, which then stores the objects; without it, the server keeps objects in memory.
    ``kubectl`` is a binary to link; by default it is searched in the path ``search``, which is PATH by default.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if etcd:
            _link(directory / "etcd", Path(shutil.which(etcd) or etcd))
        else:
            python, file = shlex.quote(sys.executable), shlex.quote(envtest_etcd.__file__)
            _write_script(directory / "etcd", ETCD.format(python=python, file=file))
        _write_launcher(directory / "kube-apiserver", in_memory=not etcd)
        found = kubectl or shutil.which("kubectl", path=search)
        if found:
            _link(directory / "kubectl", Path(found))
            return []
    except OSError as error:
        raise AssetsError(str(error)) from error
    (directory / "kubectl").unlink(missing_ok=True)
    return ["there is no kubectl on PATH, so suites that call kubectl will fail: name a kubectl with --kubectl"]


def _write_launcher(path: Path, *, in_memory: bool) -> None:
    text = LAUNCHER.format(
        version=KUBERNETES_VERSION,
        controllers=",".join(f"-{name}" for name in sorted(CONTROLLERS)),
        path=_import_path(),
        python=shlex.quote(sys.executable),
        store=IN_MEMORY.format() if in_memory else "",
        keep=KEEP_UNLESS_OF_ETCD if in_memory else KEEP,
    )
    _write_script(path, text)


def _write_script(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(0o755)
    temporary.replace(path)  # atomic: a starting suite sees the old or the new file


def source_directory() -> Path | None:
    """Return the PYTHONPATH with which other programs find the package.

    Return None if the package is installed.
    """
    home = Path(apiext.__file__).parents[1]
    return None if home.name in ("site-packages", "dist-packages") else home


def _import_path() -> str:
    """Return the launcher's line with which Python finds the package in its source directory."""
    home = source_directory()
    if home is None:
        return ""
    return f'export PYTHONPATH={shlex.quote(str(home))}"${{PYTHONPATH:+:$PYTHONPATH}}"\n'


def _link(path: Path, target: Path) -> None:
    if not target.exists():
        raise AssetsError(f"{target} does not exist")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.symlink_to(target.absolute())
    temporary.replace(path)


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``apiext envtest-assets``."""
    found = argparse.ArgumentParser(
        prog="apiext envtest-assets",
        description="Write a directory for KUBEBUILDER_ASSETS: a kube-apiserver that starts this server, a "
        "stand-in for etcd, and kubectl. An unchanged envtest suite of an operator then uses this server.",
    )
    found.add_argument(
        "directory",
        metavar="DIR",
        help="directory; created if it does not exist; existing files with the same names are replaced",
    )
    found.add_argument(
        "--etcd", default="", metavar="FILE", help="etcd to link and use (default: the server keeps objects in memory)"
    )
    found.add_argument("--kubectl", default="", metavar="FILE", help="kubectl to link (default: kubectl on PATH)")
    return found


def run(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Run the command; return 1 if the directory cannot be created."""
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
