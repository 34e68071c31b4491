"""Validation of the sources of volumes in pods and in persistent volumes.

Upstream: apis/core/validation. Simple checks are ``rules`` of the types in go_types/types. This module has functions
for the other checks.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from apiext.catalog.builtin.certificates import signer_errors
from apiext.catalog.builtin.claims import claim_errors
from apiext.catalog.builtin.requirements import selector_errors
from apiext.catalog.builtin.rules import type_errors
from apiext.documents.document import View
from apiext.go_types.quantities import value_of
from apiext.meta import objectmeta, syntax
from apiext.meta.fields import FieldError, child, forbidden, invalid, item, not_supported, required, too_long
from apiext.text.quotes import go_quote

_MORE = "may not specify more than 1 volume type"
_MAX_DRIVER = 63
_MAX_WITH_INITIATOR = 64
_MIN_TOKEN_SECONDS, _MAX_TOKEN_SECONDS = 600, 2**32
_FILE_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
_MAX_FILE_MODE = 0o777
_VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
RESOURCE_FIELDS = tuple(
    f"{part}.{name}" for part in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_FIELDS = ("limits.hugepages-", "requests.hugepages-")
_DIVISORS = (
    "1",
    *(f"1{power}{binary}" for binary in ("", "i") for power in "kKMGTPE" if (power == "k") != bool(binary)),
)
_POD_FIELDS = (
    *_VOLUME_FIELDS,
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "spec.host",
)
_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_MIN_CERTIFICATE_SECONDS, _MAX_CERTIFICATE_SECONDS, _MAX_KUBERNETES_SECONDS = 3600, 91 * 86400, 86400


class Source(NamedTuple):
    """A source of a volume: its field and its type.

    ``at`` is the field name in the paths of its errors. A volume may have only one source: ``second`` is the field name
    in the error of a source that follows another source. If ``at`` or ``second`` is empty, ``field`` is used. If
    ``beside`` is true, the source may follow another source, since upstream does not deny this.
    """

    field: str
    type: str
    at: str = ""
    second: str = ""
    beside: bool = False


_OF_PODS = (
    Source("emptyDir", "EmptyDirVolumeSource"),
    Source("hostPath", "HostPathVolumeSource"),
    Source("gitRepo", "GitRepoVolumeSource"),
    Source("gcePersistentDisk", "GCEPersistentDiskVolumeSource", "persistentDisk"),
    Source("awsElasticBlockStore", "AWSElasticBlockStoreVolumeSource"),
    Source("secret", "SecretVolumeSource"),
    Source("nfs", "NFSVolumeSource"),
    Source("iscsi", "ISCSIVolumeSource"),
    Source("glusterfs", "GlusterfsVolumeSource"),
    Source("flocker", "FlockerVolumeSource"),
    Source("persistentVolumeClaim", "PersistentVolumeClaimVolumeSource"),
    Source("rbd", "RBDVolumeSource"),
    Source("cinder", "CinderVolumeSource"),
    Source("cephfs", "CephFSVolumeSource", second="cephFS"),
    Source("quobyte", "QuobyteVolumeSource"),
    Source("downwardAPI", "DownwardAPIVolumeSource", second="downwarAPI"),
    Source("fc", "FCVolumeSource"),
    Source("flexVolume", "FlexVolumeSource"),
    Source("configMap", "ConfigMapVolumeSource"),
    Source("azureFile", "AzureFileVolumeSource"),
    Source("vsphereVolume", "VsphereVirtualDiskVolumeSource"),
    Source("photonPersistentDisk", "PhotonPersistentDiskVolumeSource"),
    Source("portworxVolume", "PortworxVolumeSource"),
    Source("azureDisk", "AzureDiskVolumeSource"),
    Source("storageos", "StorageOSVolumeSource"),
    Source("projected", "ProjectedVolumeSource"),
    Source("scaleIO", "ScaleIOVolumeSource"),
    Source("csi", "CSIVolumeSource"),
    Source("ephemeral", "EphemeralVolumeSource"),
    Source("image", "ImageVolumeSource"),
)
_OF_VOLUMES = (
    Source("hostPath", "HostPathVolumeSource"),
    Source("gcePersistentDisk", "GCEPersistentDiskVolumeSource", "persistentDisk"),
    Source("awsElasticBlockStore", "AWSElasticBlockStoreVolumeSource"),
    Source("glusterfs", "GlusterfsPersistentVolumeSource"),
    Source("flocker", "FlockerVolumeSource"),
    Source("nfs", "NFSVolumeSource"),
    Source("rbd", "RBDPersistentVolumeSource"),
    Source("quobyte", "QuobyteVolumeSource"),
    Source("cephfs", "CephFSPersistentVolumeSource", second="cephFS"),
    Source("iscsi", "ISCSIPersistentVolumeSource"),
    Source("cinder", "CinderPersistentVolumeSource"),
    Source("fc", "FCVolumeSource"),
    Source("flexVolume", "FlexPersistentVolumeSource", beside=True),
    Source("azureFile", "AzureFilePersistentVolumeSource"),
    Source("vsphereVolume", "VsphereVirtualDiskVolumeSource"),
    Source("photonPersistentDisk", "PhotonPersistentDiskVolumeSource"),
    Source("portworxVolume", "PortworxVolumeSource"),
    Source("azureDisk", "AzureDiskVolumeSource"),
    Source("scaleIO", "ScaleIOPersistentVolumeSource"),
    Source("local", "LocalVolumeSource"),
    Source("storageos", "StorageOSPersistentVolumeSource"),
    Source("csi", "CSIPersistentVolumeSource"),
)
VOLUME_SOURCES = tuple(source.field for source in _OF_VOLUMES)


def pod_source_errors(volume: View, path: str, pod: str) -> Iterator[FieldError]:
    """Yield the validation errors of the source of a pod's volume.

    ``pod`` is the pod's name. If it is empty, the name of the claim of an ephemeral volume is not validated.
    """
    name = volume.get("name") or ""
    yield from _errors(_OF_PODS, volume, path)
    iscsi, ephemeral = volume.get("iscsi"), volume.get("ephemeral")
    if iscsi is not None:
        yield from _with_initiator(iscsi, name, name, child(path, "name"))
    if ephemeral is not None and pod and name:
        claim = f"{pod}-{name}"
        for fault in syntax.dns1123_subdomain(claim):
            yield invalid(child(path, "name"), name, f"PVC name {go_quote(claim)}: {fault}")


def volume_source_errors(spec: View, path: str, name: str) -> Iterator[FieldError]:
    """Yield the validation errors of the source of the persistent volume ``name``."""
    yield from _errors(_OF_VOLUMES, spec, path)
    iscsi = spec.get("iscsi")
    if iscsi is not None:
        yield from _with_initiator(iscsi, name, iscsi.get("targetPortal"), child(path, "iscsi.targetportal"))


def _errors(sources: tuple[Source, ...], holder: View, path: str) -> Iterator[FieldError]:
    found = False
    for source in sources:
        value = holder.get(source.field)
        if value is None:
            continue
        if found and not source.beside:
            yield forbidden(child(path, source.second or source.field), _MORE)
            continue
        found = True
        at = child(path, source.at or source.field)
        yield from type_errors(source.type, value, at)
        own = _OWN.get(source.type)
        if own is not None:
            yield from own(value, at)
    if not found:
        yield required(path, "must specify a volume type")


def _with_initiator(iscsi: View, name: str, shown: Any, path: str) -> Iterator[FieldError]:
    portal = iscsi.get("targetPortal") or ""
    if iscsi.get("initiatorName") is not None and len(f"{name}:{portal}".encode()) > _MAX_WITH_INITIATOR:
        text = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is"
            " specified."
        )
        yield invalid(path, shown or "", text)


# --- sources ---


def _empty_dir(source: View, path: str) -> Iterator[FieldError]:
    limit = source.get("sizeLimit")
    if limit is not None and value_of(limit) < 0:
        yield forbidden(child(path, "sizeLimit"), "SizeLimit field must be a valid resource quantity")


_IS_IQN = re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.[A-Za-z0-9.-]+:[^,;*&$|\s]+\Z").search
_IS_EUI = re.compile("eui.[A-Za-z0-9]{16}").fullmatch
_IS_NAA = re.compile("naa.[A-Za-z0-9]{32}").fullmatch
_NAMES: Mapping[str, Callable[[str], Any]] = {"iqn": _IS_IQN, "eui": _IS_EUI, "naa": _IS_NAA}


def _initiator(name: str, path: str, text: str) -> Iterator[FieldError]:
    check = _NAMES.get(name[:3])
    if check is None:
        yield invalid(path, name, text)
    elif not check(name):
        yield invalid(path, name, "must be valid format")


def _iscsi(of_text: str) -> Callable[[View, str], Iterator[FieldError]]:
    def check(source: View, path: str) -> Iterator[FieldError]:
        if not source.get("targetPortal"):
            yield required(child(path, "targetPortal"))
        if not source.get("iqn"):
            yield required(child(path, "iqn"))
        else:
            yield from _initiator(source["iqn"], child(path, "iqn"), of_text)
        lun = source.get("lun") or 0
        if not 0 <= lun <= 255:
            yield invalid(child(path, "lun"), lun, "must be between 0 and 255, inclusive")
        secret = source.get("secretRef")
        if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and secret is None:
            yield required(child(path, "secretRef"))
        if secret is not None and not secret.get("name") and of_text == "must be valid format":
            yield required(child(path, "secretRef.name"))
        if source.get("initiatorName") is not None:
            yield from _initiator(source["initiatorName"], child(path, "initiatorname"), of_text)

    return check


def _fibre_channel(source: View, path: str) -> Iterator[FieldError]:
    names, ids = source.get("targetWWNs") or (), source.get("wwids") or ()
    lun: int | None = source.get("lun")
    at = child(path, "targetWWNs")
    if not names and not ids:
        yield required(at, "must specify either targetWWNs or wwids, but not both")
    if names and ids:
        yield invalid(at, list(names), "targetWWNs and wwids can not be specified simultaneously")
    if names and lun is None:
        yield required(child(path, "lun"), "lun is required if targetWWNs is specified")
    elif names and lun is not None and not 0 <= lun <= 255:
        yield invalid(child(path, "lun"), lun, "must be between 0 and 255, inclusive")


def _quobyte(source: View, path: str) -> Iterator[FieldError]:
    registry, text = source.get("registry") or "", "must be a host:port pair or multiple pairs separated by commas"
    if not registry:
        yield required(child(path, "registry"), text)
    elif len((source.get("tenant") or "").encode()) >= 65:
        yield required(child(path, "tenant"), "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in registry.split(","):
            if not _HOST_AND_PORT(pair):
                yield invalid(child(path, "registry"), registry, text)
    if not source.get("volume"):
        yield required(child(path, "volume"))


_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*").fullmatch


def _gluster(source: View, path: str) -> Iterator[FieldError]:
    namespace, at = source.get("endpointsNamespace"), child(path, "endpointsNamespace")
    if namespace == "":
        yield invalid(at, "", "if the endpointnamespace is set, it must be a valid namespace name")
    elif namespace is not None:
        yield from (invalid(at, namespace, fault) for fault in syntax.dns1123_label(namespace))


def _flocker(source: View, path: str) -> Iterator[FieldError]:
    name, uid = source.get("datasetName") or "", source.get("datasetUUID") or ""
    if not name and not uid:
        yield required(path, "one of datasetName and datasetUUID is required")
    if name and uid:
        yield invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        yield invalid(child(path, "datasetName"), name, "must not contain '/'")


def _flex(source: View, path: str) -> Iterator[FieldError]:
    for key in source.get("options") or ():
        domain = f".{key.partition('/')[0].lower()}"
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            yield invalid(item(child(path, "options"), key), key, "kubernetes.io and k8s.io namespaces are reserved")


def _azure_file(source: View, path: str) -> Iterator[FieldError]:
    if source.get("secretNamespace") == "":
        yield required(child(path, "secretNamespace"))


def _azure_disk(source: View, path: str) -> Iterator[FieldError]:
    kind, uri = source.get("kind"), source.get("diskURI") or ""
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        known = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
        yield not_supported(child(path, "diskURI"), uri, (known,))
    elif kind is not None and kind != "Managed" and not uri.startswith("https://"):
        known = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
        yield not_supported(child(path, "diskURI"), uri, (known,))


def driver_errors(name: str, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the name of a CSI driver; upper-case letters are valid."""
    if not name:
        yield required(path)
        return
    if len(name.encode()) > _MAX_DRIVER:
        yield too_long(path, _MAX_DRIVER)
    yield from (invalid(path, name, fault) for fault in syntax.dns1123_subdomain(syntax.lower(name)))


