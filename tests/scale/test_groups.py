"""Ids are looked up in the group of their GPU, wherever that stands."""

from __future__ import annotations

import pytest

from reactor.model.ids import DeviceId
from reactor.model.snapshot import ById, Group, Listed
from tests.kubelet.fakes import group

FOREIGN = Group([Listed(id=DeviceId("nvidia0"), gpu=None, index=None, minor=None, share=None, healthy=False)])
GROUPS = (Group(group(0, replicas=3)), Group(group(1)), Group(group(0)), FOREIGN, Group([]))
"""Shares and the tombstone of a GPU, another one, and an id of another plugin's spelling."""


def test_every_id_is_found_in_one_of_the_groups_of_its_gpu() -> None:
    known = ById(GROUPS)
    assert len(known) == len(list(known)) == 6
    assert all(known[one].id == one for one in known)
    assert {one for each in GROUPS for one in each} == set(known.values())


@pytest.mark.parametrize("name", ["nvidia1", "", f"{GROUPS[0][0].gpu}::3", f"{GROUPS[1][0].gpu}::0", "GPU-"])
def test_an_id_that_is_not_listed_is_not_found(name: str) -> None:
    assert DeviceId(name) not in ById(GROUPS)
    assert ById(GROUPS).get(DeviceId(name)) is None


def test_a_group_is_what_it_holds_and_remembers_what_it_was_made_of() -> None:
    one = Group(group(0, replicas=3), made_of="a recipe")
    assert one == GROUPS[0]
    assert one.made_of == "a recipe"
    assert not one.placed
    assert Group(group(0, numa=(1,))).placed
