"""The core's values as messages of the device plugin API, and back."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from reactor.kubelet._pb import deviceplugin_pb2 as v1beta1
from reactor.simulate.kubelet.plugin import ContainerAnswer, Device, DeviceNode, Mount, Options


def answer_of(message: v1beta1.ContainerAllocateResponse) -> ContainerAnswer:
    return ContainerAnswer(
        envs=tuple(sorted(message.envs.items())),
        mounts=tuple(Mount(each.container_path, each.host_path, each.read_only) for each in message.mounts),
        devices=tuple(DeviceNode(each.container_path, each.host_path, each.permissions) for each in message.devices),
        annotations=tuple(sorted(message.annotations.items())),
        cdi=tuple(each.name for each in message.cdi_devices),
    )


def encode_answer(answer: ContainerAnswer) -> bytes:
    message = v1beta1.ContainerAllocateResponse(
        envs=dict(answer.envs),
        mounts=[
            v1beta1.Mount(container_path=each.container, host_path=each.host, read_only=each.read_only)
            for each in answer.mounts
        ],
        devices=[
            v1beta1.DeviceSpec(container_path=each.container, host_path=each.host, permissions=each.permissions)
            for each in answer.devices
        ],
        annotations=dict(answer.annotations),
        cdi_devices=[v1beta1.CDIDevice(name=each) for each in answer.cdi],
    )
    return message.SerializeToString(deterministic=True)


def decode_answer(data: bytes) -> ContainerAnswer:
    """ValueError if it is no such message."""
    message = v1beta1.ContainerAllocateResponse()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"not a ContainerAllocateResponse: {error}") from error
    return answer_of(message)


def devices_of(message: v1beta1.ListAndWatchResponse) -> list[Device]:
    return [Device(each.ID, each.health, tuple(node.ID for node in each.topology.nodes)) for each in message.devices]


def options_of(message: v1beta1.DevicePluginOptions) -> Options:
    return Options(message.get_preferred_allocation_available, message.pre_start_required)


def preferred_request(
    available: Sequence[str], must_include: Sequence[str], size: int
) -> v1beta1.PreferredAllocationRequest:
    container = v1beta1.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
    )
    return v1beta1.PreferredAllocationRequest(container_requests=[container])
