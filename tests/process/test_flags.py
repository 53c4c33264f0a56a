"""Flags and variables on the real command: over every reading of the file, and over a restart."""

from __future__ import annotations

import hashlib

from reactor.status.document import Document
from tests.process.node import GPU, Node, shared


def sources(state: Document) -> dict[str, tuple[object, str, str]]:
    """Every key that is no default: value, source, name."""
    return {
        one["path"]: (one["value"], one["source"], one["name"])
        for one in state["config"]["settings"]
        if one["source"] != "default"
    }


async def test_a_flag_goes_before_a_variable_and_both_before_every_reading_of_the_file(node: Node) -> None:
    """CFG-25, CFG-35"""
    text = "flags: {mofedEnabled: true, plugin: {passDeviceSpecs: false, deviceIDStrategy: uuid}}\n"
    node.config.write_text(text)
    environment = {"DEVICE_ID_STRATEGY": "index", "PASS_DEVICE_SPECS": "false", "GDS_ENABLED": ""}
    agent = await node.start("--pass-device-specs", "-migstrategy=none", environment=environment)
    assert (await agent.process.wait()) == 78
    assert "unrecognized arguments: --migstrategy=none" in agent.take_complaints()

    agent = await node.start("--pass-device-specs", "-mig-strategy=none", environment=environment)
    await agent.settled()
    expected: dict[str, tuple[object, str, str]] = {
        "flags.migStrategy": ("none", "flag", "--mig-strategy"),
        "flags.plugin.passDeviceSpecs": (True, "flag", "--pass-device-specs"),
        "flags.plugin.deviceIDStrategy": ("index", "variable", "DEVICE_ID_STRATEGY"),
        "flags.gdsEnabled": (False, "variable", "GDS_ENABLED"),
    }
    assert sources(await agent.state()) == {**expected, "flags.mofedEnabled": (True, "file", "")}
    (read,) = agent.log.of("config.read")
    assert read["path"] == str(node.config)
    assert read["digest"] == hashlib.sha256(text.encode()).hexdigest()
    changes = {change["path"]: change["source"] for change in agent.log.of("config.applied")[0]["changes"]}
    assert changes["flags.plugin.deviceIDStrategy"] == "variable DEVICE_ID_STRATEGY"

    node.config.write_text(shared(2))
    await node.seen.until("listed", resource=GPU, healthy=4)
    now = sources(await agent.state())
    assert {path: now[path] for path in expected} == expected
    assert now["sharing.timeSlicing.resources"][1] == "file"
