"""podresources List against a grpcio server."""

from __future__ import annotations

import pytest

from reactor.aio import open_door
from reactor.kubelet._pb import podresources_pb2 as pb
from reactor.kubelet.books import list_pods
from reactor.model.errors import Transient
from tests.contract.peer import podresources, short_directory


def _reply(pods: int, devices: int, padding: int = 0) -> pb.ListPodResourcesResponse:
    return pb.ListPodResourcesResponse(
        pod_resources=[
            pb.PodResources(
                namespace="default",
                name=f"pod-{pod}",
                containers=[
                    pb.ContainerResources(
                        name="c",
                        devices=[
                            pb.ContainerDevices(
                                resource_name="nvidia.com/gpu", device_ids=[f"{pod}-{n}" + "x" * padding]
                            )
                            for n in range(devices)
                        ],
                    )
                ],
            )
            for pod in range(pods)
        ]
    )


async def test_a_list_is_read() -> None:
    with short_directory() as base, podresources(base / "kubelet.sock", lambda: _reply(2, 1)):
        async with open_door() as door:
            read = await list_pods(door, base / "kubelet.sock")
    assert [(str(one.pod), len(one.devices)) for one in read] == [("default/pod-0", 1), ("default/pod-1", 1)]


async def test_a_list_of_more_than_16_mb_is_read() -> None:
    reply = _reply(10, 900, padding=2000)
    assert reply.ByteSize() > 16 * 2**20
    with short_directory() as base, podresources(base / "kubelet.sock", lambda: reply):
        async with open_door() as door:
            read = await list_pods(door, base / "kubelet.sock")
    assert sum(len(one.devices) for one in read) == 9_000


async def test_a_missing_server_is_transient() -> None:
    with short_directory() as base:
        async with open_door() as door:
            with pytest.raises(Transient, match="listing pods"):
                await list_pods(door, base / "kubelet.sock")
