"""Recorded sessions of the reference server: this server prints the same for each command."""

from __future__ import annotations

import difflib
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.clients.kubectl import MANIFESTS, Kubectl

pytestmark = pytest.mark.usefixtures("clean")

SESSIONS = Path(__file__).with_name("sessions")
OLD = (1, 21)
STEP = re.compile(r"^\$ (.*)\n((?:.*\n)*?)\[exit (\d+)\]\n", re.M)

# parts of the output that differ between runs → a constant
PLAIN: tuple[tuple[str, str], ...] = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID"),
    (r'(resourceVersion: ")\d+(")', r"\1N\2"),
    (r"(Resource Version: +)\d+", r"\1N"),
    (r"(?m)^((?:NAMESPACE +|EVENT +)?NAME\b.*)$", lambda m: re.sub(r" +", " ", m[1])),  # type: ignore[list-item]
    (r"(?m) +\d+s$", " AGE"),
    (r"(LIVE|MERGED)-\d+", r"\1-N"),
    (r"/tmp/(?=LIVE|MERGED)", ""),
    (r"(?m)^((?:---|\+\+\+) \S+)\t.*$", r"\1\tT"),
    (r'"[^"\s]*kubectl[.0-9]*-edit-[^"]*"', '"TMPFILE"'),
    (r"W\d{4} [\d:.]+ +\d+ ", "W "),
    (r"diff\.go:\d+", "diff.go"),
    (r"(?m) +$", ""),
)
# other wording of newer versions of kubectl
NEWER: tuple[tuple[str, str], ...] = (
    (r" from default namespace$", ""),
    (r" annotate$", " annotated"),
    (r'"kubectl\.1\.\d+"', '"kubectl"'),  # kubectl uses the name of its program as manager
)
# parts that only this server, or only the recorded kubectl, prints
UNLIKE: dict[str, str] = {
    "kubectl get crd": "other definitions may be there",
    "kubectl explain": "layouts differ between versions; test_kubectl.py looks at the contents",
    "kubectl describe": "layouts differ between versions",
    "kubectl delete crd crontabs.stable.example.com --ignore-not-found": "nothing is there before",
    "kubectl get all": "services, secrets and the like are here, too",
}
UNLIKE_OLD = {"kubectl diff -f": "it shows managers, whose order depends on the second; newer ones hide them"}


def steps(name: str) -> list[tuple[str, str, int]]:
    """Return the commands of a session with their output and exit codes."""
    text = (SESSIONS / f"{name}.txt").read_text(encoding="utf-8")
    if not text.rstrip().endswith("]"):
        text = text.rstrip() + "\n[exit 1]\n"
    return [(found[1], found[2], int(found[3])) for found in STEP.finditer(text)]


def without_variable_parts(text: str, more: tuple[tuple[str, str], ...] = ()) -> str:
    """Replace the parts of output that differ between runs."""
    for pattern, instead in (*PLAIN, *more):
        text = re.sub(pattern, instead, text, flags=re.M)
    return text.rstrip() + "\n"


def run_command(kubectl: Kubectl, command: str) -> tuple[str, int]:
    """Run a command of a session in a shell; return its normalised output and its exit code."""
    line = command.replace("kubectl ", f"{shlex.quote(kubectl.path)} ", 1) if "kubectl " in command else command
    ended = subprocess.run(
        ["/bin/bash", "-c", line], capture_output=True, text=True, cwd=MANIFESTS / "session", timeout=60, check=False,
        env={**kubectl.environment, "TZ": "UTC"}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    told = ended.stdout + (f"[stderr] {ended.stderr}" if ended.stderr else "")
    return told, ended.returncode


@pytest.mark.rows("KUB-004", "KUB-005", "SSA-008", "SSA-016")
def test_kubectl_output_equals_the_recorded_session(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    old = kubectl.version < OLD
    more, left_out = ((), {**UNLIKE, **UNLIKE_OLD}) if old else (NEWER, UNLIKE)
    faults = []
    for command, wanted, code in steps("1.20" if old else "1.35"):
        told, ended = run_command(kubectl, command)
        if any(command.startswith(prefix) for prefix in left_out):
            continue
        if (without_variable_parts(told, more), ended) != (without_variable_parts(wanted, more), code):
            lines = difflib.unified_diff(
                without_variable_parts(wanted, more).splitlines(),
                without_variable_parts(told, more).splitlines(),
                lineterm="",
            )
            faults.append("\n".join([f"$ {command} [exit {code} there, {ended} here]", *list(lines)[2:]]))
    assert not faults, "\n\n".join(faults)
