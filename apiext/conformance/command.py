"""``apiext conformance``: run the conformance tests against a server."""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib.util
import sys
import tempfile
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

EXIT_USAGE = 2
HERE = Path(__file__).parent
_NEEDED = "/apis/apiextensions.k8s.io/v1"


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``apiext conformance``."""
    found = argparse.ArgumentParser(
        prog="apiext conformance",
        description="Test any server of the Kubernetes custom-resource API over HTTP. The tests create definitions, "
        "objects and namespaces, and delete them. Do not test a production cluster.",
        epilog="Exit codes: 0: tests of all areas of the server ran, and none failed. 1: a test failed, or an area had "
        f"no tests. {EXIT_USAGE}: the server cannot be tested.",
    )
    found.add_argument("--server", metavar="URL", help="the server under test (default: that of --kubeconfig)")
    found.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig; its current context selects server and user")
    found.add_argument("--token", default="", help="bearer token")
    found.add_argument(
        "--ca-file",
        default="",
        metavar="FILE",
        help="CA of an https server; without this option, its certificate is not verified",
    )
    found.add_argument(
        "-k", dest="only", default="", metavar="EXPRESSION", help="run only tests whose names match, like pytest -k"
    )
    found.add_argument("--junit", default="", metavar="FILE", help="also write a JUnit report")
    found.add_argument("--list", action="store_true", help="list the tests without running them")
    return found


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    asked = parser().parse_args(list(arguments))
    if importlib.util.find_spec("pytest") is None:
        return _refuse(
            "pytest is not installed: call `scripts/setup test` in a clone, or install the wheel with the extra "
            "[conformance], as `apiext-VERSION-py3-none-any.whl[conformance]`"
        )
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="apiext-conformance-")))
        try:
            access = read_access(asked, directory)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
            return _refuse(f"--kubeconfig {asked.kubeconfig}: {' '.join(str(error).split())}")
        if not access["--server"] and not asked.list:
            return _refuse("select a server with --server or --kubeconfig")
        if not asked.list and (fault := why_not(access)):
            return _refuse(fault)
        return _pytest(asked, access)


def _refuse(text: str) -> int:
    print(f"apiext conformance: {text}", file=sys.stderr)
    return EXIT_USAGE


def read_access(asked: argparse.Namespace, directory: Path) -> Mapping[str, str]:
    """Return option of the pytest plug-in → value, for the server and its user.

    Write certificates and keys that are part of the kubeconfig to files in ``directory``.
    """
    found = {"--server": asked.server or "", "--server-token": asked.token, "--server-ca": asked.ca_file}
    if not asked.kubeconfig:
        return found
    document = yaml.safe_load(Path(asked.kubeconfig).read_bytes())
    context = _named(document["contexts"], document["current-context"], "context")
    cluster = _named(document["clusters"], context["cluster"], "cluster")
    user = _named(document["users"], context["user"], "user") if context.get("user") else {}

    def file(source: Mapping[str, Any], name: str) -> str:
        if data := source.get(f"{name}-data"):
            path = directory / name
            path.write_bytes(base64.b64decode(data))
            path.chmod(0o600)
            return str(path)
        given = source.get(name, "")
        return str(Path(asked.kubeconfig).parent / given) if given else ""

    found["--server"] = found["--server"] or cluster["server"].rstrip("/")
    if not found["--server-token"] and (foreign := sorted(user.keys() & {"exec", "auth-provider"})):
        raise ValueError(f"users of {foreign[0]} are not supported; use --token")
    if path := user.get("tokenFile"):
        user = {"token": (Path(asked.kubeconfig).parent / path).read_text(encoding="utf-8").strip(), **user}
    found["--server-token"] = found["--server-token"] or user.get("token", "")
    found["--server-ca"] = found["--server-ca"] or file(cluster, "certificate-authority")
    found["--server-cert"] = file(user, "client-certificate")
    found["--server-key"] = file(user, "client-key")
    return found


def _named(entries: Sequence[Mapping[str, Any]], name: str, kind: str) -> Mapping[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            found: Mapping[str, Any] = entry[kind]
            return found
    raise ValueError(f"there is no {kind} {name}")


def why_not(access: Mapping[str, str]) -> str:
    """Return the reason why a server cannot be tested, empty if it can be tested."""
    from apiext.conformance.plugin import PARTS, target

    url = access["--server"]
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        return f"--server {url}: expected http://HOST:PORT or https://HOST:PORT"
    try:
        client = target(*(access.get(f"--server{part}", "") for part in PARTS)).client()
    except OSError as error:
        files = [name for part in PARTS[2:] if (name := access.get(f"--server{part}", ""))]
        return f"{url}: certificates cannot be read from {', '.join(files)}: {error}"
    try:
        answer = client.get(_NEEDED)
    except (OSError, HTTPException) as error:
        return f"{url} cannot be reached: {' '.join(str(error).split()) or type(error).__name__}"
    if answer.status in (401, 403):
        return f"{url} answers {answer.status}: use --token or --kubeconfig to select a user with all permissions"
    with contextlib.suppress(ValueError, KeyError, TypeError):
        if any(resource["name"] == "customresourcedefinitions" for resource in answer.json["resources"]):
            return ""
    text = " ".join(answer.raw[:100].decode("utf-8", "replace").split())
    return (
        f"{url} does not serve custom resources: its discovery lacks apiextensions.k8s.io/v1 "
        f"(GET {_NEEDED} answers {answer.status}: {text})"
    )


def _pytest(asked: argparse.Namespace, access: Mapping[str, str]) -> int:
    import pytest

    from apiext.conformance.plugin import Report

    options = ["-c", str(HERE / "harness.ini"), f"--rootdir={HERE}", "-p", "apiext.conformance.plugin"]
    options += [f"{name}={value}" for name, value in access.items() if value]
    options += ["-k", asked.only] if asked.only else []
    options += [f"--junit-xml={asked.junit}"] if asked.junit else []
    options += ["--collect-only"] if asked.list else []
    holder = Holder()
    code = int(pytest.main([*options, str(HERE)], plugins=[holder]))
    report = holder.report
    if isinstance(report, Report) and not asked.list and code != pytest.ExitCode.USAGE_ERROR:
        total = report.total
        print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return EXIT_USAGE if code in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR) else min(code, 1)


class Holder:
    """Keeps the report of a run, so that the command prints its total after pytest's output."""

    def __init__(self) -> None:
        self.report: object = None

    def pytest_unconfigure(self, config: Any) -> None:
        """Store the report, since the command cannot reach pytest's plug-ins after the run."""
        self.report = config.pluginmanager.get_plugin("conformance-report")
