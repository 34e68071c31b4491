"""``apiext kubeconfig``: print a kubeconfig, or merge one into that of kubectl.

``print`` prints the kubeconfig of the administrator, or a new one for a user. ``merge`` adds the entries of the
administrator's kubeconfig to kubectl's, and ``remove`` removes them.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from apiext.auth import certificates
from apiext.auth import kubeconfig as own
from apiext.config import default_data_dir
from apiext.documents.encoding import decode_yaml, encode_yaml
from apiext.meta.time import parse_duration
from apiext.system import files
from apiext.tools import limits
from apiext.tools.manifests import parts

ADMIN = "admin.kubeconfig"
_MANY = {"clusters": "cluster", "users": "user", "contexts": "context"}
_LIFE = "24h"


class KubeconfigError(Exception):
    """The command failed; the text is the reason."""


def admin(directory: Path) -> Mapping[str, Any]:
    """Return the administrator's kubeconfig in a data directory. Raise KubeconfigError."""
    return _read(directory / ADMIN, f"{directory / ADMIN}: start the server once; it writes this file")


def for_user(directory: Path, user: str, groups: Sequence[str], life: timedelta) -> Mapping[str, Any]:
    """Return a kubeconfig for a user, with a certificate of the data directory's authority.

    Raise KubeconfigError.
    """
    cluster = admin(directory)["clusters"][0]["cluster"]
    if not str(cluster["server"]).startswith("https://"):
        raise KubeconfigError(f"{cluster['server']} does not authenticate users (--insecure)")
    if not (directory / "pki" / "ca.key").exists():
        raise KubeconfigError(f"{directory} has no authority: flags of the server named its certificates")
    try:
        authority = certificates.read_authority(directory / "pki")
        certificate, key = certificates.issue_client(authority, user, groups, life)
    except (OSError, ValueError) as error:
        raise KubeconfigError(f"the certificate cannot be created: {error}") from error
    found = own.document(own.Access(str(cluster["server"]), certificate=certificate, key=key))
    found["clusters"][0]["cluster"] = dict(cluster)
    return found


def target(named: str, environment: Mapping[str, str]) -> Path:
    """Return the file that kubectl would write.

    This is ``named``, else the first existing file in $KUBECONFIG, else the last file in $KUBECONFIG, else
    ~/.kube/config.
    """
    if named:
        return Path(named)
    listed = [Path(path) for path in environment.get("KUBECONFIG", "").split(os.pathsep) if path]
    usual = Path(environment.get("HOME", "/"), ".kube", "config")
    return next((path for path in listed if path.exists()), listed[-1] if listed else usual)


def merged(known: Mapping[str, Any], given: Mapping[str, Any], name: str, *, switch: bool) -> dict[str, Any]:
    """Return ``known`` with the first cluster, user and context of ``given``, named ``name``.

    The new entries replace entries of this name; entries with other names stay unchanged. With ``switch``, or without a
    current context, the new context becomes the current context.
    """
    found: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", **removed(known, name)}
    for many, one in _MANY.items():
        for entry in (given.get(many) or ())[:1]:
            value = dict(entry[one])
            if one == "context":
                value |= {key: name for key in ("cluster", "user") if key in value}
            found[many] = [*(found.get(many) or ()), {"name": name, one: value}]
    if switch or not found.get("current-context"):
        found["current-context"] = name
    return found


