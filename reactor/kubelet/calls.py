"""What we ask over gRPC, on the asyncio side: our own socket, Register, List. Errors come out as ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from grpclib.client import Channel
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from reactor.kubelet._pb import deviceplugin_pb2, podresources_pb2
from reactor.kubelet._pb.deviceplugin_grpc import DevicePluginStub, RegistrationStub
from reactor.kubelet._pb.podresources_grpc import PodResourcesListerStub
from reactor.model.errors import Refused, Transient
from reactor.model.ids import ResourceName

VERSION = "v1beta1"


async def probe(path: str, deadline: float) -> None:
    """Ask the plugin at this path for its options, as the kubelet does during Register."""
    with _as_ours(f"asking our own socket {path} for its options"):
        async with Channel(path=path) as channel, asyncio.timeout(deadline):
            await DevicePluginStub(channel).GetDevicePluginOptions(deviceplugin_pb2.Empty())


async def register(kubelet_socket: str, resource: ResourceName, endpoint: str, deadline: float) -> None:
    """Register a plugin. The kubelet dials back and asks for the options before it answers; that takes up to 10 s."""
    request = deviceplugin_pb2.RegisterRequest(
        version=VERSION,
        endpoint=endpoint,
        resource_name=resource,
        options=deviceplugin_pb2.DevicePluginOptions(get_preferred_allocation_available=True),
    )
    with _as_ours(f"registering {resource} at {kubelet_socket}"):
        async with Channel(path=kubelet_socket) as channel, asyncio.timeout(deadline + 1):
            # The deadline goes over the wire as well: a kubelet from 1.35 on gives up with us.
            await RegistrationStub(channel).Register(request, timeout=deadline)


async def list_pods(socket: str, deadline: float) -> podresources_pb2.ListPodResourcesResponse:
    with _as_ours(f"listing pods at {socket}"):
        async with Channel(path=socket) as channel, asyncio.timeout(deadline):
            request = podresources_pb2.ListPodResourcesRequest()
            return await PodResourcesListerStub(channel).List(request, timeout=deadline)


@contextmanager
def _as_ours(what: str) -> Iterator[None]:
    try:
        yield
    except GRPCError as exc:
        text = f"{what}: {exc.status.name}: {exc.message or 'no message'}"
        raise (Refused(text) if _is_final(exc.message or "") else Transient(text)) from exc
    except TimeoutError as exc:  # before OSError, whose child it is
        raise Transient(f"{what}: no answer in time") from exc
    except (StreamTerminatedError, ProtocolError) as exc:
        raise Transient(f"{what}: the connection ended: {exc}") from exc
    except AssertionError as exc:  # grpclib's word for a reply that was cut off
        raise Transient(f"{what}: the reply was incomplete") from exc
    except OSError as exc:
        raise Transient(f"{what}: {exc.strerror or exc}") from exc


def _is_final(message: str) -> bool:
    """Whether the kubelet refused what we are, not that we came now: its code is Unknown for everything."""
    return "is invalid" in message or "is not supported by kubelet" in message
