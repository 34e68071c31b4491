"""Tables of the etcd client: errors, versions and endpoints."""

from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import read as read_yaml
from apiext.etcd import errors, versions
from apiext.etcd.errors import EtcdError
from apiext.etcd.lineage import Lineage
from apiext.etcd.transport import Endpoint, parse_endpoint

CASES = Path(__file__).parent / "cases"


def load(name: str) -> list[dict[str, Any]]:
    return list(read_yaml(CASES / name))


@pytest.mark.parametrize("case", load("errors.yaml"), ids=lambda case: f"{case['code']} {case['text']}")
def test_errors_are_classified_by_code_and_text(case: dict[str, Any]) -> None:
    error = EtcdError(case["code"], case["text"])
    fault = errors.classify(error)
    assert type(fault).__name__ == case["kind"]
    assert (fault.code, fault.message, fault.sent) == (case["code"], case["text"], True)
    assert errors.is_transient(error) is case["again"]
    assert errors.stale_token(error) is case["login"]
    assert errors.classify(fault) is fault


def test_unsent_calls_are_always_retried() -> None:
    assert errors.is_transient(EtcdError(13, "anything", sent=False))


@pytest.mark.parametrize("case", load("versions.yaml"), ids=lambda case: case["text"])
def test_progress_support_depends_on_server_version(case: dict[str, Any]) -> None:
    version = versions.parse_version(case["text"])
    assert versions.orders_progress(version) is case["progress"]


ENDPOINTS = {
    "http://etcd:2379": Endpoint("http", "etcd", 2379),
    "https://etcd": Endpoint("https", "etcd", 2379),
    "127.0.0.1:4001": Endpoint("http", "127.0.0.1", 4001),
    "http://[::1]:2379": Endpoint("http", "::1", 2379),
    "unix:///run/etcd.sock:0": Endpoint("unix", path="/run/etcd.sock:0"),
    "unix:/run/etcd.sock": Endpoint("unix", path="/run/etcd.sock"),
}


@pytest.mark.parametrize("text", ENDPOINTS)
def test_endpoints_are_parsed(text: str) -> None:
    assert parse_endpoint(text) == ENDPOINTS[text]


def test_endpoints_are_formatted() -> None:
    assert str(parse_endpoint("http://[::1]:2379")) == "http://[::1]:2379"
    assert str(parse_endpoint("unix:///run/a")) == "unix:///run/a"
    assert parse_endpoint("unix:///run/a").authority == "localhost"


def test_lineage_accepts_responses_in_any_order() -> None:
    lineage = Lineage()
    assert lineage.compare(1, 2, 10, floor=0, era=0) is None
    lineage.observe(20)
    assert lineage.compare(1, 2, 15, floor=10, era=0) is None  # requested before 20 was known
    assert lineage.revision == 20
    assert lineage.compare(1, 3, 21, floor=20, era=0) is None
    assert (lineage.term, lineage.revision) == (3, 21)


def test_lineage_starts_over_in_a_replaced_store() -> None:
    lineage = Lineage()
    lineage.compare(1, 5, 100, floor=0, era=lineage.era)
    assert "went back from revision 100 to 99" in str(lineage.compare(1, 5, 99, floor=100, era=lineage.era))
    assert lineage.compare(1, 5, 99, floor=lineage.revision, era=lineage.era) is None
    assert "raft term" in str(lineage.compare(1, 4, 500, floor=99, era=lineage.era))
    assert "another cluster" in str(lineage.compare(2, 9, 1000, floor=500, era=lineage.era))
    assert lineage.compare(2, 9, 1000, floor=1000, era=lineage.era) is None


def test_lineage_reports_a_reset_store_once() -> None:
    lineage = Lineage()
    lineage.compare(1, 5, 100, floor=0, era=0)
    assert lineage.wrote(101, floor=100, era=0) is None
    assert "went back from revision 101: a write made 97" in str(lineage.wrote(97, floor=101, era=0))
    assert lineage.wrote(98, floor=101, era=0) is None  # sent before the reset was known
    assert lineage.compare(1, 5, 99, floor=101, era=0) is None  # requested before the reset was known, too
    assert (lineage.revision, lineage.era) == (99, 1)
    assert "a write made 99" in str(lineage.wrote(99, floor=99, era=1))
