from __future__ import annotations

import pytest

from reactor.model.config import ConfigProblem
from reactor.model.gpu import DriverState
from reactor.model.kubelet import SocketIdentity
from reactor.model.value import replace
from reactor.plan import EMPTY
from reactor.state import ConfigState, DriverStatus, Fault, Kubelet, State
from reactor.status.healthz import why_dead
from reactor.status.ready import why_unready
from tests.status.node import GPUS, LIFE, PLUGIN, READY, WHOLE, patient, xid


def with_driver(state: DriverState, *, config=None, scanned: bool = False) -> State:
    return replace(
        READY,
        driver=DriverStatus(state=state, error="no library"),
        config=replace(READY.config, config=config or READY.config.config),
        scanned_at=1.0 if scanned else None,
        plan=EMPTY,
    )


def with_plugin(**changes) -> State:
    return replace(READY, kubelet=replace(READY.kubelet, plugins={WHOLE: replace(PLUGIN, **changes)}))


def test_a_node_that_serves_what_it_planned_is_ready():
    assert why_unready(READY) == ()


def test_a_rejected_edit_leaves_it_ready():
    rejected = replace(READY.config, problems=(ConfigProblem(line=1, column=1, path="x", message="bad"),))
    assert why_unready(replace(READY, config=rejected)) == ()


def test_a_faulty_gpu_leaves_it_ready():
    assert why_unready(replace(READY, conditions={GPUS[0].uuid: (xid(),)})) == ()


def test_no_gpu_leaves_it_ready():
    assert why_unready(replace(READY, gpus=(), plan=EMPTY)) == ()


def test_an_absent_kubelet_leaves_it_ready():
    assert why_unready(replace(READY, kubelet=Kubelet(reason="no socket"))) == ()


def test_before_the_kubelet_was_looked_for_it_is_not_ready():
    assert why_unready(replace(READY, kubelet=Kubelet())) == ("the kubelet has not been looked for yet",)


def test_without_a_config_it_is_not_ready_and_says_what_is_wrong_with_the_rejected_one():
    problem = ConfigProblem(line=3, column=5, path="flags.x", message="unknown key")
    state = replace(READY, config=ConfigState(rejected_path="c.yaml", problems=(problem,)))
    assert why_unready(state) == (
        "no config is in force, so nothing is served",
        "c.yaml:3:5: flags.x: unknown key",
    )


def test_before_the_first_scan_it_is_not_ready():
    assert why_unready(with_driver(DriverState.UNKNOWN, config=patient())) == ("NVML has not been asked yet",)


@pytest.mark.parametrize("state", [DriverState.ABSENT, DriverState.MISMATCH, DriverState.FAILED, DriverState.HUNG])
def test_an_absent_driver_is_unready_only_if_fail_on_init_error_says_so(state: DriverState):
    assert why_unready(with_driver(state, config=patient())) == ()
    assert why_unready(with_driver(state)) == (f"the NVIDIA driver is {state} and failOnInitError is true: no library",)


def test_nvml_that_hangs_after_it_answered_leaves_it_ready():
    """OBS-04"""
    assert why_unready(with_driver(DriverState.HUNG, scanned=True)) == ()


def test_a_driver_that_goes_away_is_unready_where_it_is_demanded():
    assert why_unready(with_driver(DriverState.ABSENT, scanned=True)) != ()


def test_a_planned_resource_without_server_registration_or_watcher_is_unready():
    serverless = replace(READY, kubelet=Kubelet(identity=LIFE, life=1))
    assert why_unready(serverless) == ("nvidia.com/gpu: its server is not up",)
    unregistered = "nvidia.com/gpu: not registered with the kubelet"
    assert why_unready(with_plugin(registered=None)) == (unregistered,)
    assert why_unready(with_plugin(registered=SocketIdentity(inode=6, ctime_ns=0))) == (unregistered,)
    assert why_unready(with_plugin(streams=frozenset())) == ("nvidia.com/gpu: the kubelet does not watch it",)


def test_an_agent_that_stops_is_not_ready():
    assert why_unready(replace(READY, stopping=True)) == ("the agent is stopping",)


def test_an_agent_that_waits_for_another_one_to_leave_says_so():
    fault = Fault(name="agent.waiting", message="another agent has the directory", since=0)
    assert why_unready(State(faults={fault.name: fault})) == ("another agent has the directory",)


def test_a_loop_that_stands_still_is_dead():
    assert why_dead({"trio": 0.1, "asyncio": 10.0}) == ()
    assert why_dead({"trio": 0.1, "asyncio": 12.4}) == ("the asyncio loop has not turned for 12 s (limit 10 s)",)
