"""The kubelet's probes, on a listener of their own so that nobody else can crowd them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from reactor.events import Fact
from reactor.state import State
from reactor.status.address import parse_listen
from reactor.status.healthz import why_dead
from reactor.status.http import Handler, Reply, Request, say, serve
from reactor.status.listen import bind_patiently, bind_tcp
from reactor.status.ready import why_unready


def answer_probes(state: Callable[[], State], loops: Callable[[], Mapping[str, float]]) -> Handler:
    """/healthz (/livez is the same), /readyz and /readyz/standby; a failing one says why in its body.

    The last is for rolling updates that start the new agent beside the old one: with /readyz each would wait for the
    other, the new one for the lock, and the old one's end for the new one to be ready.
    """

    def answer(request: Request) -> Reply:
        match request.path:
            case "/healthz" | "/livez":
                reasons = why_dead(loops())
            case "/readyz":
                reasons = why_unready(state())
            case "/readyz/standby":
                reasons = why_unready(state(), standby=True)
            case _:
                return say(404, "there are /healthz, /livez, /readyz and /readyz/standby")
        return say(503, "\n".join(reasons)) if reasons else say(200, "ok")

    return answer


async def serve_probes(
    listen: str,
    *,
    state: Callable[[], State],
    loops: Callable[[], Mapping[str, float]],
    publish: Callable[[Fact], object],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer probes on host:port until cancelled; an empty ``listen`` is no listener.

    ``loops`` tells the seconds since the last turn of each loop. A port that is taken is published as a failed source
    and tried again.
    """
    if not listen:
        task_status.started()
        return
    host, port = parse_listen(listen)
    listeners = await bind_patiently("probes", lambda: bind_tcp(host, port), publish, task_status)
    await serve(answer_probes(state, loops), listeners)
