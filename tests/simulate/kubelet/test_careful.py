"""Whatever happens in whatever order: a careful plugin never ends a kubelet, and no device has two owners."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reactor.simulate.kubelet.checkpoint import parse
from reactor.simulate.kubelet.plugin import Device
from reactor.simulate.kubelet.pods import Phase, Pod
from reactor.simulate.kubelet.topology import Policy
from tests.simulate.kubelet.bench import GPU, Bench, Plugin, container

IDS = "abcdef"


def drive(work: Coroutine[Any, Any, Any]) -> Any:
    """The core waits for nothing but its plugin, and that one answers at once."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class Careful:
    """Lists what is wanted, and what the kubelet may still have as an Unhealthy tombstone with its old node."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.wanted: dict[str, Device] = {}
        self.shown: dict[str, Device] = {}
        self.client = None
        self.plugin = Plugin(during=self._during)
        self.next: set[str] | None = None

    async def _during(self) -> None:
        if self.next is not None:
            self.want(self.next)
            self.next = None

    def want(self, ids: set[str]) -> None:
        self.wanted = {each: Device(each, numa=(ord(each) % 2,)) for each in ids}
        self.show()

    def show(self) -> None:
        """Ids that were ever shown leave only once the device manager does not count them as taken."""
        held = self.bench.core.held(GPU)
        tombstones = {
            each: Device(each, "Unhealthy", old.numa)
            for each, old in self.shown.items()
            if each in held and each not in self.wanted
        }
        self.shown = self.wanted | tombstones
        if self.client is not None:
            self.bench.list(self.client, *self.shown.values())

    def register(self) -> None:
        if self.client is None:
            self.client = self.bench.connect(self.plugin)
            self.show()


_ids = st.sets(st.sampled_from(IDS), max_size=6)
_steps = st.one_of(
    st.tuples(st.just("want"), _ids),
    st.tuples(st.just("during"), _ids),
    st.tuples(st.just("run"), st.integers(0, 3), st.integers(0, 2)),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.just(("reset",)),
    st.just(("register",)),
    st.just(("restart",)),
    st.just(("restart silently",)),
    st.just(("api",)),
    st.just(("list",)),
    st.just(("wait",)),
)


class World:
    def __init__(self, version: str, policy: Policy) -> None:
        self.bench = drive(Bench(version, policy=policy).up())
        self.agent = Careful(self.bench)
        self.names = 0

    def _pod(self, index: int) -> Pod | None:
        pods = list(self.bench.api.pods.values())
        return pods[index % len(pods)] if pods else None

    def do(self, step: tuple[Any, ...]) -> None:
        bench, agent = self.bench, self.agent
        match step:
            case ("want", ids):
                agent.want(ids)
            case ("during", ids):
                agent.next = ids
            case ("run", count, init) if bench.core.ready:
                self.names += 1
                shape = {"init": [container("i", init)]} if init else {}
                drive(bench.run(f"p{self.names}", containers=[container("c", count)], **shape))
            case ("delete", index) if (pod := self._pod(index)) is not None:
                bench.delete(pod)
            case ("end", index) if (pod := self._pod(index)) is not None:
                pod.phase, pod.running = Phase.SUCCEEDED, frozenset()
            case ("reset",) if agent.client is not None:
                bench.core.registry.ended(agent.client)
                agent.client = None
            case ("register",):
                agent.register()
            case ("restart" | "restart silently",):
                agent.client = None
                bench.reborn()
                if step == ("restart",):
                    drive(bench.core.hear())
            case ("api",) if not bench.core.ready:
                drive(bench.core.hear())
            case ("list",):
                bench.core.pod_resources()
            case ("wait",):
                bench.now += 200

    def check(self) -> None:
        core = self.bench.core
        assert core.panicked is None
        if self.agent.client is not None:
            assert self.bench.counts() == (len(self.agent.wanted), len(self.agent.shown))
        owners: dict[str, str] = {}
        for pod in self.bench.api.pods.values():
            if pod.phase is Phase.RUNNING:
                for each in {*self.bench.ids(pod, "i"), *self.bench.ids(pod, "c")}:
                    assert owners.setdefault(each, pod.uid) == pod.uid
        if self.bench.written:
            assert parse(self.bench.written[-1].text) == self.bench.written[-1]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["1.29", "1.33", "1.34", "1.36", "1.37"]),
    st.sampled_from([Policy.NONE, Policy.BEST_EFFORT, Policy.RESTRICTED]),
    st.lists(_steps, max_size=40),
)
def test_a_careful_plugin_never_ends_a_kubelet_and_no_device_has_two_owners(version, policy, steps):
    world = World(version, policy)
    world.agent.want({"a", "b", "c"})
    world.agent.register()
    for step in steps:
        world.do(step)
        world.check()
