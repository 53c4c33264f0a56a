from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from reactor.cli import Parser
from reactor.cli.run import add_parser
from reactor.cli.settings import read_settings
from reactor.model.errors import Refused
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
        "--probe-listen :1 --node-name n --driver-root-ctr-path /d --grace 2.5 --resync 60 "
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
        container_driver_root=Path("/d"),
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


def test_probes_can_be_switched_off():
    assert read_settings(parsed(["--probe-listen", ""]), {}).probe_listen == ""


def test_the_peer_s_health_variables_are_passed_on_as_they_are():
    variables = settings(DP_DISABLE_HEALTHCHECKS="xids", OTHER="x").environment
    assert variables == (("DP_DISABLE_HEALTHCHECKS", "xids"),)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--grace soon", "--grace: 'soon' is not a number of seconds"),
        ("--grace -1", "is not a number of seconds"),
        ("--grace nan", "is not a number of seconds"),
        ("--grace inf", "is not a number of seconds"),
        ("--probe-listen 9465", "--probe-listen: '9465' is not host:port"),
        ("--kubelet-socket /x/other.sock", "must end in kubelet.sock"),
        ("--kubelet-socket /x/kubelet.sock --plugin-dir /y", "disagree"),
        ("--driver-root-ctr-path rel", "is not absolute"),
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
    with pytest.raises(Refused, match="the variable KUBELET_SOCKET is empty"):
        settings(KUBELET_SOCKET="")
    with pytest.raises(Refused, match=r"the variable KUBELET_SOCKET: /x/other must end in kubelet\.sock"):
        settings(KUBELET_SOCKET="/x/other")
    with pytest.raises(Refused, match="the variable DP_DISABLE_HEALTHCHECKS: 'zero' is no XID"):
        settings(DP_DISABLE_HEALTHCHECKS="zero")
