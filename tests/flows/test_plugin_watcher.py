"""The kubelet's plugin watcher finds our sockets: no Register, and each new life of it finds them by itself."""

from __future__ import annotations

import pytest

from reactor.events import KubeletUp, PluginOffered, PluginRefused, PluginRegistered
from reactor.model.ids import ResourceName
from reactor.model.kubelet import Registration
from reactor.simulate.node import GPU
from reactor.status.ready import why_unready

VERSIONS = pytest.mark.parametrize("version", ["1.29", "1.34", "1.37"])
WATCHER = Registration.WATCHER
SHARED = ResourceName("nvidia.com/gpu.shared")


@VERSIONS
async def test_a_socket_is_offered_found_taken_and_listed(flow, seen, autojump_clock, version):
    async with flow(version=version, registration=WATCHER) as node:
        await node.until(lambda: len(node.healthy()) == 2, within=3)
        await node.settle(30)
        assert len(node.kubelet.registry) == node.kubelet.streams(GPU) == 1
        assert node.kubelet.sockets == {}, "nothing of ours is beside kubelet.sock"
        assert len(seen.of(PluginOffered)) == len(seen.of(PluginRegistered)) == 1
        assert why_unready(node.state) == ()
        pod = await node.kubelet.run_pod("job", {GPU: 2})
        assert pod.phase == "Running"


@VERSIONS
async def test_a_kubelet_that_comes_late_finds_what_was_offered(flow, seen, autojump_clock, version):
    async with flow(version=version, registration=WATCHER, started=False) as node:
        await node.start_agent()
        await node.settle(90)
        assert len(node.kubelet.registry) == 1
        assert why_unready(node.state) == (), "an absent kubelet leaves it ready"
        await node.kubelet.start()
        await node.until(lambda: len(node.healthy()) == 2, within=1.5)
        await node.settle(5)
        assert len(seen.of(PluginOffered)) == len(seen.of(PluginRegistered)) == 1


@VERSIONS
@pytest.mark.parametrize("down", [0.0, 0.05, 5.0, 90.0])
async def test_a_new_life_of_the_kubelet_finds_a_fresh_socket_and_holds_stay(flow, seen, autojump_clock, version, down):
    async with flow(version=version, registration=WATCHER) as node:
        await node.until(lambda: len(node.healthy()) == 2)
        await node.kubelet.run_pod("job", {GPU: 1})
        await node.settle(10)
        life, before = node.state.kubelet.life, set(node.kubelet.registry)
        for restart in range(1, 4):
            await node.kubelet.restart(down)
            await node.until(lambda: len(node.healthy()) == 2, within=3)
            await node.settle(20)
            assert node.state.kubelet.life == life + restart
            assert not node.state.kubelet.doubted
            assert node.kubelet.streams(GPU) == len(node.kubelet.registry) == 1
            assert len(seen.of(PluginRegistered)) == 1 + restart
            assert len(node.state.holds) == 1, "its pod runs on"
        assert not before & set(node.kubelet.registry), "never the same file twice"
        assert why_unready(node.state) == ()


@VERSIONS
async def test_a_stream_may_be_there_before_the_kubelets_socket_was_looked_at(flow, seen, autojump_clock, version):
    async with flow(version=version, registration=WATCHER, started=False) as node:
        await node.start_agent()
        await node.settle(300)  # looked for once a second by now, and the watcher looks at the same moment
        await node.kubelet.start()
        await node.until(lambda: len(node.healthy()) == 2, within=2)
        await node.until(lambda: node.state.kubelet.identity == node.kubelet.identity(), within=0.1)
        assert len(seen.of(KubeletUp)) == 1


async def test_nothing_is_there_to_be_found_while_the_kubelet_is_away(flow, seen, autojump_clock):
    """A new life of it must not be shown a list before we looked at the books that it began with."""
    async with flow(registration=WATCHER) as node:
        await node.until(lambda: len(node.healthy()) == 2)
        await node.settle(10)
        node.kubelet.stop()
        await node.settle(30)
        assert node.kubelet.registry == {}
        assert node.servers.sockets() == {}
        await node.kubelet.start()
        await node.until(lambda: len(node.healthy()) == 2, within=3)


