"""The plugin directory: what a start removes, and what a watcher hears."""

from __future__ import annotations

import os

from tests.contract.table.inotify import Ear, listening
from tests.contract.table.plugin import ProbePlugin, devices, probe
from tests.contract.table.restart import CHECKPOINT, back
from tests.contract.table.row import row, since
from tests.contract.table.under_test import Kubelet


@row(
    "2",
    since(
        v1_29={"sockets": [], "others": ["folder", "folder/inner.sock"]},
        v1_33={"sockets": [], "others": ["dangling", "file", "folder", "folder/inner.sock"]},
    ),
    alone=True,
)
async def what_a_start_removes(kubelet: Kubelet) -> object:
    """Sockets and links to them; up to 1.32 every file but the checkpoint. Folders stay, with what is in them."""
    directory = kubelet.directory
    await kubelet.kill()
    (directory / "folder").mkdir(exist_ok=True)
    plugin = ProbePlugin(directory, "probe.test/wipe", socket="plugin.sock")
    inner = ProbePlugin(directory / "folder", "probe.test/wipe", socket="inner.sock")
    for each in (plugin, inner):
        each.serve()
    (directory / "file").touch()
    (directory / "dangling").symlink_to("nowhere")
    (directory / "link").symlink_to("folder/inner.sock")
    await kubelet.start()
    left = {os.fspath(each.relative_to(directory)) for each in directory.rglob("*")}
    for each in (plugin, inner):
        await each.close()
    for name in ("file", "dangling"):
        (directory / name).unlink(missing_ok=True)
    return {
        "sockets": sorted(left & {"plugin.sock", "link"}),
        "others": sorted(left & {"file", "dangling", "folder", "folder/inner.sock"}),
    }


@row(
    "2",
    {
        "killed": [],
        "start": [[("delete", "SOCKET"), ("delete", "kubelet.sock")], ("create", "kubelet.sock")],
        "list": [("create", ".NUMBER"), ("moved to", CHECKPOINT)],
        "stopped": [],
    },
    alone=True,
)
async def what_a_watcher_of_the_directory_hears(kubelet: Kubelet) -> object:
    """Nothing of the end of a kubelet, which leaves its socket behind, be it killed or told to stop. A start removes
    the sockets and then makes its own. Each list writes the checkpoint, by a file with a dot that is renamed."""
    async with probe(kubelet.directory, "probe.test/ear", devices("a")) as plugin:

        def heard(ear: Ear) -> list[tuple[str, str]]:
            names = {plugin.socket: "SOCKET"}
            return [(what, names.get(name, ".NUMBER" if name[0] == "." else name)) for what, name in ear.heard()]

        await kubelet.until_counts(plugin.resource, (1, 1))
        seen: dict[str, object] = {}
        with listening(kubelet.directory) as ear:
            await kubelet.kill()
            seen["killed"] = heard(ear)
            await kubelet.start()
            *deleted, created = [each for each in heard(ear) if each[1] in ("SOCKET", "kubelet.sock")]
            seen["start"] = [sorted(deleted), created]
            await back(kubelet, plugin)
            await ear.until("moved to", CHECKPOINT)
            heard(ear)
            plugin.send(devices("ab"))
            await ear.until("moved to", CHECKPOINT)
            seen["list"] = heard(ear)
            await kubelet.stop()
            seen["stopped"] = [each for each in heard(ear) if each[1] == "kubelet.sock"]
            await kubelet.start()
    return seen
