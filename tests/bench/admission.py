"""Measure the cost that a webhook in another process, and a policy, add to a write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from apiext.conformance.support.admission import (
    BINDINGS,
    MUTATING,
    POLICIES,
    VALIDATING,
    configured,
    document,
    stored,
    webhook,
)
from apiext.conformance.support.admission_webhook import allow, in_another_process, patch
from tests.bench import wire
from tests.bench.rig import GROUP, PLURAL, Rig, thing

CREATES, BATCHES = 1_000, 3

Row = tuple[str, float, str, float]
"""Workload, figure, unit, goal."""

RULE = {"operations": ["CREATE"], "apiGroups": [GROUP], "apiVersions": ["v1"], "resources": [PLURAL]}
ELSEWHERE = {**RULE, "resources": ["others"]}


def rows(bench: Rig) -> Iterator[Row]:
    """Measure creates without and with webhooks or policies.

    The difference is their cost for the server.
    """
    creates(bench, "warm")
    plain = creates(bench, "plain")  # the best batch, since other work of the machine only increases the time
    with in_another_process(allow=allow, change=patch({"op": "add", "path": "/spec/p57", "value": "hooked"})) as place:
        cases = (
            ("a validating webhook, per review", VALIDATING, webhook("v", place("/allow"), RULE), 250.0),
            ("a mutating webhook without a patch, per review", MUTATING, webhook("m", place("/allow"), RULE), 250.0),
            ("a mutating webhook with a patch, per review", MUTATING, webhook("p", place("/change"), RULE), 0.0),
            ("ten webhooks that are not meant", VALIDATING, webhook("n", place("/allow"), ELSEWHERE), 0.0),
        )
        for name, path, hook, goal in cases:
            hooks = [{**hook, "name": f"h{number}.example.com"} for number in range(10)] if "ten" in name else [hook]
            with configured(bench.api, path, *hooks):
                yield f"POST create, {name}", creates(bench, hook["name"][0]) - plain, "µs CPU", goal
    with policy(bench):
        yield "POST create, a policy of two expressions", creates(bench, "rule") - plain, "µs CPU", 0.0


def creates(bench: Rig, prefix: str, batches: int = BATCHES) -> float:
    """Return the microseconds of server CPU of a create in the fastest batch."""
    found = []
    for batch in range(batches):
        names = [f"{prefix}-{batch}-{number:05}" for number in range(CREATES)]
        requests = [wire.request("POST", bench.path(), thing(name)) for name in names]
        before = bench.cpu()
        run = wire.run(bench.address, iter(requests), 4)
        found.append((bench.cpu() - before) / run.count * 1e6)
    return min(found)


@contextlib.contextmanager
def policy(bench: Rig) -> Iterator[None]:
    """Create a policy with its binding for the block."""
    spec: dict[str, Any] = {
        "matchConstraints": {"resourceRules": [RULE]},
        "validations": [
            {"expression": "object.spec.n00 <= object.spec.n01"},
            {"expression": "size(object.spec) < 200"},
        ],
    }
    with stored(bench.api, POLICIES, document(POLICIES, "bench", spec=spec)):
        bound = {"policyName": "bench", "validationActions": ["Deny"]}
        with stored(bench.api, BINDINGS, document(BINDINGS, "bench", spec=bound)):
            yield
