"""``check --from-peer``: a migration holds no surprise."""

from __future__ import annotations

from pathlib import Path

import pytest

from reactor.cli import main
from reactor.cli.migration import always, differences
from reactor.config import Accepted, parse
from reactor.model.condition import Policy
from tests.config.texts import UUID


def told(text: str) -> list[str]:
    return [point.render("c.yaml") for point in differences(parse(text.encode(), path="c.yaml"))]


def slicing(entry: str, more: str = "") -> str:
    return f"sharing: {{timeSlicing: {{{more}resources: [{entry}]}}}}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: v1\nflags: {migStrategy: none, plugin: {deviceListStrategy: envvar, deviceIDStrategy: index}}",
        slicing("{name: gpu, replicas: 4}"),
        slicing("{name: gpu, replicas: 4, devices: all}", "renameByDefault: true, failRequestsGreaterThanOne: true, "),
        slicing("{name: gpu, replicas: 4, rename: gpu.shared}", "renameByDefault: true, "),
        slicing("{name: gpu, replicas: 4, rename: gpu}"),
        "imex: {channelIDs: [0]}\nsharing: {mps: null}",
    ],
)
def test_what_both_read_alike_is_not_told_of(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize(
    ("text", "here", "there"),
    [
        ("resources: {gpus: [{pattern: '*T4', name: t4}]}", "'*T4' are nvidia.com/t4", "every GPU is nvidia.com/gpu"),
        ("resources: {mig: [{pattern: '*', name: t4}]}", "no effect", "drops it"),
        (slicing("{name: gpu, replicas: 2, rename: x}"), "shares are nvidia.com/x", "shares are nvidia.com/gpu"),
        (
            slicing("{name: gpu, replicas: 2, rename: x}", "renameByDefault: true, "),
            "shares are nvidia.com/x",
            "shares are nvidia.com/gpu.shared",
        ),
        (slicing("{name: gpu, replicas: 2, devices: 2}"), "only these GPUs are shared", "every GPU is shared"),
        (slicing(f"{{name: gpu, replicas: 2, devices: [GPU-{UUID}]}}"), "only these GPUs", "every GPU is shared"),
        ("imex: {channelIDs: [0], required: true}", "nothing is handed out while", "ends while"),
        ("select: {exclude: {indices: [0]}}", "acts", "ignores it"),
        ("health: {xids: {ignore: [79]}}", "acts", "ignores it"),
        ("holds: allow", "acts", "ignores it"),
        ("flags: {migStrategy: mixed}", "MIG devices are not served yet", "acts on it"),
        ("flags: {plugin: {deviceListStrategy: cdi-cri}}", "not by cdi-cri", "acts on it"),
        ("flags: {plugin: {deviceListStrategy: 'envvar,volume-mounts'}}", "means envvar, volume-mounts", "refuses it"),
        ("flags: {plugin: {deviceListStrategy: ''}}", "it means envvar", "refuses it"),
        ("flags: {plugin: {deviceListStrategy: []}}", "it means envvar", "hands out nothing"),
        ("cdi: {disableHooks: [all]}", "no effect", "ignores it"),
        ("flags: {gfd: {oneshot: true}}", "no effect", "gpu-feature-discovery acts on it"),
        ("sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}", "not advertised", "acts on it"),
    ],
)
def test_a_key_that_acts_on_one_side_only_is_told_of(text: str, here: str, there: str) -> None:
    (point,) = told(text)
    assert point.startswith("c.yaml:1:")
    ours, theirs = point.split("; the device plugin: ")
    assert here in ours
    assert there in theirs


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("sharring: {}", "ignores it"),
        ("flags: {renameByDefault: true}", "ignores it"),
        ("Flags: {}", "takes it for flags"),
        ("flags: {plugin: {PassDeviceSpecs: true}}", "takes it for passDeviceSpecs"),
        (slicing("{name: gpu, replicas: 2}", "RenameByDefault: true, "), "ignores it"),
        ("flags: {failOnInitError: yes}", "takes it for true"),
        ("flags: {failOnInitError: Off}", "takes it for false"),
        ("flags: {failOnInitError: 'true'}", "refuses it as well"),
        ("flags: {migStrategy: none, migStrategy: mixed}", "the last one counts"),
        ("version: v1\n---\nversion: v1", "reads the first and ignores the rest"),
        ("apiVersion: v1\nkind: ConfigMap\n", "reads it as an empty config"),
        ("flags: {gfd: {sleepInterval: 60}}", "takes it for 60 nanoseconds"),
        ("flags: {gfd: {sleepInterval: -5s}}", "takes it as it is"),
        ("flags: {gfd: {sleepInterval: 1d}}", "refuses it as well"),
        ("flags: {nvidiaDriverRoot: drv}", "takes it as it is"),
        ("flags: {migStrategy: mixd}", "refuses it as well"),
        (slicing("{name: gpu, replicas: 16384000}"), "the kubelet drops the list"),
        (slicing("{name: gpu, replicas: '4'}"), "refuses it as well"),
        (slicing("{name: gpu, replicas: 010}"), "takes it for 8, unless it stands in quotes"),
        (slicing("{name: gpu, replicas: 0x10}"), "takes it for 16, unless"),
        (slicing("{name: gpu, replicas: 1_000}"), "takes it for 1000, unless"),
        (slicing("{name: gpu, replicas: 0b_1_0}"), "takes it for 2, unless"),
        (slicing("{name: gpu, replicas: 1}"), "refuses it as well"),
        (slicing("{name: gpu, replicas: 2.5}"), "refuses it as well"),
        (slicing("{name: gpu, replicas: 2, devices: []}"), "takes it, every GPU is shared"),
        (slicing(f"{{name: gpu, replicas: 2, devices: [GPU-{UUID.replace('-', '')}]}}"), "takes it for a UUID, and"),
        (slicing("{name: gpu, Replicas: 2}"), "ignores it"),
        ("imex: {channelids: [0]}", "takes it for channelIDs"),
        ("imex: {channelIDs: [0, 0]}", "refuses it as well"),
        ("version: 1", "refuses it as well"),
        ("version: v2", "refuses it as well"),
        ("config.yaml: |\n  version: v1\n", "reads it as an empty config"),
        ("flags: {gfd: {sleepInterval: '0'}}", "takes it as it is"),
        ("flags: {gfd: {sleepInterval: Infinit}}", "refuses it as well"),
        ("flags: {mpsRoot: 5}", "refuses it as well"),
        ("flags: {mpsRoot: !!binary /run}", "reads it"),
        ("flags: {<<: {migStrategy: none}}", "merges the keys"),
        ("flags:\n\tmigStrategy: none", "refuses it as well"),
        ("- version: v1", "refuses it as well"),
        ("sharing: {timeSlicing: null}", "refuses it as well"),
        ("sharing: {timeSlicing: {}}", "refuses it as well"),
        (slicing("{name: gpu, replicas: 2}, {name: gpu, replicas: 5}"), "applies both"),
        (
            "sharing: {timeSlicing: {resources: [&a {name: a, replicas: 2}]},\n mps: {resources: [*a]}}",
            "mps counts",
        ),
    ],
)
def test_what_is_refused_here_is_told_with_what_the_plugin_makes_of_it(text: str, there: str) -> None:
    """CFG-01, CFG-02, CFG-03, CFG-05, CFG-06, CFG-10, CFG-07, CFG-13, CFG-14, CFG-15, CFG-17, CFG-19, CFG-21"""
    refused = [point for point in told(text) if ": here: refused, " in point]
    assert len(refused) == 1
    assert there in refused[0].split("; the device plugin: ")[1]


