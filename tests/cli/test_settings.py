from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from reactor.cli import Parser
from reactor.cli.run import add_parser
from reactor.cli.settings import read_settings
from reactor.config import OPTIONS
from reactor.model.config import Plain, Setting, Source
from reactor.model.errors import Refused
from reactor.model.kubelet import LONGEST_DIRECTORY, LONGEST_REGISTRY, Registration
from reactor.model.settings import Settings


def settings(line: str = "", **environ: str) -> Settings:
    return read_settings(parsed(line.split(" ") if line else []), environ)


def parsed(words: list[str]) -> argparse.Namespace:
    parser = Parser()
    add_parser(parser.add_subparsers())
    return parser.parse_args(["run", *words])


def test_nothing_said_is_the_defaults():
    assert settings() == Settings()


def test_every_flag_is_read():
    line = (
        "--config c --kubelet-root k --plugin-dir p --pod-resources-socket r.sock --state-dir s --admin-socket a.sock "
        "--probe-listen :1 --node-name n --grace 2.5 --resync 60 "
        "--simulate-nvml 8xH100 --allow-inject"
    )
    assert settings(line) == Settings(
        config=Path("c"),
        kubelet_root=Path("k"),
        plugin_dir=Path("p"),
        pod_resources_socket=Path("r.sock"),
        state_dir=Path("s"),
        admin_socket=Path("a.sock"),
        probe_listen=":1",
        node_name="n",
        resync=60.0,
        grace=2.5,
        simulate_nvml="8xH100",
        allow_inject=True,
    )


def test_the_peer_s_other_names_of_flags_work():
    assert settings("--config-file c").config == Path("c")
    assert settings("--container-driver-root /d").container_driver_root == Path("/d")


def test_a_flag_wins_over_a_variable_and_the_first_variable_over_the_second():
    both = {"DRIVER_ROOT_CTR_PATH": "/first", "CONTAINER_DRIVER_ROOT": "/second"}
    assert settings(**both).container_driver_root == Path("/first")
    assert settings("--driver-root-ctr-path /flag", **both).container_driver_root == Path("/flag")
    assert settings(CONTAINER_DRIVER_ROOT="/second").container_driver_root == Path("/second")
    assert settings("--config flag", CONFIG_FILE="variable").config == Path("flag")


def test_a_variable_that_is_set_to_nothing_counts_as_set():
    assert settings(CONFIG_FILE="").config is None
    assert settings(DRIVER_ROOT_CTR_PATH="", CONTAINER_DRIVER_ROOT="/second").container_driver_root == Path("/")


def test_the_kubelet_socket_says_the_plugin_directory():
    assert settings("--kubelet-socket /x/kubelet.sock").directory == Path("/x")
    assert settings(KUBELET_SOCKET="/x/kubelet.sock").kubelet_socket == Path("/x/kubelet.sock")
    assert settings("--kubelet-socket /x/kubelet.sock --plugin-dir /x").directory == Path("/x")
    assert settings("--plugin-dir /y", KUBELET_SOCKET="/x/kubelet.sock").directory == Path("/y")


@pytest.mark.parametrize(("line", "environ"), [(" --kubelet-socket=", {}), ("", {"KUBELET_SOCKET": ""})])
def test_an_empty_kubelet_socket_leaves_finding_us_to_the_plugin_watcher(line: str, environ: dict[str, str]):
    """Its directory follows the kubelet's root; checkpoint and lock stay where they are."""
    found = settings(f"--kubelet-root /r{line}", **environ)
    assert found.registration is Registration.WATCHER
    assert found.sockets == Path("/r/plugins_registry")
    assert found.directory == Path("/r/device-plugins")
    assert settings("--plugin-dir /y", KUBELET_SOCKET="").directory == Path("/y")
    assert settings("").registration is Registration.SOCKET
    assert settings("").sockets == settings("").directory
    assert settings("--kubelet-socket /x/kubelet.sock", KUBELET_SOCKET="").registration is Registration.SOCKET


