from __future__ import annotations

from functools import partial

import pytest
import trio

from reactor.events import Fact, SourceFailed, SourceRecovered
from reactor.model.errors import Refused
from reactor.model.value import replace
from reactor.state import Fault, State
from reactor.status.address import parse_listen
from reactor.status.http import Request
from reactor.status.probes import answer_probes, serve_probes
from tests.status.node import READY
from tests.status.test_http import get, read_all


def ask(path: str, *, state: State = READY, silent: float = 0.0) -> tuple[int, bytes]:
    reply = answer_probes(lambda: state, lambda: {"trio": 0.0, "asyncio": silent})(Request(method="GET", path=path))
    return reply.status, reply.body


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/standby"])
def test_all_is_well(path: str):
    assert ask(path) == (200, b"ok\n")


def test_a_failing_probe_says_why():
    assert ask("/healthz", silent=11) == (503, b"the asyncio loop has not turned for 11 s (limit 10 s)\n")
    assert ask("/readyz", state=replace(READY, stopping=True)) == (503, b"the agent is stopping\n")


def test_readiness_does_not_touch_liveness():
    assert ask("/healthz", state=State())[0] == 200
    assert ask("/readyz", silent=11)[0] == 200


def test_an_agent_that_waits_for_the_one_before_it_is_ready_to_take_over_and_nothing_else():
    held = Fault(name="agent.waiting", message="another agent holds /plugins", since=0)
    waiting = replace(State(), faults={"agent.waiting": held})
    assert ask("/readyz", state=waiting) == (503, held.message.encode() + b"\n")
    assert ask("/readyz/standby", state=waiting) == (200, b"ok\n")
    assert ask("/readyz/standby", state=replace(waiting, stopping=True)) == (503, b"the agent is stopping\n")
    assert ask("/readyz/standby", state=State()) == ask("/readyz", state=State())


def test_other_paths_are_not_found():
    assert ask("/metrics")[0] == 404


async def test_probes_are_answered_on_the_port_and_wait_for_it_while_it_is_taken(autojump_clock):
    (taken,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port: int = taken.socket.getsockname()[1]
    facts: list[Fact] = []
    recovered = trio.Event()

    def publish(fact: Fact) -> None:
        facts.append(fact)
        if isinstance(fact, SourceRecovered):
            recovered.set()

    serving = partial(serve_probes, f"127.0.0.1:{port}", state=lambda: READY, loops=dict, publish=publish)
    async with trio.open_nursery() as nursery:
        await nursery.start(serving)
        (failed,) = facts
        assert isinstance(failed, SourceFailed)
        assert f"127.0.0.1:{port}" in failed.error
        await taken.aclose()
        await recovered.wait()
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(get("/readyz"))
            assert (await read_all(stream)).endswith(b"ok\n")
        nursery.cancel_scope.cancel()


async def test_an_empty_address_is_no_listener():
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_probes, "", state=lambda: READY, loops=dict, publish=print))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9465", ("127.0.0.1", 9465)),
        (":9465", ("", 9465)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses_are_read(text: str, address: tuple[str, int]):
    assert parse_listen(text) == address


@pytest.mark.parametrize(
    "text", ["9465", "host", "host:", "host:x", "host:65536", "host:-1", "host:²", "::1:80", "[::1]"]
)
def test_bad_addresses_are_refused(text: str):
    with pytest.raises(Refused):
        parse_listen(text)
