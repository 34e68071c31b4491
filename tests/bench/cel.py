"""Measure CEL: compilation, evaluation, time for each unit of cost, import of the engine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean

from apiext.cel.declared import Declared
from apiext.cel.environment import Environment, Program
from apiext.documents.document import Document
from apiext.schema.compile import compile_schema
from apiext.schema.definitions import definition_errors
from apiext.schema.work_budget import within_loop_budget
from tests.bench.schemas import Row

TEXT = Declared("string", max_elements=64)
NUMBER = Declared("int")
VARIABLE = {"name": TEXT, "value": TEXT}
LISTENER = {"name": TEXT, "port": NUMBER, "protocol": TEXT, "hostname": TEXT}
FIELDS = {
    "minReplicas": NUMBER,
    "replicas": NUMBER,
    "maxReplicas": NUMBER,
    "health": TEXT,
    "counts": Declared("map", element=NUMBER, max_elements=10),
    "names": Declared("list", element=TEXT, max_elements=16),
    "envars": Declared("list", element=Declared("object", "T.envars", VARIABLE, VARIABLE), max_elements=16),
    "listeners": Declared("list", element=Declared("object", "T.listeners", LISTENER, LISTENER), max_elements=16),
}
OBJECT = {
    "minReplicas": 1,
    "replicas": 5,
    "maxReplicas": 10,
    "health": "ok so far",
    "counts": {f"n{number}": number for number in range(10)},
    "names": [f"n{number}" for number in range(10)],
    "envars": [{"name": "MY_ENV" if number % 5 == 0 else f"E{number}", "value": "abc"} for number in range(10)],
    "listeners": [
        {"name": f"l{number}", "port": 80 + number, "protocol": "HTTP", "hostname": f"h{number}.example.com"}
        for number in range(8)
    ],
}
SCALAR = (
    "self.minReplicas <= self.replicas && self.replicas <= self.maxReplicas",
    "'n3' in self.counts",
    "self.health.startsWith('ok')",
    "self.replicas >= oldSelf.replicas",
)
LISTS = (
    "self.envars.filter(e, e.name == 'MY_ENV').all(e, e.value.matches('^[a-zA-Z]*$'))",
    "size(self.names) == size(self.counts) && self.names.all(n, n in self.counts)",
    "self.envars.all(e, e.name != '' && size(e.value) < 10)",
)
QUADRATIC = (
    "self.listeners.all(l, self.listeners.exists_one(m, m.port == l.port && m.protocol == l.protocol"
    " && m.hostname == l.hostname))"
)
IMPORT = """
import resource, sys, time
size = lambda: int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
import dataclasses, re, threading, typing  # what any server has
before, began = size(), time.process_time()
import apiext.cel.environment, apiext.cel.generate
print((time.process_time() - began) * 1e3, (size() - before) / 1e6)
"""


def best(work: Callable[[], object], rounds: int, times: int) -> float:
    """Return the seconds of a call in the fastest of ``rounds`` rounds with ``times`` calls."""
    found = 1e9
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(times):
            work()
        found = min(found, (time.perf_counter() - began) / times)
    return found


def _program(environment: Environment, rule: str) -> Program:
    made = environment.compile(rule)
    assert isinstance(made, Program), made.text
    return made


def rows() -> Iterator[Row]:
    """Measure rules on an object of 1.7 KB in this process; each evaluation counts its cost."""
    whole = Declared("object", "T", FIELDS, FIELDS)
    environment = Environment({"self": whole, "oldSelf": whole})
    rules = (*SCALAR, *LISTS, QUADRATIC)
    variables = {"self": OBJECT, "oldSelf": OBJECT}

    def write(rule: str) -> None:
        environment.estimate(_program(environment, rule).checked)

    took = [best(lambda it=rule: write(it), 5, 10) for rule in rules]  # type: ignore[misc]
    yield "CEL: parse, check and estimate of a rule, mean", fmean(took) * 1e3, "ms", 0.4
    took = []
    for rule in rules:
        fresh = [_program(environment, rule) for _ in range(5)]
        costs = iter([*fresh])
        took.append(best(lambda it=costs: next(it).evaluate(variables), 5, 1))  # type: ignore[misc]
    yield "CEL: first evaluation of a rule (generates code), mean", fmean(took) * 1e3, "ms", 0.3
    spent, units = 0.0, 0
    for name, group, goal in (("scalar rule", SCALAR, 0.6), ("rule over 10 items", LISTS, 6.0)):
        took = []
        for rule in group:
            seconds, cost = _evaluation(_program(environment, rule), variables)
            took.append(seconds)
            spent, units = spent + seconds, units + cost
        yield f"CEL: {name}, mean", fmean(took) * 1e6, "µs", goal
    seconds, cost = _evaluation(_program(environment, QUADRATIC), variables)
    yield f"CEL: 8 × 8 quadratic rule ({cost} units)", seconds * 1e6, "µs", 30.0
    yield "CEL: a unit of cost, over those rules", (spent + seconds) / (units + cost) * 1e9, "ns", 60.0
    schema = _definition(100)
    assert definition_errors(schema, "S") == []
    yield (
        "CEL: a definition of 100 rules validated",
        best(lambda: definition_errors(schema, "S"), 3, 1) * 1e3,
        "ms",
        40.0,
    )
    compiled = compile_schema(_definition(13))
    document = {"spec": {f"p{number}": f"text {number}" for number in range(10)}}
    assert compiled.rules(document, None) == ([], [])
    took_all = best(lambda: within_loop_budget(compiled.rules, document, None), 10, 50)  # as requests do
    yield "CEL: 13 rules on an object, with the walk to them", took_all * 1e6, "µs", 80.0
    imports = _imports(3)
    yield "CEL: import of the engine", min(it[0] for it in imports), "ms CPU", 25.0
    yield "CEL: import of the engine, memory", min(it[1] for it in imports), "MB", 5.0


def _evaluation(program: Program, variables: Mapping[str, object]) -> tuple[float, int]:
    """Return the seconds and the cost of an evaluation that succeeds."""
    found = program.evaluate(variables)
    assert found.value is True, found
    return best(lambda: program.evaluate(variables), 20, 200), found.cost


def _imports(times: int) -> list[tuple[float, float]]:
    """Return the CPU milliseconds and megabytes that new interpreters need for the engine.

    The engine is compiled to bytecode.
    """
    found = []
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": directory, "PYTHONDONTWRITEBYTECODE": ""}
        command = [sys.executable, "-c", IMPORT]
        for _ in range(times + 1):  # the first run writes the bytecode
            told = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()
            found.append((float(told[0]), float(told[1])))
    return found[1:]


def _definition(rules: int) -> Document:
    """Return a schema with this number of rules about ten fields."""
    names = [f"p{number}" for number in range(10)]
    entries = [
        {"rule": f"self.{names[n % 10]} != 'x{n}' && size(self.{names[(n + 1) % 10]}) < {n + 10}"} for n in range(rules)
    ]
    fields = {name: {"type": "string", "maxLength": 20} for name in names}
    spec = {"type": "object", "properties": fields, "x-kubernetes-validations": entries}
    return {"type": "object", "properties": {"spec": spec}}
