"""What texts are accepted, and what they are read as."""

from __future__ import annotations

import pytest

from reactor.config import parse
from reactor.model.config import (
    Config,
    DeviceListStrategy,
    FirstDevices,
    Flags,
    HoldsPolicy,
    ListedDevices,
    MigStrategy,
    ResourcePattern,
    SharedResource,
    TimeSlicing,
)
from reactor.model.ids import GpuUuid, ResourceName
from tests.config.texts import GPU, UUID, accepted, slicing


@pytest.mark.parametrize("text", [b"", b"# only a comment\n", b"---\n", b"null\n", b"\xef\xbb\xbf", b"\n\r\n"])
def test_an_empty_file_is_the_defaults_with_a_word(text: bytes) -> None:
    """CFG-18"""
    found = accepted(text)
    assert found.config == Config()
    assert "defaults are in force" in found.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        b"version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: gpu\n      replicas: 4\n",
        b"\xef\xbb\xbfsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n",
        b"version: v1\r\nsharing:\r\n  timeSlicing:\r\n    resources:\r\n    - name: gpu\r\n      replicas: 4\r\n",
        b'{"version": "v1", "sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 4}]}}}',
        b"x: &x\n" * 0
        + b"sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}, mps: null}\nflags: null\nimex:\n",
    ],
    ids=["plain", "bom", "crlf", "json", "nulls"],
)
def test_other_spellings_of_the_same_config_are_the_same(text: bytes) -> None:
    """CFG-18"""
    assert accepted(text).config == Config(
        time_slicing=TimeSlicing(resources=(SharedResource(name=GPU, replicas=4),)),
    )


def test_a_text_comes_back_byte_for_byte() -> None:
    data = b"\xef\xbb\xbfversion: v1\r\n# \xc3\xa9\r\n"
    found = accepted(data)
    assert found.text.encode() == data
    assert parse(found.text.encode(), path="") == parse(data, path="")


def test_flags_are_read() -> None:
    found = accepted(
        "flags:\n  migStrategy: mixed\n  failOnInitError: false\n  nvidiaDriverRoot: /opt/drv\n"
        "  plugin: {passDeviceSpecs: true, deviceIDStrategy: uuid, containerDriverRoot: /d}\nholds: allow\n"
    )
    assert found.config.flags == Flags(
        mig_strategy=MigStrategy.MIXED,
        fail_on_init_error=False,
        nvidia_driver_root="/opt/drv",
        pass_device_specs=True,
        container_driver_root="/d",
    )
    assert found.config.holds is HoldsPolicy.ALLOW


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("cdi-annotations", ("cdi-annotations",)),
        ("[cdi-annotations]", ("cdi-annotations",)),
        ('"envvar,cdi-cri"', ("envvar", "cdi-cri")),
        ("[envvar, cdi-cri]", ("envvar", "cdi-cri")),
        ("envvar, envvar", ("envvar",)),
        ("null", ("envvar",)),
        ("[]", ("envvar",)),
        ('""', ("envvar",)),
    ],
)
def test_a_list_strategy_may_be_a_string_a_list_or_a_comma_string(written: str, meant: tuple[str, ...]) -> None:
    """CFG-15"""
    written = written if "," not in written or written[0] in '"[' else f'"{written}"'
    found = accepted(f"flags: {{plugin: {{deviceListStrategy: {written}}}}}")
    assert found.config.flags.device_list_strategy == tuple(DeviceListStrategy(word) for word in meant)


@pytest.mark.parametrize("written", ["[]", "''"])
def test_an_empty_list_of_strategies_is_told_of(written: str) -> None:
    """CFG-15"""
    (note,) = accepted(f"flags: {{plugin: {{deviceListStrategy: {written}}}}}").notes
    assert note.startswith("flags.plugin.deviceListStrategy is empty: envvar is meant")


def test_index_strings_survive_as_text() -> None:
    """CFG-22"""
    entry = accepted(slicing("{name: gpu, replicas: 2, devices: [0:1, 1:30, 3, '4']}")).config.time_slicing.resources[0]
    assert entry.devices == ListedDevices(indices=frozenset({3, 4}), mig=frozenset({"0:1", "1:30"}))


def test_uuids_are_read_in_any_case() -> None:
    entry = accepted(slicing(f"{{name: gpu, replicas: 2, devices: [GPU-{UUID.upper()}]}}"))
    assert entry.config.time_slicing.resources[0].devices == ListedDevices(uuids=frozenset({GpuUuid(f"GPU-{UUID}")}))