def _csi(source: View, path: str) -> Iterator[FieldError]:
    yield from driver_errors(source.get("driver") or "", child(path, "driver"))
    secret = source.get("nodePublishSecretRef")
    if secret is not None and not secret.get("name"):
        yield required(child(path, "nodePublishSecretRef.name"))
    elif secret is not None:
        name = secret["name"]
        yield from (invalid(child(path, "name"), name, fault) for fault in syntax.dns1123_subdomain(name))


_CSI_SECRETS = (
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
)


def _csi_volume(source: View, path: str) -> Iterator[FieldError]:
    yield from driver_errors(source.get("driver") or "", child(path, "driver"))
    if not source.get("volumeHandle"):
        yield required(child(path, "volumeHandle"))
    for field in _CSI_SECRETS:
        secret = source.get(field)
        for part, faults in (("name", syntax.dns1123_subdomain), ("namespace", syntax.dns1123_label)):
            if secret is None:
                continue
            at, value = child(child(path, field), part), secret.get(part) or ""
            yield from (invalid(at, value, fault) for fault in faults(value)) if value else (required(at),)


def _ephemeral(source: View, path: str) -> Iterator[FieldError]:
    template, at = source.get("volumeClaimTemplate"), child(path, "volumeClaimTemplate")
    if template is None:
        yield required(at)
        return
    metadata = template.get("metadata") or {}
    yield from objectmeta.annotation_errors(metadata.get("annotations") or {}, child(at, "metadata.annotations"))
    yield from objectmeta.label_errors(metadata.get("labels") or {}, child(at, "metadata.labels"))
    for field, value in metadata.items():
        if field not in ("annotations", "labels") and value not in (None, ""):
            yield forbidden(child(child(at, "metadata"), "uID" if field == "uid" else field), "cannot be set")
    yield from claim_errors(template.get("spec") or {}, child(at, "spec"), template=True)


