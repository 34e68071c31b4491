"""``apiext`` and ``python -m apiext``: the sub-commands."""

import argparse
import gc
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from apiext import cli, launch
from apiext.config import ConfigError

USAGE = """usage: apiext COMMAND [ARGS]

commands:
  serve    serve CustomResourceDefinitions and custom objects (the default)
  migrate  rewrite stored objects at the storage version: apiext migrate RESOURCE… | --all
  crd      judge definitions offline, as create would: apiext crd lint FILE…
  envtest-assets
           write a directory for KUBEBUILDER_ASSETS: apiext envtest-assets DIR
  kubeconfig
           write one for a user, or put it where kubectl looks: apiext kubeconfig print | merge | remove
  config   say what serve would run with, and where each value comes from: apiext config print [FLAG …]
  completion
           print a script that completes commands and flags: apiext completion bash | zsh | fish
  check    ask a running server whether it is ready: apiext check --url URL [--cafile FILE]
  conformance
           test any server of this API by HTTP alone: apiext conformance --server URL
  version  print the version; -o json for JSON

Each command has its own --help; flags without a command are those of serve.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sub-command and return its exit code."""
    launch.open_streams()
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _unread():
            raise
        return cli.EXIT_UNREAD
    finally:
        launch.leave_streams()


def _run(given: list[str]) -> int:
    if given and given[0] in ("help", "-h", "--help"):
        if len(given) == 1 or given[1] not in COMMANDS:
            print(USAGE, end="")
            return 0
        given = [given[1], "--help"]
    name = given.pop(0) if given and not given[0].startswith("-") else "serve"
    command = COMMANDS.get(name)
    if command is None:
        print(f"apiext: there is no command {name}\n\n{USAGE}", file=sys.stderr, end="")
        return cli.EXIT_USAGE
    return command(given)


def _unread() -> bool:
    """Tell whether nobody reads what we print, as behind `| head`; if so the rest goes nowhere."""
    import select

    hung_up = select.poll()
    hung_up.register(sys.stdout.fileno(), 0)
    if not hung_up.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def serve(arguments: Sequence[str]) -> int:
    """Run the server in the foreground until SIGTERM or SIGINT."""
    try:
        config = cli.parse_serve(arguments, os.environ, cli.warn_on_stderr)
    except ConfigError as error:
        cli.tell(f"apiext: {error}")
        return cli.EXIT_USAGE
    if config.workers > 1:
        from apiext import supervisor

        return supervisor.run(config, cli.warn_on_stderr)
    gc.disable()  # next to nothing of what is loaded is garbage, and looking takes a fifth of the time
    from apiext import app

    return app.run(config, cli.warn_on_stderr)


def check(arguments: Sequence[str]) -> int:
    """Ask /readyz of a running server: exit 0 when it is ready (health checks of containers)."""
    import http.client
    import ssl
    import urllib.request

    from apiext.trust import as_go

    parser = _check_parser()
    options = parser.parse_args(list(arguments))
    if not options.url.startswith(("http://", "https://")):
        parser.error("--url must begin with http:// or https://")
    if not 0 < options.timeout < math.inf:
        parser.error("--timeout is more than 0")
    try:
        context = as_go(ssl.create_default_context(cafile=options.cafile or None))
    except OSError as error:
        parser.error(f"--cafile {options.cafile}: {error.strerror or error}")
    if not options.cafile:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    direct = urllib.request.build_opener(  # Docker's client puts proxies into containers: none knows their loopback
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with direct.open(options.url.rstrip("/") + "/readyz", timeout=options.timeout) as answer:
            print(answer.read().decode())
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"apiext: {options.url} is not ready: {error}", file=sys.stderr)
        return cli.EXIT_FAILURE
    return 0


def _check_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="apiext check", description=check.__doc__)
    usual = os.environ.get("APIEXT_URL", "https://127.0.0.1:6443")
    parser.add_argument("--url", default=usual, help=f"(default $APIEXT_URL, here {usual})")
    parser.add_argument(
        "--cafile", default="", metavar="FILE", help="CA of the server; without one the certificate is not verified"
    )
    parser.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS", help="(default 5)")
    return parser


def version(arguments: Sequence[str]) -> int:
    """Print the version of the package; that of Kubernetes is `apiext serve --version`."""
    from importlib.metadata import version as of

    number = of("apiext")
    wanted = _version_parser().parse_args(list(arguments)).output
    print(json.dumps({"version": number}) if wanted == "json" else f"apiext {number}")
    return 0


def _version_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="apiext version", description=version.__doc__)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    return parser


def migrate(arguments: Sequence[str]) -> int:
    """Rewrite stored objects at the storage version of their definition."""
    from apiext.tools import migrate as command

    return command.run(arguments)


def crd(arguments: Sequence[str]) -> int:
    """Judge definitions without a server."""
    from apiext.tools import lint as command

    return command.run(arguments)


def envtest_assets(arguments: Sequence[str]) -> int:
    """Write the directory that envtest looks into."""
    from apiext.tools import envtest as command

    return command.run(arguments)


def kubeconfig(arguments: Sequence[str]) -> int:
    """Give out a kubeconfig, or put it where kubectl looks."""
    from apiext.tools import kubeconfig as command

    return command.run(arguments)


def config(arguments: Sequence[str]) -> int:
    """Print the configuration of ``serve`` with these flags, as a file for --config."""
    parser = argparse.ArgumentParser(prog="apiext config", usage="%(prog)s [-h] print [FLAG …]")
    parser.add_argument("action", choices=["print"], help=config.__doc__)
    parser.parse_args(arguments[:1])
    try:
        print(cli.shown(arguments[1:], os.environ, cli.warn_on_stderr))
    except ConfigError as error:
        print(f"apiext: {error}", file=sys.stderr)
        return cli.EXIT_USAGE
    return 0


def completion(arguments: Sequence[str]) -> int:
    """Print a script for a shell."""
    from apiext.conformance.command import parser as conformance_parser
    from apiext.tools import completion as command
    from apiext.tools import envtest, lint, migrate
    from apiext.tools import kubeconfig as kubeconfigs

    serving = command.words_of(cli.serve_parser())
    words = {
        "serve": serving,
        "config": command.Words({"print": serving}, (), ("-h", "--help")),
        "migrate": command.words_of(migrate.parser()),
        "crd": command.words_of(lint.parser()),
        "envtest-assets": command.words_of(envtest.parser()),
        "kubeconfig": command.words_of(kubeconfigs.parser()),
        "completion": command.words_of(command.parser()),
        "check": command.words_of(_check_parser()),
        "conformance": command.words_of(conformance_parser()),
        "version": command.words_of(_version_parser()),
    }
    return command.run(arguments, {name: words[name] for name in sorted(COMMANDS)})


def conformance(arguments: Sequence[str]) -> int:
    """Run the conformance tests against a server."""
    from apiext.conformance import command

    return command.run(arguments)


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "serve": serve,
    "migrate": migrate,
    "crd": crd,
    "envtest-assets": envtest_assets,
    "kubeconfig": kubeconfig,
    "config": config,
    "completion": completion,
    "check": check,
    "conformance": conformance,
    "version": version,
}

if __name__ == "__main__":
    sys.exit(main())
