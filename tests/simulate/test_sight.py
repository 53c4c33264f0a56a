"""What the kubelet has, held against expectations and told."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from reactor.simulate import steps as do
from reactor.simulate.sight import Sight, holds, instead, sentence, table

CARDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{n}" for n in range(4))
SIGHT = Sight(
    cards=CARDS,
    listed=MappingProxyType(
        {
            "nvidia.com/gpu": {CARDS[0]: True, CARDS[1]: False, "of-another-plugin": True},
            "nvidia.com/gpu.shared": {f"{CARDS[1]}::0": True, f"{CARDS[2]}::0": False, f"{CARDS[2]}::1": False},
            "nvidia.com/old": {},
        }
    ),
    used=MappingProxyType({"nvidia.com/gpu": frozenset({CARDS[0]})}),
    pods=MappingProxyType({"a": "Running", "b": "Failed", "c": "Pending"}),
)


@pytest.mark.parametrize(
    ("check", "holding"),
    [
        (do.Counts("nvidia.com/gpu", 2, 1), True),
        (do.Counts("nvidia.com/gpu", healthy=2), True),
        (do.Counts("nvidia.com/gpu", unhealthy=2), False),
        (do.Counts("nvidia.com/none", 0, 0), True),
        (do.CardIs(0, "healthy"), True),
        (do.CardIs(1, "healthy"), False),
        (do.CardIs(1, "unhealthy"), False),
        (do.CardIs(2, "unhealthy"), True),
        (do.CardIs(3, "absent"), True),
        (do.CardIs(2, "absent"), False),
        (do.PodIs("a", "running"), True),
        (do.PodIs("b", "rejected"), True),
        (do.PodIs("c", "running"), False),
        (do.PodIs("gone", "running"), False),
    ],
)
def test_an_expectation_is_held_against_the_lists(check, holding):
    assert holds(check, SIGHT) is holding


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (do.Counts("nvidia.com/gpu", 8), "nvidia.com/gpu has 2 healthy + 1 unhealthy (1 in use)"),
        (do.Counts("nvidia.com/none", 8), "nvidia.com/none has 0 healthy"),
        (do.CardIs(1, "healthy"), "card 1 is mixed"),
        (do.PodIs("c", "running"), "pod c is Pending"),
        (do.PodIs("gone", "running"), "pod gone is absent"),
    ],
)
def test_what_is_so_instead_is_told(check, text):
    assert instead(check, SIGHT) == text


def test_a_sentence_leaves_out_what_lists_nothing():
    told = "nvidia.com/gpu 2 healthy + 1 unhealthy (1 in use), nvidia.com/gpu.shared 1 healthy + 2 unhealthy"
    assert sentence(SIGHT) == told
    assert sentence(Sight(cards=CARDS, listed={}, used={}, pods={})) == "no device at all"


def test_the_table_shows_resources_cards_and_pods():
    lines = table(SIGHT)
    assert lines[:4] == [
        "RESOURCE               HEALTHY  UNHEALTHY  IN USE",
        "nvidia.com/gpu               2          1       1",
        "nvidia.com/gpu.shared        1          2       0",
        "nvidia.com/old               0          0       0",
    ]
    assert lines[6] == f"0     {CARDS[0]}  nvidia.com/gpu: 1 healthy, 1 in use"
    assert lines[7] == f"1     {CARDS[1]}  nvidia.com/gpu: 1 unhealthy; nvidia.com/gpu.shared: 1 healthy"
    assert lines[9] == f"3     {CARDS[3]}  none listed"
    assert lines[11:] == ["POD  PHASE", "a    Running", "b    Failed", "c    Pending"]
