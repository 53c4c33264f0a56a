"""The process ends when it is asked to, whatever hangs, and the kubelet sees that it ended."""

from __future__ import annotations

import os
import shutil
import signal

import pytest
import trio
from h2.connection import H2Connection

from reactor.simulate.kubelet.socket_link import SocketWeather
from tests.process.agent import Agent, End
from tests.process.node import GPU, Node, shared
from tests.process.story import soon

GRACE = 1.0
"""What these agents get as --grace: what hangs may take so long."""
SLACK = 2.0
"""For a busy machine, the end of the log and of the interpreter."""


def watch_request() -> bytes:
    """What a client sends to open ListAndWatch."""
    peer = H2Connection()
    peer.initiate_connection()
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/v1beta1.DevicePlugin/ListAndWatch",
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    peer.send_headers(1, list(headers.items()))
    peer.send_data(1, bytes(5), end_stream=True)
    return peer.data_to_send()


def never_answer(weather: SocketWeather) -> None:
    weather.register_delay = 3600.0


async def scan_that_hangs(node: Node, agent: Agent) -> None:
    hang = node.gpus.hang("nvmlDeviceGetUUID", 1)
    agent.send(signal.SIGHUP)
    await soon(lambda: hang.met > 0)


async def end_well(agent: Agent, number: signal.Signals = signal.SIGTERM) -> End:
    """Ask it to end; it must do so in time, with code 0, and leave no child."""
    children = agent.children()
    end = await agent.end(number, within=GRACE + SLACK)
    assert end.code == 0
    for child in children:
        await child.gone(within=SLACK)
    return end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_and_the_kubelet_sees_the_end(node: Node, number: signal.Signals) -> None:
    """No empty list is sent on the way: pods keep what they have."""
    agent = await node.settled()
    assert await node.allocate("stays", 1) == ""
    end = await end_well(agent, number)
    await node.seen.until("stream.ended", resource=GPU)
    assert end.seconds < SLACK, "nothing was in the way"
    assert {line["healthy"] for line in node.seen.of("listed")} == {2}
    assert node.plugin_sockets() == []
    assert not node.admin.exists()
    assert len(agent.log.of("agent.stopped")) == 1
    assert await node.kubelet.held(GPU) != frozenset()


async def test_it_ends_while_an_nvml_call_hangs(node: Node) -> None:
    agent = await node.settled(grace=GRACE)
    await scan_that_hangs(node, agent)
    await end_well(agent)
    assert node.plugin_sockets() == []


async def test_it_ends_before_nvml_ever_answered(node: Node) -> None:
    hang = node.gpus.hang("nvmlInitWithFlags")
    agent = await node.start(grace=str(GRACE))
    await soon(lambda: hang.met > 0)
    await end_well(agent)


async def test_it_ends_while_a_kubelet_does_not_read(node: Node) -> None:
    """A list of 100 KB does not fit into its window: the peer gets no farewell, and holds nothing up."""
    node.config.write_text(shared(1000))
    agent = await node.start(grace=str(GRACE))
    await node.seen.until("listed", resource=GPU, healthy=2000)
    (name,) = node.plugin_sockets()
    stuck = await trio.open_unix_socket(str(node.kubelet.directory / name))
    async with stuck:
        await stuck.send_all(watch_request())
        await agent.log.until("stream.opened", count=2)
        await end_well(agent)
    await node.seen.until("stream.ended", resource=GPU)


async def test_it_ends_while_the_kubelet_never_answers_a_register(node: Node) -> None:
    await node.kubelet.weather(never_answer)
    agent = await node.start(grace=str(GRACE))
    await node.served()
    await end_well(agent)
    assert node.plugin_sockets() == []


async def test_it_ends_while_kubelet_sock_accepts_and_is_mute(node: Node) -> None:
    await node.kubelet.kill()
    await node.kubelet.start(mute=True)
    agent = await node.start(grace=str(GRACE))
    await node.served()
    await end_well(agent)


async def test_it_ends_while_it_waits_for_another_agent(node: Node) -> None:
    first = await node.settled()
    second = await node.start(admin_socket=str(node.root / "second.sock"))
    await second.log.until("agent.delayed")
    end = await end_well(second)
    assert end.seconds < SLACK
    assert len(node.plugin_sockets()) == 1
    assert await node.allocate("a", 1) == ""
    assert (await first.state())["agent"]["ready"]


async def test_it_ends_when_the_signal_comes_before_anything_else(node: Node) -> None:
    agent = await node.start()
    await agent.shows()
    assert (await agent.end()).code == 0


async def test_killed_it_leaves_no_child(node: Node) -> None:
    """Even when the NVML worker hangs in a call."""
    agent = await node.settled()
    await scan_that_hangs(node, agent)
    children = agent.children()
    assert children
    assert (await agent.end(signal.SIGKILL)).code == -signal.SIGKILL
    for child in children:
        await child.gone(within=SLACK)


async def test_it_ends_for_its_next_start_where_the_plugin_directory_was_deleted_under_its_mount(node: Node) -> None:
    """A container's mount goes on showing a directory that has no name any more; a descriptor stands for it here."""
    directory = node.kubelet.directory
    mount = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        agent = await node.start(plugin_dir=f"/proc/{os.getpid()}/fd/{mount}")
        await agent.settled()
        assert await node.allocate("stays", 1) == ""
        await node.kubelet.stop()
        shutil.rmtree(directory)
        assert (await agent.ended()).code == 1
    finally:
        os.close(mount)
    (told,) = agent.log.of("plugin.stranded")
    assert "was deleted under its mount" in told["error"]
    assert agent.log.of("agent.stopped")[0]["reason"] == told["error"]
    directory.mkdir()
    await node.kubelet.start()
    again = await node.settled()
    assert [hold["resource"] for hold in (await again.state())["holds"]] == [GPU]
