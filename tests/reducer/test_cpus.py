"""KBL-22: a kubelet that pins CPUs wants device nodes passed."""

from __future__ import annotations

from reactor import events as e
from reactor.config import Accepted, parse
from reactor.model.kubelet import SocketIdentity
from tests.reducer.world import World

FAULT = "kubelet.pins_cpus"


def config(world: World, passing: str) -> None:
    read = parse(f"flags: {{plugin: {{passDeviceSpecs: {passing}}}}}".encode(), path="c.yaml")
    assert isinstance(read, Accepted)
    world.tell(e.ConfigRead(config=read.config, digest=read.digest))


def test_pinned_cpus_without_device_specs_are_a_fault_until_one_of_the_two_changes() -> None:
    world = World()
    assert FAULT not in world.state.faults
    world.tell(e.KubeletUp(identity=SocketIdentity(2, 2), pins_cpus=True))
    assert "passDeviceSpecs" in world.state.faults[FAULT].message
    config(world, "true")
    assert FAULT not in world.state.faults
    config(world, "false")
    assert FAULT in world.state.faults
    world.tell(e.KubeletUp(identity=SocketIdentity(3, 3)))
    assert FAULT not in world.state.faults
