"""Build and run programs of other languages.

Skip tests with the reason if tools are missing.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "apiext-clients"
BUILD_WITHIN = 900.0  # maximum seconds of a first build on two busy cores
_NO_NETWORK = (
    "dial tcp",
    "no such host",
    "i/o timeout",
    "connection refused",
    "ENOTFOUND",
    "ECONNREFUSED",
    "EAI_AGAIN",
    "Could not resolve host",
    "Could not transfer artifact",
    "No plugin found for prefix",
    "failed to download",
    "spurious network error",
)
_TOO_OLD = (
    "requires go >=",
    "is not supported by the following package",
    "feature `edition2024` is required",
    "release version 17 not supported",
)


def run(
    command: list[str], directory: Path, within: float = 120.0, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command and wait for its exit; stdout of the result includes stderr."""
    return subprocess.run(
        command,
        cwd=directory,
        timeout=within,
        check=False,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
    )


def succeed(
    command: list[str], directory: Path, within: float = 120.0, environment: Mapping[str, str] | None = None
) -> str:
    """Run a command that must succeed; return its output."""
    ended = run(command, directory, within, environment)
    assert ended.returncode == 0, f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout[-6000:]}"
    return ended.stdout


@functools.cache
def go_build(module: str, package: str = ".", *, test: bool = False, linked: str = "", name: str = "main") -> str:
    """Build a Go program, or the tests of a package; return the path of the binary.

    The program or package is in a Go module. ``linked`` are flags of the linker, such as values of variables; ``name``
    is the name of the binary, which some programs print as their name. Skip the test with the reason if Go is missing
    or too old, or the modules cannot be downloaded.
    """
    directory = HERE / module
    modules = _go(directory, "mod", "download")
    if modules.returncode:
        _skip_without_network("the Go modules", modules.stdout)
    place = CACHE / directory.name / (package.strip("./").replace("/", "-") or "main")
    place.mkdir(parents=True, exist_ok=True)
    binary = place / (f"{name}.test" if test else name)
    how = ("test", "-c") if test else ("build",)
    # with -trimpath the binary is the same for every checkout, so that an existing binary is not built again
    built = _go(directory, *how, "-trimpath", f"-ldflags={linked}", "-o", str(binary), package)
    assert built.returncode == 0, built.stdout[-6000:]
    return str(binary)


@functools.cache
def go_sources(module: str, of: str) -> Path:
    """Return a copy of the sources of a module that the module ``of`` requires.

    Skip like ``go_build``.
    """
    downloaded = _go(HERE / of, "mod", "download", module)
    if downloaded.returncode:
        _skip_without_network(f"the module {module}", downloaded.stdout)
    found = Path(_go(HERE / of, "list", "-m", "-f", "{{.Dir}}", module).stdout.strip())
    copy = CACHE / "sources" / found.name
    if not copy.exists():  # Go's own copy is read-only
        copy.parent.mkdir(parents=True, exist_ok=True)
        half = copy.with_name(f".{found.name}.{os.getpid()}")
        shutil.copytree(found, half, copy_function=shutil.copyfile)
        for directory, _, _ in os.walk(half):
            Path(directory).chmod(0o755)
        half.rename(copy)
    return copy


def _go(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not on this machine")
    environment = {"GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local"}
    return run([go, *arguments], directory, BUILD_WITHIN, environment)


@functools.cache
def node_modules(package: str) -> str:
    """Install an npm package into the cache; return the directory for NODE_PATH.

    Skip like ``go_build``.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node.js and npm are not on this machine")
    directory = CACHE / "node" / package.replace("/", "+")
    if not (directory / "installed").exists():
        directory.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", str(directory), package]
        ended = run(command, directory, BUILD_WITHIN)
        if ended.returncode:
            _skip_without_network(f"the package {package}", ended.stdout)
        (directory / "installed").touch()
    return str(directory / "node_modules")


@functools.cache
def cargo_build(project: str) -> str:
    """Build a Rust program; return the path of the binary.

    The program is a project beside this file. Skip like ``go_build``.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("Cargo is not on this machine")
    place = CACHE / project
    # Cargo rebuilds if the times of files change, so unchanged files are not copied
    shutil.copytree(HERE / project, place, copy_function=_renew, dirs_exist_ok=True)
    built = run([cargo, "build"], place, BUILD_WITHIN)
    if built.returncode:
        _skip_without_network("the crates", built.stdout)
    return str(place / "target" / "debug" / project.replace("_", "-"))


def _renew(source: str, target: str) -> None:
    """Copy a file unless the target has the same content."""
    if not Path(target).exists() or Path(target).read_bytes() != Path(source).read_bytes():
        shutil.copyfile(source, target)


@functools.cache
def java_command(project: str, module: str) -> list[str]:
    """Compile a module of a Maven project; return the command that runs its classes.

    The project is beside this file. Skip like ``go_build``.
    """
    maven, javac, java = (shutil.which(it) for it in ("mvn", "javac", "java"))
    if maven is None or javac is None or java is None:
        pytest.skip("Maven and a JDK are not on this machine")
    poms = sorted((HERE / project).rglob("pom.xml"))
    sources = sorted((HERE / project / module / "src").rglob("*.java"))
    place = CACHE / project / _digest(poms)
    libraries = place / module
    if not _are_there(libraries):
        command = [
            maven,
            "-q",
            "-B",
            "dependency:build-classpath",
            "-Dmdep.regenerateFile=true",
            f"-Dclasspaths={place}",
        ]
        resolved = run(command, HERE / project, BUILD_WITHIN)
        if resolved.returncode:
            _skip_without_network("the Java libraries", resolved.stdout)
    path = libraries.read_text(encoding="utf-8").strip()
    classes = place / f"{module}.classes-{_digest(sources)}"
    if not classes.exists():
        half = f"{classes}.{os.getpid()}"
        command = [javac, "--release", "17", "-proc:none", "-nowarn", "-d", half, "-cp", path, *map(str, sources)]
        compiled = run(command, HERE / project, BUILD_WITHIN)
        if compiled.returncode:
            _skip_without_network("the Java libraries", compiled.stdout)
        Path(half).rename(classes)
    return [java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{classes}{os.pathsep}{path}"]


def _digest(files: Iterable[Path]) -> str:
    """Return a digest of the contents of some files."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _are_there(libraries: Path) -> bool:
    """Report whether the list of a module's libraries and all these libraries exist.

    The list is a file.
    """
    if not libraries.exists():
        return False
    return all(Path(it).exists() for it in libraries.read_text(encoding="utf-8").strip().split(os.pathsep))


def _skip_without_network(what: str, said: str) -> None:
    for texts, why in ((_NO_NETWORK, "cannot be had from here"), (_TOO_OLD, "need newer tools")):
        lines = [line.strip() for line in said.splitlines() if any(text in line for text in texts)]
        if lines:
            pytest.skip(f"{what} {why}: {lines[-1][:200]}")
    raise AssertionError(said[-3000:])
