"""The local admin socket: what the agent knows, its last log lines, and facts that a person injects."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import trio

from reactor.config import MAX_BYTES, Accepted, Rejected, parse
from reactor.events import Fact
from reactor.model.errors import Refused
from reactor.model.snapshot import Snapshot
from reactor.state import State
from reactor.status.describe import describe, describe_device
from reactor.status.document import RefusedDoc
from reactor.status.http import Handler, Reply, Request, say, serve
from reactor.status.inject import parse_fact
from reactor.status.listen import bind_patiently, bind_unix, inode, remove_socket
from reactor.status.preview import preview
from reactor.status.ring import Ring

log = logging.getLogger(__name__)

_NOT_ALLOWED = "this agent takes no injected facts: start it with --allow-inject (never on a node that has work)"
_PATHS = (
    "there are /debug/state, /debug/device?id=ID, /debug/events (?follow=1), POST /debug/plan (a config text) and "
    "POST /debug/inject"
)
_BODY_LIMIT = MAX_BYTES + 1
"""A config text that is too large is refused in the words of its reader."""
Parse = Callable[[bytes, str], Accepted | Rejected]


def _parse(text: bytes, path: str) -> Accepted | Rejected:
    return parse(text, path=path)


def answer_admin(
    *,
    state: Callable[[], State],
    snapshot: Callable[[], Snapshot],
    publish: Callable[[Fact], object],
    allow_inject: bool,
    lines: Ring,
    tasks: Callable[[], Mapping[str, int]] = dict,
    read: Parse = _parse,
) -> Handler:
    def answer(request: Request) -> Reply:
        match request.method, request.path:
            case (("GET" | "HEAD"), "/debug/state"):
                return _json(describe(state(), snapshot(), tasks()))
            case (("GET" | "HEAD"), "/debug/device"):
                return _json(describe_device(request.query.get("id", ""), state(), snapshot()))
            case (("GET" | "HEAD"), "/debug/events"):
                reader = lines.reader(follow=request.query.get("follow", "0") not in ("", "0", "false"))
                return Reply(content_type="application/x-ndjson", more=reader.more)
            case "POST", "/debug/inject":
                return _inject(request.body, state(), publish) if allow_inject else say(403, _NOT_ALLOWED)
            case "POST", "/debug/plan":
                return _plan(read(request.body, request.query.get("path", "config")), state(), snapshot())
            case _, ("/debug/state" | "/debug/device" | "/debug/events" | "/debug/plan" | "/debug/inject"):
                return say(405, _PATHS)
            case _:
                return say(404, _PATHS)

    return answer


def _json(document: object, status: int = 200) -> Reply:
    # Names of files may be no Unicode.
    body = json.dumps(document, indent=2, ensure_ascii=False).encode(errors="replace") + b"\n"
    return Reply(status=status, body=body, content_type="application/json")


def _plan(found: Accepted | Rejected, state: State, snapshot: Snapshot) -> Reply:
    if isinstance(found, Rejected):
        return _json(RefusedDoc(problems=[problem.render(found.path) for problem in found.problems]), 422)
    return _json(preview(state, snapshot, found, at=trio.current_time(), wall=time.time()))


def _inject(body: bytes, state: State, publish: Callable[[Fact], object]) -> Reply:
    try:
        words: object = json.loads(body)
    except (ValueError, RecursionError) as exc:
        return say(400, f"the body is not JSON: {exc}")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return say(400, 'the body is not a JSON list of words, such as ["xid=79", "gpu=0"]')
    try:
        fact = parse_fact(words, state)
    except Refused as exc:
        return say(400, str(exc))
    publish(fact)
    return say(200, f"published {fact!r}")


async def serve_admin(
    path: Path,
    *,
    state: Callable[[], State],
    snapshot: Callable[[], Snapshot],
    publish: Callable[[Fact], object],
    allow_inject: bool,
    lines: Ring,
    tasks: Callable[[], Mapping[str, int]] = dict,
    read: Parse = _parse,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer on a unix socket of mode 0600 until cancelled, then remove it.

    A directory that cannot be written, or another agent on that socket, is published as a failed source and tried
    again.
    """
    answer = answer_admin(
        state=state, snapshot=snapshot, publish=publish, allow_inject=allow_inject, lines=lines, tasks=tasks, read=read
    )
    listeners = await bind_patiently("admin", lambda: bind_unix(path), publish, task_status)
    ours = inode(path)
    try:
        await serve(answer, listeners, methods=("GET", "HEAD", "POST"), body_limit=_BODY_LIMIT)
    finally:
        _tidy(path, ours)


def _tidy(path: Path, ours: int | None) -> None:
    try:
        remove_socket(path, ours)
    except OSError:
        log.warning("admin.kept")  # Read-only by now. The next agent replaces what nobody answers on.
