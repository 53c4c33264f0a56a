"""The 4 MiB that the kubelet takes: what does not fit is refused with the number that does, and the old list stays."""

from __future__ import annotations

import re

import grpc
import pytest
import trio

from reactor.kubelet.encode import list_bytes
from reactor.model.ids import DeviceId
from reactor.model.snapshot import Listed, Offer
from reactor.record.recorder import Recorder
from reactor.simulate.node import GPU, sim_node
from tests.contract import peer
from tests.kubelet import fakes
from tests.loglines import LogLines

LIMIT = 4_194_304


@pytest.mark.parametrize("gpus", [8, 16])
async def test_too_many_replicas_are_refused_with_the_largest_number_that_fits(
    recorder: Recorder, log: LogLines, autojump_clock: trio.testing.MockClock, gpus: int
) -> None:
    """CFG-09: and that number does fit, with every id Unhealthy, while one more does not."""
    async with sim_node(recorder, gpus=f"{gpus}xH100") as node:
        whole = node.listed()
        node.share(16384)
        await node.settle(30)
        assert node.listed() == whole
        fault = node.state.faults[f"plan.oversize:{GPU}"]
        (number,) = re.findall(r"largest number that fits is (\d+)", fault.message)
        assert log.of("plan.made")[-1]["level"] == "warning"
        largest = int(number)

        node.share(largest)
        await node.settle(10)
        assert len(node.healthy()) == gpus * largest
        assert node.state.faults == {}
        for index in range(gpus):
            node.hardware.xid(index, 79)
        await node.settle()
        assert len(node.unhealthy()) == gpus * largest
        size = list_bytes(node.desk.snapshot.offers[GPU])
        assert LIMIT - gpus * 70 < size <= LIMIT

        node.share(largest + 1)
        await node.settle(10)
        assert len(node.listed()) == gpus * largest
        assert f"plan.oversize:{GPU}" in node.state.faults


def of_bytes(size: int, revision: int) -> Offer:
    """A list of exactly this many bytes: many ids, and one that is as long as it takes."""

    def made(length: int) -> Offer:
        odd = Listed(id=DeviceId("x" * length), gpu=None, index=None, minor=None, share=None, healthy=False)
        return fakes.offer(fakes.group(0, replicas=1000), (odd,), revision=revision)

    short = size - list_bytes(made(0)) - 16
    (length,) = [length for length in range(short, short + 32) if list_bytes(made(length)) == size]
    return made(length)


async def test_a_list_of_exactly_4_mib_reaches_a_kubelet_and_one_byte_more_is_never_sent() -> None:
    """CFG-09: the client takes what the kubelet takes. What is too large leaves the list before it in force."""
    async with peer.node() as node:
        node.servers.post(fakes.snapshot(of_bytes(LIMIT, 1)))
        await node.servers.settle()
        path = node.path(await node.servers.serve(GPU))
        options = [("grpc.max_receive_message_length", LIMIT), ("grpc.use_local_subchannel_pool", 1)]

        def read() -> list[int]:
            with grpc.insecure_channel(f"unix:{path}", options=options) as channel:
                sizes = []
                watch = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"", timeout=10)
                for data in watch:
                    sizes.append(len(data))
                    if len(sizes) == 1:
                        trio.from_thread.run(after_the_first)
                    else:
                        watch.cancel()
                        return sizes
            raise AssertionError(f"the stream ended after {sizes}")

        async def after_the_first() -> None:
            node.servers.post(fakes.snapshot(of_bytes(LIMIT + 1, 2)))
            await node.servers.settle()
            await node.servers.settle()  # the stream has looked at it by now
            node.servers.post(fakes.snapshot(of_bytes(5000 + LIMIT // 2, 3)))
            await node.servers.settle()

        assert await trio.to_thread.run_sync(read) == [LIMIT, 5000 + LIMIT // 2]
