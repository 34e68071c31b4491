"""Rules of this project that no other tool checks."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest
import yaml

from tests.support.behaviour import all_rows, shown_in
from tests.support.plain_words import phrases
from tests.support.shared import ROOT

PACKAGE = ROOT / "apiext"
FIRST_LINE = 90  # characters
GENERATED = "pb"
# A tag has several words; a single word is the name of an upstream constant.
UPSTREAM = re.compile(r"# upstream: (\S+ .+)")
# A path that exists only on the machine of a developer.
MACHINE = re.compile(r"(?<![\w.$}\])/-])/(?:root|home|Users|work|mnt|workspace)/\w")


def listed(*patterns: str) -> list[str]:
    """Return the project's files, committed or untracked, from git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    if shutil.which("git") is None:
        pytest.skip("no git here: the files of the project are not known")
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if told.returncode:
        pytest.skip("not a git checkout: the files of the project are not known")
    return [name for name in told.stdout.splitlines() if (ROOT / name).is_file()]


def modules() -> Iterator[Path]:
    """Yield the hand-written modules of the package and of the tests."""
    for top in (PACKAGE, ROOT / "tests"):
        yield from (path for path in sorted(top.rglob("*.py")) if GENERATED not in path.parts)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _fields(node: ast.ClassDef) -> int:
    """Count the fields of a class: its annotated names, and the attributes that __init__ sets."""
    names = {it.target.id for it in node.body if isinstance(it, ast.AnnAssign) and isinstance(it.target, ast.Name)}
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            names |= {
                it.attr
                for it in ast.walk(method)
                if isinstance(it, ast.Attribute)
                and isinstance(it.ctx, ast.Store)
                and isinstance(it.value, ast.Name)
                and it.value.id == "self"
            }
    return len(names)


def _sizes() -> Iterator[tuple[str, int, str]]:
    """Yield (kind, size, name) of each module, function and class of the package.

    The size of a module or function is in lines, and that of a class in fields.
    """
    for path in modules():
        if PACKAGE not in path.parents or PACKAGE / "conformance" in path.parents:
            continue
        text = path.read_text(encoding="utf-8")
        yield "lines of a module", len(text.splitlines()), name_of(path)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                yield "lines of a function", node.end_lineno - node.lineno + 1, f"{name_of(path)}:{node.name}"
            elif isinstance(node, ast.ClassDef):
                yield "fields of a class", _fields(node), f"{name_of(path)}:{node.name}"


