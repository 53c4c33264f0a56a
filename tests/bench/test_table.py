"""What the table of the benchmark says of numbers."""

from __future__ import annotations

from tests.bench.table import Row, quantile, render


def test_a_row_shows_its_median_beside_the_floor_and_whether_the_goal_is_met() -> None:
    row = Row(name="it", unit="ms", below=5, ours=[4.0, 3.0, 9.0], floor=[2.0])
    assert (row.value, row.ratio, row.met) == (4.0, 2.0, True)
    assert render([row]).splitlines()[1].split() == ["it", "ms", "4", "[3-9]", "2", "[2-2]", "2.00", "<", "5", "yes"]


def test_a_goal_of_a_ratio_is_judged_against_the_floor_of_the_same_run() -> None:
    assert Row(name="it", unit="us", ratio_below=1.2, ours=[120], floor=[100]).met
    assert Row(name="it", unit="us", ratio_below=1.2, ours=[121], floor=[100]).met is False


def test_an_exact_goal_is_for_every_round() -> None:
    assert Row(name="it", unit="", exactly=0, ours=[0, 0]).met
    assert Row(name="it", unit="", exactly=0, ours=[0, 0, 1]).met is False


def test_rows_that_were_not_measured_are_left_out() -> None:
    assert len(render([Row(name="it", unit="ms")]).splitlines()) == 1


def test_quantiles_are_values_that_were_seen() -> None:
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([3, 1, 2], 0.99) == 3
