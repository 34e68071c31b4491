"""Set-up of the audit log from flags and files, and the errors of invalid files."""

from __future__ import annotations

from pathlib import Path

import pytest

from apiext.audit.auditor import build
from apiext.config import AuditConfig, ConfigError
from apiext.webhooks.client import Client

pytestmark = pytest.mark.rows("AUD-001")


@pytest.mark.parametrize("wrong", ["since: 2026-13-45", "a: [", "a: *b"])
def test_invalid_kubeconfig_error_names_flag_and_file(tmp_path: Path, wrong: str) -> None:
    policy, webhook = tmp_path / "policy.yaml", tmp_path / "webhook.yaml"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
    webhook.write_text(f"{wrong}\n")
    given = AuditConfig(policy_file=str(policy), webhook_file=str(webhook))
    with pytest.raises(ConfigError, match=f"^--audit-webhook-config-file {webhook}: [^/]"):
        build(given, Client(), print)