# --- files ---


def _downward(source: View, path: str) -> Iterator[FieldError]:
    mode = source.get("defaultMode")
    if mode is not None and not 0 <= mode <= _MAX_FILE_MODE:
        yield invalid(child(path, "defaultMode"), mode, _FILE_MODE)
    for file in source.get("items") or ():
        yield from _downward_file(file, path)


def _downward_file(file: View, path: str) -> Iterator[FieldError]:
    name, field, resource, mode = (
        file.get("path") or "",
        file.get("fieldRef"),
        file.get("resourceFieldRef"),
        file.get("mode"),
    )
    if not name:
        yield required(child(path, "path"))
    yield from (invalid(child(path, "path"), name, fault) for fault in syntax.unreserved_path(name))
    if field is not None:
        yield from field_selector_errors(field, _VOLUME_FIELDS, child(path, "fieldRef"))
        if resource is not None:
            yield invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
    elif resource is not None:
        yield from resource_selector_errors(resource, child(path, "resourceFieldRef"), of_volume=True)
    else:
        yield required(path, "one of fieldRef and resourceFieldRef is required")
    if mode is not None and not 0 <= mode <= _MAX_FILE_MODE:
        yield invalid(child(path, "mode"), mode, _FILE_MODE)


def field_selector_errors(selector: View, known: tuple[str, ...], path: str) -> Iterator[FieldError]:
    """Yield the validation errors of a reference to a field of the pod.

    ``known`` are the allowed fields. ``metadata.labels['key']`` and ``metadata.annotations['key']`` are always allowed.
    """
    version, field = selector.get("apiVersion") or "", selector.get("fieldPath") or ""
    at = child(path, "fieldPath")
    if not version:
        yield required(child(path, "apiVersion"))
        return
    if not field:
        yield required(at)
        return
    name, subscript = _split_subscript(field)
    if version != "v1":
        yield invalid(at, field, f"error converting fieldPath: unsupported pod version: {version}")
    elif subscript is not None and name not in ("metadata.annotations", "metadata.labels"):
        yield invalid(at, field, f"error converting fieldPath: field label does not support subscript: {field}")
    elif subscript is not None:
        key = syntax.lower(subscript) if name == "metadata.annotations" else subscript
        yield from (invalid(path, key, fault) for fault in syntax.qualified_name(key))
    elif field not in _POD_FIELDS:
        yield invalid(at, field, f"error converting fieldPath: field label not supported: {field}")
    elif (field := "spec.nodeName" if field == "spec.host" else field) not in known:
        yield not_supported(at, field, known)


