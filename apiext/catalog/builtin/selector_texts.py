"""Label selectors of built-in kinds as Go prints them: ``app=a,tier in (b,c)``."""

from collections.abc import Mapping

from apiext.documents.document import View


def labels_text(labels: Mapping[str, str] | None) -> str:
    """Return labels as ``key=value``, sorted by key; ``<none>`` without labels."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or "<none>"


def selector_text(selector: View | None) -> str:
    """Return a label selector with its requirements sorted by key; empty without requirements."""
    if not selector:
        return ""
    found = [(key, f"{key}={value}") for key, value in sorted((selector.get("matchLabels") or {}).items())]
    found += ((one.get("key", ""), _requirement(one)) for one in selector.get("matchExpressions") or ())
    return ",".join(text for _, text in sorted(found, key=lambda one: one[0]))


def _requirement(one: View) -> str:
    key, operator = one.get("key", ""), one.get("operator", "")
    if operator in ("In", "NotIn"):
        return f"{key} {operator.lower()} ({','.join(sorted(one.get('values') or ()))})"
    return f"!{key}" if operator == "DoesNotExist" else str(key)
