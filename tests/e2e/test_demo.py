"""What ``make node-demo`` shows is true."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import trio

from tests.e2e.agent import ROOT
from tests.e2e.image import default_cache


async def test_the_node_demo_comes_to_its_end():
    """In a process of its own, as people run it: whatever does not come true ends it with 1."""
    command = [sys.executable, "-m", "tests.e2e.demo"]
    told = await trio.run_process(command, cwd=ROOT, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    text = told.stdout.decode()
    assert told.returncode == 0, text
    assert text.count("\n== ") == 9
    assert "NOT" not in text


async def test_a_node_that_does_not_come_up_is_told_in_words(tmp_path: Path):
    """Here with an etcd that ends at once; the logs are kept."""
    without_etcd(tmp_path)
    command = [sys.executable, "-m", "tests.e2e.demo"]
    environment = {**os.environ, "NODE_CACHE": str(tmp_path)}
    told = await trio.run_process(
        command, cwd=ROOT, env=environment, capture_stdout=True, stderr=subprocess.STDOUT, check=False
    )
    text = told.stdout.decode()
    assert (told.returncode, "Traceback" in text) == (1, False), text
    assert "NOT   the API server ended" in text
    assert f"logs of everything: {tmp_path}/failed/node-demo-1" in text
    assert (tmp_path / "failed" / "node-demo-1" / "log").is_dir()


def without_etcd(cache: Path) -> None:
    """The parts that are built, but for etcd: that ends with 1."""
    for part in default_cache().iterdir():
        if part.name != "failed":
            (cache / part.name).symlink_to(part)
    (etcd,) = cache.glob("etcd-*")
    etcd.unlink()
    etcd.mkdir()
    (etcd / "etcd-server").write_text("#!/bin/sh\nexit 1\n")
    (etcd / "etcd-server").chmod(0o755)