def _split_subscript(field: str) -> tuple[str, str | None]:
    """Return name and key of ``metadata.labels['key']``; the key is None without a subscript."""
    if not field.endswith("']"):
        return field, None
    name, found, key = field.removesuffix("']").partition("['")
    return (name, key) if found and name else (field, None)


def resource_selector_errors(selector: View, path: str, *, of_volume: bool) -> Iterator[FieldError]:
    """Yield the validation errors of a reference to a resource of a container.

    In a volume (``of_volume``), the reference must name the container.
    """
    name, divisor = selector.get("resource") or "", selector.get("divisor") or "0"
    if of_volume and not selector.get("containerName"):
        yield required(child(path, "containerName"))
    elif not name:
        yield required(child(path, "resource"))
    elif name not in RESOURCE_FIELDS and not name.startswith(_HUGE_FIELDS):
        yield not_supported(child(path, "resource"), name, RESOURCE_FIELDS)
    if not value_of(divisor):
        return
    kind = name.partition(".")[2]
    if name in RESOURCE_FIELDS and kind == "cpu":
        if divisor not in ("1m", "1"):
            yield invalid(
                child(path, "divisor"), name, "only divisor's values 1m and 1 are supported with the cpu resource"
            )
    elif (name in RESOURCE_FIELDS or name.startswith(_HUGE_FIELDS)) and divisor not in _DIVISORS:
        shown = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(kind, "hugepages")
        text = f"only divisor's values {', '.join(_DIVISORS)} are supported with the {shown} resource"
        yield invalid(child(path, "divisor"), name, text)


