"""Whatever order edits of select and health, XIDs and scans come in, what holds is what the last config says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from reactor import events as e
from reactor.conditions.classes import classify
from reactor.config import Accepted, parse
from reactor.model.condition import WHOLE_GPU, XidClass
from reactor.plan import make_plan
from tests.reducer.world import A, B, World, gpu

CONFIGS = [
    "version: v1",
    "health: {xids: {ignore: [79, 999]}}",
    "health: {xids: {reset: [13]}, classes: {restart: application}}",
    "health: {classes: {unknown: ignore}, quietTimes: {unknown: infinite}}",
    "health: {relapses: {limit: 1}}",
    "select: {exclude: {indices: [0]}}",
    "select: {include: {indices: [1]}}\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}",
    "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0]}]}}",
]
STEPS = st.one_of(
    st.tuples(st.just("config"), st.sampled_from(CONFIGS)),
    st.tuples(st.just("xid"), st.sampled_from([13, 79, 999, 48])),
    st.tuples(st.just("scan"), st.sampled_from([0, 1, 100])),
    st.tuples(st.just("gone"), st.just(0)),
)


def config(world: World, text: str) -> None:
    read = parse(text.encode(), path="c.yaml")
    assert isinstance(read, Accepted)
    world.tell(e.ConfigRead(config=read.config, digest=read.digest))


@given(st.lists(STEPS, max_size=15))
@settings(max_examples=100, deadline=None)
def test_what_holds_is_what_the_last_config_says(steps: list[tuple[str, str | int]]) -> None:
    world = World()
    for kind, value in steps:
        match kind, value:
            case "config", str(text):
                config(world, text)
            case "xid", int(code):
                world.tell(e.XidReported(gpu=A, placement=WHOLE_GPU, xid=code))
            case "scan", int(seconds):
                world.now += seconds
                world.inventory()
            case _:
                world.inventory(gpu(B, 0))
        state = world.state
        assert state.config.config is not None
        assert state.plan == make_plan(state.config.config, state.gpus)
        told = [known.xid for conditions in state.conditions.values() for known in conditions if known.xid]
        harmless = {XidClass.APPLICATION, XidClass.IGNORE}
        assert [code for code in told if classify(state.policy, code) in harmless] == []
        planned = {group.gpu for resource in state.plan.resources for group in resource.groups}
        ill = {uuid for uuid, found in state.conditions.items() if found}
        for offer in world.snapshot.offers.values():
            assert {one.gpu for one in offer.devices() if one.healthy} <= planned - ill
