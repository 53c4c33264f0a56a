"""Both registration models with their bugs: the matrix of spec/kubelet.md 4."""

from __future__ import annotations

import pytest

from reactor.simulate.kubelet.registration import Client, RegisterError, check
from tests.simulate.kubelet.bench import GPU, Bench, Plugin

OLD, NEW = "1.36", "1.37"


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("nvidia.com/GPU", True),
        ("nvidia.com/" + "a" * 63, True),
        ("nvidia.com/" + "a" * 64, False),
        ("NVIDIA.com/gpu", False),
        ("nvidia.com/mig-1c.2g.20gb+me", False),
        ("a/b/c", False),
        ("gpu", False),
        ("x.kubernetes.io/gpu", False),
        ("requests.nvidia.com/gpu", False),
        ("nvidia.com/", False),
        ("/gpu", False),
    ],
)
def test_resource_names(name, taken):
    if taken:
        check("v1beta1", name)
    else:
        with pytest.raises(RegisterError, match=r'^the ResourceName ".*" is invalid$'):
            check("v1beta1", name)


def test_another_api_version_is_refused():
    with pytest.raises(RegisterError, match="is not supported by kubelet"):
        check("v1", GPU)


class Line:
    """A client that notes that the kubelet hung up on it."""

    def __init__(self, bench: Bench, socket: str) -> None:
        self.open = True
        self.client = Client(GPU, socket, Plugin(), self.close)
        bench.core.registry.begin(self.client)

    def close(self) -> None:
        self.open = False


def joined(bench: Bench, socket: str) -> Line:
    line = Line(bench, socket)
    bench.core.registry.connected(line.client, line.client.endpoint.wants)
    return line


async def test_up_to_1_36_a_second_register_opens_a_second_stream_and_both_feed_the_list():
    bench = await Bench(OLD).up()
    first, second = joined(bench, "a"), joined(bench, "a")
    bench.list(first.client, "1", "2")
    bench.list(second.client, "3")
    bench.list(first.client, "1", "2")
    assert bench.counts() == (2, 2)


@pytest.mark.parametrize("socket", ["a", "b"])
async def test_up_to_1_36_the_end_of_the_old_stream_takes_the_new_one_down(socket):
    bench = await Bench(OLD).up()
    old, new = joined(bench, "a"), joined(bench, socket)
    bench.list(new.client, "1", "2")
    bench.core.registry.ended(old.client)
    assert not new.open
    assert bench.counts() == (0, 2)
    bench.core.registry.ended(new.client)
    bench.list(joined(bench, socket).client, "1", "2")
    assert bench.counts() == (2, 2)


async def test_up_to_1_36_a_failed_register_forgets_the_live_plugin():
    bench = await Bench(OLD).up()
    live, dud = joined(bench, "a"), Line(bench, "b")
    bench.list(live.client, "1")
    bench.core.registry.failed(dud.client)
    bench.core.registry.ended(live.client)
    assert bench.counts() == (1, 1)
    live.client.endpoint.error = "rpc error: code = Unavailable desc = connection refused"
    pod = await bench.run("p")
    assert "connection refused, which is unexpected" in pod.message


async def test_from_1_37_the_same_live_socket_again_is_refused_and_the_live_plugin_forgotten():
    bench = await Bench(NEW).up()
    first = joined(bench, "a")
    bench.list(first.client, "1")
    again = Line(bench, "a")
    with pytest.raises(RegisterError, match="device plugin already connected: a"):
        bench.core.registry.connected(again.client, again.client.endpoint.wants)
    bench.core.registry.failed(again.client)
    bench.core.registry.ended(first.client)
    assert bench.counts() == (1, 1)
    with pytest.raises(RegisterError, match="already connected"):
        joined(bench, "a")
    bench.list(joined(bench, "b").client, "1", "2")
    assert bench.counts() == (2, 2)


async def test_from_1_37_the_survivor_serves_on_and_takes_allocate():
    bench = await Bench(NEW).up()
    old, new = joined(bench, "a"), joined(bench, "b")
    bench.list(old.client, "1", "2")
    bench.list(new.client, "1", "2")
    await bench.run("p1")
    assert new.client.endpoint.named("allocate")
    bench.core.registry.ended(new.client)
    assert bench.counts() == (2, 2)
    await bench.run("p2")
    assert old.client.endpoint.named("allocate")
    bench.core.registry.ended(old.client)
    assert bench.counts() == (0, 2)


async def test_from_1_37_a_failed_register_drops_only_itself():
    bench = await Bench(NEW).up()
    live, dud = joined(bench, "a"), Line(bench, "b")
    bench.list(live.client, "1")
    bench.core.registry.failed(dud.client)
    bench.core.registry.ended(live.client)
    assert bench.counts() == (0, 1)


async def test_after_a_take_over_the_list_is_whatever_was_sent_last():
    bench = await Bench(NEW).up()
    old, new = joined(bench, "a"), joined(bench, "b")
    bench.list(new.client, "1", "2", "3")
    bench.list(old.client, "1")
    bench.core.registry.ended(old.client)
    assert bench.counts() == (1, 1)
