"""A config file that is edited under the running process: real inotify, real swaps."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.node import GPU, WHOLE, ConfigMap, Node, shared

BROKEN = "version: v1\nsharing:\n  timeSlicing: [\n"


def write(file: Path, text: str) -> None:
    file.write_text(text)


def rename(file: Path, text: str) -> None:
    fresh = file.with_name(".config.yaml.swp")
    fresh.write_text(text)
    os.replace(fresh, file)


def truncate_then_write(file: Path, text: str) -> None:
    """As a slow editor does: the file is empty for a moment, then half there."""
    with file.open("w") as opened:
        opened.flush()
        opened.write(text[:12])
        opened.flush()
        opened.write(text[12:])


@pytest.mark.parametrize("edit", [write, rename, truncate_then_write])
async def test_an_edit_is_applied_live_and_once_however_it_is_written(
    node: Node, edit: Callable[[Path, str], None]
) -> None:
    agent = await node.settled()
    edit(node.config, shared(2))
    await node.seen.until("listed", resource=GPU, healthy=4)
    edit(node.config, shared(3))
    await node.seen.until("listed", resource=GPU, healthy=6)
    await agent.log.until("config.read", count=3)
    assert len(agent.log.of("config.read")) == 3
    assert agent.log.of("config.rejected") == []
    assert len(node.seen.of("registered")) == 1
    assert node.seen.of("stream.ended") == []


async def test_a_configmap_swap_is_applied_live_and_once(node: Node) -> None:
    """CFG-30"""
    node.config.unlink()
    mounted = ConfigMap(node.config.parent, WHOLE)
    agent = await node.settled()
    for replicas in (2, 3, 4):
        mounted.swap(shared(replicas))
        await node.seen.until("listed", resource=GPU, healthy=2 * replicas)
    await agent.log.until("config.read", count=4)
    assert len(agent.log.of("config.read")) == 4
    assert agent.log.of("config.rejected") == []
    assert len(node.seen.of("registered")) == 1
    assert node.seen.of("stream.ended") == []


async def test_a_swap_that_changes_nothing_is_not_told_of(node: Node) -> None:
    """CFG-33"""
    node.config.unlink()
    mounted = ConfigMap(node.config.parent, WHOLE)
    agent = await node.settled()
    for _ in range(20):
        mounted.swap(WHOLE)
        os.utime(mounted.file)
    mounted.swap(shared(2))
    await node.seen.until("listed", resource=GPU, healthy=4)
    await agent.log.until("config.read", count=2)
    assert len(agent.log.of("config.read")) == 2
    assert len(node.seen.of("listed")) == 2


async def test_a_broken_edit_leaves_list_and_readiness_alone(node: Node) -> None:
    """CFG-29"""
    agent = await node.settled()
    node.config.write_text(BROKEN)
    await agent.log.until("config.rejected")
    state = await agent.state()
    assert (state["agent"]["ready"], state["config"]["in_force"]) == (True, True)
    assert await node.allocate("meanwhile", 1) == ""
    assert {line["healthy"] for line in node.seen.of("listed")} == {2}
    node.config.write_text(shared(2))
    await node.seen.until("listed", resource=GPU, healthy=2, unhealthy=3)
    assert len(agent.log.of("config.rejected")) == 1
    assert node.seen.of("stream.ended") == []


async def test_sighup_says_once_more_what_is_wrong_with_the_config(node: Node) -> None:
    """CFG-29: whoever asks for another reading is not left with no answer."""
    agent = await node.settled()
    node.config.write_text(BROKEN)
    await agent.log.until("config.rejected")
    agent.send(signal.SIGHUP)
    await agent.log.until("config.rejected", count=2)
    first, again = agent.log.of("config.rejected")
    assert first["problems"] == again["problems"]
    assert len(node.seen.of("listed")) == 1


async def test_a_config_that_goes_away_leaves_everything_as_it_is(node: Node) -> None:
    agent = await node.settled()
    node.config.unlink()
    await agent.log.until("config.rejected")
    assert (await agent.state())["config"]["in_force"] is True
    node.config.write_text(shared(2))
    await node.seen.until("listed", resource=GPU, healthy=4)
    assert node.seen.of("stream.ended") == []


async def test_sighup_reads_the_config_and_looks_at_the_gpus_again(node: Node) -> None:
    """An edit that the watched directory does not show, and a GPU that came without a word, are found."""
    elsewhere = node.root / "elsewhere.yaml"
    elsewhere.write_text(WHOLE)
    node.config.unlink()
    node.config.symlink_to(elsewhere)
    node.gpus.unplug(1)
    agent = await node.start()
    await node.seen.until("listed", resource=GPU, healthy=1)
    await agent.settled()
    elsewhere.write_text(shared(2))
    node.gpus.plug(1)
    agent.send(signal.SIGHUP)
    await node.seen.until("listed", resource=GPU, healthy=4)
    told = [line["event"] for line in agent.log.lines]
    assert told.index("agent.signalled") < len(told) - told[::-1].index("config.read")
    assert node.seen.of("stream.ended") == []
    assert (await agent.state())["agent"]["reloads"] == 1
