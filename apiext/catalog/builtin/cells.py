"""Functions that compute cells of Tables of built-in kinds.

The files go_types/types/*.yaml refer to them by name.
"""

from typing import Any

from apiext.documents.document import View


def webhooks(document: View) -> int:
    """Return the number of webhooks of a configuration."""
    return len(document.get("webhooks") or ())


def validations(document: View) -> int:
    """Return the number of validations of a policy."""
    return len((document.get("spec") or {}).get("validations") or ())


def mutations(document: View) -> int:
    """Return the number of mutations of a policy."""
    return len((document.get("spec") or {}).get("mutations") or ())


def param_kind(document: View) -> str:
    """Return the apiVersion and kind of a policy's parameters: ``v1/ConfigMap``, or ``<unset>``."""
    kind = (document.get("spec") or {}).get("paramKind")
    return f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else "<unset>"


def param_ref(document: View) -> str:
    """Return the parameters of a binding: ``namespace/name``, their selector, or ``<unset>``.

    The selector is in the form in which Go prints it.
    """
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
    """Return the number of entries of a secret or a config map."""
    return len(document.get("data") or ()) + len(document.get("binaryData") or ())


def _spec(document: View) -> dict[str, Any]:
    return document.get("spec") or {}


def cluster_ip(document: View) -> str:
    """Return the cluster IP of a service, ``<none>`` if it has none."""
    return _spec(document).get("clusterIP") or "<none>"


def external_ip(document: View) -> str:
    """Return the external addresses of a service, or its external name.

    Without an address: ``<pending>`` for a load balancer, else ``<none>``.
    """
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
    """Return the ports of a service: ``80/TCP``, or ``80:30080/TCP`` with a node port.

    Return ``<none>`` without ports.
    """
    shown = []
    for port in _spec(document).get("ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port', 0)}{node}/{port.get('protocol', '')}")
    return ",".join(shown) or "<none>"


def selector(document: View) -> str:
    """Return the selector of a service: ``app=a,tier=b``, or ``<none>``."""
    return (
        ",".join(f"{key}={value}" for key, value in sorted((_spec(document).get("selector") or {}).items())) or "<none>"
    )


# --- rbac ---


def role(document: View) -> str:
    """Return the role of a binding: ``ClusterRole/name``."""
    reference = document.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _subjects(document: View, kind: str) -> list[dict[str, Any]]:
    return [subject for subject in document.get("subjects") or () if subject.get("kind") == kind]


def users(document: View) -> str:
    """Return the users of a binding, separated by commas."""
    return ", ".join(subject.get("name", "") for subject in _subjects(document, "User"))


def groups(document: View) -> str:
    """Return the groups of a binding, separated by commas."""
    return ", ".join(subject.get("name", "") for subject in _subjects(document, "Group"))


def accounts(document: View) -> str:
    """Return the service accounts of a binding as ``namespace/name``, separated by commas."""
    found = _subjects(document, "ServiceAccount")
    return ", ".join(f"{subject.get('namespace', '')}/{subject.get('name', '')}" for subject in found)


# --- storagemigration ---


def migrated(document: View) -> str:
    """Return the resource that a migration rewrites, as Go prints it: ``deployments.apps``."""
    resource = _spec(document).get("resource") or {}
    return ".".join(filter(None, (resource.get("resource"), resource.get("group"))))


def migration(document: View) -> str:
    """Return the last of the conditions Running, Succeeded and Failed that is True.

    Return ``Unknown`` if none of them is True.
    """
    conditions = (document.get("status") or {}).get("conditions") or ()
    true = [one.get("type", "") for one in conditions if one.get("status") == "True"]
    return next((kind for kind in reversed(true) if kind in ("Running", "Succeeded", "Failed")), "Unknown")
