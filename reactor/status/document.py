"""The JSON document of ``/debug/state``: written by ``describe.py``, read by ``gpu-reactor status`` and by scripts.

``v`` is its major version: fields are added within a version, never removed or given another meaning. Times are Unix
seconds. Types only, so that the command line can read it without loading the agent.
"""

from __future__ import annotations

from typing import TypedDict

VERSION = 1


class AgentDoc(TypedDict):
    version: str
    run: str
    boot: str
    simulated: bool
    """NVML is simulated: no GPU in this document is real."""
    started: float
    stopping: bool
    revision: int
    reloads: int
    ready: bool
    unready: list[str]
    """Why it is not ready."""
    tasks: dict[str, int]
    """Tasks that live on each loop; of asyncio as last counted, a few seconds ago."""


class DriverDoc(TypedDict):
    state: str
    error: str
    version: str
    cuda: str
    generation: int
    since: float


class ProblemDoc(TypedDict):
    line: int
    column: int
    path: str
    message: str
    text: str
    """The whole as one line for people."""


class RejectedDoc(TypedDict):
    digest: str
    path: str
    problems: list[ProblemDoc]


class UnservedDoc(TypedDict):
    path: str
    message: str


class SettingDoc(TypedDict):
    path: str
    value: object
    source: str
    """default, file, variable or flag."""
    name: str
    """Of the variable or flag."""


class ConfigDoc(TypedDict):
    in_force: bool
    origin: str
    """file, default or last_accepted; empty: nothing is in force."""
    path: str
    digest: str
    accepted: float | None
    rejected: RejectedDoc | None
    """The newest text, if that was refused; what was in force stays in force."""
    settings: list[SettingDoc]
    """Every key with its value in force and its source."""
    unserved: list[UnservedDoc]
    """Keys that are valid and without effect in this version."""
    notices: list[str]
    """What in the config has no effect on, or does not fit, this node."""


class ConditionDoc(TypedDict):
    fault: str
    reason: str
    message: str
    gi: int | None
    ci: int | None
    xid: int | None
    since: float
    last: float
    count: int
    sticky: bool
    needs_person: bool
    synthetic: bool


class HoldDoc(TypedDict):
    resource: str
    id: str
    gpu: str | None
    identity: str
    pod: str | None
    """namespace/name where known."""
    pod_uid: str | None
    since: float
    ours: bool
    suspended: bool


class GpuDoc(TypedDict):
    index: int | None
    """None: the GPU is gone and still has a fault or a holder."""
    uuid: str
    pci: str | None
    minor: int | None
    product: str
    memory: int | None
    numa: int | None
    mig: str
    recovery: str | None
    monitored: bool
    health: str
    """healthy, suspect (part of it has a fault), unhealthy, unknown (a call to it hangs) or gone."""
    reasons: list[str]
    conditions: list[ConditionDoc]
    resource: str | None
    replicas: int
    """0: handed out whole."""
    unlisted: str
    """Why no resource lists it."""
    holds: list[HoldDoc]


class SentDoc(TypedDict):
    healthy: int
    unhealthy: int
    revision: int


class ResourceDoc(TypedDict):
    name: str
    planned: int
    healthy: int
    unhealthy: int
    tombstones: int
    """Listed though no longer planned, because they are held or were listed a moment ago."""
    held: int
    reasons: dict[str, int]
    """Why ids are not handed out, with how many for each."""
    registered: bool
    socket: str
    streams: int
    sent: SentDoc | None
    current: bool
    """Whether the newest list is with the kubelet."""


class KubeletDoc(TypedDict):
    registration: str
    """socket: we register on kubelet.sock; watcher: the kubelet's plugin watcher finds us."""
    up: bool
    reason: str
    life: int
    inode: int | None
    pods: int
    checkpoint_error: str
    list_error: str


class FaultDoc(TypedDict):
    name: str
    message: str
    since: float
    count: int


class LeavingDoc(TypedDict):
    """An id that was listed and is no longer wanted: Unhealthy until no pod holds it and the kubelet has seen that."""

    resource: str
    id: str
    reason: str
    sent: bool
    """Whether a list that shows it Unhealthy has gone out."""


class RefusedIdDoc(TypedDict):
    """An id that Allocate refused for its own fault: Unhealthy until the next good scan."""

    resource: str
    id: str
    reason: str


class Document(TypedDict):
    v: int
    agent: AgentDoc
    driver: DriverDoc
    config: ConfigDoc
    gpus: list[GpuDoc]
    resources: list[ResourceDoc]
    kubelet: KubeletDoc
    faults: list[FaultDoc]
    holds: list[HoldDoc]
    leaving: list[LeavingDoc]
    refused: list[RefusedIdDoc]
    deadlines: dict[str, float]
    """Moments that the agent waits for, on its monotonic clock."""


class ListedDoc(TypedDict):
    resource: str
    healthy: bool
    reason: str


class DeviceDoc(TypedDict):
    """Of ``GET /debug/device?id=ID``."""

    id: str
    gpu: str | None
    """None: it is not of this agent's spelling."""
    share: int | None
    planned: list[str]
    """Resources that the plan has it in."""
    listed: list[ListedDoc]
    holds: list[HoldDoc]


class KeyChangeDoc(TypedDict):
    path: str
    before: str
    after: str


class CountsDoc(TypedDict):
    healthy: int
    unhealthy: int


class ResourceChangeDoc(TypedDict):
    name: str
    before: CountsDoc | None
    after: CountsDoc | None
    """None: the resource is not served."""
    added: int
    removed: int
    reasons: dict[str, int]
    """Why ids would not be handed out at once, with how many for each."""


class MoveDoc(TypedDict):
    index: int
    uuid: str
    product: str
    before: str
    """The resource, with xN where it is shared by N, or why it is not listed."""
    after: str


class PodMattersDoc(TypedDict):
    """A pod that holds a GPU otherwise than the config would hand it out."""

    pod: str
    index: int | None
    uuid: str
    resource: str
    held: str
    """whole or shared"""


class PreviewDoc(TypedDict):
    """Of ``POST /debug/plan``: what a config would do to this node now."""

    v: int
    changes: list[KeyChangeDoc]
    """Keys that differ from the config in force."""
    resources: list[ResourceChangeDoc]
    gpus: list[MoveDoc]
    waits: list[PodMattersDoc]
    """The change of their GPUs waits until they end."""
    disturbs: list[PodMattersDoc]
    """Their GPUs would be handed out to others at once (holds: allow)."""
    impossible: list[str]
    """What the config asks for and this node, or this version, cannot do."""
    notes: list[str]
    unserved: list[UnservedDoc]


class RefusedDoc(TypedDict):
    """Of ``POST /debug/plan`` with status 422: the text is no config."""

    problems: list[str]
