"""(Config, GPUs) -> Plan."""

from __future__ import annotations

import timeit
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from reactor.model.config import (
    AllDevices,
    Config,
    DeviceIdStrategy,
    DeviceListStrategy,
    DeviceSelector,
    FirstDevices,
    Flags,
    ListedDevices,
    MigStrategy,
    ResourcePattern,
    SharedResource,
    TimeSlicing,
)
from reactor.model.gpu import Gpu, MigMode
from reactor.model.ids import GpuUuid, PciAddress, ResourceName, device_id
from reactor.model.value import replace
from reactor.plan import EMPTY, LIST_LIMIT, Plan, make_plan, matches, tombstone_size

GPU = ResourceName("nvidia.com/gpu")
SHARED = ResourceName("nvidia.com/gpu.shared")
T4 = ResourceName("nvidia.com/t4")


def gpu(index: int, product: str = "NVIDIA H100 80GB HBM3", **changes: object) -> Gpu:
    known = Gpu(
        uuid=GpuUuid(f"GPU-00000000-0000-0000-0000-{index:012x}"),
        index=index,
        minor=index,
        pci=PciAddress(f"0000:{index:02x}:00.0"),
        product=product,
        memory=None,
        compute=None,
        numa=None,
        mig=MigMode.DISABLED,
        recovery=None,
        monitored=True,
    )
    return replace(known, **changes)


def node(count: int = 8) -> list[Gpu]:
    return [gpu(index) for index in range(count)]


def entry(
    replicas: int,
    devices: DeviceSelector = AllDevices(),  # noqa: B008 - a frozen value
    name: ResourceName = GPU,
    rename: ResourceName | None = None,
) -> SharedResource:
    return SharedResource(name=name, rename=rename, devices=devices, replicas=replicas)


def slicing(*entries: SharedResource, single: bool = False, **changes: object) -> Config:
    return replace(
        Config(time_slicing=TimeSlicing(fail_requests_greater_than_one=single, resources=entries)), **changes
    )


def listed(plan: Plan) -> dict[str, dict[int, int]]:
    """Resource -> GPU index -> replicas."""
    return {
        str(resource.name): {int(group.gpu[-12:], 16): group.replicas for group in resource.groups}
        for resource in plan.resources
    }


# ---------------------------------------------------------------- resources


def test_every_gpu_is_a_whole_one_of_the_default_resource():
    plan = make_plan(Config(), node(2))
    assert listed(plan) == {GPU: {0: 0, 1: 0}}
    assert (plan.unlisted, plan.oversize, plan.notices) == ({}, (), ())


def test_no_gpu_is_an_empty_plan():
    assert make_plan(Config(), ()) == EMPTY


def test_groups_are_in_the_order_of_the_index():
    assert make_plan(Config(), node(8)[::-1]) == make_plan(Config(), node(8))


def test_the_first_pattern_that_matches_names_the_gpu():
    config = Config(
        gpus=(ResourcePattern(pattern="*T4", name=T4), ResourcePattern(pattern="*", name=GPU)),
    )
    plan = make_plan(config, [gpu(0), gpu(1, "Tesla T4"), gpu(2, "Tesla T4G")])
    assert listed(plan) == {GPU: {0: 0, 2: 0}, T4: {1: 0}}
    assert [resource.name for resource in plan.resources] == [GPU, T4]


def test_a_gpu_without_a_pattern_is_unlisted_with_the_reason():
    plan = make_plan(Config(gpus=(ResourcePattern(pattern="Tesla*", name=GPU),)), [gpu(0)])
    assert plan.resources == ()
    assert plan.unlisted == {gpu(0).uuid: "no pattern of resources.gpus matches 'NVIDIA H100 80GB HBM3'"}


@pytest.mark.parametrize(
    ("pattern", "text", "matched"),
    [
        ("*", "", True),
        ("", "", True),
        ("", "a", False),
        ("a", "a", True),
        ("a", "ab", False),
        ("a", "A", False),
        ("a*", "a", True),
        ("*a", "ba", True),
        ("a*a", "a", False),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "acb", False),
        ("a*bb*c", "abc", False),
        ("NVIDIA.*", "NVIDIA-H100", False),
        ("[a]?", "a", False),
    ],
)
def test_only_the_star_is_special_in_a_pattern(pattern, text, matched):
    assert matches(pattern, text) is matched


