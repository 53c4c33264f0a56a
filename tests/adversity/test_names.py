"""Names that are no Unicode: of files, and of ids in books that somebody spoiled."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from reactor.events import ConfigRead
from reactor.handlers.remember import memory, recall
from reactor.kubelet.books import parse_checkpoint
from reactor.model.errors import Refused
from tests.process.node import GPU, Node, shared
from tests.reducer.world import World, config

HALF = r'{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"a/b","DeviceIDs":["\ud800"]}]}}'


def test_half_a_character_in_the_checkpoint_is_refused() -> None:
    """Such an id would be held, and no list with it could be encoded."""
    with pytest.raises(Refused, match="DeviceIDs is not Unicode"):
        parse_checkpoint(HALF.encode())


def test_the_config_of_an_odd_path_is_remembered() -> None:
    world = World()
    path = os.fsdecode(b"/etc/\xff.yaml")
    world.tell(ConfigRead(config=config(), digest="d", path=path, text="version: v1\n"))
    kept = msgspec.json.encode(memory(world.state))
    assert recall(kept, lambda text, path: config()).config is not None


@pytest.fixture
def odd(root: Path) -> Path:
    place = Path(os.fsdecode(os.fsencode(root) + b"/c\xff \xe2\x98\x83"))
    place.mkdir()
    (place / "config.yaml").write_text(shared(2))
    return place


async def test_a_config_under_a_name_that_is_no_unicode_is_read_told_of_and_remembered(node: Node, odd: Path) -> None:
    agent = await node.start(config=str(odd / "config.yaml"), state_dir=str(odd / "state"))
    await node.seen.until("listed", resource=GPU, healthy=4)
    await agent.settled()
    assert (await agent.state())["faults"] == []
    (odd / "config.yaml").write_text("version: [\n")
    await agent.log.until("config.rejected")
    assert (await agent.state())["config"]["in_force"]
    await agent.end()
    assert b"version: v1" in (odd / "state" / "state.json").read_bytes()
