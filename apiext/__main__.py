"""The sub-commands of ``apiext`` and ``python -m apiext``.

A sub-command imports its modules when it runs.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    import ssl

EXIT_FAILURE, EXIT_USAGE = 1, 2
EXIT_PIPE = 141  # 128 + SIGPIPE: the exit code that shells report for a program that a closed pipe has ended

USAGE = """usage: apiext COMMAND [ARGS]

commands:
  serve    serve CustomResourceDefinitions and custom objects: apiext serve --insecure
  check    check whether a running server is ready: apiext check --url URL [--cafile FILE]
  crd      validate definitions without a server, as a create does: apiext crd lint FILE…
  kubeconfig
           print a kubeconfig, or merge the administrator's into kubectl's: apiext kubeconfig print | merge | remove
  migrate  rewrite stored objects in the storage version: apiext migrate RESOURCE… | --all
  config   print the configuration of serve, with the source of each value: apiext config print [FLAG …]
  envtest-assets
           write a directory for KUBEBUILDER_ASSETS: apiext envtest-assets DIR
  conformance
           test any server of this API over HTTP: apiext conformance --server URL
  completion
           print a script that completes commands, flags and values: apiext completion bash | zsh | fish
  version  print the versions of apiext and of Kubernetes; -o json for JSON

Each command has its own --help; flags without a command are those of serve.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sub-command and return its exit code.

    Raise SystemExit if argparse has printed the help or a usage error.
    """
    _open_streams()
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_closed():
            raise
        return EXIT_PIPE
    finally:
        _leave_streams()


def _open_streams() -> None:
    """Open /dev/null for closed standard streams.

    Without this, the next opened files would get the descriptors of the closed streams.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # os.open returns the lowest free descriptor, which is ``number``
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _leave_streams() -> None:
    """Discard error output that cannot be written.

    Otherwise Python would try to write it again at exit, fail, and change the exit code.
    """
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _run(given: list[str]) -> int:
    if not given or given[0] in ("help", "-h", "--help"):
        if len(given) < 2 or given[1] not in COMMANDS:
            print(USAGE, end="")
            return 0
        given = [given[1], "--help"]
    name = "serve" if given[0].startswith("-") else given.pop(0)
    command = COMMANDS.get(name)
    if command is None:
        print(f"apiext: there is no command {name}\n\n{USAGE}", file=sys.stderr, end="")
        return EXIT_USAGE
    return command(given)


def _reader_closed() -> bool:
    """Report whether the reader of standard output has closed it, as ``| head`` does.

    If so, discard further output.
    """
    import select

    hung_up = select.poll()
    hung_up.register(sys.stdout.fileno(), 0)
    if not hung_up.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def serve(arguments: Sequence[str]) -> int:
    """Run the server in the foreground until SIGTERM or SIGINT."""
    import gc

    gc.disable()  # imports create little garbage, and collecting it takes a fifth of the start time
    from apiext import logs  # imported first, so that errors of further imports are logged

    logs.open_log()
    from apiext import cli
    from apiext.config import ConfigError

    logs.open_log(cli.logging_format(arguments, os.environ))
    try:
        config = cli.parse_serve(arguments, os.environ, logs.warn)
    except ConfigError as error:
        logs.error(str(error))
        return EXIT_USAGE
    if config.workers > 1:
        gc.enable()
        from apiext import supervisor

        return supervisor.run(config, logs.warn)
    from apiext import app

    return app.run(config, logs.warn)


def check(arguments: Sequence[str]) -> int:
    """Request /readyz of a server, as a health check of containers: exit 0 if it is ready."""
    import http.client
    import ssl
    from urllib.parse import urlsplit

    parser = _check_parser()
    options = parser.parse_args(list(arguments))
    if not options.url.startswith(("http://", "https://")):
        parser.error("--url must begin with http:// or https://")
    if not 0 < options.timeout < float("inf"):
        parser.error("--timeout must be more than 0")
    url = urlsplit(options.url)
    server = url.netloc.rpartition("@")[2]
    try:
        if url.scheme == "http":
            connection = http.client.HTTPConnection(server, timeout=options.timeout)
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if options.cafile:
                _trust(context, options.cafile, parser)
            else:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            connection = http.client.HTTPSConnection(server, timeout=options.timeout, context=context)
        connection.request("GET", url.path.rstrip("/") + "/readyz")
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        if answer.status != http.client.OK:
            raise OSError(f"{answer.status} {answer.reason}\n{text}".strip())
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"apiext: {options.url} is not ready: {error}", file=sys.stderr)
        return EXIT_FAILURE
    print(text)
    return 0


