"""The metrics of one agent: hears what it records, runs and posts, and answers scrapes on a listener of its own.

That listener is not the probes': scrapers that dawdle must not crowd out the kubelet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import trio

from reactor.bus import Bus, Recorder
from reactor.events import Event, Fact
from reactor.model.snapshot import Snapshot
from reactor.state import State
from reactor.status.address import parse_listen
from reactor.status.http import Handler, Reply, Request, say, serve
from reactor.status.listen import bind_patiently, bind_tcp
from reactor.status.metrics.collect import Collector, Sight
from reactor.status.metrics.tally import Tally


class Metrics:
    """Stands before another recorder as the bus's, and is its meter. ``lost``: log lines that nobody sees, by why."""

    def __init__(self, recorder: Recorder, lost: Callable[[], Mapping[str, int]]) -> None:
        self._recorder = recorder
        self._lost = lost
        self.tally = Tally()

    def record(self, event: Event, before: State, after: State) -> None:
        self._recorder.record(event, before, after)
        self.tally.record(event, before, after)

    def ran(self, handler: str, seconds: float, *, ok: bool) -> None:
        self.tally.ran(handler, seconds, ok=ok)

    def late(self, loop: str, seconds: float) -> None:
        self.tally.late(loop, seconds)

    def hearing(self, source: str, publish: Callable[[Fact], Event]) -> Callable[[Fact], Event]:
        """``publish`` for one source, heard: when it said something last."""

        def heard(fact: Fact) -> Event:
            event = publish(fact)
            self.tally.heard[source] = event.wall
            return event

        return heard

    def posting(self, post: Callable[[Snapshot], None]) -> Callable[[Snapshot], None]:
        """``post``, heard: how long the kubelet waits for news is counted from what is posted."""

        def heard(snapshot: Snapshot) -> None:
            self.tally.reactions.posted(snapshot)
            post(snapshot)

        return heard

    async def serve(
        self,
        listen: str,
        bus: Bus,
        snapshot: Callable[[], Snapshot],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        await serve_metrics(
            listen, look=partial(self._look, bus, snapshot), publish=bus.publish, task_status=task_status
        )

    def _look(self, bus: Bus, snapshot: Callable[[], Snapshot]) -> Sight:
        return Sight(
            state=bus.state,
            snapshot=snapshot(),
            tally=self.tally,
            load=bus.load(),
            sources=tuple(bus.sources),
            lost=self._lost(),
        )


async def serve_metrics(
    listen: str,
    *,
    look: Callable[[], Sight],
    publish: Callable[[Fact], object],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer scrapes on host:port until cancelled. A port that is taken is a failed source and is tried again."""
    answer = answer_metrics(look)
    host, port = parse_listen(listen)
    listeners = await bind_patiently("metrics", lambda: bind_tcp(host, port), publish, task_status)
    await serve(answer, listeners)


def answer_metrics(look: Callable[[], Sight]) -> Handler:
    from reactor.status.metrics.exposition import Exposition  # the client library: not before somebody listens

    exposition = Exposition(Collector(look).samples)

    def answer(request: Request) -> Reply:
        if request.path != "/metrics":
            return say(404, "there is /metrics")
        body, content_type = exposition.render(request.accept)
        return Reply(body=body, content_type=content_type)

    return answer
