"""A real agent, scraped over TCP by the parser of Prometheus' own client."""

from __future__ import annotations

import socket
import urllib.request

import trio

from tests.process.node import GPU, Node
from tests.status.metrics.world import Scrape, parse


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def scrape(port: int) -> Scrape:
    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    return Scrape(parse(await trio.to_thread.run_sync(get)))


async def test_a_running_agent_is_scraped_and_shows_an_xid_it_was_told_of(node: Node):
    port = free_port()
    agent = await node.start(metrics_listen=f"127.0.0.1:{port}")
    await agent.settled()
    before = await scrape(port)
    assert before.one("devices", resource_name=GPU, state="healthy") == 2
    assert before.one("registrations_total", resource_name=GPU, result="ok") == 1
    assert before.one("handler_runs_total", handler="discover", result="ok") >= 1
    assert before.one("source_up", source="kubelet") == 1
    assert before.one("source_last_event_timestamp_seconds", source="kubelet") > 1e9
    assert before.one("nvml_call_duration_seconds_count", call="init") == 1
    assert before.one("nvml_call_duration_seconds_count", call="scan") >= 1
    assert before.one("loop_lag_seconds_count", loop="asyncio") >= 1
    node.gpus.xid(0, 79)
    await agent.log.until("devices.advertised", unhealthy=1)
    after = await scrape(port)
    assert after.one("devices", resource_name=GPU, state="unhealthy") == 1
    assert sum(after.all("xid_errors_total", xid="79")) == 1
    assert after.one("reaction_seconds_count", trigger="health") == 1
    assert after.one("reaction_seconds_bucket", trigger="health", le="1.0") == 1
