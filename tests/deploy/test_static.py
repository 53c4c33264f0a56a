"""deploy/static: what people apply is valid, asks for little, fits the agent's defaults, and docs/deploy.md is true."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from reactor.cli import make_parser
from reactor.cli.settings import read_settings
from reactor.config import Accepted, parse
from reactor.model.settings import Settings
from reactor.status.http import Request
from reactor.status.probes import answer_probes
from tests.deploy.fields import faults
from tests.deploy.static import ROOT, STATIC, Object, manifests, merged, patch
from tests.e2e.image import IMAGE
from tests.status.node import READY

PAGE = (ROOT / "docs" / "deploy.md").read_text()
ACCOUNT, CONFIG_MAP, DAEMON_SET = manifests()
VARIANTS = {"": DAEMON_SET} | {name: merged(DAEMON_SET, patch(name)) for name in ("driver-root", "simulated")}
POD = DAEMON_SET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
MOUNTS = {each["mountPath"]: each for each in CONTAINER["volumeMounts"]}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def settings_of(daemon_set: Object) -> Settings:
    """What the agent makes of its arguments and variables there."""
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    parser, _ = make_parser(["run"])
    environ = {each["name"]: each.get("value", "n1") for each in container["env"]}
    return read_settings(parser.parse_args(container["args"]), environ)


@pytest.mark.parametrize("thing", [ACCOUNT, CONFIG_MAP, *VARIANTS.values()], ids=lambda thing: thing["kind"])
def test_every_field_is_one_of_the_api(thing: Object):
    assert faults(thing) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "updateStrategi"), {}),
        (("spec", "template", "spec", "priorityClasName"), "x"),
        (("spec", "template", "spec", "terminationGracePeriodSeconds"), "10"),
        (("spec", "template", "spec", "containers"), {}),
        (("metadata", "labels"), ["x"]),
        (("spec", "selector"), "x"),
    ],
)
def test_a_slip_would_be_found(path: tuple[str, ...], value: object):
    change: object = value
    for name in reversed(path):
        change = {name: change}
    assert isinstance(change, dict)
    assert len(faults(merged(DAEMON_SET, change))) == 1


def test_what_belongs_together_has_one_name():
    assert {each["metadata"]["namespace"] for each in (ACCOUNT, CONFIG_MAP, DAEMON_SET)} == {"kube-system"}
    assert POD["serviceAccountName"] == ACCOUNT["metadata"]["name"]
    (volume,) = [each for each in POD["volumes"] if each["name"] == "config"]
    assert volume["configMap"]["name"] == CONFIG_MAP["metadata"]["name"]
    labels = DAEMON_SET["spec"]["template"]["metadata"]["labels"]
    assert DAEMON_SET["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert {each["name"] for each in CONTAINER["volumeMounts"]} == {each["name"] for each in POD["volumes"]}
    assert CONTAINER["image"] == IMAGE


def test_one_container_with_no_rights():
    assert "initContainers" not in POD
    assert CONTAINER["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert POD["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & POD.keys()
    assert POD["automountServiceAccountToken"] is ACCOUNT["automountServiceAccountToken"] is False


def test_host_paths_are_as_narrow_as_can_be():
    paths = {name: hosts(variant) for name, variant in VARIANTS.items()}
    state = str(Settings().state_dir)
    assert paths[""] == {str(Settings().directory), str(Settings().pod_resources.parent), state}
    assert paths["simulated"] == paths[""]
    assert paths["driver-root"] == paths[""] | {"/"}
    for path in paths[""]:
        assert f"`{path}`" in PAGE


def hosts(daemon_set: Object) -> set[str]:
    volumes = daemon_set["spec"]["template"]["spec"]["volumes"]
    return {each["hostPath"]["path"] for each in volumes if "hostPath" in each}


def test_mounts_are_where_the_agent_looks():
    settings = Settings()
    assert settings.config is not None
    writable = {settings.directory, settings.state_dir, settings.admin_socket.parent}
    assert {Path(path) for path, mount in MOUNTS.items() if not mount.get("readOnly")} == writable
    read_only = {settings.config.parent, settings.pod_resources.parent}
    assert {Path(path) for path, mount in MOUNTS.items() if mount.get("readOnly")} == read_only
    (container,) = VARIANTS["driver-root"]["spec"]["template"]["spec"]["containers"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "driver-root"]
    assert (Path(mount["mountPath"]), mount["readOnly"]) == (settings.container_driver_root, True)


def test_the_config_is_mounted_as_a_directory():
    """CFG-31: an edit never reaches a file that is mounted by subPath."""
    assert not any("subPath" in mount or "subPathExpr" in mount for mount in MOUNTS.values())
    (volume,) = [each for each in POD["volumes"] if each["name"] == "config"]
    assert volume["configMap"] == {"name": "gpu-reactor", "optional": True}
    config = Settings().config
    assert config is not None
    assert list(CONFIG_MAP["data"]) == [config.name]


def test_the_config_is_accepted_and_that_of_a_node_like_others():
    (text,) = CONFIG_MAP["data"].values()
    read = parse(text.encode(), path="config.yaml")
    assert isinstance(read, Accepted)
    default = parse(b"version: v1", path="config.yaml")
    assert isinstance(default, Accepted)
    assert not read.config.flags.fail_on_init_error
    assert replace(read.config, flags=default.config.flags) == default.config


@pytest.mark.parametrize("variant", VARIANTS)
def test_its_arguments_are_taken(variant: str):
    settings = settings_of(VARIANTS[variant])
    assert settings.node_name == "n1"
    assert settings.simulate_nvml == ("8xH100" if variant == "simulated" else "")
    assert settings.probe_listen == ":9465"


def test_probes_ask_for_what_the_agent_answers():
    (port,) = CONTAINER["ports"]
    assert settings_of(DAEMON_SET).probe_listen.rpartition(":")[2] == str(port["containerPort"])
    answer = answer_probes(lambda: READY, dict)
    for name in PROBES:
        ask = CONTAINER[name]["httpGet"]
        assert ask["port"] == port["name"]
        assert answer(Request(method="GET", path=ask["path"])).status == 200
        assert f"`{ask['path']}`" in PAGE
    assert CONTAINER["livenessProbe"]["httpGet"]["path"] == "/healthz"  # which looks at nothing outside the agent


def test_an_update_starts_the_next_agent_beside_the_one_that_ends():
    assert DAEMON_SET["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == "/readyz/standby"
    assert not any("hostPort" in port for port in CONTAINER["ports"])  # which only one of them could have
    assert POD["terminationGracePeriodSeconds"] > Settings().grace


def test_nothing_restarts_the_agent_for_an_edit_of_its_config():
    annotations = DAEMON_SET["spec"]["template"]["metadata"]["annotations"]
    assert not any("checksum" in name or "config" in name for name in annotations)


def test_the_page_names_what_there_is():
    for path in re.findall(r"deploy/[\w./-]+", PAGE):
        assert (ROOT / path).exists(), path
    for file in STATIC.iterdir():
        assert f"deploy/static/{file.name}" in PAGE
