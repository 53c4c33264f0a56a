"""Plays a script on a simulated node, and tells people what happens, as it happens.

What is told: the script's headlines and steps, the agent's own log in words, whether each expectation came true, and
at the end what the kubelet sees. Without a script it is the built-in story, ``story.txt``.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import trio

from reactor.simulate import steps as do
from reactor.simulate.kubelet.plugin import KubeletPanic
from reactor.simulate.script import ScriptError, parse
from reactor.simulate.sight import Sight, holds, instead, sentence, table
from reactor.simulate.stage import RESYNC, Stage, open_stage
from reactor.simulate.teller import Teller

WELL, NOT_WELL, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
_WITHIN = re.compile(r" within \S+$")
_LOOK = 0.05
"""Seconds between looks at the kubelet while something is expected."""
_LONGEST_TMP = 40
"""Bytes of a temporary directory's name above which sockets below it might have too long a path for the kernel."""


def main(script: Path | None, *, colour: bool) -> int:
    """Play ``script`` (None: the built-in story); the exit code of ``gpu-reactor simulate``."""
    name = str(script) if script else "story.txt"
    try:
        parsed = parse(script.read_text() if script else story())
    except ScriptError as exc:
        for line, problem in exc.problems:
            sys.stderr.write(f"{name}:{line}: {problem}\n")
        return WRONG_USAGE
    except (OSError, UnicodeDecodeError) as exc:
        sys.stderr.write(
            f"gpu-reactor simulate: {name} cannot be read: {exc.strerror if isinstance(exc, OSError) else exc}\n"
        )
        return WRONG_USAGE
    return trio.run(play, parsed, colour, strict_exception_groups=True)


def story() -> str:
    """The text of the built-in story."""
    return files("reactor.simulate").joinpath("story.txt").read_text()


async def play(script: do.Script, colour: bool) -> int:
    """Play a script below a directory that is gone afterwards, and tell of it on stdout."""
    teller = Teller(_print, colour=colour)
    code = INTERRUPTED
    with tempfile.TemporaryDirectory(prefix="gpu-reactor-", dir=_short_directory()) as root:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(teller.run, nursery.cancel_scope)
            await nursery.start(_attend_signals, nursery.cancel_scope)
            async with open_stage(script.node, Path(root), teller.log) as stage:
                code = await Player(script, stage, teller).play()
            await teller.close()
            nursery.cancel_scope.cancel()
    return NOT_WELL if teller.unread else code


async def _attend_signals(
    everything: trio.CancelScope, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """While the agent does not run, which attends to them itself."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        task_status.started()
        async for _ in received:
            everything.cancel()


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _short_directory() -> str | None:
    usual = tempfile.gettempdir()
    return None if len(os.fsencode(usual)) <= _LONGEST_TMP else "/tmp"


class Player:
    """Takes one step after another; what was expected in vain is told, and the story goes on."""

    def __init__(self, script: do.Script, stage: Stage, teller: Teller) -> None:
        self._script = script
        self._stage = stage
        self._teller = teller
        self._met = 0
        self._missed: list[str] = []

    async def play(self) -> int:
        self._introduce()
        for step in self._script.steps:
            await self._take(step)
        await self._begin()
        sight = await self._stage.look()
        self._teller.headline("The end. The agent stops as on SIGTERM; pods keep what they have.")
        await self._stage.stop()
        if self._stage.panicked:
            self._miss(f"the agent would have ended a real kubelet: {self._stage.panicked}")
        self._conclude(sight)
        return NOT_WELL if self._missed else WELL

    def _introduce(self) -> None:
        self._teller.table(
            f"A node with {self._script.node}, simulated: the real agent on simulated GPUs and a simulated kubelet",
            (
                f"All of it is below {self._stage.root} and goes with this command.",
                "'>' is what happens to the node, 'ok' what the kubelet was then seen to have. Between them is the",
                "agent's log: time, level (I, W, E), event, what it means; (#9 <- #7): event 9, caused by event 7.",
                f"To look at it from outside: gpu-reactor status --admin-socket {self._stage.settings.admin_socket}",
                f"Unasked, GPUs are scanned every {RESYNC:.0f} s here and every 30 s on a real node.",
            ),
        )

    async def _begin(self) -> None:
        if not self._stage.started:
            await self._stage.start()

    async def _take(self, step: do.Step) -> None:
        match step.action:
            case do.Say(text):
                self._teller.headline(text)
            case do.Wait(seconds):
                await self._begin()
                await trio.sleep(seconds)
            case do.Show():
                await self._begin()
                self._teller.note(f"the kubelet now sees: {sentence(await self._stage.look())}")
            case do.Expect() as expect:
                await self._begin()
                await self._expect(step, expect)
            case action:
                self._teller.action(step.text, action.text if isinstance(action, do.WriteConfig) else "")
                await self._act(step, action)

    async def _act(self, step: do.Step, action: do.Act) -> None:
        if not isinstance(action, do.WriteConfig):  # a config may lie there before the node starts
            await self._begin()
        try:
            await self._stage.act(action)
        except KubeletPanic as panic:
            self._miss(f"line {step.line}: {step.text}: the agent would have ended a real kubelet: {panic}")

    async def _expect(self, step: do.Step, expect: do.Expect) -> None:
        until = trio.current_time() + expect.within
        # What a real kubelet would show is polled: nothing in it tells of a change.
        while (found := await self._unlike(expect.check)) and trio.current_time() < until:  # noqa: ASYNC110 - as said
            await trio.sleep(_LOOK)
        if found:
            self._miss(f"line {step.line}: {step.text}: {found}")
        else:
            self._met += 1
            self._teller.good(_WITHIN.sub("", step.text.removeprefix("expect").strip()))

    async def _unlike(self, check: do.Check) -> str:
        """How it differs from what is expected; empty: it does not."""
        if isinstance(check, do.Logged):
            told = any(line["event"] == check.event and check.text in str(line["msg"]) for line in self._teller.heard)
            return "" if told else "the log has no such line"
        sight = await self._stage.look()
        return "" if holds(check, sight) else instead(check, sight)

    def _miss(self, what: str) -> None:
        self._missed.append(what)
        self._teller.bad(what)

    def _conclude(self, sight: Sight) -> None:
        self._teller.table("What the kubelet saw at the end", table(sight))
        self._teller.blank()
        for what in self._missed:
            self._teller.bad(what)
        if not self._missed:
            self._teller.good(f"all {self._met} expectations came true")
