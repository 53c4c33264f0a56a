"""What is made of numbers and of lists when there are very many ids."""

from __future__ import annotations

import pytest

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from tests.bench.kubelet import healthy, ids
from tests.bench.scale import MANY, GrowthRows, ScaleRows


def test_healthy_ids_are_counted_without_taking_a_list_apart() -> None:
    words = ["Healthy", "Unhealthy", "Healthy"]
    message = pb.ListAndWatchResponse(
        devices=[pb.Device(ID=f"Healthy-{n}", health=word) for n, word in enumerate(words)]
    ).SerializeToString()
    assert healthy(message) == list(ids(message).values()).count("Healthy") == 2


def test_growth_compares_an_id_of_the_most_with_one_of_the_fewest() -> None:
    few, many, growth = ScaleRows(MANY[0]), ScaleRows(MANY[-1]), GrowthRows()
    few.list.ours, many.list.ours = [100.0], [1500.0]
    few.allocate.ours, many.allocate.ours = [1000.0], [1100.0]
    few.rss.ours, many.rss.ours = [60.0], [116.0]
    growth.compare(few, many)
    assert growth.list.ours == [1.0], "fifteen times as many ids, fifteen times as long"
    assert growth.allocate.ours == [1.1]
    assert growth.memory.ours == [pytest.approx(1.0)]
    assert growth.fault.value != growth.fault.value, "not measured"


def test_rows_have_names_of_their_own() -> None:
    names = [row.name for count in MANY for row in ScaleRows(count).all()]
    assert len(set(names)) == len(names) == 24