def removed(known: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a kubeconfig without the cluster, user and context of a name.

    If the current context has this name, the result has no current context.
    """
    found = dict(known)
    for many in _MANY:
        if found.get(many):
            found[many] = [entry for entry in found[many] if entry.get("name") != name]
    if found.get("current-context") == name:
        found["current-context"] = ""
    return found


def change(file: Path, name: str, given: Mapping[str, Any] | None, *, switch: bool) -> None:
    """Merge ``given`` into a file under a name.

    If ``given`` is None, remove the entries of this name. During the change, the lock file of client-go exists. If
    nothing changes, the file is not written. Raise KubeconfigError.
    """
    file = file.resolve() if file.is_symlink() else file  # write the target of a symbolic link, so that the link stays
    if given is None and not file.exists():
        return
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _locked(file.with_name(f"{file.name}.lock"))
    except OSError as error:
        raise KubeconfigError(str(error)) from error
    try:
        known = _read(file) if file.exists() and file.stat().st_size else {}
        found = removed(known, name) if given is None else merged(known, given, name, switch=switch)
        if found != known:
            files.write(file, encode_yaml(found))
    except OSError as error:
        raise KubeconfigError(str(error)) from error
    finally:
        lock.unlink(missing_ok=True)


def _locked(lock: Path) -> Path:
    deadline = time.monotonic() + limits.LOCK_WAIT
    while True:
        try:
            os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            return lock
        except FileExistsError as error:
            if time.monotonic() > deadline:
                raise KubeconfigError(
                    f"{lock} exists: another program is writing the file, or ended without deleting the lock"
                ) from error
            time.sleep(0.05)


def _read(file: Path, otherwise: str = "") -> Mapping[str, Any]:
    try:
        raw = file.read_bytes()
        found, _ = decode_yaml(raw)  # decodes like kubectl, so that the written file has the same meaning
    except (OSError, ValueError) as error:
        raise KubeconfigError(otherwise or f"{file}: {error}") from error
    if len(list(parts(raw))) > 1:
        raise KubeconfigError(f"{file} has several documents, but kubectl reads only the first")
    if not isinstance(found, dict):
        raise KubeconfigError(f"{file} is not a kubeconfig")
    for many, one in _MANY.items():
        entries = found.get(many)
        if entries is not None and not (
            isinstance(entries, list) and all(isinstance(it, dict) and isinstance(it.get(one), dict) for it in entries)
        ):
            raise KubeconfigError(f"{file} is not a kubeconfig: its {many} cannot be read")
    return found


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``apiext kubeconfig``."""
    found = argparse.ArgumentParser(
        prog="apiext kubeconfig", description="Print a kubeconfig, or merge one into kubectl's kubeconfig."
    )
    commands = found.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("print", "print the administrator's kubeconfig, or a kubeconfig for a user"),
        (
            "merge",
            "merge the administrator's kubeconfig into kubectl's kubeconfig, and make its context the current context",
        ),
        ("remove", "remove the merged entries from kubectl's kubeconfig"),
    ):
        command = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        command.add_argument(
            "--data-dir", default="", metavar="DIR", help="data directory of the server (default: that of serve)"
        )
        if name == "print":
            command.add_argument("--user", help="name of the user in a new certificate")
            command.add_argument("--groups", metavar="A,B", help="groups of the user")
            command.add_argument("--ttl", metavar="DURATION", help=f"validity of the certificate (default {_LIFE})")
            continue
        command.add_argument(
            "--kubeconfig",
            default="",
            metavar="FILE",
            help="kubectl's kubeconfig (default: the first existing file in $KUBECONFIG, else the last, else "
            "~/.kube/config)",
        )
        command.add_argument("--name", default="apiext", help="name of context, cluster and user (default apiext)")
        if name == "merge":
            command.add_argument("--no-switch", action="store_true", help="do not change the current context")
    return found


def run(arguments: Sequence[str]) -> int:
    """Run the command; return 0, or 1 if it fails. For usage errors, raise SystemExit with 2."""
    options = _options(arguments)
    directory = Path(options.data_dir or os.environ.get("APIEXT_DATA_DIR") or default_data_dir(os.environ))
    try:
        if options.command == "print":
            print(encode_yaml(_printed(directory, options)).decode(), end="")
            return 0
        file = target(options.kubeconfig, os.environ)
        merge = options.command == "merge"
        change(file, options.name, admin(directory) if merge else None, switch=merge and not options.no_switch)
    except KubeconfigError as error:
        print(f"apiext: {error}", file=sys.stderr)
        return 1
    told = f"context {options.name} is in {file}" if merge else f"context {options.name} is no longer in {file}"
    print(f"apiext: {told}", file=sys.stderr)
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments.

    An empty user is a usage error, since an unset shell variable may cause it.
    """
    found = parser()
    options = found.parse_args(list(arguments))
    if options.command != "print":
        if not options.name:
            found.error("--name is empty")
    elif options.user == "":
        found.error("--user is empty")
    elif options.user is None and (options.groups is not None or options.ttl is not None):
        found.error("--groups and --ttl are for a --user")
    return options


def _printed(directory: Path, options: argparse.Namespace) -> Mapping[str, Any]:
    if options.user is None:
        return admin(directory)
    ttl = _LIFE if options.ttl is None else options.ttl
    try:
        life = parse_duration(ttl)
    except ValueError as error:
        raise KubeconfigError(f"--ttl {ttl}: {error}") from error
    if life <= 0:
        raise KubeconfigError(f"--ttl {ttl}: use a positive duration, such as 1h")
    groups = [group for group in (options.groups or "").split(",") if group]
    return for_user(directory, options.user, groups, timedelta(seconds=life))
