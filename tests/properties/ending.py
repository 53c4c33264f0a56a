"""How it must look in the end: trouble is over, Lists were read, quiet times have passed (design.md 7.9)."""

from __future__ import annotations

import trio

from reactor import events as e
from reactor import view
from reactor.kubelet.books import parse_checkpoint
from reactor.model.ids import GpuUuid
from reactor.simulate.nvml import codes
from tests.properties import checks
from tests.properties.shapes import RESOURCES
from tests.properties.world import World


async def heal(world: World) -> None:
    """Whatever was in the way is over; then a re-scan, Lists, and the time that quiet needs."""
    weather = world.kubelet.weather
    weather.open()
    weather.refuse_register, weather.register_delay, weather.read_delay = 0, 0.0, 0.0
    world.release()
    world.node.hardware.mend()
    world.node.hardware.set_driver(codes.READY)
    for gpu in world.node.hardware.gpus:
        world.node.hardware.find(gpu)
    await world.start_agent()
    if not world.kubelet.up:
        await world.kubelet.start()
    await world.kubelet.api_answers()
    world.kubelet.core.manager.save()  # a spoilt checkpoint is mended by whatever has the kubelet write it
    world.node.publish(e.SignalReceived(name="HUP"))
    await trio.sleep(10.0)
    world.sound("healing")
    await trio.sleep(120.0)
    await world.node.settle()
    if any(hold.suspended for hold in world.node.state.holds.values()):
        # Books of a new kubelet that lack an id are not believed at once: they may be lost while the pod runs on.
        await trio.sleep(320.0)
    world.sound("quiet times")


def lists(world: World) -> dict[str, dict[str, bool]]:
    """What the kubelet has been told, by resource; what is no longer served is not named."""
    return {
        name: listed
        for name in RESOURCES
        if (listed := world.kubelet.devices(name)) and (any(listed.values()) or world.kubelet.streams(name))
    }


def held_by_pods(world: World) -> set[checks.Id]:
    """Ids that must count as held: those of running pods, and those that the kubelet's List still shows."""
    shown = {(resource, one) for pod in world.kubelet.list_pods() for resource, one, _ in pod.devices}
    return shown.union(*world.truth.held.values())


def may_be_held(world: World) -> set[checks.Id]:
    """A kubelet before 1.34 keeps what ended pods had in its checkpoint until it allocates anew.

    It also goes on listing a pod that ended: after a restart that looks like a running pod whose books were lost.
    """
    if world.kubelet.traits.version.frees_at_list:
        return held_by_pods(world)
    books = parse_checkpoint(world.kubelet.checkpoint() or b"")
    unclear = {(key.resource, key.id) for key, hold in world.node.state.holds.items() if hold.suspended}
    return held_by_pods(world) | {(entry.resource, entry.id) for entry in books.entries} | unclear


def expected(world: World, held: set[checks.Id]) -> dict[str, dict[str, bool]]:
    """What must be listed in the end: the config's wish, what pods hold, and what is wrong with GPUs."""
    present = [gpu.uuid for gpu in world.node.hardware.present]
    planned = world.truth.shape.planned(present)
    elsewhere = {one: resource for resource, one in held}
    whole = {one.split("::")[0]: "::" not in one for _, one in held}
    wanted: dict[str, dict[str, bool]] = {}
    for (resource, one), gpu in planned.items():
        if elsewhere.get(one, resource) != resource:
            continue
        free = gpu not in whole or whole[gpu] is ("::" not in one)
        marked = bool(world.node.state.conditions.get(GpuUuid(gpu)))
        wanted.setdefault(resource, {})[one] = free and not marked
    ours = {(key.resource, key.id) for key, hold in world.node.state.holds.items() if hold.ours}
    served = view.names(world.node.state)
    for resource, one in held:
        if (resource, one) not in planned and (resource in served or (resource, one) in ours):
            wanted.setdefault(resource, {})[one] = False
    return wanted


def converged(world: World) -> None:
    """Invariant 9, as far as it can be said without another agent."""
    state, kubelet = world.node.state, world.kubelet
    held: set[checks.Id] = {(key.resource, key.id) for key in state.holds}
    assert held_by_pods(world) <= held <= may_be_held(world)
    assert lists(world) == expected(world, held)
    for name in view.names(state):
        listed = kubelet.devices(name)
        assert kubelet.capacity(name) == len(listed)
        assert kubelet.allocatable(name) == sum(listed.values())
        assert kubelet.streams(name) == 1
    for gpu in world.node.hardware.present:
        unmarked = gpu.uuid not in world.truth.condemned and world.truth.troubles.get(gpu.uuid, 0) < 3
        if unmarked:
            assert GpuUuid(gpu.uuid) not in state.conditions, state.conditions
    faults = set(state.faults) - {"config.rejected"}
    assert not faults, state.faults


async def same_after_a_new_start(world: World) -> None:
    """Another life of the agent, with the same holds and conditions, comes to the same lists."""
    told, holds, conditions = lists(world), world.node.state.holds.keys(), _conditions(world)
    world.running = False
    await world.node.kill_agent()
    await world.start_agent()
    await trio.sleep(20.0)
    await world.node.settle()
    world.sound("a new start")
    assert lists(world) == told
    assert world.node.state.holds.keys() == holds
    assert _conditions(world) == conditions


def _conditions(world: World) -> dict[str, set[tuple[object, ...]]]:
    """Of GPUs that are there. That a GPU is gone is a condition too, but one that nobody has to remember."""
    known = world.node.state.conditions
    present = [GpuUuid(gpu.uuid) for gpu in world.node.hardware.present]
    return {gpu: {one.key for one in known[gpu]} for gpu in present if gpu in known}
