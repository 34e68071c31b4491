"""ServiceAccount: a pod's service account, its token and secrets.

Upstream: plugin/pkg/admission/serviceaccount.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from typing import Any

from apiext.admission import limits
from apiext.admission.attributes import Attributes
from apiext.admission.object_lookup import ACCOUNTS, ObjectLookup, forbidden
from apiext.documents.document import Document, View, clone
from apiext.meta.generated_names import generate_name

DEFAULT = "default"
_MIRROR = "kubernetes.io/config.mirror"
_ENFORCE = "kubernetes.io/enforce-mountable-secrets"
_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_VOLUME = "kube-api-access-"
# minimum in seconds of the random pause between tries to find the default account; the maximum is twice this
_PAUSE = 0.1
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_TOKEN: View = {
    "defaultMode": 420,
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
            }
        },
    ],
}


async def set_account(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Set the service account of a new pod, mount the account's token, and set imagePullSecrets.

    Then check the pod. A pod without imagePullSecrets gets those of the account. A mirror pod is only checked.
    """
    if attributes.operation != "CREATE":
        return
    if not _is_mirror(new):
        spec = new["spec"]
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = DEFAULT
        account = await _account(attributes, spec["serviceAccountName"], lookup)
        if _automounts(account, spec):
            _mount_token(spec)
        secrets = account.get("imagePullSecrets") or ()
        if not spec.get("imagePullSecrets") and secrets:
            spec["imagePullSecrets"] = [{"name": one["name"]} if one.get("name") else {} for one in secrets]
    await check_account(attributes, new, lookup)