def test_every_kind_of_renaming_and_selecting_is_read() -> None:
    """SHR-09"""
    found = accepted(
        "sharing:\n  timeSlicing:\n    renameByDefault: true\n    failRequestsGreaterThanOne: true\n    resources:\n"
        "    - {name: gpu, devices: 2, replicas: 4}\n    - {name: t4, rename: small, devices: [0], replicas: 3}\n"
    )
    assert found.config.time_slicing == TimeSlicing(
        fail_requests_greater_than_one=True,
        resources=(
            SharedResource(name=GPU, rename=ResourceName("nvidia.com/gpu.shared"), devices=FirstDevices(2), replicas=4),
            SharedResource(
                name=ResourceName("nvidia.com/t4"),
                rename=ResourceName("nvidia.com/small"),
                devices=ListedDevices(indices=frozenset({0})),
                replicas=3,
            ),
        ),
    )


def test_one_resource_may_be_shared_twice_on_different_devices() -> None:
    """CFG-10, SHR-09"""
    found = accepted(slicing("{name: gpu, devices: [0], replicas: 2}, {name: gpu, devices: [1, 2], replicas: 6}"))
    assert [entry.replicas for entry in found.config.time_slicing.resources] == [2, 6]


def test_sharing_what_no_gpu_is_called_is_accepted_with_a_word() -> None:
    found = accepted(slicing("{name: gpus, replicas: 2}, {name: mig-1g.5gb, replicas: 2}, {name: gpu, replicas: 2}"))
    assert found.notes == (
        "sharing.timeSlicing.resources[0].name: no entry of resources.gpus is called nvidia.com/gpus, "
        "so nothing is shared",
    )


def test_patterns_of_whole_gpus_are_read() -> None:
    found = accepted("resources: {gpus: [{pattern: '*A100*', name: a100}, {pattern: '*', name: gpu}]}")
    assert found.config.gpus == (
        ResourcePattern(pattern="*A100*", name=ResourceName("nvidia.com/a100")),
        ResourcePattern(pattern="*", name=GPU),
    )


def test_aliases_stand_for_what_they_name() -> None:
    found = accepted(
        "resources:\n  gpus:\n  - &one {pattern: '*', name: &n gpu}\n  - *one\n" + slicing("{name: *n, replicas: 2}")
    )
    assert len(found.config.gpus) == 2
    assert found.config.time_slicing.resources[0].name == GPU


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("flags: {migStrategy: single}", "flags.migStrategy"),
        ("flags: {mpsRoot: /run/mps}", "flags.mpsRoot"),
        ("flags: {useNodeFeatureAPI: false}", "flags.useNodeFeatureAPI"),
        ("flags: {deviceDiscoveryStrategy: tegra}", "flags.deviceDiscoveryStrategy"),
        ("flags: {plugin: {deviceListStrategy: [volume-mounts, cdi-cri]}}", "flags.plugin.deviceListStrategy"),
        ("flags: {plugin: {cdiAnnotationPrefix: x/}}", "flags.plugin.cdiAnnotationPrefix"),
        ("flags: {plugin: {containerDriverRoot: /x}}", "flags.plugin.containerDriverRoot"),
        ("flags: {plugin: {nvidiaCTKPath: /x}}", "flags.plugin.nvidiaCTKPath"),
        ("flags: {gfd: {sleepInterval: infinite, oneshot: true}}", "flags.gfd"),
        ("resources: {mig: [{pattern: '*', name: gpu}]}", "resources.mig"),
        ("sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}", "sharing.mps"),
        (slicing("{name: gpu, replicas: 2, devices: [0:1]}"), "sharing.timeSlicing.resources[0].devices"),
    ],
)
def test_a_key_that_is_not_served_yet_is_accepted_with_a_word(text: str, path: str) -> None:
    found = accepted(text).config.unserved
    assert [entry.path for entry in found] == [path]


@pytest.mark.parametrize(
    "text",
    [
        "imex: {channelIDs: [0], required: true}\nflags: {gdsEnabled: true, plugin: {deviceIDStrategy: index}}",
        "flags: {plugin: {deviceListStrategy: [volume-mounts, envvar], sharedDevicesAllocationPolicy: packed}}",
        "flags: {deviceDiscoveryStrategy: nvml, gdsEnabled: false, plugin: {deviceListStrategy: 'envvar'}}",
        "flags: {gfd: {sleepInterval: 60s}}\nimex: {channelIDs: []}\nresources: {mig: []}",
    ],
)
def test_what_makes_no_difference_is_not_told_of(text: str) -> None:
    assert accepted(text).config.unserved == ()


def test_names_under_mps_are_known_before_and_after_renaming() -> None:
    found = accepted("sharing: {mps: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}")
    assert found.config.mps == {GPU, ResourceName("nvidia.com/gpu.shared")}
    assert found.config.time_slicing == TimeSlicing()


@pytest.mark.parametrize("interval", ["60s", "1m30s", "1.5h", "infinite", "INFINITE", "1000ms", ".5m", "2.h", "+90s"])
def test_a_duration_with_a_unit_is_one(interval: str) -> None:
    """CFG-13, CFG-14"""
    accepted(f"flags: {{gfd: {{sleepInterval: {interval}}}}}")
