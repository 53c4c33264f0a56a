"""What may happen to a node, one step at a time. A step that makes no sense just now does nothing."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.properties.shapes import RESOURCES, Shape, broken_texts, shapes


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
    resource: str


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
    resource: str
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
_gpu = st.integers(0, 3)
_resource = st.sampled_from((RESOURCES[0], RESOURCES[0], RESOURCES[1], RESOURCES[2]))
_pods = st.one_of(
    st.builds(RunPod, _resource, st.integers(1, 3)),
    st.builds(RunPod, _resource, st.integers(1, 2), st.integers(1, 3)),
)
_moments = st.sampled_from((0.0, 0.01, 0.3, 1.0, 2.5, 5.0, 5.5, 12.0, 31.0, 120.0))
_which = st.integers(0, 3)

ordinary: st.SearchStrategy[Step] = st.one_of(
    st.builds(Edit, shapes),
    st.builds(Edit, shapes),
    st.builds(Pass, _moments),
    _pods,
    _pods,
    st.builds(EndPod, _which),
    st.builds(DeletePod, _which),
)
kubelet: st.SearchStrategy[Step] = st.one_of(
    st.builds(RestartKubelet, st.sampled_from((0.0, 0.0, 0.05, 3.0)), st.booleans(), st.booleans()),
    st.builds(EndKubelet, st.booleans()),
    st.builds(StartKubelet),
    st.builds(AnswerApi),
    st.builds(RefuseRegister, st.integers(1, 3)),
    st.builds(SlowRegister, st.sampled_from((0.0, 0.5, 15.0))),
    st.builds(SlowRead, st.sampled_from((0.0, 0.5, 3.0))),
    st.builds(ResetStream, _resource),
    st.builds(SweepSockets),
    st.builds(StopReading),
    st.builds(ReadAgain),
    st.builds(HoldAllocate, st.booleans()),
    st.builds(ReleaseAllocate),
)
books: st.SearchStrategy[Step] = st.one_of(st.builds(SpoilCheckpoint), st.builds(LoseCheckpoint))
gpus: st.SearchStrategy[Step] = st.one_of(
    st.builds(Xid, _gpu, st.sampled_from((APPLICATION, UNKNOWN, RESET, RESTART))),
    st.builds(Unplug, _gpu),
    st.builds(Plug, _gpu),
    st.builds(Lose, _gpu),
    st.builds(Find, _gpu),
    st.builds(Clear, _gpu),
    st.builds(Hang, st.none() | _gpu, st.sampled_from((None, 1.0, 20.0))),
    st.builds(FailCalls, _gpu, st.integers(1, 4)),
    st.builds(Mend),
    st.builds(Driver, st.booleans()),
)
agent: st.SearchStrategy[Step] = st.one_of(
    st.builds(StopAgent),
    st.builds(KillAgent),
    st.builds(StartAgent),
    st.builds(StartAgent),
    st.builds(Hangup),
    st.builds(EditBroken, broken_texts),
)
anything: st.SearchStrategy[Step] = st.one_of(ordinary, ordinary, kubelet, gpus, agent)