def test_a_pattern_of_many_stars_does_not_stall():
    assert not matches("*a" * 40 + "*b", "a" * 200)


# ---------------------------------------------------------------- what cannot be honoured


@pytest.mark.parametrize("strategy", [MigStrategy.SINGLE, MigStrategy.MIXED])
def test_a_mig_gpu_is_never_whole_where_mig_devices_are_wanted(strategy):
    plan = make_plan(Config(flags=Flags(mig_strategy=strategy)), [gpu(0, mig=MigMode.ENABLED), gpu(1)])
    assert listed(plan) == {GPU: {1: 0}}
    assert "MIG is enabled" in plan.unlisted[gpu(0).uuid]


def test_a_mig_gpu_is_a_whole_one_under_strategy_none():
    assert listed(make_plan(Config(), [gpu(0, mig=MigMode.ENABLED)])) == {GPU: {0: 0}}


@pytest.mark.parametrize("product", ["DGX Display", "NVIDIA DGX Display"])
def test_a_display_gpu_is_not_handed_out(product):
    plan = make_plan(Config(), [gpu(0, product), gpu(1)])
    assert listed(plan) == {GPU: {1: 0}}
    assert plan.unlisted == {gpu(0).uuid: f"{product} drives the display"}


@pytest.mark.parametrize("strategies", [(), (DeviceListStrategy.CDI_CRI, DeviceListStrategy.CDI_ANNOTATIONS)])
def test_without_a_served_way_to_name_devices_nothing_is_advertised(strategies):
    plan = make_plan(Config(flags=Flags(device_list_strategy=strategies)), node(2))
    assert plan.resources == ()
    assert len(plan.unlisted) == 2


@pytest.mark.parametrize("served", [DeviceListStrategy.ENVVAR, DeviceListStrategy.VOLUME_MOUNTS])
def test_wishes_that_only_add_do_not_block(served):
    flags = Flags(device_list_strategy=(DeviceListStrategy.CDI_CRI, served), device_id_strategy=DeviceIdStrategy.INDEX)
    assert listed(make_plan(Config(flags=flags), node(1))) == {GPU: {0: 0}}


def test_a_resource_under_mps_is_not_advertised():
    plan = make_plan(Config(mps=frozenset({GPU})), node(2))
    assert plan.resources == ()
    assert set(plan.unlisted.values()) == {"sharing.mps is asked for nvidia.com/gpu, which this version does not serve"}


def test_shares_are_not_advertised_under_a_name_of_mps():
    config = slicing(entry(4, FirstDevices(1), rename=SHARED), mps=frozenset({SHARED}))
    plan = make_plan(config, node(2))
    assert listed(plan) == {GPU: {1: 0}}
    assert list(plan.unlisted) == [gpu(0).uuid]


# ---------------------------------------------------------------- time-slicing


def test_all_gpus_are_shared_by_default():
    assert listed(make_plan(slicing(entry(4)), node(2))) == {GPU: {0: 4, 1: 4}}


def test_renamed_shares_leave_the_whole_gpus_under_the_old_name():
    plan = make_plan(slicing(entry(2, FirstDevices(1), rename=SHARED)), node(3))
    assert listed(plan) == {GPU: {1: 0, 2: 0}, SHARED: {0: 2}}


def test_whole_gpus_and_shares_may_have_one_name():
    """SHR-09"""
    plan = make_plan(slicing(entry(4, ListedDevices(indices=frozenset({0})))), node(2))
    assert listed(plan) == {GPU: {0: 4, 1: 0}}


def test_a_number_of_devices_takes_the_lowest_indices_of_its_resource():
    config = slicing(
        entry(3, FirstDevices(2), name=T4),
        gpus=(ResourcePattern(pattern="Tesla*", name=T4), ResourcePattern(pattern="*", name=GPU)),
    )
    plan = make_plan(config, [gpu(0), gpu(1, "Tesla T4"), gpu(2), gpu(3, "Tesla T4"), gpu(5, "Tesla T4")])
    assert listed(plan) == {GPU: {0: 0, 2: 0}, T4: {1: 3, 3: 3, 5: 0}}


def test_devices_are_chosen_by_uuid():
    plan = make_plan(slicing(entry(2, ListedDevices(uuids=frozenset({gpu(1).uuid})))), node(2))
    assert listed(plan) == {GPU: {0: 0, 1: 2}}
    assert plan.notices == ()


