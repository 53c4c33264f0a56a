"""What may happen to a node, one step at a time. A step that makes no sense just now does nothing."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.properties.shapes import Shape, broken_texts, shapes


@dataclass(frozen=True, slots=True)
class Edit:
    shape: Shape


@dataclass(frozen=True, slots=True)
class EditBroken:
    text: str


@dataclass(frozen=True, slots=True)
class Pass:
    seconds: float


@dataclass(frozen=True, slots=True)
class RestartKubelet:
    down: float
    graceful: bool
    silent: bool


@dataclass(frozen=True, slots=True)
class EndKubelet:
    graceful: bool


@dataclass(frozen=True, slots=True)
class StartKubelet:
    pass


@dataclass(frozen=True, slots=True)
class AnswerApi:
    pass


@dataclass(frozen=True, slots=True)
class RefuseRegister:
    times: int


@dataclass(frozen=True, slots=True)
class SlowRegister:
    seconds: float


@dataclass(frozen=True, slots=True)
class SlowRead:
    seconds: float


@dataclass(frozen=True, slots=True)
class ResetStream:
    which: int


@dataclass(frozen=True, slots=True)
class SweepSockets:
    pass


@dataclass(frozen=True, slots=True)
class StopReading:
    pass


@dataclass(frozen=True, slots=True)
class ReadAgain:
    pass


@dataclass(frozen=True, slots=True)
class HoldAllocate:
    answered: bool


@dataclass(frozen=True, slots=True)
class ReleaseAllocate:
    pass


@dataclass(frozen=True, slots=True)
class SpoilCheckpoint:
    pass


@dataclass(frozen=True, slots=True)
class LoseCheckpoint:
    pass


@dataclass(frozen=True, slots=True)
class Xid:
    gpu: int
    code: int


@dataclass(frozen=True, slots=True)
class Unplug:
    gpu: int


@dataclass(frozen=True, slots=True)
class Plug:
    gpu: int


@dataclass(frozen=True, slots=True)
class Lose:
    gpu: int


@dataclass(frozen=True, slots=True)
class Find:
    gpu: int


@dataclass(frozen=True, slots=True)
class Clear:
    gpu: int


@dataclass(frozen=True, slots=True)
class Hang:
    gpu: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class FailCalls:
    gpu: int
    times: int


@dataclass(frozen=True, slots=True)
class Mend:
    pass


@dataclass(frozen=True, slots=True)
class Driver:
    there: bool


@dataclass(frozen=True, slots=True)
class RunPod:
    which: int
    """Of the resources that are served then."""
    count: int
    init: int = 0


@dataclass(frozen=True, slots=True)
class EndPod:
    which: int


@dataclass(frozen=True, slots=True)
class DeletePod:
    which: int


@dataclass(frozen=True, slots=True)
class StopAgent:
    pass


@dataclass(frozen=True, slots=True)
class KillAgent:
    pass


@dataclass(frozen=True, slots=True)
class StartAgent:
    pass


@dataclass(frozen=True, slots=True)
class Hangup:
    """SIGHUP"""


Step = (
    Edit
    | EditBroken
    | Pass
    | RestartKubelet
    | EndKubelet
    | StartKubelet
    | AnswerApi
    | RefuseRegister
    | SlowRegister
    | SlowRead
    | ResetStream
    | SweepSockets
    | StopReading
    | ReadAgain
    | HoldAllocate
    | ReleaseAllocate
    | SpoilCheckpoint
    | LoseCheckpoint
    | Xid
    | Unplug
    | Plug
    | Lose
    | Find
    | Clear
    | Hang
    | FailCalls
    | Mend
    | Driver
    | RunPod
    | EndPod
    | DeletePod
    | StopAgent
    | KillAgent
    | StartAgent
    | Hangup
)

APPLICATION, UNKNOWN, RESET, RESTART = 31, 9999, 48, 79
Steps = st.SearchStrategy[Step]


def mixed(*weighted: tuple[int, Steps]) -> Steps:
    """One of these, so many times out of the sum (``one_of`` would weigh them by how many kinds each has)."""
    return st.sampled_from([steps for weight, steps in weighted for _ in range(weight)]).flatmap(lambda steps: steps)


_gpu = st.integers(0, 3)
_which = st.integers(0, 3)
edits: Steps = st.builds(Edit, shapes)
moments: Steps = st.builds(Pass, st.sampled_from((0.0, 0.01, 0.3, 1.0, 2.5, 5.0, 5.5, 12.0, 31.0, 120.0)))
pods: Steps = mixed(
    (3, st.builds(RunPod, _which, st.integers(1, 3))),
    (1, st.builds(RunPod, _which, st.integers(1, 2), st.integers(1, 3))),
    (1, st.builds(EndPod, _which)),
    (1, st.builds(DeletePod, _which)),
)
kubelet: Steps = mixed(
    (3, st.builds(RestartKubelet, st.sampled_from((0.0, 0.0, 0.05, 3.0)), st.booleans(), st.booleans())),
    (1, st.builds(EndKubelet, st.booleans())),
    (1, st.builds(StartKubelet)),
    (1, st.builds(AnswerApi)),
    (1, st.builds(RefuseRegister, st.integers(1, 3))),
    (1, st.builds(SlowRegister, st.sampled_from((0.0, 0.5, 15.0)))),
    (1, st.builds(SlowRead, st.sampled_from((0.0, 0.5, 3.0)))),
    (1, st.builds(ResetStream, _which)),
    (1, st.builds(SweepSockets)),
    (1, st.builds(StopReading)),
    (1, st.builds(ReadAgain)),
    (2, st.builds(HoldAllocate, st.booleans())),
    (1, st.builds(ReleaseAllocate)),
)
books: Steps = mixed((1, st.builds(SpoilCheckpoint)), (1, st.builds(LoseCheckpoint)))
gpus: Steps = mixed(
    (3, st.builds(Xid, _gpu, st.sampled_from((APPLICATION, UNKNOWN, RESET, RESTART)))),
    (2, st.builds(Unplug, _gpu)),
    (2, st.builds(Plug, _gpu)),
    (1, st.builds(Lose, _gpu)),
    (1, st.builds(Find, _gpu)),
    (1, st.builds(Clear, _gpu)),
    (1, st.builds(Hang, st.none() | _gpu, st.sampled_from((None, 1.0, 20.0)))),
    (1, st.builds(FailCalls, _gpu, st.integers(1, 4))),
    (1, st.builds(Mend)),
    (2, st.builds(Driver, st.booleans())),
)
agent: Steps = mixed(
    (1, st.builds(StopAgent)),
    (1, st.builds(KillAgent)),
    (3, st.builds(StartAgent)),
    (1, st.builds(Hangup)),
    (1, st.builds(EditBroken, broken_texts)),
)


def several(steps: Steps) -> st.SearchStrategy[list[Step]]:
    return st.lists(steps, min_size=1, max_size=40) | st.lists(steps, min_size=12, max_size=40)
