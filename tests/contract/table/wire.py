"""What goes over the wire beside the messages."""

from __future__ import annotations

from tests.contract.table.admission import one
from tests.contract.table.plugin import ALLOCATE, OPTIONS, PRE_START, PREFERRED, WATCH, devices, probe
from tests.contract.table.row import row, since
from tests.contract.table.tap import tapped
from tests.contract.table.under_test import Kubelet

METHODS = (OPTIONS, WATCH, PREFERRED, ALLOCATE, PRE_START)
_COMMON = {"authority": ["localhost"], "te": ["trailers"], "type": ["application/grpc"]}


@row(
    "3, 8, 10",
    since(v1_29={**_COMMON, "deadline": [PRE_START]}, v1_35={**_COMMON, "deadline": [OPTIONS, PRE_START]}),
)
async def the_headers_of_calls(kubelet: Kubelet) -> object:
    """Every call says localhost. Only PreStartContainer has a deadline, and from 1.35 the options call, for it is part
    of the plugin's Register. (The user agent, grpc-go's, is not simulated.)"""
    settings = {"preferred": True, "pre_start": True}
    async with probe(kubelet.directory, "probe.test/tap", devices("ab"), registered=False, **settings) as plugin:
        front = plugin.directory / f"tap-{plugin.socket}"
        with tapped(front, plugin.path) as tap:
            await plugin.register(endpoint=front.name)
            await kubelet.until_counts(plugin.resource, (2, 2))
            pod = await one(kubelet, plugin, "tap")
            await kubelet.delete(pod.name)
            calls = {method: tap.of(method) for method in METHODS}
    return {
        "authority": sorted({each[":authority"] for each in calls.values()}),
        "te": sorted({each["te"] for each in calls.values()}),
        "type": sorted({each["content-type"].partition("+")[0] for each in calls.values()}),
        "deadline": [method for method, each in calls.items() if "grpc-timeout" in each],
    }