def _projected(source: View, path: str) -> Iterator[FieldError]:
    mode = source.get("defaultMode")
    if mode is not None and not 0 <= mode <= _MAX_FILE_MODE:
        yield invalid(child(path, "defaultMode"), mode, _FILE_MODE)
    paths: set[str] = set()
    for index, one in enumerate(source.get("sources") or ()):
        at = item(child(path, "sources"), index)
        given = [field for field in _PROJECTIONS if one.get(field) is not None]
        for field in given:
            yield from _PROJECTIONS[field](one[field], child(at, field), path, paths)
        if len(given) > 1:
            yield forbidden(at, "may not specify more than 1 volume type per source")


def _taken(name: str, paths: set[str], path: str, shown: str) -> Iterator[FieldError]:
    """Yield an error if ``name``, the path of a file, is one of ``paths``; add it to ``paths``."""
    if name in paths:
        yield invalid(path, shown, "conflicting duplicate paths")
    paths.add(name)


def _projected_keys(source: View, at: str, path: str, paths: set[str]) -> Iterator[FieldError]:
    name = source.get("name") or ""
    if not name:
        yield required(child(at, "name"))
    for index, one in enumerate(source.get("items") or ()):
        yield from type_errors("KeyToPath", one, item(child(at, "items"), index))
        if one.get("path"):
            yield from _taken(one["path"], paths, path, name)


def _projected_downward(source: View, at: str, path: str, paths: set[str]) -> Iterator[FieldError]:
    for file in source.get("items") or ():
        yield from _downward_file(file, at)
        if file.get("path"):
            yield from _taken(file["path"], paths, path, file["path"])


def _projected_token(source: View, at: str, path: str, paths: set[str]) -> Iterator[FieldError]:
    seconds, name = source.get("expirationSeconds"), source.get("path") or ""
    if seconds is None:
        yield required(child(at, "expirationSeconds"))
    elif seconds < _MIN_TOKEN_SECONDS:
        yield invalid(child(at, "expirationSeconds"), seconds, "may not specify a duration less than 10 minutes")
    elif seconds > _MAX_TOKEN_SECONDS:
        text = "may not specify a duration larger than 2^32 seconds"
        yield invalid(child(at, "expirationSeconds"), seconds, text)
    if not name:
        yield required(child(path, "path"))
    yield from (invalid(child(path, "path"), name, fault) for fault in syntax.unreserved_path(name))


