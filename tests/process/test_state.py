"""A state directory that cannot be used costs memory over restarts, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reactor.status.document import Document
from tests.process.node import GPU, Node


@pytest.mark.parametrize("text", [b'{"v":1,"holds":[{"resou', b"", b"[]", b"\0" * 4096, b'{"v":1,"holds":7}'])
async def test_a_damaged_state_file_is_set_aside(node: Node, text: bytes) -> None:
    """DRA-02"""
    node.state_dir.mkdir()
    (node.state_dir / "state.json").write_bytes(text)
    agent = await node.settled()
    (restored,) = agent.log.of("state.restored")
    assert restored["level"] == "warning"
    assert "damaged" in str(restored["error"])
    assert (node.state_dir / "state.damaged").read_bytes() == text
    await agent.end()
    assert json.loads((node.state_dir / "state.json").read_text())["v"] == 1


async def test_a_state_file_of_a_later_version_is_told_of(node: Node) -> None:
    """DRA-02"""
    node.state_dir.mkdir()
    (node.state_dir / "state.json").write_text('{"v": 99}')
    agent = await node.settled()
    (restored,) = agent.log.of("state.restored")
    assert "version 99" in str(restored["error"])


def no_space(directory: Path) -> Path:
    """The new file leads to a device that takes no byte."""
    directory.mkdir()
    (directory / "state.new").symlink_to("/dev/full")
    return directory


def a_file_in_its_place(directory: Path) -> Path:
    directory.write_text("")
    return directory


def read_only(directory: Path) -> Path:
    """Where not even root can make a directory, as on a read-only mount."""
    return Path("/sys") / directory.name


@pytest.mark.parametrize("spoilt", [no_space, a_file_in_its_place, read_only])
async def test_a_state_directory_that_takes_nothing_is_a_fault_and_gpus_are_served(
    node: Node, spoilt: Callable[[Path], Path]
) -> None:
    directory = spoilt(node.state_dir)
    agent = await node.start(state_dir=str(directory), grace="0.1")
    await node.seen.until("listed", resource=GPU, healthy=2)
    failed = await agent.log.until("handler.failed", handler="remember")
    assert str(directory) in str(failed["error"])
    assert await node.allocate("a", 1) == ""
    state = await agent.shows(lambda state: "handler.remember" in faults(state))
    assert state["agent"]["ready"] is True
    assert (await agent.end()).code == 0


async def test_a_state_directory_that_is_missing_is_made(node: Node) -> None:
    deep = node.root / "not" / "yet"
    agent = await node.start(state_dir=str(deep))
    await node.seen.until("listed", resource=GPU, healthy=2)
    await agent.end()
    assert (deep / "state.json").exists()


async def test_space_that_comes_back_is_used(node: Node) -> None:
    assert no_space(node.state_dir) == node.state_dir
    agent = await node.start()
    await agent.log.until("handler.failed", handler="remember")
    (node.state_dir / "state.new").unlink()
    await agent.log.until("handler.recovered", handler="remember")
    assert (node.state_dir / "state.json").exists()


def faults(state: Document) -> list[str]:
    return [fault["name"] for fault in state["faults"]]