def test_entries_of_one_name_with_selectors_apart_both_apply():
    """CFG-10"""
    config = slicing(entry(2, ListedDevices(indices=frozenset({0}))), entry(6, ListedDevices(indices=frozenset({1}))))
    plan = make_plan(config, node(2))
    assert listed(plan) == {GPU: {0: 2, 1: 6}}
    assert plan.notices == ()


def test_of_two_entries_for_a_gpu_the_first_has_it():
    """CFG-10"""
    plan = make_plan(slicing(entry(2, FirstDevices(1)), entry(6)), node(2))
    assert listed(plan) == {GPU: {0: 2, 1: 6}}
    assert plan.notices == (
        "sharing.timeSlicing.resources[1]: an earlier entry shares GPU 0 already, and it is the one that holds",
    )


def test_what_has_no_effect_here_is_said():
    config = slicing(
        entry(2, name=T4),
        entry(2, FirstDevices(9)),
        entry(2, ListedDevices(frozenset({0, 7}), frozenset({GpuUuid("GPU-x")}), frozenset({"0:1"}))),
    )
    path = "sharing.timeSlicing.resources"
    assert make_plan(config, node(1)).notices == (
        f"{path}[0]: no GPU of this node is listed as nvidia.com/t4, so the entry has no effect",
        f"{path}[1].devices: 9 GPUs are asked for, nvidia.com/gpu has 1",
        f"{path}[2]: an earlier entry shares GPU 0 already, and it is the one that holds",
        f"{path}[2].devices: nvidia.com/gpu has no device 7",
        f"{path}[2].devices: nvidia.com/gpu has no device GPU-x",
        f"{path}[2].devices: nvidia.com/gpu has no device 0:1",
    )


def test_only_a_resource_with_shares_refuses_more_than_one():
    plan = make_plan(slicing(entry(2, FirstDevices(1), rename=SHARED), single=True), node(2))
    assert {resource.name: resource.single for resource in plan.resources} == {GPU: False, SHARED: True}
    assert not make_plan(slicing(entry(2)), node(2)).resources[0].single


# ---------------------------------------------------------------- size


def message_size(gpus: Sequence[Gpu], replicas: Sequence[int]) -> int:
    placed = all(one.numa is not None for one in gpus)
    devices = []
    for one, count in zip(gpus, replicas, strict=True):
        shares = range(count) if count else [None]
        for share in shares:
            device = pb.Device(ID=device_id(one.uuid, share), health="Unhealthy")
            if placed:
                device.topology.CopyFrom(pb.TopologyInfo(nodes=[pb.NUMANode(ID=one.numa)]))
            devices.append(device)
    return len(pb.ListAndWatchResponse(devices=devices).SerializeToString())


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2, 9, 10, 11, 99, 101, 1001]), st.sampled_from([None, 0, 1, 127, 128, 300])),
        min_size=1,
        max_size=4,
    )
)
def test_the_size_is_that_of_the_real_message(shape):
    gpus = [gpu(index, numa=numa) for index, (_, numa) in enumerate(shape)]
    config = slicing(
        *(
            entry(replicas, ListedDevices(indices=frozenset({index})))
            for index, (replicas, _) in enumerate(shape)
            if replicas
        )
    )
    size = message_size(gpus, [replicas for replicas, _ in shape])
    # The room that is left to the byte, and one byte less than that.
    assert make_plan(config, gpus, {GPU: LIST_LIMIT - size}).oversize == ()
    (excess,) = make_plan(config, gpus, {GPU: LIST_LIMIT - size + 1}).oversize
    assert excess.bytes == LIST_LIMIT + 1


def test_too_many_replicas_leave_the_resource_out_and_the_largest_number_is_told():
    """CFG-09"""
    gpus = node(8)
    plan = make_plan(slicing(entry(16384)), gpus)
    (excess,) = plan.oversize
    assert plan.resources == ()
    assert (excess.resource, excess.limit, excess.replicas) == (GPU, LIST_LIMIT, 16384)
    assert excess.bytes == message_size(gpus, [16384] * 8)
    assert excess.gpus == tuple(one.uuid for one in gpus)
    assert set(plan.unlisted) == set(excess.gpus)
    assert make_plan(slicing(entry(excess.largest)), gpus).oversize == ()
    assert make_plan(slicing(entry(excess.largest + 1)), gpus).oversize != ()