def test_a_kubelet_root_that_leaves_no_room_for_a_socket_in_its_registry_is_refused():
    """KBL-16"""
    longest = "/" + "r" * (LONGEST_REGISTRY - len("//plugins_registry"))
    assert settings(f"--kubelet-root {longest}", KUBELET_SOCKET="").registration is Registration.WATCHER
    with pytest.raises(Refused, match=f"KUBELET_SOCKET is empty, so sockets .* at most {LONGEST_REGISTRY} leave"):
        settings(f"--kubelet-root {longest}x", KUBELET_SOCKET="")


@pytest.mark.parametrize(
    ("flag", "below"), [("--plugin-dir", ""), ("--kubelet-socket", "/kubelet.sock"), ("--kubelet-root", "")]
)
def test_a_plugin_directory_that_leaves_no_room_for_a_socket_is_refused(flag: str, below: str):
    """KBL-16: at the start, before a kubelet is kept waiting for a socket that can never be."""
    room = LONGEST_DIRECTORY - 1 - (len("/device-plugins") if flag == "--kubelet-root" else 0)
    assert settings(f"{flag} /{'d' * room}{below}").registration is Registration.SOCKET
    assert settings(f"{flag} /{'d' * (room - 1)}/x/..{below}".replace("/x", "/xyz"))
    with pytest.raises(Refused, match=f"is {LONGEST_DIRECTORY + 1} bytes long, at most {LONGEST_DIRECTORY} leave room"):
        settings(f"{flag} /{'d' * (room + 1)}{below}")


def test_probes_can_be_switched_off():
    assert read_settings(parsed(["--probe-listen", ""]), {}).probe_listen == ""


def test_the_peer_s_health_variables_are_passed_on_as_they_are():
    variables = settings(DP_DISABLE_HEALTHCHECKS="xids", OTHER="x").environment
    assert variables == (("DP_DISABLE_HEALTHCHECKS", "xids"),)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--mig-strategy mixd", "--mig-strategy: 'mixd' is not one of none, single, mixed; did you mean 'mixed'?"),
        ("--pass-device-specs=yes", "--pass-device-specs: expected true or false; got 'yes'"),
        ("--device-list-strategy envvar,cdi", "--device-list-strategy[1]: 'cdi' is not one of envvar, "),
        ("--device-list-strategy=", "--device-list-strategy: it is empty"),
        ("--imex-channel-ids 0,one", "--imex-channel-ids: expected whole numbers with commas between; got 'one'"),
        ("--imex-channel-ids 1", "--imex-channel-ids: must be [] or [0], got [1]"),
        ("--dev-root dev", "--dev-root: must be an absolute path, got 'dev'"),
        ("--driver-root /a --nvidia-driver-root /a", "--driver-root and --nvidia-driver-root are one option"),
        ("--cdi-disable-hooks ldcache", "'ldcache' is not one of all, create-symlinks"),
        ("--grace soon", "--grace: 'soon' is not a number of seconds"),
        ("--grace -1", "is not a number of seconds"),
        ("--grace nan", "is not a number of seconds"),
        ("--grace inf", "is not a number of seconds"),
        ("--probe-listen 9465", "--probe-listen: '9465' is not host:port"),
        ("--kubelet-socket /x/other.sock", "must end in kubelet.sock"),
        ("--kubelet-socket /x/kubelet.sock --plugin-dir /y", "disagree"),
        ("--driver-root-ctr-path rel", "--driver-root-ctr-path: must be an absolute path"),
        ("--admin-socket /" + "x" * 107, "is 108 bytes long, a unix socket takes 107"),
        ("--state-dir=", "--state-dir is empty"),
        ("--resync 0", "--resync: '0' is not a number of seconds from 1 on, such as 30"),
        ("--simulate-nvml=", "--simulate-nvml is empty"),
        ("--simulate-nvml 8xH1000", "known products: H100"),
    ],
)
def test_a_bad_flag_is_refused_with_what_to_write(line: str, complaint: str):
    with pytest.raises(Refused) as caught:
        settings(line)
    assert complaint in str(caught.value)


def test_a_bad_variable_is_refused_by_its_name():
    with pytest.raises(Refused, match=r"the variable KUBELET_SOCKET: /x/other must end in kubelet\.sock"):
        settings(KUBELET_SOCKET="/x/other")
    with pytest.raises(Refused, match="the variable DP_DISABLE_HEALTHCHECKS: 'zero' is no XID"):
        settings(DP_DISABLE_HEALTHCHECKS="zero")


