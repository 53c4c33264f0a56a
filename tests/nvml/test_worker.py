"""The worker process by itself, with a test in the place of the agent."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import trio

from reactor.nvml.link import Setup


async def test_it_ends_without_a_word_with_an_agent_that_left_something_unread(tmp_path: Path) -> None:
    """The kernel tells of such an end by a reset, not by an end of file. Who is first, guard or question, is chance."""
    setup = Setup(
        provider="",
        driver_root=tmp_path,
        dev_root=tmp_path,
        sys_root=tmp_path,
        scan_deadline=1,
        init_deadline=1,
        wait=1,
        silence=10,
    )
    for _ in range(5):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = setup.command(theirs.fileno())
            worker = await trio.lowlevel.open_process(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
        with ours:
            await trio.lowlevel.wait_readable(ours)
        with trio.fail_after(10):
            assert worker.stderr is not None
            assert await worker.stderr.receive_some() == b""
            assert await worker.wait() == 0
