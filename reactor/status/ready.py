"""Ready: what the config asks for is served, as far as that lies with this agent.

A rejected edit, no GPU, a faulty GPU and an absent kubelet leave it ready: a rollout must not stop for those.
"""

from __future__ import annotations

from collections.abc import Iterator

from reactor.model.gpu import DriverState
from reactor.state import DriverStatus, Kubelet, Plugin, State


def why_unready(state: State, *, standby: bool = False) -> tuple[str, ...]:
    """What is missing, for people; empty: ready. ``standby``: an agent that waits for its turn lacks nothing."""
    return tuple(_missing(state, standby=standby))


def _missing(state: State, *, standby: bool) -> Iterator[str]:
    if state.stopping:
        yield "the agent is stopping"
    if (waiting := state.faults.get("agent.waiting")) is not None:
        if not standby:
            yield waiting.message
        return
    config = state.config.config
    if config is None:
        yield "no config is in force, so nothing is served"
        yield from (problem.render(state.config.rejected_path) for problem in state.config.problems[:3])
        return
    yield from _driver(state.driver, scanned=state.scanned_at is not None, wanted=config.flags.fail_on_init_error)
    yield from _kubelet(state)


def _driver(driver: DriverStatus, *, scanned: bool, wanted: bool) -> Iterator[str]:
    """``wanted`` is failOnInitError: the config says that this node is none without its driver."""
    if driver.state is DriverState.READY:
        return
    if driver.state is DriverState.UNKNOWN:
        yield "NVML has not been asked yet"
    elif wanted and (driver.state.definite or not scanned):
        yield f"the NVIDIA driver is {driver.state} and failOnInitError is true: {driver.error}"


def _kubelet(state: State) -> Iterator[str]:
    kubelet = state.kubelet
    if not kubelet.there:
        if not kubelet.reason and not kubelet.life:
            yield "the kubelet has not been looked for yet"
        return
    for resource in state.plan.resources:
        if (missing := _plugin(kubelet, kubelet.plugins.get(resource.name))) is not None:
            yield f"{resource.name}: {missing}"


def _plugin(kubelet: Kubelet, plugin: Plugin | None) -> str | None:
    if plugin is None:
        return "its server is not up"
    if not kubelet.took(plugin):
        return "not registered with the kubelet"
    if not plugin.streams:
        return "the kubelet does not watch it"
    return None