def _projected_bundle(source: View, at: str, path: str, paths: set[str]) -> Iterator[FieldError]:
    name, signer, selector = source.get("name"), source.get("signerName"), source.get("labelSelector")
    if name is not None and signer is not None:
        yield invalid(at, source, "only one of name and signerName may be used")
    elif name is not None:
        if not name:
            yield required(child(at, "name"), "must be a valid object name")
        for fault in _bundle_name(name):
            yield invalid(child(at, "name"), name, f"not a valid clustertrustbundlename: {fault}")
        if selector is not None:
            yield invalid(child(at, "labelSelector"), selector, "labelSelector must be unset if name is specified")
    elif signer is not None:
        if not signer:
            yield required(child(at, "signerName"), "must be a valid signer name")
        yield from signer_errors(signer, child(at, "signerName"))
        yield from selector_errors(selector, child(at, "labelSelector"))
    else:
        yield required(at, "either name or signerName must be specified")
    file = source.get("path") or ""
    if not file:
        yield required(child(at, "path"))
    yield from (invalid(child(at, "path"), file, fault) for fault in syntax.unreserved_path(file))
    yield from _taken(file, paths, path, file)


def _bundle_name(name: str) -> list[str]:
    """Return the validation errors of the name of a ClusterTrustBundle.

    The name has the form ``name`` or ``example.com:signer:name``. Only the part after the last colon is validated.
    """
    return syntax.dns1123_subdomain(name.rpartition(":")[2])


def _projected_certificate(source: View, at: str, path: str, paths: set[str]) -> Iterator[FieldError]:
    signer, kind, seconds = (
        source.get("signerName") or "",
        source.get("keyType") or "",
        source.get("maxExpirationSeconds"),
    )
    yield from signer_errors(signer, child(at, "signerName"))
    if kind not in _KEY_TYPES:
        yield not_supported(child(at, "keyType"), kind, _KEY_TYPES)
    max_seconds = (
        _MAX_KUBERNETES_SECONDS if signer.partition("/")[0].endswith("kubernetes.io") else _MAX_CERTIFICATE_SECONDS
    )
    if seconds is not None and seconds < _MIN_CERTIFICATE_SECONDS:
        text = f"if provided, maxExpirationSeconds must be >= {_MIN_CERTIFICATE_SECONDS}"
        yield invalid(child(at, "maxExpirationSeconds"), seconds, text)
    elif seconds is not None and seconds > max_seconds:
        text = f"if provided, maxExpirationSeconds must be <= {max_seconds}"
        yield invalid(child(at, "maxExpirationSeconds"), seconds, text)
    given = [field for field in ("credentialBundlePath", "keyPath", "certificateChainPath") if source.get(field)]
    for field in given:
        yield from (invalid(child(at, field), source[field], fault) for fault in syntax.unreserved_path(source[field]))
        yield from _taken(source[field], paths, path, source[field])
    if not given:
        yield required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")


_PROJECTIONS: Mapping[str, Callable[[View, str, str, set[str]], Iterator[FieldError]]] = {
    "secret": _projected_keys,
    "configMap": _projected_keys,
    "downwardAPI": _projected_downward,
    "serviceAccountToken": _projected_token,
    "clusterTrustBundle": _projected_bundle,
    "podCertificate": _projected_certificate,
}
_OWN: Mapping[str, Callable[[View, str], Iterator[FieldError]]] = {
    "EmptyDirVolumeSource": _empty_dir,
    "ISCSIVolumeSource": _iscsi("must be valid format starting with iqn, eui, or naa"),
    "ISCSIPersistentVolumeSource": _iscsi("must be valid format"),
    "FCVolumeSource": _fibre_channel,
    "QuobyteVolumeSource": _quobyte,
    "GlusterfsPersistentVolumeSource": _gluster,
    "FlockerVolumeSource": _flocker,
    "FlexVolumeSource": _flex,
    "FlexPersistentVolumeSource": _flex,
    "AzureFilePersistentVolumeSource": _azure_file,
    "AzureDiskVolumeSource": _azure_disk,
    "CSIVolumeSource": _csi,
    "CSIPersistentVolumeSource": _csi_volume,
    "EphemeralVolumeSource": _ephemeral,
    "DownwardAPIVolumeSource": _downward,
    "ProjectedVolumeSource": _projected,
}
"""Type → the validation that the rules of the type cannot express."""
