"""Validation of priority classes.

Upstream: apis/scheduling.
"""

from apiext.documents.document import View
from apiext.meta.fields import Errors, FieldError, forbidden, not_supported, required

SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Name of a priority class that the server creates → its value."""
_PREFIX = "system-"
_RESERVED = f"priority class names with '{_PREFIX}' prefix are reserved for system use only. error: "
_HIGHEST = 1_000_000_000
_POLICIES = ("PreemptLowerPriority", "Never")


def validate_priority_class(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a new priority class; rules validate its updates."""
    errors = Errors()
    if old is not None:
        return errors
    name, value, policy = new["metadata"].get("name") or "", new.get("value") or 0, new.get("preemptionPolicy")
    if name.startswith(_PREFIX):
        errors += (forbidden("metadata.name", f"{_RESERVED}{fault}") for fault in _system_faults(name, value, new))
    elif value > _HIGHEST:
        errors.append(forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST}"))
    if policy == "":
        errors.append(required("preemptionPolicy"))
    elif policy not in (None, *_POLICIES):
        errors.append(not_supported("preemptionPolicy", policy, _POLICIES))
    return errors


def _system_faults(name: str, value: int, new: View) -> list[str]:
    """Return the first difference between a class and the system class of its name."""
    if name not in SYSTEM_CLASSES:
        return [f"{name} is not a known system priority class"]
    if value != SYSTEM_CLASSES[name]:
        return [f"value of {name} PriorityClass must be {SYSTEM_CLASSES[name]}"]
    if new.get("globalDefault"):
        return [f"globalDefault of {name} PriorityClass must be false"]
    return []