@pytest.mark.parametrize(
    "text",
    [
        "health: {quietTimes: {unknown: 60}}",
        "health: {xids: {reset: ['79']}}",
        "holds: never",
        "select: {include: {}}",
        "cdi: {disableHooks: [none]}",
    ],
)
def test_a_fault_in_a_section_of_our_own_is_none_to_the_plugin(text: str) -> None:
    refused = [point for point in told(text) if ": here: refused, " in point]
    assert [point.split("; the device plugin: ")[1] for point in refused] == ["ignores it"]


def test_a_device_that_is_no_index_is_one_to_the_plugin_and_then_dropped() -> None:
    """CFG-22"""
    points = told(slicing("{name: gpu, replicas: 2, devices: [010, 1_000]}"))
    assert [point.split("; the device plugin: ")[1] for point in points] == [
        "takes it for 8, unless it stands in quotes",
        "takes it for 1000, unless it stands in quotes",
    ]


def test_what_is_left_of_a_refused_text_is_told_of_too() -> None:
    points = told("flags: {failOnInitError: yes}\nresources: {gpus: [{pattern: '*', name: x}]}\n")
    assert [point.split(": ")[1] for point in points] == ["flags.failOnInitError", "resources.gpus[0]"]


# ---------------------------------------------------------------- XIDs


