"""Use the etcd3 package with our message classes: an independent client of etcd."""

import sys
import types
from typing import Any

import grpc

from apiext.etcd import messages


def _stub(service: str, methods: dict[str, tuple[str, str, str]]) -> type:
    def make(self: Any, channel: grpc.Channel) -> None:
        for name, (kind, request, response) in methods.items():
            call = getattr(channel, kind)
            path = f"/etcdserverpb.{service}/{name}"
            ask, answer = messages.message_class(request), messages.message_class(response)
            setattr(self, name, call(path, ask.SerializeToString, answer.FromString))

    return type(f"{service}Stub", (), {"__init__": make})


def _services() -> dict[str, type]:
    stubs = {"ClusterStub": _stub("Cluster", {})}
    for service in messages.POOL.FindFileByName("etcd.proto").services_by_name.values():
        methods = {}
        for method in service.methods:
            kind = "stream_stream" if method.client_streaming else "unary_unary"
            methods[method.name] = (kind, method.input_type.name, method.output_type.name)
        stubs[f"{service.name}Stub"] = _stub(service.name, methods)
    return stubs


def _install() -> None:
    # the stubs in etcd3 were generated for an old version of protobuf
    package = types.ModuleType("etcd3.etcdrpc")
    for name in messages.POOL.FindFileByName("etcd.proto").message_types_by_name:
        setattr(package, name, messages.message_class(name))
    for name, stub in _services().items():
        setattr(package, name, stub)
    package.NONE, package.NOSPACE = 0, 1  # type: ignore[attr-defined]
    sys.modules["etcd3.etcdrpc"] = package


_install()

import etcd3  # noqa: E402 - etcd3 imports the stubs above


def etcd3_client(host: str, port: int) -> Any:
    """Return an etcd3 client."""
    return etcd3.client(host=host, port=port, timeout=20, grpc_options=[("grpc.max_receive_message_length", 1 << 29)])