# ---------------------------------------------------------------- in place of the file


def overrides(line: str = "", **environ: str) -> dict[str, Plain]:
    return {setting.path: setting.value for setting in settings(line, **environ).overrides}


VALUES: dict[str, tuple[str, Plain]] = {
    "flags.migStrategy": ("mixed", "mixed"),
    "flags.nvidiaDriverRoot": ("/d", "/d"),
    "flags.nvidiaDevRoot": ("/d", "/d"),
    "flags.mpsRoot": ("/d", "/d"),
    "flags.deviceDiscoveryStrategy": ("tegra", "tegra"),
    "flags.plugin.deviceListStrategy": ("envvar,cdi-cri", ("envvar", "cdi-cri")),
    "flags.plugin.deviceIDStrategy": ("index", "index"),
    "flags.plugin.cdiAnnotationPrefix": ("x/", "x/"),
    "flags.plugin.nvidiaCTKPath": ("/x", "/x"),
    "flags.plugin.containerDriverRoot": ("/d", "/d"),
    "flags.plugin.sharedDevicesAllocationPolicy": ("packed", "packed"),
    "imex.channelIDs": ("0x0", (0,)),
    "cdi.featureFlags": ("disable-nvsandboxutils", ("disable-nvsandboxutils",)),
    "cdi.disableHooks": ("all,chmod", ("all", "chmod")),
}
NAMES = [(option.path, name) for option in OPTIONS for name in (*option.flags, *option.variables)]


@pytest.mark.parametrize(("path", "name"), NAMES, ids=[name for _, name in NAMES])
def test_every_flag_and_variable_of_the_peer_says_its_key(path: str, name: str):
    text, value = VALUES.get(path, ("true", True))
    said = settings(f"{name}={text}") if name.startswith("--") else settings(**{name: text})
    source = Source.FLAG if name.startswith("--") else Source.VARIABLE
    assert said.overrides == (Setting(path=path, value=value, source=source, name=name),)


@pytest.mark.parametrize("word", ["1", "t", "T", "TRUE", "true", "True"])
def test_booleans_are_spelt_as_go_spells_them(word: str):
    assert overrides(f"--gds-enabled={word}") == {"flags.gdsEnabled": True}
    opposite = {"1": "0", "t": "f", "T": "F", "TRUE": "FALSE", "true": "false", "True": "False"}[word]
    assert overrides(GDS_ENABLED=opposite) == {"flags.gdsEnabled": False}


def test_the_bare_flag_is_true():
    assert overrides("--gds-enabled --mig-strategy single") == {"flags.gdsEnabled": True, "flags.migStrategy": "single"}


def test_lists_add_up_on_the_command_line_and_replace_the_variable():
    line = "--device-list-strategy envvar --device-list-strategy=volume-mounts,cdi-cri"
    assert overrides(line, DEVICE_LIST_STRATEGY="cdi-annotations") == {
        "flags.plugin.deviceListStrategy": ("envvar", "volume-mounts", "cdi-cri")
    }
    assert overrides(DEVICE_LIST_STRATEGY=" envvar , cdi-cri ") == {
        "flags.plugin.deviceListStrategy": ("envvar", "cdi-cri")
    }


def test_of_a_flag_given_twice_the_last_counts():
    assert overrides("--mig-strategy single --mig-strategy mixed") == {"flags.migStrategy": "mixed"}


def test_an_empty_variable_counts_as_set_where_it_means_something():
    assert overrides(FAIL_ON_INIT_ERROR="", NVIDIA_DRIVER_ROOT="", NVIDIA_DEV_ROOT="") == {
        "flags.failOnInitError": False,
        "flags.nvidiaDriverRoot": "/",
        "flags.nvidiaDevRoot": "",
    }
    assert overrides(IMEX_CHANNEL_IDS="") == {}
    with pytest.raises(Refused, match="the variable MIG_STRATEGY: it is empty: write a value, or leave it out"):
        settings(MIG_STRATEGY="")


def test_every_fault_is_told_at_once():
    with pytest.raises(Refused) as caught:
        settings("--mig-strategy x", DEVICE_ID_STRATEGY="y")
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "--mig-strategy",
        "the variable DEVICE_ID_STRATEGY",
    ]
