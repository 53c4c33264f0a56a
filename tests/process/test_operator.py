"""What a person does to a running agent: status and inject, over its admin socket; and a log that nobody reads."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys

import trio

from tests.loglines import validate
from tests.process.node import GPU, Node, shared

PIPE = 4096
"""The least that a pipe can hold: less than the lines of a start."""


async def command(node: Node, *words: str) -> tuple[int, str]:
    """Run ``gpu-reactor WORDS`` against this node's agent: exit code and all that it said."""
    done = await trio.run_process(
        [sys.executable, "-m", "reactor", *words, "--admin-socket", str(node.admin)],
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout.decode()


async def test_status_shows_what_is_served(node: Node) -> None:
    node.config.write_text(shared(4))
    agent = await node.start()
    await node.seen.until("listed", resource=GPU, healthy=8)
    await agent.settled()
    await agent.state()
    assert await node.allocate("a", 1) == ""
    assert node.admin.stat().st_mode & 0o777 == 0o600
    code, table = await command(node, "status")
    assert code == 0
    assert "SIMULATED" in table
    assert GPU in table
    code, text = await command(node, "status", "-o", "json")
    document = json.loads(text)
    (resource,) = document["resources"]
    assert (code, resource["planned"], resource["healthy"], resource["registered"]) == (0, 8, 8, True)
    assert len(document["holds"]) == 1


async def test_an_injected_fault_takes_the_way_of_a_real_one(node: Node) -> None:
    """HLT-29"""
    agent = await node.start("--allow-inject")
    await node.seen.until("listed", resource=GPU, healthy=2)
    await agent.state()
    code, said = await command(node, "inject", "xid=79", "gpu=1")
    assert (code, "XidReported" in said) == (0, True)
    await node.seen.until("listed", resource=GPU, healthy=1, unhealthy=1)
    assert (await node.kubelet.devices(GPU))[node.gpus.gpus[1].uuid] is False
    reported = await agent.log.until("xid.reported", xid=79, decision="condemned")
    assert reported["synthetic"] is True
    code, said = await command(node, "inject", "clear", "gpu=1", "reason=board replaced")
    assert code == 0, said
    await node.seen.until("listed", resource=GPU, healthy=2, count=2)
    code, said = await command(node, "inject", "xid=79", "gpu=7")
    assert (code, "no GPU '7'" in said) == (1, True)


async def test_an_agent_that_does_not_allow_it_takes_no_injection(node: Node) -> None:
    """HLT-29"""
    agent = await node.settled()
    code, said = await command(node, "inject", "xid=79", "gpu=1")
    assert (code, "--allow-inject" in said) == (1, True)
    assert agent.log.of("xid.reported") == []


async def test_status_and_inject_say_that_there_is_no_agent(node: Node) -> None:
    for words in (["status"], ["inject", "rescan"]):
        code, said = await command(node, *words)
        assert (code, "no agent at" in said) == (1, True)
    agent = await node.settled()
    await agent.end(signal.SIGKILL)
    code, said = await command(node, "status")
    assert (code, "left over" in said) == (1, True)


async def test_a_log_that_nobody_reads_holds_nothing_up(node: Node) -> None:
    """The pipe is full after the first lines: GPUs are served, health goes on, and it ends in time."""
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, PIPE)
    agent = await node.start(log=theirs)
    os.close(theirs)
    await node.seen.until("listed", resource=GPU, healthy=2)
    for number in range(8):
        assert await node.allocate(f"pod-{number}", 1) == ""
        await node.kubelet.delete_pod(f"pod-{number}")
    node.gpus.xid(0, 79)
    await node.seen.until("listed", resource=GPU, healthy=1, unhealthy=1)
    node.config.write_text(shared(2))
    await node.seen.until("listed", resource=GPU, healthy=2)
    end = await agent.end()
    assert end.code == 0
    with os.fdopen(ours, "rb") as log:
        *lines, _ = log.read().split(b"\n")
    told = [validate(line + b"\n")["event"] for line in lines]
    assert told[0] == "agent.started"
    assert "xid.reported" not in told, "it was full long before"


async def test_a_log_whose_reader_goes_away_ends_nothing(node: Node) -> None:
    ours, theirs = os.pipe()
    agent = await node.start(log=theirs)
    os.close(theirs)
    os.close(ours)
    await node.seen.until("listed", resource=GPU, healthy=2)
    assert await node.allocate("a", 1) == ""
    assert (await agent.end()).code == 0
