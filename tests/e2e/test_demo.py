"""What ``make node-demo`` shows is true."""

from __future__ import annotations

import subprocess
import sys

import trio

from tests.e2e.agent import ROOT


async def test_the_node_demo_comes_to_its_end():
    """In a process of its own, as people run it: whatever does not come true ends it with 1."""
    command = [sys.executable, "-m", "tests.e2e.demo"]
    told = await trio.run_process(command, cwd=ROOT, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    text = told.stdout.decode()
    assert told.returncode == 0, text
    assert text.count("\n== ") == 9
    assert "NOT" not in text