def test_other_resources_stay_when_one_does_not_fit():
    plan = make_plan(slicing(entry(200_000, FirstDevices(1), rename=SHARED)), node(2))
    assert listed(plan) == {GPU: {1: 0}}
    assert [excess.resource for excess in plan.oversize] == [SHARED]


def test_whole_gpus_beside_the_shares_are_counted_at_any_number():
    (excess,) = make_plan(slicing(entry(200_000, FirstDevices(1))), node(2)).oversize
    assert message_size(node(2), [excess.largest, 0]) <= LIST_LIMIT < message_size(node(2), [excess.largest + 1, 0])


def test_no_number_fits_where_tombstones_fill_the_list():
    (excess,) = make_plan(slicing(entry(2)), node(1), {GPU: LIST_LIMIT}).oversize
    assert excess.largest == 0
    (excess,) = make_plan(Config(), node(1), {GPU: LIST_LIMIT}).oversize
    assert (excess.replicas, excess.largest) == (0, 0)


def test_tombstones_take_what_they_take_in_the_message():
    ids = [device_id(one.uuid, share) for one in node(3) for share in (None, 0, 1234)]
    ids.append("nvidia0-ä" * 30)
    plain = pb.ListAndWatchResponse(devices=[pb.Device(ID=name, health="Unhealthy") for name in ids])
    assert tombstone_size(ids, numa=False) == len(plain.SerializeToString())
    for device in plain.devices:
        device.topology.nodes.add(ID=16383)
    assert tombstone_size(ids, numa=True) == len(plain.SerializeToString())


def test_a_plan_costs_by_gpus_and_not_by_ids():
    gpus, config = node(16), slicing(entry(1000))
    assert min(timeit.repeat(lambda: make_plan(config, gpus), number=1, repeat=9)) < 0.002


# ---------------------------------------------------------------- properties

selectors = st.one_of(
    st.just(AllDevices()),
    st.integers(1, 9).map(FirstDevices),
    st.frozensets(st.integers(0, 9), max_size=4).map(lambda indices: ListedDevices(indices=indices)),
)
entries = st.builds(
    entry, st.sampled_from([2, 4, 100_000]), selectors, st.sampled_from([GPU, T4]), st.sampled_from([None, SHARED, T4])
)
configs = st.builds(
    lambda entries, strategy, mps, patterns: slicing(
        *entries, flags=Flags(mig_strategy=strategy), mps=mps, gpus=patterns
    ),
    st.lists(entries, max_size=3),
    st.sampled_from(MigStrategy),
    st.frozensets(st.sampled_from([GPU, SHARED, T4]), max_size=1),
    st.lists(st.sampled_from([ResourcePattern(pattern="*T4", name=T4), ResourcePattern(pattern="NV*", name=GPU)])).map(
        tuple
    ),
)
inventories = st.lists(
    st.builds(
        gpu,
        st.integers(0, 9),
        st.sampled_from(["NVIDIA H100", "NVIDIA T4", "Tesla", "DGX Display"]),
        mig=st.sampled_from(MigMode),
        numa=st.sampled_from([None, 0, 1]),
    ),
    unique_by=lambda one: one.uuid,
    max_size=8,
)


@settings(deadline=None)
@given(configs, inventories)
def test_every_gpu_is_in_exactly_one_place(config, gpus):
    plan = make_plan(config, gpus)
    placed = [group.gpu for resource in plan.resources for group in resource.groups]
    assert sorted([*placed, *plan.unlisted]) == sorted(one.uuid for one in gpus)
    assert all(plan.unlisted.values())
    assert {one for excess in plan.oversize for one in excess.gpus} <= set(plan.unlisted)


@settings(deadline=None)
@given(configs, inventories, st.randoms())
def test_a_plan_does_not_depend_on_the_order_of_the_gpus(config, gpus, random):
    shuffled = list(gpus)
    random.shuffle(shuffled)
    assert make_plan(config, shuffled) == make_plan(config, gpus)


@settings(deadline=None)
@given(configs, inventories)
def test_nothing_under_mps_and_no_unwanted_mig_gpu_is_listed(config, gpus):
    plan = make_plan(config, gpus)
    assert not config.mps & {resource.name for resource in plan.resources}
    if config.flags.mig_strategy is not MigStrategy.NONE:
        placed = {group.gpu for resource in plan.resources for group in resource.groups}
        assert not placed & {one.uuid for one in gpus if one.mig is MigMode.ENABLED}