@VERSIONS
async def test_a_stream_that_ends_alone_is_healed_by_a_fresh_socket(flow, seen, autojump_clock, version):
    async with flow(version=version, registration=WATCHER) as node:
        await node.until(lambda: len(node.healthy()) == 2)
        await node.settle(10)
        node.kubelet.reset_stream(GPU)
        await node.until(lambda: not node.healthy(), within=0.1)
        await node.until(lambda: len(node.healthy()) == 2, within=2)
        await node.settle(30)
        assert node.kubelet.streams(GPU) == len(node.kubelet.registry) == 1
        assert len(seen.of(PluginRegistered)) == 2


@VERSIONS
async def test_a_refusal_is_a_fault_with_the_kubelets_words_until_it_takes_us(flow, seen, autojump_clock, version):
    async with flow(version=version, registration=WATCHER, started=False) as node:
        node.kubelet.weather.refuse_register = 2
        await node.kubelet.start()
        await node.start_agent()
        await node.until(lambda: bool(seen.of(PluginRefused)), within=2)
        await node.settle()
        fault = node.state.faults[f"registration.refused:{GPU}"]
        assert "context deadline exceeded" in fault.message
        assert why_unready(node.state) == (f"{GPU}: not registered with the kubelet",)
        await node.until(lambda: len(node.healthy()) == 2, within=6)
        await node.settle()
        assert len(seen.of(PluginRefused)) == 2
        assert len(seen.of(PluginOffered)) == 2 + (version != "1.37"), "up to 1.36 it never tries that file again"
        assert node.kubelet.streams(GPU) == len(node.kubelet.registry) == 1
        assert f"registration.refused:{GPU}" not in node.state.faults


async def test_a_refusal_for_good_is_asked_about_ever_more_seldom(flow, seen, autojump_clock):
    async with flow(registration=WATCHER, faults=(f"registration.refused:{GPU}",)) as node:
        node.kubelet.weather.refuse_register = 1000
        await node.kubelet.restart()
        await node.settle(600)
        offered = len(seen.of(PluginOffered))
        assert 10 < offered < 20
        assert node.state.faults[f"registration.refused:{GPU}"].count == len(seen.of(PluginRefused))
        assert len(node.kubelet.registry) == 1


async def test_a_kubelet_that_is_up_and_never_asks_gets_another_socket(flow, seen, autojump_clock):
    """It may have missed the file, or asked while we could not answer and now waits two minutes."""
    async with flow(registration=WATCHER) as node:
        await node.until(lambda: len(node.healthy()) == 2)
        await node.settle(5)
        node.kubelet.reset_stream(GPU)
        await node.until(lambda: [plug.spent for plug in node.kubelet.registry.values()] == [False], within=0.5)
        (deaf,) = node.kubelet.registry.values()
        deaf.notified = None
        await node.settle(29)
        assert deaf in node.kubelet.registry.values()
        await node.until(lambda: len(node.healthy()) == 2, within=3)
        assert deaf not in node.kubelet.registry.values()


@VERSIONS
async def test_a_rename_offers_the_new_resource_and_takes_the_old_one_away(flow, seen, autojump_clock, version):
    async with flow(version=version, registration=WATCHER) as node:
        await node.until(lambda: len(node.healthy()) == 2)
        await node.settle(5)
        node.share(2, rename="gpu.shared")
        await node.until(lambda: len(node.healthy(SHARED)) == 4, within=10)
        await node.settle(10)
        assert node.healthy() == set()
        assert [plug.resource for plug in node.kubelet.registry.values()] == [SHARED]


async def test_sigterm_leaves_no_file_and_a_new_agent_is_found_again(flow, seen, autojump_clock):
    async with flow(registration=WATCHER) as node:
        await node.until(lambda: len(node.healthy()) == 2)
        await node.stop_agent()
        assert node.kubelet.registry == {}
        assert node.kubelet.streams(GPU) == 0
        await node.start_agent()
        await node.until(lambda: len(node.healthy()) == 2, within=3)


async def test_a_socket_that_somebody_removes_is_served_anew(flow, seen, autojump_clock):
    async with flow(registration=WATCHER) as node:
        await node.until(lambda: len(node.healthy()) == 2)
        await node.settle(5)
        node.kubelet.sweep_sockets()
        await node.until(lambda: not node.healthy(), within=2)
        await node.until(lambda: len(node.healthy()) == 2, within=3)
        await node.settle(10)
        assert node.kubelet.streams(GPU) == len(node.kubelet.registry) == 1
