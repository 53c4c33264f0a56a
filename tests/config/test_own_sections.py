"""Sections that the device plugin's file does not have: select and health."""

from __future__ import annotations

import pytest

from reactor.config import effective
from reactor.model.condition import FOREVER, Policy, XidClass
from reactor.model.config import Config, Health, Select, Selection
from reactor.model.ids import GpuUuid, PciAddress
from tests.config.texts import UUID, accepted, one_problem


def test_health_is_read() -> None:
    text = (
        "health:\n  xids: {ignore: [94, 144-147], reset: [13]}\n  classes: {unknown: ignore, hardware: reset}\n"
        "  quietTimes: {unknown: 2m, unreachable: infinite}\n  relapses: {limit: 0, window: 48h}\n"
    )
    assert accepted(text).config.health == Health(
        xids=(
            (13, XidClass.RESET),
            (94, XidClass.IGNORE),
            (144, XidClass.IGNORE),
            (145, XidClass.IGNORE),
            (146, XidClass.IGNORE),
            (147, XidClass.IGNORE),
        ),
        classes=((XidClass.HARDWARE, XidClass.RESET), (XidClass.UNKNOWN, XidClass.IGNORE)),
        quiet_unknown=120.0,
        quiet_unreachable=FOREVER,
        relapse_limit=0,
        relapse_window=48 * 3600.0,
    )


def test_the_times_of_an_empty_file_are_those_of_the_rules() -> None:
    health, policy = accepted("").config.health, Policy()
    assert (health.quiet_unknown, health.quiet_unreachable) == (policy.quiet_unknown, policy.quiet_unreachable)
    assert (health.relapse_limit, health.relapse_window) == (policy.relapse_limit, policy.relapse_window)


def test_select_is_read_in_every_spelling() -> None:
    text = (
        f"select:\n  include: {{products: ['*H100*'], uuids: [GPU-{UUID.upper()}]}}\n"
        "  exclude: {indices: [0], pci: [00000000:3B:00.0, 3c:00.0, '0001:3d:00']}\n"
    )
    assert accepted(text).config.select == Select(
        include=Selection(products=("*H100*",), uuids=frozenset({GpuUuid(f"GPU-{UUID}")})),
        exclude=Selection(
            indices=frozenset({0}),
            pci=frozenset(map(PciAddress, ["0000:3b:00.0", "0000:3c:00.0", "0001:3d:00.0"])),
        ),
    )


def test_what_is_effective_reads_as_the_same_config() -> None:
    text = (
        "select: {exclude: {pci: ['3b:00.0'], products: ['*a: #b', \"q'\"]}}\n"
        "health: {xids: {ignore: [94, 144-147]}, classes: {unknown: ignore}, quietTimes: {unknown: 2m}}\n"
    )
    config = accepted(text).config
    assert accepted(effective(config)).config == config != Config()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("health: {xids: {ignore: [0]}}", "health.xids.ignore[0]: an XID is a number from 1 to 9999, got 0"),
        ("health: {xids: {ignore: ['9-7']}}", "health.xids.ignore[0]: a range of XIDs goes up"),
        ("health: {xids: {ignore: [x]}}", "health.xids.ignore[0]: 'x' is no XID such as 79 and no range"),
        ("health: {xids: {ignor: [1]}}", "unknown key 'ignor', did you mean 'ignore'?"),
        (
            "health: {xids: {ignore: [13, 94],\n reset: [13]}}",
            "health.xids.reset[0]: XID 13 has a class already, health.xids.ignore[0] on line 1",
        ),
        ("health: {xids: {ignore: [13, 10-20]}}", "health.xids.ignore[1]: XID 13 has a class already"),
        ("health: {classes: {unknown: ignored}}", "'ignored' is not one of application, ignore"),
        ("health: {quietTimes: {unknown: 60}}", "health.quietTimes.unknown: expected a duration with its unit"),
        ("health: {relapses: {window: infinite}}", "health.relapses.window: must have an end, such as 24h"),
        ("health: {relapses: {limit: -1}}", "health.relapses.limit: must be from 0 to 100, got -1"),
        ("select: {include: {}}", "select.include: it names no GPU"),
        ("select: {exclude: {indices: []}}", "select.exclude: it names no GPU"),
        (
            "select: {exclude: [0]}",
            "select.exclude: expected a mapping of indices, uuids, pci and products; got a list",
        ),
        ("select: {exclude: {uuids: [GPU-1]}}", "select.exclude.uuids[0]: 'GPU-1' is no GPU-<uuid>"),
        ("select: {exclude: {pci: [0000-3b-00]}}", "select.exclude.pci[0]: '0000-3b-00' is no PCI address"),
        ("select: {exclude: {products: ['']}}", "select.exclude.products[0]: the pattern is empty"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, problem: str) -> None:
    assert problem in one_problem(text)