def test_the_largest_parts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Print the largest modules, functions and classes, which may have to be divided.

    There is no limit.
    """
    sizes = list(_sizes())
    with capsys.disabled():
        for kind in ("lines of a module", "lines of a function", "fields of a class"):
            largest = sorted((row[1:] for row in sizes if row[0] == kind), reverse=True)[:10]
            assert len(largest) == 10
            print(f"\nlargest by {kind}:", *(f"{size:>5}  {name}" for size, name in largest), sep="\n")


def test_package_init_files_hold_only_a_docstring() -> None:
    for path in sorted(PACKAGE.rglob("__init__.py")):
        if GENERATED in path.parts:
            continue
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert body, f"{name_of(path)} is empty: one sentence says what the package is"
        assert isinstance(body[0], ast.Expr), f"{name_of(path)} has no docstring"
        kept = [
            node for node in body[1:] if not isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign)
        ]
        lazy = any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in kept)  # with types
        assert not kept or (lazy and len(kept) == 2), f"{name_of(path)} holds code"


def test_the_architecture_names_each_package() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert not {name for name in packages if f"`{name}`" not in text}


def test_the_architecture_stays_short() -> None:
    lines = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 250, "at most four pages: what changes rarely"


def test_the_architecture_names_modules_that_exist() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+\w+\.(?:py|yaml))`", text))
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).is_file() and not (PACKAGE / name).is_file()]


def test_the_architecture_quotes_the_write_loop() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    quoted = textwrap.dedent(text.partition("```python\n")[2].partition("```")[0])
    module = ast.parse((PACKAGE / "verbs" / "commit.py").read_text(encoding="utf-8"))
    loop = next(node for node in module.body if isinstance(node, ast.AsyncFunctionDef) and node.name == "commit")
    loop.body = loop.body[1:]  # without its docstring
    assert ast.unparse(ast.parse(quoted)) == ast.unparse(loop)
    assert len(quoted.splitlines()) <= 30, "one screen"


def test_each_script_is_listed_in_the_readme() -> None:
    text = (ROOT / "scripts" / "README.md").read_text(encoding="utf-8")
    scripts = [path.name for path in (ROOT / "scripts").iterdir() if path.is_file() and path.suffix != ".md"]
    assert not [name for name in scripts if f"`{name}`" not in text]


def test_decisions_are_numbered_and_state_their_price() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [page.name[:4] for page in pages] == [f"{number:04}" for number in range(1, len(pages) + 1)]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for heading in ("## Context", "## Decision", "## Price"):
            assert heading in text, f"{page.name} has no {heading}"


@pytest.mark.parametrize("name", ["gen_proto.py", "gen_limits.py", "gen_reference.py"])
def test_generated_files_are_fresh(name: str) -> None:
    script = ROOT / "scripts" / name
    told = subprocess.run(
        [sys.executable, str(script), "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr


def test_compatibility_tags_have_cases() -> None:
    tags = {
        (name_of(path), found[1].strip())
        for path in modules()
        if PACKAGE in path.parents
        for found in UPSTREAM.finditer(path.read_text(encoding="utf-8"))
    }
    cases = "\n".join(
        path.read_text(encoding="utf-8")
        for top in (ROOT / "tests", PACKAGE / "conformance")
        for path in top.rglob("*")
        if path.suffix in (".py", ".yaml") and path.name != "test_house.py" and "reference" not in path.parts
    )
    assert not {tag for tag in tags if tag[1] not in cases}


def test_files_contain_no_machine_names() -> None:
    found = []
    for name in listed():
        path = ROOT / name
        if path.suffix in (".binpb", ".png") or path == Path(__file__) or "reference" in path.parts:
            continue
        found += [
            f"{name}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
            if MACHINE.search(line)
        ]
    assert not found


def _texts() -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each hand-written file of the project."""
    for name in listed("*.py", "*.pyi", "*.yaml", "*.yml", "*.md", "*.toml", "*.sh", "scripts/*", "contrib/*"):
        if "/reference/" not in name and f"/{GENERATED}/" not in name and name != name_of(Path(__file__)):
            yield name, (ROOT / name).read_text(encoding="utf-8", errors="replace")


def test_each_cited_behaviour_has_its_row() -> None:
    families = "|".join(sorted({row.rpartition("-")[0] for row in all_rows()}))
    cited = re.compile(rf"(?<![\w-])(?:{families})-\d+(?:(?:…|\.\.)\d+)?\b")
    unknown = set[str]()
    for name, text in _texts():
        for found in cited.findall(text):
            family, _, numbers = found.rpartition("-")
            ends = {f"{family}-{number}" for number in re.split(r"…|\.\.", numbers)}
            unknown |= {f"{name}: {row}" for row in ends - all_rows()}
    assert not unknown


def test_behaviours_name_existing_tests_that_cite_them() -> None:
    wrong = []
    for row, tests in shown_in().items():
        cites = re.compile(rf"(?<![\w-]){row}\b")
        wrong += [
            f"{row}: {test}"
            for test in tests
            if not (ROOT / test).is_file() or not cites.search((ROOT / test).read_text(encoding="utf-8"))
        ]
    assert not wrong, "docs/BEHAVIOUR.md names tests that are not there, or are not marked with the row"


DIFFERENCE = re.compile(r"^\| (DIF-\d{3}) \| (.+) \| (?:`([^`]+)`|-) \|$", re.M)


def test_differences_have_unique_numbers_and_existing_tests() -> None:
    page = (ROOT / "docs" / "DIFFERENCES.md").read_text(encoding="utf-8")
    rows = DIFFERENCE.findall(page)
    lines = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    assert len(rows) == len(lines), [line for line in lines if not DIFFERENCE.fullmatch(line)]
    numbers = [number for number, _, _ in rows]
    assert len(set(numbers)) == len(numbers), "a number is never used twice"
    assert not [(number, test) for number, _, test in rows if test and not (ROOT / test).is_file()]
    assert len(DIFFERENCE.findall(page.partition("## Missing features")[0])) <= 15, "the first group is a screen"
    cited = {found for name, text in _texts() if "DIFFERENCES" not in name for found in re.findall(r"DIF-\d{3}", text)}
    assert not cited - set(numbers)


