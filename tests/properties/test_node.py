"""A whole node, with whatever may happen to it in any order: what must always hold (design.md 7)."""

from __future__ import annotations

from collections.abc import Sequence

import trio
import trio.testing
from hypothesis import given, note
from hypothesis import strategies as st

from reactor.simulate.kubelet.core import Traits
from reactor.simulate.kubelet.topology import Policy
from reactor.simulate.kubelet.version import Version
from tests.properties import ending
from tests.properties import steps as s
from tests.properties.profiles import examples
from tests.properties.world import World

traits = st.builds(
    Traits,
    version=st.sampled_from((34, 29, 33, 36, 37)).map(lambda minor: Version(1, minor)),
    policy=st.sampled_from((Policy.NONE, Policy.BEST_EFFORT)),
)
specs = st.sampled_from(("2xH100", "4xH100", "3xT4"))

everything = s.mixed((5, s.pods), (3, s.edits), (2, s.moments), (3, s.kubelet), (3, s.gpus), (2, s.agent))
quiet_times = s.mixed((5, s.pods), (4, s.edits), (3, s.moments))
troubled_kubelet = s.mixed((5, s.pods), (4, s.edits), (2, s.moments), (6, s.kubelet))
lost_books = s.mixed((5, s.pods), (3, s.edits), (2, s.moments), (2, s.kubelet), (2, s.books), (2, s.agent))


def live(spec: str, of: Traits, steps: Sequence[s.Step]) -> None:
    async def life() -> None:
        async with trio.open_nursery() as nursery:
            world = World(nursery, gpus=spec, traits=of)
            try:
                await world.begin()
                for step in steps:
                    await world.do(step)
                await ending.heal(world)
                ending.converged(world)
                await ending.same_after_a_new_start(world)
            except AssertionError:
                note(world.log.text())
                raise
            finally:
                world.end()
            nursery.cancel_scope.cancel()

    trio.run(life, clock=trio.testing.MockClock(autojump_threshold=0), strict_exception_groups=True)


@examples(50, 2000)
@given(
    specs,
    traits,
    s.several(s.mixed((5, s.pods), (3, s.edits), (2, s.moments), (3, s.kubelet), (3, s.gpus), (2, s.agent))),
)
def test_whatever_happens_in_any_order(spec: str, of: Traits, steps: list[s.Step]) -> None:
    """KBL-02"""
    live(spec, of, steps)


@examples(50, 2000)
@given(specs, traits, s.several(quiet_times))
def test_pods_come_and_go_while_the_config_is_edited(spec: str, of: Traits, steps: list[s.Step]) -> None:
    live(spec, of, steps)


@examples(50, 2000)
@given(specs, traits, s.several(troubled_kubelet))
def test_pods_and_configs_under_a_troubled_kubelet(spec: str, of: Traits, steps: list[s.Step]) -> None:
    live(spec, of, steps)


@examples(50, 2000)
@given(
    specs,
    traits,
    s.several(s.mixed((5, s.pods), (3, s.edits), (2, s.moments), (2, s.kubelet), (2, s.books), (2, s.agent))),
)
def test_pods_keep_their_gpus_when_the_kubelet_loses_its_books(spec: str, of: Traits, steps: list[s.Step]) -> None:
    live(spec, of, steps)
