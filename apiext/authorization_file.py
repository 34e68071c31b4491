"""Read --authorization-config: an AuthorizationConfiguration of apiserver.config.k8s.io."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from apiext.config import ALWAYS_ALLOW, ALWAYS_DENY, RBAC, ConfigError

_VERSIONS = tuple(f"apiserver.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_TYPES = ("ABAC", ALWAYS_ALLOW, ALWAYS_DENY, "Node", RBAC, "Webhook")
_FIELDS = {"apiVersion", "kind", "authorizers"}


def read(path: str) -> tuple[str, ...]:
    """Return the types of the authorizers in order.

    Raise a ConfigError that names the flag and, if there is one, the invalid field.
    """
    flag = f"--authorization-config {path}"
    try:
        document = yaml.safe_load(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f"{flag}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{flag}: it is not valid YAML: {' '.join(str(error).split())}") from error
    if fault := next(_faults(document), ""):
        raise ConfigError(f"{flag}: {fault}")
    return tuple(authorizer["type"] for authorizer in document["authorizers"])


def _faults(document: Any) -> Iterator[str]:
    """Yield validation errors, if possible with upstream's texts.

    Upstream: pkg/apis/apiserver/validation.
    """
    if not isinstance(document, dict):
        yield "expected an object of kind AuthorizationConfiguration"
        return
    if document.get("apiVersion") not in _VERSIONS or document.get("kind") != "AuthorizationConfiguration":
        yield f"expected kind AuthorizationConfiguration of {_VERSIONS[0]}"
        return
    for field in sorted(map(str, document.keys() - _FIELDS)):
        yield f'strict decoding error: unknown field "{field}"'
    authorizers = document.get("authorizers")
    if not authorizers:
        yield "authorizers: Required value: at least one authorization mode must be defined"
        return
    if not isinstance(authorizers, list):
        yield "authorizers: expected a list"
        return
    names, types = set[str](), set[str]()
    for index, authorizer in enumerate(authorizers):
        yield from _authorizer_faults(f"authorizers[{index}]", authorizer, names, types)


def _authorizer_faults(path: str, authorizer: Any, names: set[str], types: set[str]) -> Iterator[str]:
    if not isinstance(authorizer, dict):
        yield f"{path}: expected an object"
        return
    for field in sorted(map(str, authorizer.keys() - {"type", "name", "webhook"})):
        yield f'strict decoding error: unknown field "{path}.{field}"'
    kind, name = authorizer.get("type"), authorizer.get("name")
    if not kind:
        yield f"{path}.type: Required value"
        return
    if kind not in _TYPES:
        listed = ", ".join(f'"{each}"' for each in _TYPES)
        yield f'{path}.type: Unsupported value: "{kind}": supported values: {listed}'
        return
    if kind in types and kind != "Webhook":
        yield f'{path}.type: Duplicate value: "{kind}"'
    types.add(kind)
    if not name or not isinstance(name, str):
        yield f"{path}.name: Required value"
    elif name in names:
        yield f'{path}.name: Duplicate value: "{name}"'
    else:
        names.add(name)
    if authorizer.get("webhook") is not None and kind != "Webhook":
        yield f'{path}.webhook: Invalid value: "non-null": may only be specified when type=Webhook'
