"""``gpu-reactor replay``: a journal through the reducer alone; the same log, and the same verdicts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from reactor.cli import add_command

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from collections.abc import Callable, Iterator

    from reactor.cli import Parser
    from reactor.cli.chain import Line
    from reactor.record.journal import Recorded
    from reactor.record.line import Line as Told
    from reactor.state import State

_DESCRIPTION = """\
Feed a journal ('gpu-reactor run --journal FILE') to the code that decides, with no GPU, no kubelet and no clock, and
print the log that comes of it. Each event is decided anew and compared with what was decided then: a difference means
that another version decides otherwise, or that the journal was changed. Storms are not summed up here.

examples:
  gpu-reactor replay /var/lib/gpu-reactor/journal
  gpu-reactor replay -o json journal | gpu-reactor events --gpu 3 -
  gpu-reactor replay --quiet journal && echo 'decides as it did then'

exit codes: 0 the same verdicts, 1 other verdicts or not readable, 2 wrong usage"""


def add_parser(subparsers: _SubParsersAction[Parser]) -> None:
    parser = add_command(
        subparsers, "replay", summary="a journal through the same decisions again", description=_DESCRIPTION
    )
    parser.add_argument("journal", metavar="JOURNAL", help="the file; - reads stdin")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("--quiet", action="store_true", help="print differences only")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: on a terminal")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from reactor.cli.events import writer

    write = writer(args.output, args.color)
    replay = Replay(print_line=lambda line: None if args.quiet else print(write(line)))
    try:
        for data in _read(args.journal):
            replay.take(data)
            if replay.foreign:
                break
    except OSError as exc:
        if isinstance(exc, BrokenPipeError):
            raise
        print(f"gpu-reactor replay: {args.journal}: {exc.strerror}", file=sys.stderr)
        return 1
    for complaint in replay.complaints:
        print(f"gpu-reactor replay: {complaint}", file=sys.stderr)
    if not replay.events and not replay.complaints:
        print(f"gpu-reactor replay: {args.journal} holds no event", file=sys.stderr)
        return 1
    told = f"{replay.events} events, {replay.differences} of them decided otherwise"
    print(f"gpu-reactor replay: {told}, {replay.lost} missing", file=sys.stderr)
    return int(bool(replay.differences or replay.complaints))


class Replay:
    """Takes the records of a journal in their order."""

    def __init__(self, print_line: Callable[[Line], object]) -> None:
        self.events = 0
        self.differences = 0
        self.lost = 0
        self.complaints: list[str] = []
        self.foreign = False
        """The first record is none of a journal: neither are the others."""
        self._print = print_line
        self.state: State | None = None
        self._run = ""

    def take(self, data: bytes) -> None:
        from reactor.record.codec import Unreadable
        from reactor.record.journal import Head, read

        try:
            record = read(data)
        except Unreadable as exc:
            self.foreign = self.state is None and not self.complaints
            hint = " (is it a journal, as run --journal FILE writes one?)" if self.foreign else ""
            self.complaints.append(f"after {self.events} events: {exc}{hint}")
            return
        if isinstance(record, Head):
            self.state, self._run = record.state, record.run
            self.lost += record.lost
        elif self.state is None:
            self.complaints.append(f"event #{record.event.seq} comes before any state: the beginning is missing")
        else:
            self.state = self._decide(self.state, record)

    def _decide(self, before: State, record: Recorded) -> State:
        """As the bus does."""
        from reactor.model.value import replace
        from reactor.record.journal import verdicts
        from reactor.record.narrate import lines
        from reactor.reducer import reduce

        event = record.event
        after = reduce(before, event)
        if after is not before:
            after = replace(after, revision=event.seq)
        told = lines(event, before, after)
        self.events += 1
        self._tell(told, event.seq, event.cause, event.wall, after.run or self._run)
        now = plain(verdicts(told))
        if now != record.told:
            self.differences += 1
            self.complaints.append(f"event #{event.seq} was told as {record.told}, and is now {now}")
        return after

    def _tell(self, told: tuple[Told, ...], seq: int, cause: int | None, wall: float, run: str) -> None:
        import json

        from reactor.record.encode import Stamp, encode, timestamp
        from reactor.record.line import Level

        stamp = Stamp(seq=seq, cause=cause, ts=timestamp(wall), run=run, node="")
        for line in told:
            if line.level.rank >= Level.INFO.rank:
                self._print(json.loads(encode(line, stamp)))


def plain(value: object) -> object:
    """As JSON gives it back."""
    import msgspec

    decoded: object = msgspec.json.decode(msgspec.json.encode(value))
    return decoded


def _read(file: str) -> Iterator[bytes]:
    if file == "-":
        yield from sys.stdin.buffer
        return
    with open(file, "rb") as stream:
        yield from stream
