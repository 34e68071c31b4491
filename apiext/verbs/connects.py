"""Requests that upstream forwards to a node, pod or service.

This server connects to none of them. It responds with the errors that kube-apiserver reports before it connects. Where
kube-apiserver would connect, this server responds with a 503. The log of a pod without a node is empty.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec.structs import replace

from apiext.admission.attributes import Attributes, Traces
from apiext.documents.document import Document, View
from apiext.meta import status
from apiext.meta.fields import FieldError, invalid
from apiext.meta.names import GroupKind, GroupResource
from apiext.meta.options import OptionsError, first, parse_int
from apiext.text.quotes import go_quote
from apiext.verbs import read, threads
from apiext.verbs.call import Call, Verbs

NODES = GroupResource("", "nodes")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_NO_ADDRESS = "no preferred addresses found; known addresses: []"
_NOT_CONNECTED = "this server does not connect to nodes, pods or services"
_SCHEMES = ("", "http", "https")
# option of a log → its least value
_LEAST = {"sinceSeconds": 1, "tailLines": 0, "limitBytes": 1}


async def connect(verbs: Verbs, call: Call) -> None:
    """Handle a request to an endpoint that connects.

    Return for an empty log, else raise StatusError.
    """
    if call.endpoint.connects != "log":
        await _admit(verbs, call)
    await CONNECTS[call.endpoint.connects](verbs, call)


async def _admit(verbs: Verbs, call: Call) -> None:
    """Run admission on the options of a connection, before its object is read.

    Upstream: ConnectResource.
    """
    names, kind = call.served.names, call.endpoint.model.kind
    options = {"kind": kind, "apiVersion": "v1", **_options(kind, call.query)}
    if not verbs.admission.applies("CONNECT", names.group_resource):
        return
    traces = Traces(call.warnings, call.annotations)
    attributes = Attributes(
        "CONNECT", names.group_resource, names.version, GroupKind("", kind), call.endpoint.name, call.namespace,
        call.name, call.user, False, options, None, None, call.served, call.resource, call.deadline, traces,
    )  # fmt: skip
    attributes.new = await verbs.admission.mutate(attributes, options)
    await verbs.admission.review(attributes)


_STREAMS = {"stdin": bool, "stdout": bool, "stderr": bool, "tty": bool, "container": str}
_OPTIONS: Mapping[str, Mapping[str, type]] = {
    "PodExecOptions": {**_STREAMS, "command": list},
    "PodAttachOptions": _STREAMS,
    "PodPortForwardOptions": {"ports": int},
}
"""Kind of options → its fields in a query; ``int`` stands for a list of numbers.