def _trust(context: "ssl.SSLContext", cafile: str, parser: "argparse.ArgumentParser") -> None:
    from apiext.system.certificates import relax_verification

    try:
        relax_verification(context).load_verify_locations(cafile)
    except OSError as error:
        parser.error(f"--cafile {cafile}: {error.strerror or error}")


def _check_parser() -> "argparse.ArgumentParser":
    import argparse

    parser = argparse.ArgumentParser(prog="apiext check", description=check.__doc__)
    usual = os.environ.get("APIEXT_URL", "https://127.0.0.1:6443")
    parser.add_argument("--url", default=usual, help=f"URL of the server (default $APIEXT_URL, here {usual})")
    parser.add_argument(
        "--cafile", default="", metavar="FILE", help="CA of the server; without it the certificate is not verified"
    )
    parser.add_argument(
        "--timeout", type=float, default=5.0, metavar="SECONDS", help="longest wait for the response (default 5)"
    )
    return parser


def version(arguments: Sequence[str]) -> int:
    """Print the version of apiext, and the version of Kubernetes that it serves."""
    from apiext import __version__
    from apiext.config import KUBERNETES_VERSION

    wanted = _version_parser().parse_args(list(arguments)).output
    if wanted == "json":
        import json

        print(json.dumps({"version": __version__, "kubernetesVersion": KUBERNETES_VERSION}))
    else:
        print(f"apiext {__version__}\nKubernetes v{KUBERNETES_VERSION}")
    return 0


def _version_parser() -> "argparse.ArgumentParser":
    import argparse

    parser = argparse.ArgumentParser(prog="apiext version", description=version.__doc__)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    return parser


def migrate(arguments: Sequence[str]) -> int:
    """Rewrite stored objects in the storage version of their definition."""
    from apiext.tools import migrate as command

    return command.run(arguments)


def crd(arguments: Sequence[str]) -> int:
    """Validate definitions without a server."""
    from apiext.tools import lint as command

    return command.run(arguments)


def envtest_assets(arguments: Sequence[str]) -> int:
    """Write a directory for KUBEBUILDER_ASSETS of envtest."""
    from apiext.tools import envtest as command

    return command.run(arguments)


def kubeconfig(arguments: Sequence[str]) -> int:
    """Print a kubeconfig for a user, or change kubectl's file.

    The change merges the administrator's kubeconfig into kubectl's file, or removes it from there.
    """
    from apiext.tools import kubeconfig as command

    return command.run(arguments)


def config(arguments: Sequence[str]) -> int:
    """Print the configuration of ``serve`` with these flags, as a file for --config."""
    import argparse

    from apiext import cli
    from apiext.config import ConfigError

    parser = argparse.ArgumentParser(prog="apiext config", usage="%(prog)s [-h] print [FLAG …]")
    parser.add_argument("action", choices=["print"], help=config.__doc__)
    parser.parse_args(arguments[:1])
    try:
        print(cli.shown(arguments[1:], os.environ, _warn))
    except ConfigError as error:
        print(f"apiext: {error}", file=sys.stderr)
        return EXIT_USAGE
    return 0


def _warn(text: str) -> None:
    print(f"apiext: warning: {text}", file=sys.stderr)


def completion(arguments: Sequence[str]) -> int:
    """Print a completion script for a shell."""
    import argparse

    from apiext import cli
    from apiext.conformance.command import parser as conformance_parser
    from apiext.tools import completion as command
    from apiext.tools import envtest, lint, migrate
    from apiext.tools import kubeconfig as kubeconfigs

    def serving(name: str) -> argparse.ArgumentParser:
        found = cli.serve_parser(whole=True)
        found.prog = name
        return found

    printing = {"print": serving("apiext config print")}
    commands = {
        "serve": serving("apiext serve"),
        "config": command.with_commands(argparse.ArgumentParser("apiext config", description=config.__doc__), printing),
        "migrate": migrate.parser(),
        "crd": lint.parser(),
        "envtest-assets": envtest.parser(),
        "kubeconfig": kubeconfigs.parser(),
        "completion": command.parser(),
        "check": _check_parser(),
        "conformance": conformance_parser(),
        "version": _version_parser(),
    }
    return command.run(arguments, command.with_commands(serving("apiext"), commands), cli.values())


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
