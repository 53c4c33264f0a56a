"""How an agent begins: alone, after a crash, beside another one, in the wrong place, too early."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import trio

from tests.process.node import GPU, Node, kubelet_at, shared
from tests.process.story import soon

# ---------------------------------------------------------------- after a crash


async def test_killed_and_started_again_with_pods_running(node: Node) -> None:
    """What pods hold is known before the kubelet is asked; the dead one's socket is removed."""
    first = await node.settled()
    assert await node.allocate("holder", 1) == ""
    await first.log.until("hold.begun")
    held = await node.kubelet.held(GPU)
    await soon(lambda: held <= remembered(node), "the state file")
    await first.end(signal.SIGKILL)
    dead = node.plugin_sockets()
    node.config.write_text(shared(2))  # would share the held GPU, were the hold forgotten

    second = await node.start()
    await second.settled()
    await node.seen.until("listed", resource=GPU, healthy=2, unhealthy=3)
    assert second.log.of("state.restored")[0]["holds"] == 1
    assert set(dead).isdisjoint(node.plugin_sockets())
    assert (await node.kubelet.devices(GPU))[min(held)] is False, "a tombstone"
    assert await node.allocate("a", 1) == ""
    assert await node.kubelet.held(GPU) > held
    shares = await node.kubelet.held(GPU) - held
    assert not any(share.startswith(min(held)) for share in shares), "of the other GPU only"


def remembered(node: Node) -> set[str]:
    try:
        text = (node.state_dir / "state.json").read_text()
    except FileNotFoundError:
        return set()
    return {gpu.uuid for gpu in node.gpus.gpus if f'"{gpu.uuid}"' in text}


async def test_killed_and_started_again_it_serves_the_config_it_had(node: Node) -> None:
    """The file is broken by now: what was last accepted stays in force."""
    node.config.write_text(shared(3))
    first = await node.start()
    await node.seen.until("listed", resource=GPU, healthy=6)
    await soon((node.state_dir / "state.json").exists)
    await first.end(signal.SIGKILL)
    node.config.write_text("version: v1\nsharing: [\n")
    seen = node.seen.now
    second = await node.start()
    await second.log.until("config.rejected")
    await node.seen.until("listed", after=seen, resource=GPU, healthy=6)


# ---------------------------------------------------------------- two by mistake


async def test_a_second_agent_waits_and_takes_over(node: Node) -> None:
    """KBL-05: neither touches a socket of the other."""
    first = await node.settled()
    second = await node.start(admin_socket=str(node.root / "second.sock"))
    waiting = await second.log.until("agent.delayed")
    assert "another agent holds" in str(waiting["reason"])
    ours = node.plugin_sockets()
    assert len(ours) == 1
    state = await second.shows()
    assert state["agent"]["ready"] is False
    assert "another agent holds" in state["agent"]["unready"][0]
    assert await node.allocate("a", 1) == ""

    await first.end()
    await second.settled()
    await node.seen.until("registered", count=2)
    await node.seen.until("listed", healthy=2, count=2)
    assert len(node.plugin_sockets()) == 1
    assert set(node.plugin_sockets()).isdisjoint(ours)
    assert await node.allocate("b", 1) == ""


async def test_a_second_agent_takes_over_from_one_that_is_killed(node: Node) -> None:
    """KBL-05: on the same admin socket, too, which it gets when the first one is gone."""
    first = await node.settled()
    second = await node.start()
    await second.log.until("agent.delayed")
    await second.log.until("source.failed", source="admin")
    await first.end(signal.SIGKILL)
    await second.settled()
    await node.seen.until("listed", healthy=2, count=2)
    assert len(node.plugin_sockets()) == 1
    with trio.fail_after(10):
        await second.log.until("source.recovered", source="admin")
    assert (await second.state())["agent"]["ready"]


# ---------------------------------------------------------------- where the kubelet is


async def test_a_kubelet_root_elsewhere_is_used_for_all_three(root: Path, node: Node) -> None:
    """KBL-09: the registration socket, the checkpoint and podresources."""
    elsewhere = root / "data" / "kubelet"
    async with kubelet_at(elsewhere) as (kubelet, seen):
        agent = await node.start(kubelet_root=str(elsewhere))
        await seen.until("listed", healthy=2)
        pod = await kubelet.run_pod("a", {GPU: 1})
        assert pod.message == ""
        await agent.log.until("checkpoint.read")
        await agent.shows(lambda state: [hold["pod"] for hold in state["holds"]] == ["default/a"])
        assert await kubelet.streams(GPU) == 1
        await agent.end()


@pytest.mark.parametrize("name", ["plug ins", "plügins: 100%?#[x]", "a" * 40])
async def test_a_plugin_directory_may_have_any_name(node: Node, name: str) -> None:
    """KBL-16: what means something in the address of a gRPC target, a relative part, and what is nearly too long."""
    (node.root / name).symlink_to(node.kubelet.directory)
    await node.start(plugin_dir=f"{node.root}/config/../{name}")
    await node.seen.until("listed", healthy=2)
    assert await node.allocate("a", 1) == ""


async def test_a_plugin_directory_that_comes_later_is_waited_for(root: Path, node: Node) -> None:
    """KBL-10"""
    later = root / "later"
    agent = await node.start(kubelet_root=str(later))
    waiting = await agent.log.until("agent.delayed")
    assert "cannot be opened" in str(waiting["reason"])
    (later / "device-plugins").mkdir(parents=True)
    await agent.log.until("plan.made")
    state = await agent.state()
    assert state["agent"]["ready"] is True, "an absent kubelet is not this agent's fault"
    async with kubelet_at(later) as (_, seen):
        await seen.until("listed", healthy=2)
        await agent.settled()
        await agent.end()


# ---------------------------------------------------------------- bad settings


@pytest.mark.parametrize(
    ("flags", "environment", "named"),
    [
        (["--resync=soon"], {}, "--resync"),
        (["--probe-listen=nonsense"], {}, "--probe-listen"),
        (["--no-such-flag"], {}, "--no-such-flag"),
        (["--admin-socket=/" + "a" * 120], {}, "--admin-socket"),
        ([], {"DP_DISABLE_HEALTHCHECKS": "79,x"}, "DP_DISABLE_HEALTHCHECKS"),
        ([], {"KUBELET_SOCKET": "/x/other.sock"}, "KUBELET_SOCKET"),
    ],
)
async def test_a_bad_setting_ends_it_at_once_and_is_named(
    node: Node, flags: list[str], environment: dict[str, str], named: str
) -> None:
    agent = await node.start(*flags, environment=environment)
    end = await agent.ended()
    assert end.code == 78
    assert named in agent.take_complaints()
    assert agent.log.lines == []
