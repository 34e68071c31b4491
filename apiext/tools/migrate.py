"""``apiext migrate``: the command line of storage migration."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from apiext.controllers import limits as controllers_limits
from apiext.crd.migration import MigrationError
from apiext.tools import access, limits
from apiext.tools.access import AccessError
from apiext.tools.api import Api, Unreachable
from apiext.tools.migration import DEFINITIONS, Migration, Settings, expect
from apiext.tools.progress import report_on


def names_of(api: Api, wanted: Sequence[str]) -> list[str]:
    """Return the names of the selected definitions, or of all if ``wanted`` is empty.

    Each text in ``wanted`` is the name, plural, singular, short name or kind of a definition. A name takes precedence.
    Raise MigrationError if a text matches no definition or several. Raise Unreachable.
    """
    listed = expect(api.get(DEFINITIONS), "the definitions")["items"]
    if not wanted:
        return [item["metadata"]["name"] for item in listed]
    return [_selected(listed, text) for text in wanted]


def _selected(listed: Sequence[Mapping[str, Any]], text: str) -> str:
    found = [item["metadata"]["name"] for item in listed if text in _words(item)]
    if len(found) == 1:
        return str(found[0])
    if text in found:
        return text
    several = f"{text} matches {', '.join(sorted(found))}" if found else f"no definition matches {text}"
    raise MigrationError(f"{several}; name it as plural.group")


def _words(item: Mapping[str, Any]) -> set[str]:
    names = item["spec"]["names"]
    return {
        item["metadata"]["name"],
        names["plural"],
        names.get("singular", ""),
        *names.get("shortNames", ()),
        names["kind"],
    }


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``apiext migrate``."""
    found = argparse.ArgumentParser(
        prog="apiext migrate",
        description="Rewrite stored objects in the storage version of their definition. Then remove the other versions "
        "from status.storedVersions, so that you can remove them from the definition. Other clients may write at the "
        "same time.",
    )
    found.add_argument("resources", nargs="*", metavar="RESOURCE", help="crontabs.example.com, crontabs, ct or CronTab")
    found.add_argument(
        "--all", action="store_true", help="migrate all definitions that have objects in an older version"
    )
    found.add_argument(
        "--rate",
        type=float,
        default=controllers_limits.MIGRATE_RATE,
        metavar="N",
        help="limit of requests per second, 0 for no limit; an object needs one or more (default %(default)g)",
    )
    found.add_argument(
        "--parallel",
        type=int,
        default=controllers_limits.MIGRATE_PARALLEL,
        metavar="N",
        help="concurrent requests (default %(default)d)",
    )
    found.add_argument(
        "--allow-loss",
        action="store_true",
        help="rewrite objects even if they have fields that the schema of the storage version drops",
    )
    found.add_argument(
        "--rewrite",
        action="store_true",
        help="also rewrite objects in the storage version, to encrypt them with a new key",
    )
    access.add_flags(found)
    return found


def run(arguments: Sequence[str]) -> int:
    """Run the command; return 0, or 1 after a failure or an interrupt.

    argparse raises SystemExit(2) for usage errors.
    """
    found = parser()
    options = found.parse_args(list(arguments))
    if bool(options.resources) == options.all:
        found.error("name resources, or use --all")
    if options.rate < 0 or not 1 <= options.parallel <= limits.MIGRATE_MOST_PARALLEL:
        found.error(f"--rate must be at least 0, --parallel from 1 to {limits.MIGRATE_MOST_PARALLEL}")
    settings = Settings(options.rate, options.parallel, options.allow_loss, options.rewrite)
    try:
        api = Api(access.resolve(options, os.environ), "apiext-migrate")
        names = names_of(api, options.resources)
        return _each(names, Migration(api, settings, report_on(sys.stdout)).run)
    except (AccessError, MigrationError, Unreachable) as error:
        print(f"apiext: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("apiext: stopped; run the command again to continue", file=sys.stderr)
    return 1


def _each(names: Sequence[str], migrate: Callable[[str], bool]) -> int:
    failed = False
    for name in names:
        try:
            failed |= not migrate(name)
        except MigrationError as error:
            print(f"apiext: {error}", file=sys.stderr)
            failed = True
    return int(failed)