def test_the_changelog_has_the_form_of_keepachangelog() -> None:
    page = (ROOT / "docs" / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## (.+)$", page, re.M)
    assert releases[0] == "[Unreleased]", "scripts/release writes its heading below this one"
    assert not [name for name in releases[1:] if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", name)]
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", page, re.M)) <= kinds
    changes = re.split(r"^(?=- |#)", page, flags=re.M)
    assert not [it for it in changes if it.startswith("- ") and it.rstrip().count("\n") > 1], (
        "a change is a line or two"
    )


OURS_AND_STANDARDS = {"DIF", "UTF", "DNS", "P", "SHA", "KEP", "RFC", "ISO"}
"""Prefixes of numbers of our differences, and of published standards."""
CODE = re.compile(r"(?<![\w/.%-])([A-Z][A-Z0-9]{0,3})-\d{1,4}(?![\w-])")
PAGE = re.compile(r"(?<![\w/.*-])(?:[\w.*-]+/)*([\w*-]+\.md)\b|(§)")


def _references_outside(name: str, text: str, pages: set[str]) -> Iterator[str]:
    """Yield references to pages and numbers of neither the project nor a published standard."""
    families = {row.rpartition("-")[0] for row in all_rows()} | OURS_AND_STANDARDS
    for number, line in enumerate(re.sub(r"https?://\S+", "", text).splitlines(), 1):
        found = [it[0] for it in CODE.finditer(line) if it[1] not in families]
        found += [it[0] for it in PAGE.finditer(line) if it[2] or ("*" not in it[1] and it[1] not in pages)]
        yield from (f"{name}:{number}: {it}" for it in found)


def test_checker_finds_references_outside_the_repository() -> None:
    text = (
        "see storage.md §3\n(reliability F-13)\ndocs/BEHAVIOUR.md, WRI-001, DIF-001, KEP-2896\nhttps://a.io/x.md UTF-8"
    )
    assert list(_references_outside("x", text, {"BEHAVIOUR.md"})) == ["x:1: storage.md", "x:1: §", "x:2: F-13"]


def test_files_refer_to_no_document_outside_the_repository() -> None:
    found = []
    pages = {Path(it).name for it in listed("*.md")}
    for name, text in _texts():
        if name.endswith((".py", ".md")):
            found += list(_references_outside(name, text, pages))
    assert not found


def test_compose_file_defines_etcd_and_server() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    etcd, server = compose["services"]["etcd"], compose["services"]["apiext"]
    assert etcd["healthcheck"]["test"][0] == "CMD", "the etcd image has no shell: the exec form is needed"
    assert server["depends_on"]["etcd"]["condition"] == "service_healthy"
    assert server["healthcheck"]["test"][:3] == ["CMD", "apiext", "check"]
    assert server["read_only"] is True
    assert "--etcd-servers=http://etcd:2379" in server["command"]
    volumes = {volume.split(":")[0] for service in (etcd, server) for volume in service["volumes"]}
    assert volumes == set(compose["volumes"])


def test_the_image_runs_as_a_numeric_user() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    user = re.findall(r"^USER (\d+)", dockerfile, re.M)
    assert user, "the image runs as a numeric user"
    assert int(user[-1]) > 0


def _compose() -> list[str]:
    """Return the command for compose files on this machine, empty if there is none."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if (
            shutil.which(command[0])
            and not subprocess.run([*command, "version"], capture_output=True, check=False).returncode
        ):
            return command
    return []


def test_docker_compose_accepts_the_file(tmp_path: Path) -> None:
    command = _compose()
    if not command:
        pytest.skip("docker compose is not on this machine")
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    if command == ["docker-compose"]:  # version 1, which does not support start_interval
        text = re.sub(r"^ +start_interval: .*\n", "", text, flags=re.M)
    (tmp_path / "docker-compose.yml").write_text(text, encoding="utf-8")
    asked = [*command, "--file", str(tmp_path / "docker-compose.yml"), "config", "--quiet"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr


def _chosen(directory: Path, interpreters: dict[str, str], python: str = "") -> subprocess.CompletedProcess[str]:
    """Run ``scripts/setup python`` with a PATH of these interpreters.

    ``interpreters`` is name → the output for its build options.
    """
    for name, built in interpreters.items():
        told = f"echo {built}" if built else "exit 1"
        (directory / name).write_text(f"#!/bin/sh\n{told}\n", encoding="utf-8")
        (directory / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}", "PYTHON": python}
    command = [ROOT / "scripts" / "setup", "python"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("interpreters", "python", "chosen"),
    [
        ({"python3": "profiled", "python3.13": "profiled"}, "", "python3"),
        ({"python3": "plain", "python3.13": "", "python3.12": "profiled"}, "", "python3.12"),
        ({"python3": "", "python3.13": "profiled"}, "", "python3.13"),
        ({"python3": "new", "python3.14": "", "python3.13": "", "python3.12": "profiled"}, "", "python3.12"),
        ({"python3": "profiled", "mine": "plain"}, "mine", "mine"),
        ({"python3": "profiled", "mine": "new"}, "mine", "mine"),
        ({"python3": "profiled", "mine": ""}, "mine", ""),
    ],
    ids=[
        "first",
        "profiled before plain",
        "suitable",
        "known before new",
        "asked for",
        "new, asked for",
        "asked for in vain",
    ],
)
def test_the_environment_is_made_with_a_fast_interpreter(
    tmp_path: Path, interpreters: dict[str, str], python: str, chosen: str
) -> None:
    told = _chosen(tmp_path, interpreters, python)
    assert told.stdout.strip() == chosen
    assert (told.returncode == 0) == bool(chosen), told.stderr
    assert bool(chosen) or "PYTHON=" in told.stderr


def _patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield (name, pattern) of the module-level patterns of the package."""
    for found in pkgutil.walk_packages([str(PACKAGE)], "apiext."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            yield from ((f"{found.name}.{name}", it) for name, it in vars(module).items() if isinstance(it, re.Pattern))


def _repeats_a_group_possessively(part: Any) -> bool:
    """Report whether a parsed pattern, or a part of it, repeats a group possessively."""
    if isinstance(part, parser.SubPattern | list | tuple):
        if len(part) == 2 and part[0] is sre.ATOMIC_GROUP:
            return True
        if len(part) == 2 and part[0] is sre.POSSESSIVE_REPEAT:
            body = part[1][2]
            return len(body) != 1 or body[0][0] not in (sre.IN, sre.LITERAL, sre.NOT_LITERAL, sre.ANY)
        return any(_repeats_a_group_possessively(it) for it in part)
    return False


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Before Python 3.11.5 (Debian has 3.11.2) such a pattern may match a part of a repetition."""
    assert _repeats_a_group_possessively(parser.parse("(?:ab?c)*+"))
    assert not _repeats_a_group_possessively(parser.parse("[ab]*+c++(?:a*)*"))
    patterns = list(_patterns())
    assert len(patterns) > 50
    assert not [
        name for name, it in patterns if _repeats_a_group_possessively(parser.parse(it.pattern, it.flags & ~re.DEBUG))
    ]


# --- clocks ---

WALL = {"time", "time_ns"}  # of the module time
DATES = {"now", "utcnow", "today"}  # of datetime and date
UNLESS_GIVEN = {
    "time.gmtime": 1, "time.localtime": 1, "time.ctime": 1, "time.asctime": 1, "time.strftime": 2,
    "email.utils.formatdate": 1, "email.utils.localtime": 1,
}  # fmt: skip
"""Function → number of arguments; with fewer arguments it reads the wall clock."""
TIMERS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time"}
OURS = {"apiext.meta.time.now", "apiext.auth.certificates.now"}  # functions that return the time of the wall clock
HOLDS = {"own", "from and until"}
"""The allowed words in tests/clocks.yaml: "own", the value belongs to one request; "from and until", its validity
period."""


class _Clocks(ast.NodeVisitor):
    """Finds the functions of a module that read the wall clock, and the timers that it uses."""

    def __init__(self) -> None:
        self.wall: set[str] = set()
        self.timers: set[str] = set()
        self._names: dict[str, str] = {}  # name in the module → full name, such as time.monotonic
        self._within: list[str] = []

    def visit_Import(self, node: ast.Import) -> None:
        self._names |= {it.asname or it.name: it.name for it in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._names |= {it.asname or it.name: f"{node.module}.{it.name}" for it in node.names}

    def _enter(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._within.append(node.name)
        self.generic_visit(node)
        self._within.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _enter  # noqa: N815 - names of ast

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read(self._names.get(node.id, ""))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id in self._names:
            self._read(f"{self._names[node.value.id]}.{node.attr}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        module, _, function = ast.unparse(node.func).rpartition(".")
        known = f"{self._names.get(module)}.{function}" if module else self._names.get(function, "")
        if len(node.args) < UNLESS_GIVEN.get(known, 0):
            self._add_wall()
        elif function == "time" and module and not node.args and known != "time.time":
            self.timers.add("loop.time")
        self.generic_visit(node)

    def _read(self, what: str) -> None:
        module, _, name = what.rpartition(".")
        if module == "time" and name in TIMERS:
            self.timers.add(name)
        elif (
            (module == "time" and name in WALL)
            or (module in {"datetime.datetime", "datetime.date"} and name in DATES)
            or what in OURS
        ):
            self._add_wall()

    def _add_wall(self) -> None:
        self.wall.add(".".join(self._within))


def _clocks_of(text: str) -> _Clocks:
    found = _Clocks()
    found.visit(ast.parse(text))
    return found


def test_checker_finds_readers_of_clocks() -> None:
    found = _clocks_of(
        "import time\nfrom time import monotonic as m, time as t\nfrom datetime import datetime\n"
        "from apiext.meta import time as words\nfrom apiext.meta.time import now\nfrom email.utils import formatdate\n"
        "def a(clock=time.time): ...\ndef b(): m()\ndef c(): t()\ndef d(): datetime.now()\ndef e(): words.now()\n"
        "def f(): now()\ndef g(): time.gmtime()\ndef h(): time.gmtime(5)\ndef i(loop): loop.time()\n"
        "class J:\n def j(self): formatdate()\ndef k(): formatdate(5)\ndef l(): time.sleep(1)\n"
    )
    assert found.wall == {"a", "c", "d", "e", "f", "g", "J.j"}
    assert found.timers == {"monotonic", "loop.time"}


def test_each_reader_of_a_clock_is_listed() -> None:
    """tests/clocks.yaml lists each value that depends on the wall clock.

    Such a value belongs to one request or has a validity period. A clock may be set back or stop; then a cached value
    that has only an end would be wrong.
    """
    listed_clocks = yaml.safe_load((ROOT / "tests" / "clocks.yaml").read_text(encoding="utf-8"))
    found = set[str]()
    for path in modules():
        if PACKAGE in path.parents and PACKAGE / "conformance" not in path.parents:
            clocks = _clocks_of(path.read_text(encoding="utf-8"))
            found |= {f"wall: {name_of(path)}: {function}" for function in clocks.wall}
            found |= {f"timers: {timer}: {name_of(path)}" for timer in clocks.timers}
    wall = {f"wall: {name}: {row}": said for name, rows in listed_clocks["wall"].items() for row, said in rows.items()}
    rows = {*wall, *(f"timers: {timer}: {name}" for timer, names in listed_clocks["timers"].items() for name in names)}
    assert not found - rows, f"add to tests/clocks.yaml: {sorted(found - rows)}"
    assert not rows - found, f"take out of tests/clocks.yaml: {sorted(rows - found)}"
    wrong = [row for row, said in wall.items() if len(said) != 1 or not HOLDS.issuperset(said)]
    assert not wrong, f"one of {sorted(HOLDS)} with a reason: {wrong}"


def test_each_limit_is_used() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "apiext").rglob("*.py"))
    used = set(re.findall(r"\b(?:\w+_)?limits\.([A-Z][A-Z0-9_]*)", text))
    limits = {
        name
        for path in (ROOT / "apiext").rglob("limits.py")
        for name in re.findall(r"^([A-Z][A-Z0-9_]*) = ", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert limits - used == set()


def test_prose_names_actors_and_nouns() -> None:
    found = []
    for name in listed("*.py", "*.md", "scripts/*", "apiext/go_types/types/*.yaml"):
        if GENERATED not in Path(name).parts:
            found += [str(it) for it in phrases(ROOT / name)]
    assert not found


def test_first_lines_of_docstrings_are_short() -> None:
    long = []
    for name in listed("*.py"):
        for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                first = (ast.get_docstring(node) or "").partition("\n")[0]
                if len(first) > FIRST_LINE:
                    long.append(f"{name}:{getattr(node, 'lineno', 1)}: {first}")
    assert not long


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ('def f():\n    """Ask who waits."""\n', "Ask who waits."),
        ("# What is stored. Fine.\n", "What is stored."),
        ('def f():\n    """Tell whether it holds."""\n', "Tell whether it holds."),
        ("x = 1  # for ever\n", "for ever"),
        ('def f():\n    return "judged"\n', None),
        ('log.warning(f"{n} others wait")\n', "… others wait"),
        ('add("--x", help="tell what a client sent")\n', "tell what a client sent"),
        ('raise Invalid("what is wrong")\n', None),
        ('# the header that says "who" it is, and `what is stored`\n', None),
    ],
)
def test_checker_finds_unclear_phrases(source: str, sentence: str | None, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(source, encoding="utf-8")
    assert [it.sentence for it in phrases(path)] == ([] if sentence is None else [sentence])
