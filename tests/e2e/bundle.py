"""What is kept of a node when a test fails: one folder with every log, the agent's files, checkpoint and objects."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from pathlib import Path

import trio

from tests.e2e.api import ApiError, Away
from tests.e2e.node import Node

KEPT = 20
"""Bundles; the oldest go."""
_KINDS = ("Pod", "Node", "Event", "ConfigMap", "DaemonSet")


async def keep(node: Node, test: str, home: Path) -> Path:
    """Write the bundle of a node into a new folder of ``home``, and return that."""
    folder = _new_folder(home, re.sub(r"[^\w.-]+", "_", test).strip("_"))
    agents = {agent.folder: agent.folder.name for agent in node.agents}
    for source, name in ({node.folder / "log": "log", node.path("/var/log/pods"): "pods"} | agents).items():
        with suppress(shutil.Error):  # a file that goes meanwhile; all others are copied
            shutil.copytree(source, folder / name, ignore=_no_sockets)
    for file in (node.checkpoint, node.folder / "kubelet.json"):
        with suppress(FileNotFoundError):
            shutil.copy(file, folder)
    parts = {part.name: part.alive for part in node.parts}
    (folder / "parts.json").write_text(json.dumps(parts, indent=1))
    with trio.move_on_after(5):
        for kind in _KINDS:
            with suppress(ApiError, Away):
                (folder / f"{kind.lower()}s.json").write_text(
                    json.dumps(await node.api.items(kind, namespace=""), indent=1)
                )
    return folder


def _new_folder(home: Path, name: str) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):  # another lane removes them as well
        for old in sorted(home.iterdir(), key=lambda each: each.stat().st_mtime)[: -KEPT + 1]:
            shutil.rmtree(old, ignore_errors=True)
    number = 1
    while (folder := home / f"{name}-{number}").exists():
        number += 1
    folder.mkdir()
    return folder


def _no_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]