async def check_account(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Deny a pod whose service account is missing.

    Also deny a mirror pod with an account, secrets or tokens. If the annotation ``_ENFORCE`` of the account is true,
    also deny a pod with secrets that the account does not reference. Only creates of pods, and updates of ephemeral
    containers, are checked.
    """
    ephemeral = attributes.operation == "UPDATE" and attributes.subresource == "ephemeralcontainers"
    if attributes.operation != "CREATE" and not ephemeral:
        return
    if _is_mirror(new) and not ephemeral:
        _check_mirror(attributes, new)
        return
    name = new["spec"].get("serviceAccountName")
    if not name:
        pod = f"{attributes.namespace}/{new['metadata'].get('name') or ''}"
        raise forbidden(attributes, f"no service account specified for pod {pod}")
    account = await _account(attributes, name, lookup)
    if (account["metadata"].get("annotations") or {}).get(_ENFORCE) not in _TRUE:
        return
    faults = _ephemeral_faults if ephemeral else _faults
    for fault in faults(new["spec"], account):
        raise forbidden(attributes, fault)


async def _account(attributes: Attributes, name: str, lookup: ObjectLookup) -> View:
    """Return the account of a pod; raise 403 if it is missing.

    Retry for the default account, since a controller may be creating it.
    """
    namespace = attributes.namespace or ""
    tries = limits.DEFAULT_ACCOUNT_TRIES if name == DEFAULT else 1
    pause = random.uniform(_PAUSE, 2 * _PAUSE)
    for left in reversed(range(tries)):
        if (found := await lookup.find(ACCOUNTS, name, namespace, cached=True)) is not None:
            return found
        if left:
            await asyncio.sleep(pause)
    text = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
    raise forbidden(attributes, text)


def _is_mirror(pod: View) -> bool:
    """Report whether the pod is a mirror pod, which a kubelet creates for a static pod."""
    return _MIRROR in (pod["metadata"].get("annotations") or {})


def _check_mirror(attributes: Attributes, pod: View) -> None:
    spec = pod["spec"]
    if spec.get("serviceAccountName"):
        raise forbidden(attributes, "a mirror pod may not reference service accounts")
    if _has_secrets(spec):
        raise forbidden(attributes, "a mirror pod may not reference secrets")
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken") is not None:
                raise forbidden(attributes, "a mirror pod may not use ServiceAccountToken volume projections")


_SECRET_FIELDS = ("secretRef", "nodePublishSecretRef")


def _has_secrets(spec: View) -> bool:
    """Report whether a pod references a secret (upstream: VisitPodSecretNames)."""
    if spec.get("imagePullSecrets"):
        return True
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            if any(True for _ in _environment(container)):
                return True
    for volume in spec.get("volumes") or ():
        if any(source.get("secret") is not None for source in (volume.get("projected") or {}).get("sources") or ()):
            return True
        sources = [one for one in volume.values() if isinstance(one, dict)]
        if volume.get("secret") is not None or volume.get("azureFile") is not None:
            return True
        if any(source.get(field) is not None for source in sources for field in _SECRET_FIELDS):
            return True
    return False


# --- secrets of an account ---


def _environment(container: View) -> Iterator[tuple[str, str]]:
    """Yield (field as in errors, secret name) for each secret in a container's environment."""
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
        if reference is not None:
            yield f"envVar {variable.get('name') or ''}", reference.get("name") or ""
    for source in container.get("envFrom") or ():
        if source.get("secretRef") is not None:
            yield "envFrom", source["secretRef"].get("name") or ""


def _faults(spec: View, account: View) -> Iterator[str]:
    """Yield an error for each secret of the pod that its account does not reference.

    As upstream, this includes only volumes of the type secret, environments and imagePullSecrets.
    """
    name, allowed = account["metadata"]["name"], _names(account.get("secrets"))
    for volume in spec.get("volumes") or ():
        secret = volume.get("secret")
        if secret is not None and (secret.get("secretName") or "") not in allowed:
            yield (
                f'volume with secret.secretName="{secret.get("secretName") or ""}" is not allowed because service'
                f" account {name} does not reference that secret"
            )
    for field, called in (("initContainers", "init container"), ("containers", "container")):
        yield from _container_faults(spec.get(field) or (), called, account)
    images = _names(account.get("imagePullSecrets"))
    for index, reference in enumerate(spec.get("imagePullSecrets") or ()):
        secret = reference.get("name") or ""
        if secret not in images:
            yield (
                f'imagePullSecrets[{index}].name="{secret}" is not allowed because service account {name} does not'
                " reference that imagePullSecret"
            )


def _ephemeral_faults(spec: View, account: View) -> Iterator[str]:
    yield from _container_faults(spec.get("ephemeralContainers") or (), "ephemeral container", account)


def _container_faults(containers: Sequence[View], called: str, account: View) -> Iterator[str]:
    allowed = _names(account.get("secrets"))
    for container in containers:
        for part, secret in _environment(container):
            if secret not in allowed:
                yield (
                    f'{called} {container.get("name") or ""} with {part} referencing secret.secretName="{secret}" is'
                    f" not allowed because service account {account['metadata']['name']} does not reference that secret"
                )


def _names(references: Sequence[View] | None) -> set[str]:
    return {one.get("name") or "" for one in references or ()}


# --- the token ---


def _automounts(account: View, spec: View) -> bool:
    """Report whether to mount the token.

    automountServiceAccountToken of the pod decides, else that of the account; the default is true.
    """
    for holder in (spec, account):
        said = holder.get("automountServiceAccountToken")
        if said is not None:
            return bool(said)
    return True


def _mount_token(spec: Document) -> None:
    """Mount the account's token in each container that has no volume at the token's path."""
    volumes: list[Any] = spec.get("volumes") or []
    mounted = next((one["name"] for one in volumes if (one.get("name") or "").startswith(_VOLUME)), "")
    name, needed = mounted or generate_name(_VOLUME), False
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            mounts = container.get("volumeMounts") or []
            if not any(one.get("mountPath") == _MOUNT_PATH for one in mounts):
                mount = {"name": name, "readOnly": True, "mountPath": _MOUNT_PATH}
                container["volumeMounts"] = [*mounts, mount]
                needed = True
    if needed and not mounted:
        spec["volumes"] = [*volumes, {"name": name, "projected": clone(_TOKEN)}]