Options of other kinds have only a path.
"""


def _options(kind: str, query: Mapping[str, Sequence[str]]) -> Document:
    """Return the options of a connection, without empty values; raise a 400 for an invalid port."""
    found: Document = {}
    for field, form in _OPTIONS.get(kind, {"path": str}).items():
        values = query.get(field)
        if not values:
            continue
        if form is bool:
            found[field] = values[0].lower() not in ("false", "0")
        elif form is int:
            found[field] = _numbers(values)
        else:
            found[field] = list(values) if form is list else values[0]
    kept = {field: value for field, value in found.items() if value}
    return {"command": None, **kept} if kind == "PodExecOptions" else kept  # Go prints the command even if it is empty


def _numbers(values: Sequence[str]) -> list[int]:
    ports = [port for value in values for port in value.split(",")]
    for port in ports:
        if not (port.isascii() and port.isdigit()):
            fault = "invalid syntax"
        elif len(port.lstrip("0")) > 5 or int(port) > 0xFFFF:
            fault = "value out of range"
        else:
            continue
        raise status.bad_request(f"cannot convert to []int32: strconv.ParseUint: parsing {go_quote(port)}: {fault}")
    return [int(port) for port in ports]


async def _log(verbs: Verbs, call: Call) -> None:
    """Return if a pod has no node, since its log is empty; else raise StatusError."""
    if errors := list(_log_errors(call.query)):
        raise status.invalid(GroupKind("", "PodLogOptions"), call.name, errors)
    pod = await _object(verbs, call)
    _check_container(pod, call)
    if node := (pod.get("spec") or {}).get("nodeName"):
        raise await _unreached(verbs, call, node)


def _log_errors(query: Mapping[str, Sequence[str]]) -> list[FieldError]:
    errors = []
    for name, least in _LEAST.items():
        values = query.get(name)
        if not values:
            continue
        try:
            count = parse_int(values[0])
        except OptionsError as error:
            raise status.bad_request(str(error)) from None
        if count < least:
            wanted = "greater than 0" if least else "greater than or equal to 0"
            errors.append(invalid(name, count, f"must be {wanted}"))
    return errors


async def _in_container(verbs: Verbs, call: Call) -> None:
    pod = await _object(verbs, call)
    _check_container(pod, call)
    await _on_node(verbs, call, pod)


async def _forward(verbs: Verbs, call: Call) -> None:
    await _on_node(verbs, call, await _object(verbs, call))


async def _on_node(verbs: Verbs, call: Call, pod: View) -> None:
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        raise status.bad_request(f"pod {call.name} does not have a host assigned")
    raise await _unreached(verbs, call, node)


async def _to_pod(verbs: Verbs, call: Call) -> None:
    _, name, _ = _place(call, "pod")
    pod = await _object(verbs, replace(call, name=name))
    if not (pod.get("status") or {}).get("podIP"):
        raise status.bad_request("address not allowed")
    raise _unavailable(_NOT_CONNECTED)


async def _to_node(verbs: Verbs, call: Call) -> None:
    _, name, _ = _place(call, "node")
    raise _unreached_node(await _object(verbs, replace(call, name=name)))


async def _to_service(verbs: Verbs, call: Call) -> None:
    _, name, port = _place(call, "service")
    try:
        service = await _object(verbs, replace(call, name=name))
    except status.StatusError as error:
        if error.code != 404:
            raise
        service = {}
    ports = (service.get("spec") or {}).get("ports") or ()
    if service and port and not any(port in (one.get("name"), str(one.get("port"))) for one in ports):
        raise _unavailable(f'no service port {port} found for service "{name}"')
    raise _unavailable(f'no endpoints available for service "{name}"')


def _unavailable(text: str) -> status.StatusError:
    return status.StatusError(503, "ServiceUnavailable", text)


def _place(call: Call, kind: str) -> tuple[str, str, str]:
    """Return scheme, name and port of ``name``, ``name:port`` or ``scheme:name:port``.

    Raise a 400 for a name of any other form.
    """
    parts = call.name.split(":")
    scheme, name, port = ("", *parts, "")[:3] if len(parts) < 3 else (*parts, "", "")[:3]
    if len(parts) > 3 or scheme not in _SCHEMES or not name or (len(parts) == 2 and not port):
        raise status.bad_request(f'invalid {kind} request "{call.name}"')
    return scheme, name, port


async def _object(verbs: Verbs, call: Call) -> View:
    """Return the newest state of the call's object."""
    entry = await read.get(verbs, call, "")
    found: View = await threads.run(call, call.served.codec.decode, entry.raw, entry.revision)
    return found


async def _unreached(verbs: Verbs, call: Call, name: str) -> status.StatusError:
    """Return the error of a connection to the node of a pod."""
    nodes = verbs.catalog.current.resource("", NODES.resource)
    if nodes is None:
        return _unavailable(_NOT_CONNECTED)
    try:
        node = await _object(
            verbs, replace(call, resource=nodes, served=nodes.versions["v1"], namespace=None, name=name)
        )
    except status.StatusError as error:
        if error.code != 404:
            raise
        # as in kube-apiserver, this 404 about a node names the resource pods
        return status.not_found(call.served.names.group_resource, name)
    return _unreached_node(node)


def _unreached_node(node: View) -> status.StatusError:
    addresses = (node.get("status") or {}).get("addresses")
    return _unavailable(_NOT_CONNECTED) if addresses else status.unknown(_NO_ADDRESS)


def _check_container(pod: View, call: Call) -> None:
    """Raise a 400 unless the query selects one container of the pod.

    Without a name in the query, the pod must have only one container.
    """
    spec, wanted = pod.get("spec") or {}, first(call.query, "container")
    names = {field: [one.get("name") or "" for one in spec.get(field) or ()] for field in _CONTAINERS}
    if wanted:
        if not any(wanted in found for found in names.values()):
            raise status.bad_request(f"container {wanted} is not valid for pod {call.name}")
        return
    if len(names["containers"]) == 1:
        return
    text = f"a container name must be specified for pod {call.name}, choose one of: [{' '.join(names['containers'])}]"
    if names["initContainers"]:
        text += f" or one of the init containers: [{' '.join(names['initContainers'])}]"
    if names["ephemeralContainers"]:
        text += f" or one of the ephemeral containers: [{' '.join(names['ephemeralContainers'])}]"
    raise status.bad_request(text)


CONNECTS: Mapping[str, Callable[[Verbs, Call], Awaitable[None]]] = {
    "log": _log,
    "exec": _in_container,
    "attach": _in_container,
    "portforward": _forward,
    "pod": _to_pod,
    "node": _to_node,
    "service": _to_service,
}
"""``connects`` of an endpoint → the function that handles its requests."""
