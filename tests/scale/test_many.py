"""60 000 ids of sixteen GPUs, which is about what the kubelet takes: from the plan to the other side of a socket."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
import trio

from reactor.aio import open_door
from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.kubelet.servers import PluginServers
from tests.contract.peer import Client, health, short_directory
from tests.reducer.world import GPU
from tests.scale.node import GPUS, Big
from tests.scale.test_limits import LIMIT

REPLICAS = 3750
KUBELET = [("grpc.max_receive_message_length", LIMIT), ("grpc.use_local_subchannel_pool", 1)]


@contextmanager
def kubelet(path: Path) -> Iterator[Client]:
    with grpc.insecure_channel(f"unix:{path}", options=KUBELET) as channel:
        yield Client(channel)


async def test_60_000_ids_are_listed_marked_preferred_and_allocated() -> None:
    world = Big(REPLICAS)
    names = world.ids()
    assert len(names) == 60_000

    def unhealthy(message: pb.ListAndWatchResponse) -> list[str]:
        return [name for name, word in health(message).items() if word == "Unhealthy"]

    def ask(path: Path) -> None:
        with kubelet(path) as peer:
            watch = peer.watch()
            first = next(watch)
            assert [device.ID for device in first.devices] == names
            assert unhealthy(first) == []
            trio.from_thread.run_sync(world.xid, 15)
            trio.from_thread.run_sync(servers.post, world.snapshot)
            assert unhealthy(next(watch)) == names[-REPLICAS:]
            chosen = peer.preferred(names, [], 4)
            assert [name.partition("::")[0] for name in chosen] == [gpu.uuid for gpu in GPUS[:4]]
            (answer,) = peer.allocate(chosen).container_responses
            assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == ",".join(gpu.uuid for gpu in GPUS[:4])
            with pytest.raises(grpc.RpcError):
                peer.allocate(names[-1:])
            watch.cancel()

    with short_directory() as directory:
        async with open_door() as door:
            servers = PluginServers(door, world.desk, directory=directory, kubelet_socket=directory / "kubelet.sock")
            try:
                servers.post(world.snapshot)
                socket = await servers.serve(GPU)
                await trio.to_thread.run_sync(ask, directory / socket)
            finally:
                await servers.aclose(1)


def test_memory_grows_with_the_ids_and_no_faster() -> None:
    """State, snapshot and the list as bytes."""

    def memory(replicas: int) -> int:
        tracemalloc.start()
        try:
            world = Big(replicas)
            world.xid(0)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    few, more, most = (memory(replicas) for replicas in (250, 1000, REPLICAS))
    at_first = (more - few) / (750 * len(GPUS))
    later = (most - more) / (2750 * len(GPUS))
    assert later <= 1.1 * at_first
    assert later < 700, "bytes of an id"
