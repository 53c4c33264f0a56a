"""``--kubelet-socket ""``: the kubelet's plugin watcher finds the agent, over restarts of either."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.process.node import GPU, Node, shared
from tests.process.story import soon


def files(node: Node) -> list[str]:
    return sorted(path.name for path in node.kubelet.registry.iterdir())


async def test_it_is_found_lists_gives_and_leaves_no_file_behind(node: Node) -> None:
    agent = await node.start("--kubelet-socket=")
    await agent.settled()
    await node.seen.until("listed", resource=GPU, healthy=2)
    assert node.plugin_sockets() == [], "nothing of ours is beside kubelet.sock"
    (name,) = files(node)
    state = await agent.shows(lambda state: state["resources"][0]["registered"])
    assert (state["resources"][0]["socket"], state["kubelet"]["up"]) == (name, True)
    assert await node.allocate("job", 2) == ""
    node.config.write_text(shared(2))
    await node.seen.until("listed", resource=GPU, unhealthy=6)
    assert (await agent.end()).code == 0
    assert files(node) == []


async def test_a_new_life_of_the_kubelet_finds_a_fresh_socket(node: Node) -> None:
    agent = await node.start(environment={"KUBELET_SOCKET": ""})
    await agent.settled()
    await node.seen.until("listed", resource=GPU, healthy=2)
    assert await node.allocate("job", 1) == ""
    for restart in range(1, 4):
        (before,) = files(node)
        seen = node.seen.now
        await node.kubelet.restart(graceful=restart == 2)
        await node.seen.until("listed", after=seen, resource=GPU, healthy=2)
        await agent.log.until("kubelet.appeared", life=restart + 1)
        (after,) = files(node)
        assert after != before
    assert len(node.seen.of("registered")) == 4, "once in each life"
    state = await agent.shows(lambda state: state["resources"][0]["registered"])
    assert state["resources"][0]["held"] == 1
    assert [fault["name"] for fault in state["faults"]] == []


async def test_an_agent_that_was_killed_leaves_a_file_that_the_next_one_removes(node: Node) -> None:
    """Whichever way the next one registers: two files of one resource take each other down."""
    for flags in (["--kubelet-socket="], ["--kubelet-socket="], []):
        seen = node.seen.now
        agent = await node.start(*flags)
        await agent.settled()
        await node.seen.until("listed", after=seen, resource=GPU, healthy=2)
        assert len(files(node)) == len(flags)
        await agent.end(signal.SIGKILL)


async def test_a_kubelet_whose_socket_is_not_to_be_seen_serves_all_the_same(node: Node, root: Path) -> None:
    elsewhere = root / "empty"
    elsewhere.mkdir()
    agent = await node.start("--kubelet-socket=", plugin_dir=str(elsewhere))
    await agent.settled()
    await node.seen.until("listed", resource=GPU, healthy=2)
    seen = node.seen.now
    await node.kubelet.restart()
    await node.seen.until("listed", after=seen, resource=GPU, healthy=2)
    state = await agent.shows(lambda state: state["kubelet"]["up"])
    assert state["resources"][0]["registered"]


async def test_a_registry_that_comes_late_is_waited_for(node: Node, root: Path) -> None:
    registry = root / "other" / "plugins_registry"
    registry.parent.mkdir()
    agent = await node.start(
        "--kubelet-socket=", kubelet_root=str(registry.parent), plugin_dir=str(node.kubelet.directory)
    )
    await agent.log.until("handler.failed", handler="register")
    registry.mkdir()
    await soon(lambda: len(list(registry.glob("gpu-reactor-*"))) == 1, "a socket")
    await agent.log.until("handler.recovered", handler="register")


async def test_a_kubelet_root_that_leaves_no_room_for_a_socket_is_named_at_once(node: Node) -> None:
    """KBL-16"""
    agent = await node.start("--kubelet-socket=", kubelet_root="/" + "r" * 62)
    assert (await agent.ended()).code == 78
    told = agent.take_complaints()
    assert "plugins_registry, whose path is 80 bytes long: at most 78" in told
