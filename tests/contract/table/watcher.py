"""The plugin watcher: a plugin that is found in plugins_registry rather than registers."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import trio

from tests.contract.table.plugin import INFO, NOTIFY, OPTIONS, WATCH, ProbePlugin, devices
from tests.contract.table.row import row
from tests.contract.table.under_test import Kubelet


@asynccontextmanager
async def found(kubelet: Kubelet, resource: str) -> AsyncIterator[ProbePlugin]:
    plugin = ProbePlugin(kubelet.registry, resource)
    plugin.found = True
    plugin.send(devices("ab"))
    plugin.serve()
    try:
        yield plugin
    finally:
        with trio.CancelScope(shield=True):
            await plugin.close()


def told(plugin: ProbePlugin) -> list[str]:
    return [each.told for each in plugin.called(NOTIFY)]


@row("11, 16 (36)", {"told": ["registered"], "before the stream": [INFO, OPTIONS], "within": (1, 5), "counts": (2, 2)})
async def a_plugin_that_is_found(kubelet: Kubelet) -> object:
    """Asked who it is, dialled back, asked for its options, told, and listened to; a second for the one question, five
    for the telling."""
    async with found(kubelet, "probe.test/found") as plugin:
        await plugin.until_called(NOTIFY)
        counts = await kubelet.until_counts(plugin.resource, (2, 2))
        methods = [each.method for each in plugin.calls if each.method not in (NOTIFY, WATCH)]
        # What is left when the call is here, rounded up: it took a moment to come.
        within = tuple(math.ceil(round(plugin.called(method)[0].left or 0, 1)) for method in (INFO, NOTIFY))
        return {"told": told(plugin), "before the stream": methods, "within": within, "counts": counts}


@row("11", {"removed": (2, 0), "calls": 1, "again": (2, 2)})
async def a_found_plugin_whose_file_goes(kubelet: Kubelet) -> object:
    """The kubelet lets it go, though its stream lives; a new file is a new plugin."""
    async with found(kubelet, "probe.test/file-goes") as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        plugin.path.unlink()
        removed = await kubelet.until_counts(plugin.resource, (2, 0))
        await plugin.until_streams(0)
        calls = len(plugin.called(INFO))
        await plugin.close()
        plugin.serve()
        return {"removed": removed, "calls": calls, "again": await kubelet.until_counts(plugin.resource, (2, 2))}


@row("11", {"ended": (2, 0), "asked again": False}, window=True)
async def a_found_plugin_whose_stream_ends(kubelet: Kubelet) -> object:
    """As long as the file stays, nothing is tried again."""
    async with found(kubelet, "probe.test/stream-ends") as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        plugin.end_streams()
        await plugin.until_streams(0)
        ended = await kubelet.until_counts(plugin.resource, (2, 0))
        await trio.sleep(kubelet.quiet)
        return {"ended": ended, "asked again": len(plugin.called(INFO)) > 1}


@row("11", {"told": True, "asked again": True, "counts": None})
async def a_found_plugin_with_a_wrong_name(kubelet: Kubelet) -> object:
    """Told why not, and asked again."""
    async with found(kubelet, "probe.test/wrong") as plugin:
        plugin.info.name = "PROBE.test/wrong"
        await plugin.until_called(NOTIFY, 2)
        words = 'the ResourceName "PROBE.test/wrong" is invalid'
        return {
            "told": all(words in each for each in told(plugin)),
            "asked again": len(plugin.called(INFO)) > 1,
            "counts": await kubelet.counts(plugin.resource),
        }


@row("11", {"about a second": True, "then": True, "then later": True})
async def a_found_plugin_is_asked_later_and_later(kubelet: Kubelet) -> object:
    """After half a second, doubled each time, at the next of the watcher's looks, which are a second apart."""
    async with found(kubelet, "probe.test/later") as plugin:
        plugin.info.type = "Other"
        await plugin.until_called(INFO, 4)
        times = [each.at for each in plugin.called(INFO)]
        first, second, third = (after - before for before, after in pairwise(times[:4]))
        return {"about a second": 0.4 < first < 3, "then": 0.9 < second < 4, "then later": 1.9 < third < 5}


@row("11", {"asked": 0, "renamed": (2, 2)})
async def a_file_whose_name_begins_with_a_dot(kubelet: Kubelet) -> object:
    """It is passed over, until it is renamed."""
    plugin = ProbePlugin(kubelet.registry, "probe.test/dot", socket=".dot.sock")
    plugin.found = True
    plugin.send(devices("ab"))
    plugin.serve()
    await trio.sleep(max(kubelet.quiet, 1.2))
    asked = len(plugin.called(INFO))
    plugin.path.rename(kubelet.registry / "dot.sock")
    plugin.socket = "dot.sock"
    renamed = await kubelet.until_counts(plugin.resource, (2, 2))
    await plugin.close()
    return {"asked": asked, "renamed": renamed}


@row("11", {"asked again": 2, "file": True, "counts": (2, 2)}, alone=True)
async def a_found_plugin_over_a_restart(kubelet: Kubelet) -> object:
    """Its file is not removed by a start, and the kubelet finds it by itself."""
    async with found(kubelet, "probe.test/found-again") as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        await kubelet.kill()
        await plugin.until_streams(0)
        await kubelet.start()
        await plugin.until_called(NOTIFY, 2)
        counts = await kubelet.until_counts(plugin.resource, (2, 2))
        return {"asked again": len(plugin.called(INFO)), "file": plugin.path.exists(), "counts": counts}
