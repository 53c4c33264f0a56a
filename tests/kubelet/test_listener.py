"""How a connection's writes leave; what a peer sees of it all is in tests/contract."""

from __future__ import annotations

import asyncio

from reactor.kubelet.listener import _ENOUGH, _Together


class Sent(asyncio.Transport):
    """A transport that keeps what it was given to send."""

    def __init__(self) -> None:
        super().__init__()
        self.sends: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sends.append(bytes(data))

    def close(self) -> None:
        self.closed = True


async def _turn() -> None:
    await asyncio.sleep(0)


def test_writes_of_one_turn_leave_as_one() -> None:
    async def scene() -> None:
        sent = Sent()
        together = _Together(sent)
        for part in (b"headers ", b"message ", b"trailers"):
            together.write(part)
        assert sent.sends == []
        await _turn()
        together.write(b"next")
        await _turn()
        assert sent.sends == [b"headers message trailers", b"next"]

    asyncio.run(scene())


def test_a_large_message_is_not_gathered_whole() -> None:
    async def scene() -> None:
        sent = Sent()
        together = _Together(sent)
        together.write(b"x" * _ENOUGH)
        assert [len(one) for one in sent.sends] == [_ENOUGH]
        await _turn()
        assert len(sent.sends) == 1

    asyncio.run(scene())


def test_what_was_written_leaves_before_the_close() -> None:
    async def scene() -> None:
        sent = Sent()
        together = _Together(sent)
        together.write(b"farewell")
        together.close()
        assert sent.sends == [b"farewell"]
        assert sent.closed

    asyncio.run(scene())
