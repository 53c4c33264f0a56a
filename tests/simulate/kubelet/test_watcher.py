"""The simulated plugin watcher, as spec/kubelet.md 11 has measured the real one; in part on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from reactor.kubelet.servers import PluginServers
from reactor.model.ids import ResourceName
from reactor.simulate.kubelet.socket_watcher import scan
from reactor.simulate.kubelet.watcher import Info, Watched
from tests.simulate.kubelet.agent import GPU, desk, snapshot
from tests.simulate.kubelet.sockets import Node, node

BAD = ResourceName("nvidia.com/a b")


def test_a_socket_is_asked_once_until_it_was_dialled_or_has_failed():
    watched = Watched()
    assert watched.fresh({"a": 1}, 0.0) == ["a"]
    assert watched.fresh({"a": 1}, 1.0) == []
    watched.dialled("a", 1, "r")
    assert watched.fresh({"a": 1}, 2.0) == []


def test_what_failed_is_tried_again_ever_more_seldom():
    watched, now, pauses = Watched(), 0.0, []
    for _ in range(12):
        assert watched.fresh({"a": 1}, now) == ["a"]
        watched.failed("a", now)
        begun = now
        while not watched._is_due("a", now):
            now += 0.5
        pauses.append(now - begun)
    assert pauses[:5] == [0.5, 1, 2, 4, 8]
    assert max(pauses) == pauses[-1] == 122


def test_a_socket_that_goes_or_is_another_file_by_now_is_forgotten_and_found_anew():
    watched = Watched()
    watched.fresh({"a": 1, "b": 1}, 0.0)
    watched.dialled("a", 1, "r")
    watched.dialled("b", 1, "s")
    assert watched.gone({"a": 2}) == [("a", "r"), ("b", "s")]
    assert watched.gone({"a": 2}) == []
    assert watched.fresh({"a": 2}, 1.0) == ["a"]


def test_hidden_names_are_passed_over():
    assert Watched().fresh({".a": 1, "b": 1}, 0.0) == ["b"]


@pytest.mark.parametrize(
    ("info", "why"),
    [
        (Info("CSIPlugin", GPU, "", ("v1beta1",)), "no handler registered for plugin type: CSIPlugin"),
        (Info("DevicePlugin", GPU, "", ("v1", "v2")), r"v1beta1, is not among plugin supported versions [v1 v2]"),
        (Info("DevicePlugin", BAD, "", ("v1beta1",)), 'the ResourceName "nvidia.com/a b" is invalid'),
    ],
)
def test_what_a_kubelet_does_not_take_it_says(info: Info, why: str):
    assert why in (info.wrong("s") or "")
    assert Info("DevicePlugin", GPU, "", ("v1beta1",)).wrong("s") is None


# ---------------------------------------------------------------- on real sockets


class Words:
    """What the watcher told our sockets."""

    def __init__(self, one: Node) -> None:
        self.one = one
        self.told: list[tuple[str, str | None]] = []

    def __call__(self, resource: ResourceName, socket: str, error: str | None) -> None:
        self.told.append((socket, error))
        self.one.moved()

    async def count(self) -> int:
        return len(self.told)


@asynccontextmanager
async def found(version: str = "1.34") -> AsyncIterator[tuple[Node, PluginServers, Words]]:
    """A kubelet, and servers whose sockets its plugin watcher is to find."""
    async with node(version) as one:
        words = Words(one)
        servers = PluginServers(
            one.door,
            desk(one.notes),
            directory=one.kubelet.registry,
            kubelet_socket=one.kubelet.socket,
            notified=words,
        )
        servers.post(snapshot("a", "b"))
        yield one, servers, words
        await servers.aclose(1)


VERSIONS = pytest.mark.parametrize("version", ["1.29", "1.34", "1.37"])


@VERSIONS
async def test_an_offered_socket_is_taken_and_a_hidden_one_is_not(version: str):
    async with found(version) as (one, servers, words):
        socket = await servers.serve(GPU)
        assert [path.name for path in one.kubelet.registry.iterdir()] == [f".{socket}"]
        assert scan(one.kubelet.registry) == {}
        assert servers.sockets() == {}
        await servers.offer(GPU, socket)
        await servers.offer(GPU, socket)
        assert servers.sockets() == {GPU: socket}
        await one.until(lambda devices: devices == {"a": True, "b": True})
        await one.eventually(words.count, bool)
        assert words.told == [(socket, None)]
        pod = await one.kubelet.run_pod("job", {GPU: 2})
        assert pod.phase == "Running"


@VERSIONS
async def test_a_file_that_goes_takes_its_resource_along(version: str):
    async with found(version) as (one, servers, words):
        socket = await servers.serve(GPU)
        await servers.offer(GPU, socket)
        await one.until(bool)
        (one.kubelet.registry / socket).unlink()
        await one.parted()
        await one.until(lambda devices: not any(devices.values()))
        again = await servers.serve(GPU)
        await servers.offer(GPU, again)
        await one.until(lambda devices: all(devices.values()))
        await one.eventually(words.count, lambda count: count == 2)
        assert words.told == [(socket, None), (again, None)]


async def test_a_refusal_is_told_in_the_kubelets_words():
    async with found() as (one, servers, words):
        await servers.offer(BAD, await servers.serve(BAD))
        await one.eventually(words.count, bool)
        ((_, error),) = words.told[:1]
        assert 'the ResourceName "nvidia.com/a b" is invalid' in (error or "")


@pytest.mark.parametrize("version", ["1.34", "1.37"])
async def test_a_dial_back_that_fails_is_told_and_tried_again_from_1_37_on(version: str):
    async with found(version) as (one, servers, words):
        await one.kubelet.weather(lambda weather: setattr(weather, "refuse_register", 1))
        first = await servers.serve(GPU)
        await servers.offer(GPU, first)
        await one.eventually(words.count, bool)
        assert "plugin registration failed with err: failed to dial" in (words.told[0][1] or "")
        other = ResourceName("nvidia.com/other")
        await servers.offer(
            other, await servers.serve(other)
        )  # taken at a look that is later than the next at the first
        await one.eventually(words.count, lambda count: count == 2 + (version == "1.37"))
        assert ((first, None) in words.told) is (version == "1.37")
        if version == "1.34":
            again = await servers.serve(GPU)
            await servers.offer(GPU, again)
            await one.eventually(words.count, lambda count: count == 3)
            assert words.told[2] == (again, None)


async def test_a_new_life_of_the_kubelet_does_not_get_a_socket_that_is_spent():
    async with found() as (one, servers, words):
        first = await servers.serve(GPU)
        await servers.offer(GPU, first)
        await one.until(bool)
        await one.eventually(words.count, bool)
        await one.kubelet.restart()
        await one.parted()
        second = await servers.serve(GPU)
        await servers.offer(GPU, second)
        await one.eventually(words.count, lambda count: count == 2)
        assert words.told[1] == (second, None)
        assert [path.name for path in one.kubelet.registry.iterdir()] == [second]
