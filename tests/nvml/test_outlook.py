"""What is remembered between scans, and what happens to notes that nobody takes."""

from __future__ import annotations

from reactor.nvml import outlook
from reactor.nvml.notes import NotesLost, Xid
from reactor.nvml.outlook import Outlook
from reactor.nvml.skips import Skips


def test_notes_that_nobody_takes_are_dropped_with_a_word() -> None:
    memory = Outlook()
    for code in range(outlook.NOTES + 5):
        memory.tell(Xid(gpu=None, code=code))
    taken = [memory.notes.receive_nowait() for _ in range(outlook.NOTES)]
    assert taken[-1] == Xid(gpu=None, code=outlook.NOTES - 1)
    memory.tell(Xid(gpu=None, code=79))
    assert [memory.notes.receive_nowait() for _ in range(2)] == [NotesLost(), Xid(gpu=None, code=79)]


def test_a_gpu_that_hung_is_tried_again_later_each_time_and_not_while_a_call_to_it_hangs() -> None:
    skips = Skips()
    skips.hung(3, 0.0)
    assert skips.now(29.9) == {3}
    assert skips.now(30.0) == frozenset()
    assert skips.now(30.0, stuck=frozenset({3})) == {3}
    skips.hung(3, 30.0)
    assert skips.now(89.9) == {3}
    for _ in range(10):
        skips.hung(3, 100.0)
    assert skips.now(699.9) == {3}
    assert skips.now(700.0) == frozenset()
    skips.answered([3])
    skips.hung(3, 0.0)
    assert skips.now(30.0) == frozenset()
