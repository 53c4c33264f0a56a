from __future__ import annotations

import trio
import trio.testing

from reactor.status.ring import PIECE, Ring


async def test_a_reader_gets_every_line_and_then_the_end():
    ring = Ring()
    lines = [b"%d\n" % number for number in range(2 * PIECE + 1)]
    for line in lines:
        ring.append(line.rstrip())
    reader = ring.reader(follow=False)
    pieces = [await reader.more() for _ in range(4)]
    assert b"".join(pieces) == b"".join(lines)
    assert pieces[-1] == b""


async def test_a_follower_waits_for_the_next_line():
    ring = Ring()
    ring.append(b"old")
    reader = ring.reader(follow=True)
    assert await reader.more() == b"old\n"
    async with trio.open_nursery() as nursery:
        seen: list[bytes] = []

        async def follow() -> None:
            seen.append(await reader.more())

        nursery.start_soon(follow)
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        ring.append(b"new")
        await trio.testing.wait_all_tasks_blocked()
        ring.append(b"newer")
    assert seen == [b"new\n", b"newer\n"]


async def test_who_falls_behind_gets_the_newest_lines_only():
    ring = Ring(size=3)
    reader = ring.reader(follow=False)
    for number in range(5):
        ring.append(b"%d" % number)
    assert await reader.more() == b"2\n3\n4\n"


def test_lines_are_kept_without_anybody_reading():
    ring = Ring(size=2)
    for _ in range(10):
        ring.append(b"x")
    assert ring.since(0) == (10, b"x\nx\n")
