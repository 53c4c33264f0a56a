"""The cgroups of a world: one folder in each v1 hierarchy, or one in the v2 hierarchy, whichever this machine has.

The world's processes find their folder to be the root (a cgroup namespace), so that kubelets side by side do not meet.
In v2 a group with controllers for its children holds no process of its own: init moves to ``parts``, below it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
V1 = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
"""Hierarchies; systemd has no controller, but container runtimes look for it."""
V2 = ("cpuset", "cpu", "io", "memory", "pids")
PREFIX = "e2e-"


def unified() -> bool:
    """Is it v2 that this machine has?"""
    return (ROOT / "cgroup.controllers").exists()


def missing() -> list[str]:
    """Controllers that a node needs and that are not here."""
    if unified():
        there = (ROOT / "cgroup.controllers").read_text().split()
        return [name for name in V2 if name not in there]
    return [name for name in V1 if not (ROOT / name / "cgroup.procs").exists()]


def folder(name: str, controller: str, inner: str = "") -> Path:
    """A group of a world as the machine sees it."""
    return (ROOT if unified() else ROOT / controller) / name / inner.lstrip("/")


def folders(name: str) -> list[Path]:
    return [folder(name, each) for each in (V2[:1] if unified() else V1)]


def worlds() -> Iterator[str]:
    """The names of all worlds that have groups here."""
    for base in [ROOT] if unified() else [ROOT / each for each in V1]:
        yield from (each.name for each in base.glob(f"{PREFIX}*"))


def make(name: str) -> None:
    for group in folders(name):
        group.mkdir()
    if not unified():
        cpus = folder(name, "cpuset")
        for file in ("cpuset.cpus", "cpuset.mems"):
            (cpus / file).write_text((cpus.parent / file).read_text())
        (cpus / "cgroup.clone_children").write_text("1")


def settle(name: str, outer: int) -> None:
    """Once init has moved away: move the process that holds the namespaces, too, and hand the controllers down."""
    if unified():
        aside = folder(name, "", "outer")
        aside.mkdir()
        (aside / "cgroup.procs").write_text(str(outer))
        for group in (ROOT, folder(name, "")):
            (group / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in V2))


def processes(name: str) -> Iterator[int]:
    """Every process of a world, as the machine numbers them."""
    for group, _, _ in os.walk(folder(name, "memory")):
        with suppress(OSError):  # the group went meanwhile
            yield from map(int, Path(group, "cgroup.procs").read_text().split())


def thaw(name: str) -> None:
    """What is frozen in v1 must thaw before it can die."""
    for top in folders(name):
        for group, _, files in os.walk(top):
            with suppress(OSError):  # another process sweeps as well
                if "freezer.state" in files:
                    Path(group, "freezer.state").write_text("THAWED")


def remove(name: str, patience: float = 2.0) -> None:
    """Remove the groups of a world whose processes have been killed; what is not dead yet, the next sweep takes."""
    thaw(name)
    deadline = time.monotonic() + patience
    left = [group for group in folders(name) if group.exists()]
    while left:
        for group in left:
            for each, _, _ in os.walk(group, topdown=False):
                with suppress(OSError):  # a process that the kernel has not taken down yet
                    os.rmdir(each)
        left = [group for group in left if group.exists()]
        if left and time.monotonic() > deadline:
            return
        time.sleep(0.01 if left else 0)