def lines(text: str = "", environment: Policy | None = None) -> dict[str, str]:
    found = parse(text.encode(), path="c.yaml")
    assert isinstance(found, Accepted)
    told = always(found.config, environment or Policy())
    return {line.split(":")[0]: line.rsplit(": ", 1)[1] for line in told if line.startswith("XIDs")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "returns on evidence here; there on a restart"),
        ("", "marks every share of it here; there one of them"),
        ("", "only when that pod has ended (holds: wait); there at once"),
        ("", "a broken one changes nothing; there one wants SIGHUP, the other ends it"),
        ("", "waits, not ready (failOnInitError: true); there that ends the plugin"),
        ("flags: {failOnInitError: false}", "waits for it; there the plugin idles until it is restarted"),
    ],
)
def test_what_differs_on_any_node_is_said(text: str, said: str) -> None:
    found = parse(text.encode(), path="c.yaml")
    assert isinstance(found, Accepted)
    assert any(said in line for line in always(found.config, Policy()))


SPARED = "XIDs that leave a GPU healthy here, and mark it for good there"
MARKED = "XIDs that mark a GPU here, and are ignored there"


def test_xids_are_told_where_their_classes_differ() -> None:
    found = lines()
    assert found[MARKED] == "109"
    assert {"63", "92-94"} <= set(found[SPARED].split())
    assert "79" not in found[SPARED].split()
    assert "13" not in found[SPARED].split()


def test_xids_are_told_as_config_and_environment_have_them() -> None:
    every = lines("health: {classes: {unknown: ignore, reset: ignore}, xids: {reset: [31]}}")
    assert every[MARKED] == "31"
    assert every[SPARED].endswith("and above")
    assert lines(environment=Policy(enable_all=True)).keys() == set()
    assert lines(environment=Policy(disable_all=True)).keys() == set()
    assert lines(environment=Policy(disable_all=True, enabled=frozenset({79}))) == {MARKED: "79"}


# ---------------------------------------------------------------- the command


def test_the_command_says_how_much_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("version: v1\n")
    assert main(["check", "--from-peer", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("whatever the file says:\n  XIDs that leave")
    assert err == f"{file}: read otherwise in no point\n"
    file.write_text("holds: allow\nflags: {failOnInitError: yes}\n")
    assert main(["check", "--from-peer", str(file)]) == 1
    out, err = capsys.readouterr()
    assert [line.split(" ")[0] for line in out.splitlines()[:2]] == [f"{file}:1:8:", f"{file}:2:26:"]
    assert err == f"{file}: read otherwise in 2 points, and it is refused here\n"


def test_a_variable_that_is_refused_here_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CFG-37"""
    monkeypatch.setenv("DP_DISABLE_HEALTHCHECKS", "0")
    file = tmp_path / "c.yaml"
    file.write_text("")
    assert main(["check", "--from-peer", str(file)]) == 1
    assert "the variable DP_DISABLE_HEALTHCHECKS: '0' is no XID" in capsys.readouterr().out
