"""The files of contrib/ use the server's metrics and flags, and are valid for their tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.processes import ROOT

CONTRIB = ROOT / "contrib"
RULES, DASHBOARD = CONTRIB / "prometheus" / "apiext.rules.yaml", CONTRIB / "grafana" / "apiext.json"
UNIT, MANIFEST = CONTRIB / "systemd" / "apiext.service", CONTRIB / "kubernetes" / "apiext.yaml"
METRIC = re.compile(r"\b(?:apiext|apiserver|etcd|process)_[a-z_]+")


def expressions() -> Iterator[str]:
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])
    yield from (it["query"]["query"] for it in board["templating"]["list"] if it["type"] == "query")


def test_each_metric_of_alerts_and_dashboard_exists() -> None:
    named = {re.sub(r"_(?:bucket|count|sum)$", "", it) for text in expressions() for it in METRIC.findall(text)}
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "apiext").rglob("*.py"))
    assert len(named) > 15
    assert {it for it in named if f'"{it}"' not in sources} == set()


def test_each_alert_names_its_instance_and_severity() -> None:
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 8
    for rule in rules:
        assert "$labels.instance" in rule["annotations"]["summary"], rule["alert"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


def test_panels_do_not_overlap() -> None:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("path", [UNIT, MANIFEST], ids=lambda path: path.name)
def test_each_flag_of_unit_and_manifest_exists(path: Path) -> None:
    known = "\n".join(it.read_text(encoding="utf-8") for it in (ROOT / "apiext").rglob("*.py"))
    text = "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    flags = set(re.findall(r"(?<=[\s\"])--([a-z][a-z-]+)", text))
    assert flags
    assert {it for it in flags if f'"--{it}"' not in known and f'"{it}"' not in known} == set()


def test_pod_of_manifest_is_unprivileged() -> None:
    _, workload = yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
    pod = workload["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    claims = {it["metadata"]["name"] for it in workload["spec"]["volumeClaimTemplates"]}
    assert {it["name"] for it in container["volumeMounts"]} == claims


def test_alerts_use_the_scraped_job() -> None:
    scrape = yaml.safe_load((RULES.parent / "prometheus.yml").read_text(encoding="utf-8"))
    [job] = scrape["scrape_configs"]
    assert set(re.findall(r'job="([^"]+)"', RULES.read_text(encoding="utf-8"))) == {job["job_name"]}
    assert scrape["rule_files"] == [RULES.name]
    assert job["scheme"] == "https"


def test_promtool_accepts_the_alerts() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not on this machine")
    told = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def test_systemd_rates_the_service_as_confined() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine")
    asked = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=30", UNIT]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout[-200:] + told.stderr
