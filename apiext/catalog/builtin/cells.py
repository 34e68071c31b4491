"""Cells of built-in kinds' tables that are no plain field."""

from typing import Any

from apiext.documents.document import View


def webhooks(document: View) -> int:
    """Return the number of webhooks."""
    return len(document.get("webhooks") or ())


def validations(document: View) -> int:
    """Return the number of validations of a policy."""
    return len((document.get("spec") or {}).get("validations") or ())


def mutations(document: View) -> int:
    """Return the number of mutations of a policy."""
    return len((document.get("spec") or {}).get("mutations") or ())


def param_kind(document: View) -> str:
    """Return the kind of a policy's parameters."""
    kind = (document.get("spec") or {}).get("paramKind")
    return f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else "<unset>"


def param_ref(document: View) -> str:
    """Return which parameters a binding takes: by their name, or by a selector as Go prints one."""
    reference: dict[str, Any] | None = (document.get("spec") or {}).get("paramRef")
    if not reference:
        return "<unset>"
    if reference.get("name"):
        return f"{reference.get('namespace') or '*'}/{reference['name']}"
    return "<unset>" if reference.get("selector") is None else _go_selector(reference["selector"])


def _go_selector(selector: View) -> str:
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{one.get('key', '')},Operator:{one.get('operator', '')},"
        f"Values:[{' '.join(one.get('values') or ())}],}},"
        for one in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


# --- core ---


def data(document: View) -> int:
    """Return how many entries a secret or a configuration has."""
    return len(document.get("data") or ()) + len(document.get("binaryData") or ())


def _spec(document: View) -> dict[str, Any]:
    return document.get("spec") or {}


def cluster_ip(document: View) -> str:
    """Return the address of a service, as kubectl shows one without."""
    return _spec(document).get("clusterIP") or "<none>"


def external_ip(document: View) -> str:
    """Return the addresses of a service from outside."""
    spec = _spec(document)
    if spec.get("type") == "ExternalName":
        return spec.get("externalName") or "<none>"
    ingress = ((document.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    balanced = [point.get("ip") or point.get("hostname") or "" for point in ingress]
    found = [*(one for one in balanced if one), *(spec.get("externalIPs") or ())]
    if found:
        return ",".join(found)
    return "<pending>" if spec.get("type") == "LoadBalancer" else "<none>"


def ports(document: View) -> str:
    """Return the ports of a service: 80/TCP, 80:30080/TCP with a port on the nodes."""
    shown = []
    for port in _spec(document).get("ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port', 0)}{node}/{port.get('protocol', '')}")
    return ",".join(shown) or "<none>"


def selector(document: View) -> str:
    """Return the labels that a service selects."""
    return (
        ",".join(f"{key}={value}" for key, value in sorted((_spec(document).get("selector") or {}).items())) or "<none>"
    )


# --- rbac ---


def role(document: View) -> str:
    """Return what a binding grants."""
    reference = document.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _subjects(document: View, kind: str) -> list[dict[str, Any]]:
    return [subject for subject in document.get("subjects") or () if subject.get("kind") == kind]


def users(document: View) -> str:
    """Return the users that a binding names."""
    return ", ".join(subject.get("name", "") for subject in _subjects(document, "User"))


def groups(document: View) -> str:
    """Return the groups that a binding names."""
    return ", ".join(subject.get("name", "") for subject in _subjects(document, "Group"))


def accounts(document: View) -> str:
    """Return the service accounts that a binding names."""
    found = _subjects(document, "ServiceAccount")
    return ", ".join(f"{subject.get('namespace', '')}/{subject.get('name', '')}" for subject in found)


# --- storagemigration ---


def migrated(document: View) -> str:
    """Return which resource is migrated, as Go prints one."""
    resource = _spec(document).get("resource") or {}
    return ".".join(filter(None, (resource.get("resource"), resource.get("group"))))


def migration(document: View) -> str:
    """Return the last of the conditions of a migration that hold."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    told = [one.get("type", "") for one in conditions if one.get("status") == "True"]
    return next((kind for kind in reversed(told) if kind in ("Running", "Succeeded", "Failed")), "Unknown")
