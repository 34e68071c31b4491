"""The commands and their help texts."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import threading
from importlib import metadata
from pathlib import Path

import pytest

from apiext import __main__ as program
from apiext import cli
from apiext.config import KUBERNETES_VERSION
from apiext.conformance.support import tls


def test_the_usage_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["help"]) == program.main(["--help"]) == program.main([]) == 0
    usage, again, alone = capsys.readouterr().out.split("usage: ")[1:]
    assert usage == again == alone
    named = {line.split()[0] for line in usage.splitlines() if line.startswith("  ") and line[2] != " "}
    assert named == program.COMMANDS.keys()
    assert program.main(["frobnicate"]) == 2
    assert "there is no command frobnicate" in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(program.COMMANDS))
def test_each_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for asked in ([command, "--help"], ["help", command]):
        with pytest.raises(SystemExit) as ended:
            program.main(asked)
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: apiext {command} [-h]")


def test_version_command_prints_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["version"]) == program.main(["version", "-o", "json"]) == 0
    text, served, document = capsys.readouterr().out.splitlines()
    assert json.loads(document) == {"version": metadata.version("apiext"), "kubernetesVersion": KUBERNETES_VERSION}
    assert (text, served) == (f"apiext {metadata.version('apiext')}", f"Kubernetes v{KUBERNETES_VERSION}")
    for wrong in (["nonsense"], ["-o", "yaml"]):
        with pytest.raises(SystemExit) as ended:
            program.main(["version", *wrong])
        assert ended.value.code == 2


@pytest.mark.parametrize("command", [["config", "print"], ["completion", "bash"], ["help"]])
def test_a_closed_output_ends_the_command(command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as unread:
        done = subprocess.run(
            [sys.executable, "-u", "-m", "apiext", *command],
            stdout=unread,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (program.EXIT_PIPE, "")


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--cafile=/nowhere/ca"], 2, "--cafile /nowhere/ca: No such file or directory"),
        (["--url=a:1"], 2, "--url must begin with http:// or https://"),
        (["--timeout=-1"], 2, "--timeout must be more than 0"),
        (["--timeout=nan"], 2, "--timeout must be more than 0"),
        (["--url=http://a:b"], 1, "http://a:b is not ready: nonnumeric port: 'b'"),
        (["--url=http://127.0.0.1:{port}"], 1, "http://127.0.0.1:{port} is not ready: hello"),
        (["--url=https://127.0.0.1:{port}"], 1, "https://127.0.0.1:{port} is not ready: "),
    ],
)
def test_check_command_reports_why_it_fails(
    flags: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def greet() -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = listener.accept()
                with caller:
                    caller.recv(1000)
                    caller.sendall(b"hello\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        greeter = threading.Thread(target=greet)
        greeter.start()
        port = listener.getsockname()[1]
        try:
            found = program.main(["check", *(flag.format(port=port) for flag in flags)])
        except SystemExit as ended:
            found = int(ended.code or 0)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            greeter.join(10)
    assert (found, says.format(port=port) in capsys.readouterr().err) == (code, True)


class Ready(http.server.BaseHTTPRequestHandler):
    """A server that is ready."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        """Suppress the access log."""


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_check_command_ignores_proxies(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):  # Docker's client sets them in containers
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with http.server.HTTPServer(("127.0.0.1", 0), Ready) as server:
        if scheme == "https":
            context = tls.server_context(tls.authority(), tmp_path)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        answering = threading.Thread(target=server.serve_forever)
        answering.start()
        try:
            code = program.main(["check", f"--url={scheme}://127.0.0.1:{server.server_port}"])
        finally:
            server.shutdown()
            answering.join(10)
    told = capsys.readouterr()
    assert (code, told.out, told.err) == (0, "/readyz\n", "")


def test_a_shell_completes_commands_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    for words, expected in (
        (("ku",), "kubeconfig"),
        (("kubeconfig", "m"), "merge"),
        (("serve", "--etcd-ca"), "--etcd-cafile"),
        (("--ready-f",), "--ready-file"),
        (("crd", "l"), "lint"),
        (("crd", "lint", "--f"), "--field-validation"),
        (("crd", "--f"), ""),
        (("serve", "--conf"), "--config"),
        (("--insecure", "--conf"), "--config"),
        (("serve", "--port=1", "--quiet", "--conf"), "--config"),
        (("config", "print", "--conf"), "--config"),
        (("migrate", "--al"), "--all --allow-loss"),
        (("migrate", "crontabs", "--para"), "--parallel"),
        (("kubeconfig", "print", "--k"), ""),
        (("kubeconfig", "merge", "--k"), "--kubeconfig"),
        (("envtest-assets", "--he"), "--help"),
        (("completion", "z"), "zsh"),
        (("check", "--caf"), "--cafile"),
        (("version", "--out"), "--output"),
        (("serve", "--store", "me"), "memory"),
        (("serve", "--store", "=", "me"), "memory"),
        (("serve", "--store", "="), "sqlite memory"),
        (("--logging-format", ""), "text json"),
        (("serve", "--quiet", "=", "t"), "true"),
        (("serve", "--audit-log-mode", "blocking-"), "blocking-strict"),
        (("config", "print", "--tls-min-version", "VersionTLS13"), "VersionTLS13"),
        (("crd", "lint", "--field-validation", "St"), "Strict"),
        (("version", "-o", "j"), "json"),
        (("crd", "lint", "docker"), "docker-compose.yml"),
        (("serve", "--data-dir", "doc"), "docs"),
        (("serve", "--config", "=", "pypro"), "pyproject.toml"),
    ):
        line = " ".join(f"'{word}'" for word in ("apiext", *words))
        asked = f'{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _apiext; echo "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=20, check=True)
        assert done.stdout.split() == expected.split(), words


def test_zsh_completion_works_by_source_and_by_eval(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["completion", "zsh"]) == 0
    assert "if [[ $zsh_eval_context[-1] == (eval|file) ]]; then\n" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_has_all_commands_and_flags(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["completion", shell]) == 0
    words = set(re.split(r"[^a-z0-9-]+", capsys.readouterr().out.replace("-l ", "--")))
    assert program.COMMANDS.keys() <= words
    assert {option for flag in cli.FLAGS for option in flag.options if option.startswith("--")} <= words
    assert {"--config", "--allow-loss", "--field-validation", "--kubeconfig", "--cafile", "--output"} <= words


def test_config_print_command_prints_values_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["config", "print", "--insecure"]) == 0
    assert 'insecure: "true"  # flag' in capsys.readouterr().out.splitlines()
    assert program.main(["config", "print", "--workers=none"]) == 2
    assert "--workers none: expected a whole number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        (
            "from apiext.__main__ import main; main(['check', '--url=http://127.0.0.1:1'])",
            {"apiext", "apiext.__main__"},
        ),
        ("import apiext.testing.plugin", {"apiext", "apiext.testing", "apiext.testing.plugin"}),
    ],
)
def test_frequent_commands_import_few_modules(code: str, allowed: set[str]) -> None:
    loaded = "import sys; print(*(name for name in sys.modules if name.partition('.')[0] == 'apiext'))"
    done = subprocess.run([sys.executable, "-c", f"{code}; {loaded}"], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == allowed
    heavy = {"aiohttp", "yaml", "orjson", "urllib.request", "asyncio"}
    loaded = f"import sys; print(*({heavy!r} & sys.modules.keys()))"
    if "check" in code:
        done = subprocess.run([sys.executable, "-c", f"{code}; {loaded}"], capture_output=True, text=True, check=True)
        assert not done.stdout.strip()
