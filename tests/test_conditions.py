"""What makes a condition, folds into it, and lifts it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactor.conditions import (
    MOST,
    Conditions,
    after_absence,
    after_action,
    after_scan,
    judge_action,
    judge_ecc,
    judge_failure,
    judge_xid,
    merge,
    quiet_until,
    relapsed,
    replaced,
)
from reactor.conditions.classes import TABLE, classify, policy_from_environment
from reactor.model.condition import WHOLE_GPU, Condition, FaultClass, Placement, Policy, XidClass
from reactor.model.gpu import FailureKind, Gpu, MigMode, RecoveryAction
from reactor.model.ids import GpuUuid, PciAddress
from reactor.model.value import replace

POLICY = Policy()
BOOT, NEXT_BOOT = "boot-1", "boot-2"
UUID = GpuUuid("GPU-00000000-0000-0000-0000-000000000000")
PCI = PciAddress("0000:01:00.0")


def gpu(recovery: RecoveryAction | None = None, uuid: GpuUuid = UUID, pci: PciAddress = PCI) -> Gpu:
    return Gpu(
        uuid=uuid,
        index=0,
        minor=0,
        pci=pci,
        product="NVIDIA H100",
        memory=None,
        compute=None,
        numa=None,
        mig=MigMode.DISABLED,
        recovery=recovery,
        monitored=True,
    )


def xid(code: int, at: float = 0.0, placement: Placement = WHOLE_GPU, boot: str = BOOT, **changes: object) -> Condition:
    condition = judge_xid(POLICY, placement, code, at, boot)
    assert condition is not None
    return replace(condition, **changes)


def failure(kind: FailureKind, at: float = 0.0) -> Condition:
    return judge_failure(kind, "driver said so", at, BOOT)


def scan(
    conditions: Conditions, at: float, recovery: RecoveryAction | None = None, boot: str = BOOT, **how: object
) -> Conditions:
    """A scan at ``at`` that this GPU answered."""
    how.setdefault("generation_changed", False)
    return after_scan(POLICY, conditions, gpu(recovery), wall=at, boot=boot, **how)


RESET = xid(95)
RESTART = xid(79)
HARDWARE = xid(142)
UNKNOWN = xid(999)
LOST = failure(FailureKind.LOST)


# ---------------------------------------------------------------- classes


def test_every_code_is_in_one_class():
    counts = Counter(code for codes in TABLE.values() for code in codes)
    assert set(counts.values()) == {1}
    assert {xid_class: len(codes) for xid_class, codes in TABLE.items()} == {
        XidClass.APPLICATION: 50,
        XidClass.IGNORE: 31,
        XidClass.RESET: 23,
        XidClass.RESTART: 2,
        XidClass.HARDWARE: 2,
    }


@pytest.mark.parametrize(
    ("code", "xid_class"),
    [
        (13, XidClass.APPLICATION),
        (45, XidClass.APPLICATION),
        (78, XidClass.APPLICATION),
        (94, XidClass.APPLICATION),
        (63, XidClass.IGNORE),
        (154, XidClass.IGNORE),
        (162, XidClass.IGNORE),
        (163, XidClass.IGNORE),
        (48, XidClass.RESET),
        (109, XidClass.RESET),
        (150, XidClass.RESET),
        (79, XidClass.RESTART),
        (151, XidClass.RESTART),
        (54, XidClass.HARDWARE),
        (159, XidClass.UNKNOWN),
        (999, XidClass.UNKNOWN),
        (0, XidClass.UNKNOWN),
    ],
)
def test_the_table_gives_the_class(code, xid_class):
    """HLT-01, HLT-02, HLT-08, HLT-09, HLT-32"""
    assert classify(POLICY, code) is xid_class


def test_an_override_goes_before_the_table():
    policy = Policy(by_number={13: XidClass.RESET, 999: XidClass.APPLICATION})
    assert classify(policy, 13) is XidClass.RESET
    assert classify(policy, 999) is XidClass.APPLICATION
    assert classify(policy, 31) is XidClass.APPLICATION


def test_a_class_is_overridden_as_a_whole_and_a_number_before_it():
    policy = Policy(by_class={XidClass.UNKNOWN: XidClass.APPLICATION}, by_number={998: XidClass.HARDWARE})
    assert classify(policy, 999) is XidClass.APPLICATION
    assert classify(policy, 998) is XidClass.HARDWARE
    assert classify(policy, 95) is XidClass.RESET


# ---------------------------------------------------------------- environment


def read(disable: str | None = None, enable: str | None = None) -> Policy | tuple[str, ...]:
    pairs = {"DP_DISABLE_HEALTHCHECKS": disable, "DP_ENABLE_HEALTHCHECKS": enable, "OTHER": "x"}
    return policy_from_environment([(name, value) for name, value in pairs.items() if value is not None])


def policy(disable: str | None = None, enable: str | None = None) -> Policy:
    result = read(disable, enable)
    assert isinstance(result, Policy), result
    return result


@pytest.mark.parametrize("text", [None, "", " , ,", ","])
def test_empty_variables_change_nothing(text):
    assert policy(text, text) == POLICY


def test_disabled_numbers_are_ignored():
    read_back = policy(disable=" 79, 999,079 ,")
    assert classify(read_back, 79) is classify(read_back, 999) is XidClass.IGNORE
    assert classify(read_back, 48) is XidClass.RESET


@pytest.mark.parametrize("text", ["all", "xids", " XIDS ,", "all,xids"])
def test_all_disables_every_xid_and_what_the_driver_reports(text):
    read_back = policy(disable=text)
    assert {classify(read_back, code) for code in range(200)} == {XidClass.IGNORE}
    assert judge_ecc(read_back, WHOLE_GPU, 0.0, BOOT) is None
    assert judge_action(read_back, RecoveryAction.RESET, 0.0, BOOT) is None


def test_enabled_numbers_are_unhealthy_by_the_table_or_unknown():
    read_back = policy(disable="79,13", enable="79,13,63,999")
    assert classify(read_back, 79) is XidClass.RESTART
    assert [classify(read_back, code) for code in (13, 63, 999)] == [XidClass.UNKNOWN] * 3


def test_an_enabled_number_goes_before_all_disabled():
    read_back = policy(disable="all", enable="79")
    assert classify(read_back, 79) is XidClass.RESTART
    assert classify(read_back, 48) is XidClass.IGNORE


def test_all_enabled_goes_before_everything():
    read_back = policy(disable="all", enable="all")
    assert classify(read_back, 13) is classify(read_back, 63) is XidClass.UNKNOWN
    assert classify(read_back, 48) is XidClass.RESET
    assert judge_action(read_back, RecoveryAction.RESET, 0.0, BOOT) is not None
    assert classify(policy(disable="79", enable="xids"), 79) is XidClass.RESTART


def test_an_enabled_number_keeps_a_class_that_was_given_to_it():
    given_class = Policy(by_number={13: XidClass.HARDWARE}, enabled=frozenset({13}))
    assert classify(given_class, 13) is XidClass.HARDWARE


@pytest.mark.parametrize("token", ["0", "00", "-1", "0x1f", "94;95", "my-xids", "1.5", "²", "٣", "9" * 11, "9" * 5000])
def test_malformed_tokens_are_refused(token):
    """CFG-37"""
    for name, problems in (
        ("DP_DISABLE_HEALTHCHECKS", read(disable=f"94,{token}")),
        ("DP_ENABLE_HEALTHCHECKS", read(enable=f"94,{token}")),
    ):
        assert isinstance(problems, tuple)
        assert len(problems) == 1
        assert problems[0].startswith(f"{name}: ")
        assert len(problems[0]) < 160


def test_all_beside_numbers_is_refused():
    """CFG-37"""
    assert read(disable="94, all ,31") == (
        "DP_DISABLE_HEALTHCHECKS: all stands for every XID, so 31, 94 beside it says nothing: write one or the other",
    )


def test_every_problem_is_told_at_once():
    """CFG-37"""
    problems = read(disable="0,-1", enable="all,x")
    assert isinstance(problems, tuple)
    assert len(problems) == 3


# ---------------------------------------------------------------- judging


@pytest.mark.parametrize("code", [13, 45, 94, 63, 154, 162])
def test_an_xid_of_the_application_or_ignored_makes_no_condition(code):
    """HLT-01, HLT-08, HLT-09"""
    assert judge_xid(POLICY, WHOLE_GPU, code, 0.0, BOOT) is None


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (109, FaultClass.RESET),
        (79, FaultClass.RESTART),
        (54, FaultClass.HARDWARE),
        (999, FaultClass.UNKNOWN),
    ],
)
def test_an_xid_makes_a_condition_of_its_class(code, fault):
    """HLT-02, HLT-32"""
    condition = judge_xid(POLICY, Placement(gi=1, ci=0), code, 7.0, BOOT, synthetic=True)
    assert condition == Condition(
        fault=fault,
        reason="xid",
        message=condition.message if condition else "",
        placement=Placement(gi=1, ci=0),
        xid=code,
        since=7.0,
        last=7.0,
        boot=BOOT,
        synthetic=True,
    )


def test_messages_say_what_happened_and_what_helps():
    assert RESTART.message == "XID 79 (GPU has fallen off the bus): needs a reboot of the node"
    assert UNKNOWN.message == "XID 999: returns when quiet"
    assert LOST.message == "does not answer (lost): driver said so"
    assert judge_failure(FailureKind.HUNG, "", 0.0, BOOT).message == "does not answer (hung)"


def test_an_ecc_event_without_an_xid_is_judged_as_a_double_bit_error():
    """HLT-17"""
    condition = judge_ecc(POLICY, WHOLE_GPU, 7.0, BOOT)
    assert condition is not None
    assert (condition.fault, condition.reason, condition.xid) == (FaultClass.RESET, "ecc", None)
    assert judge_ecc(policy(disable="48"), WHOLE_GPU, 7.0, BOOT) is None


@pytest.mark.parametrize(
    ("kind", "fault", "reason"),
    [
        (FailureKind.LOST, FaultClass.UNREACHABLE, "lost"),
        (FailureKind.HUNG, FaultClass.UNREACHABLE, "hung"),
        (FailureKind.ERROR, FaultClass.UNREACHABLE, "error"),
        (FailureKind.RESET_REQUIRED, FaultClass.RESET, "reset_required"),
    ],
)
def test_a_gpu_that_fails_a_scan_has_a_condition(kind, fault, reason):
    condition = failure(kind)
    assert (condition.fault, condition.reason) == (fault, reason)


@pytest.mark.parametrize(
    ("action", "fault"),
    [
        (RecoveryAction.RESET, FaultClass.RESET),
        (RecoveryAction.DRAIN_AND_RESET, FaultClass.RESET),
        (RecoveryAction.OTHER, FaultClass.RESET),
        (RecoveryAction.REBOOT, FaultClass.RESTART),
    ],
)
def test_a_driver_that_asks_for_an_action_condemns_a_gpu_without_an_xid(action, fault):
    """HLT-18"""
    (found,) = scan((), 7.0, action)
    assert (found.fault, found.reason, found.since) == (fault, "reset_required", 7.0)
    assert after_action(POLICY, (), action, 7.0, BOOT) == (found,)
    assert scan((found,), 8.0, action) == (found,)


@pytest.mark.parametrize("action", [None, RecoveryAction.NONE, RecoveryAction.DRAIN_P2P])
def test_nothing_asked_is_no_condition(action):
    assert scan((), 7.0, action) == ()


def test_an_action_adds_nothing_to_a_condition_of_the_whole_gpu():
    (noted,) = after_action(POLICY, (RESET,), RecoveryAction.RESET, 7.0, BOOT)
    assert noted == replace(RESET, action_seen=True)


def test_an_action_concerns_the_whole_gpu_where_one_mig_device_was_marked():
    placed = xid(95, placement=Placement(gi=1, ci=0))
    found = after_action(POLICY, (placed,), RecoveryAction.RESET, 7.0, BOOT)
    assert {condition.placement for condition in found} == {WHOLE_GPU, Placement(gi=1, ci=0)}


def test_an_action_that_says_nothing_new_changes_nothing():
    conditions = (replace(RESET, action_seen=True),)
    assert after_action(POLICY, conditions, RecoveryAction.RESET, 7.0, BOOT) is conditions
    assert after_action(POLICY, (), RecoveryAction.NONE, 7.0, BOOT) == ()


# ---------------------------------------------------------------- folding


def test_a_storm_is_one_condition_with_a_count():
    """XTR-07"""
    conditions: Conditions = ()
    for at in range(5):
        conditions = merge(conditions, xid(109, float(at)))
    (storm,) = conditions
    assert (storm.count, storm.since, storm.last) == (5, 0.0, 4.0)


def test_events_at_one_moment_are_counted_each():
    assert merge(merge((), RESET), RESET)[0].count == 2


def test_other_places_and_codes_are_other_conditions():
    found = merge(merge(merge((), xid(95)), xid(95, placement=Placement(gi=1))), xid(46))
    assert len(found) == 3


def test_the_worst_comes_first():
    conditions: Conditions = ()
    for one in (UNKNOWN, LOST, RESET, RESTART, HARDWARE):
        conditions = merge(conditions, one)
    assert conditions == (HARDWARE, RESTART, RESET, LOST, UNKNOWN)


def test_a_failing_scan_again_only_moves_the_quiet_time():
    conditions = merge((), failure(FailureKind.LOST, 1.0))
    (again,) = merge(conditions, failure(FailureKind.LOST, 9.0))
    assert (again.count, again.since, again.last) == (1, 1.0, 9.0)
    assert merge(conditions, failure(FailureKind.LOST, 1.0)) is conditions


def test_a_level_that_is_not_waited_out_changes_nothing_when_seen_again():
    conditions = merge((), failure(FailureKind.RESET_REQUIRED, 1.0))
    assert merge(conditions, failure(FailureKind.RESET_REQUIRED, 9.0)) is conditions


def test_a_fault_after_the_return_takes_its_proof_away():
    conditions = after_absence(merge((), RESET))
    (again,) = merge(conditions, xid(95, 5.0))
    assert not again.gone_seen
    assert scan((again,), 6.0, RecoveryAction.NONE) == (again,)


def test_a_fault_in_a_new_boot_is_of_that_boot():
    conditions = merge((RESTART,), xid(79, 5.0, boot=NEXT_BOOT))
    assert scan(conditions, 6.0, boot=NEXT_BOOT) == conditions


def test_a_real_fault_on_top_of_an_injected_one_is_real():
    injected = replace(RESET, synthetic=True)
    assert merge((injected,), injected)[0].synthetic
    assert not merge((injected,), RESET)[0].synthetic


def test_the_third_relapse_in_a_day_needs_a_person():
    day = 24 * 3600.0
    assert not relapsed(POLICY, (), day)
    assert not relapsed(POLICY, (1.0, 2.0), day)
    assert relapsed(POLICY, (1.0, 2.0, 3.0), day)
    assert not relapsed(POLICY, (1.0, 2.0, 3.0), day + 2.0)


# ---------------------------------------------------------------- lifting: reset


def test_no_action_asked_is_no_proof_of_a_reset():
    """XTR-07"""
    conditions = (RESET,)
    assert scan(conditions, 1e9, RecoveryAction.NONE) is conditions
    assert scan(conditions, 1e9) is conditions


def test_an_action_asked_and_no_longer_asked_lifts_a_reset_fault():
    """HLT-02, HLT-18"""
    asked = scan((RESET,), 1.0, RecoveryAction.RESET)
    assert asked[0].action_seen
    assert scan(asked, 2.0, RecoveryAction.DRAIN_P2P) == asked
    assert scan(asked, 3.0) == asked
    assert scan(asked, 4.0, RecoveryAction.NONE) == ()


def test_a_driver_that_was_bound_anew_lifts_a_reset_fault():
    assert scan((RESET,), 1.0, generation_changed=True) == ()


def test_a_device_that_was_gone_lifts_a_reset_fault_when_it_answers():
    assert scan(after_absence((RESET,)), 1.0) == ()


def test_a_new_boot_lifts_a_reset_fault():
    """HLT-04"""
    assert scan((RESET,), 1.0) == (RESET,)
    assert scan((RESET,), 1.0, boot=NEXT_BOOT) == ()


def test_nothing_lifts_while_the_driver_asks_and_the_proof_is_kept():
    kept = scan((RESET,), 1.0, RecoveryAction.RESET, generation_changed=True)
    assert kept == (replace(RESET, action_seen=True, gone_seen=True),)
    assert scan(kept, 1.0, RecoveryAction.RESET, boot=NEXT_BOOT) == kept
    assert scan(kept, 2.0, RecoveryAction.NONE) == ()


def test_a_reset_that_the_driver_demanded_by_an_error_is_over_when_it_answers():
    conditions = (failure(FailureKind.RESET_REQUIRED),)
    assert scan(conditions, 1.0, RecoveryAction.NONE) == ()
    assert scan(conditions, 1.0) == ()


def test_a_failed_query_is_not_read_as_none():
    """HLT-20"""
    for conditions in (
        (failure(FailureKind.RESET_REQUIRED),),
        (replace(RESET, action_seen=True),),
        (UNKNOWN,),
        (LOST,),
    ):
        assert scan(conditions, 1e9, can_ask=True) is conditions


# ---------------------------------------------------------------- lifting: the other classes


def test_a_restart_fault_lifts_with_a_new_boot_only():
    """HLT-05: no answer of any query mends a GPU that fell off the bus."""
    conditions = after_absence((replace(RESTART, action_seen=True),))
    assert scan(conditions, 1e9, RecoveryAction.NONE, generation_changed=True) is conditions
    assert scan(conditions, 1.0, boot=NEXT_BOOT) == ()


def test_a_hardware_fault_does_not_lift():
    conditions = after_absence((replace(HARDWARE, action_seen=True),))
    assert scan(conditions, 1e9, RecoveryAction.NONE, NEXT_BOOT, generation_changed=True) is conditions


@pytest.mark.parametrize(("condition", "quiet"), [(UNKNOWN, 60.0), (LOST, 5.0)])
def test_unknown_and_unreachable_lift_when_quiet(condition, quiet):
    """HLT-32"""
    conditions = (condition,)
    assert scan(conditions, quiet - 1) is conditions
    assert scan(conditions, quiet, RecoveryAction.DRAIN_P2P) is conditions
    assert scan(conditions, quiet) == ()
    assert scan(conditions, quiet, RecoveryAction.NONE, can_ask=True) == ()


def test_quiet_runs_from_the_newest_evidence():
    conditions = merge((UNKNOWN,), xid(999, 50.0))
    assert scan(conditions, 100.0) is conditions
    assert scan(conditions, 110.0) == ()


def test_a_clock_that_is_set_back_does_not_prolong_the_quiet_time():
    (waiting,) = scan((xid(999, 1e6),), 10.0)
    assert quiet_until(POLICY, (waiting,)) == 70.0
    assert scan((waiting,), 70.0) == ()


@pytest.mark.parametrize("condition", [RESET, RESTART, UNKNOWN, LOST])
def test_what_needs_a_person_does_not_lift(condition):
    conditions = (replace(condition, needs_person=True, gone_seen=True, action_seen=True),)
    assert scan(conditions, 1e9, RecoveryAction.NONE, NEXT_BOOT) is conditions


def test_each_condition_lifts_on_its_own():
    assert scan((HARDWARE, RESTART, RESET, LOST, UNKNOWN), 10.0, generation_changed=True) == (
        replace(HARDWARE, gone_seen=True),
        replace(RESTART, gone_seen=True),
        replace(UNKNOWN, gone_seen=True),
    )


def test_absence_is_noted_once():
    conditions = after_absence((RESET, LOST))
    assert all(condition.gone_seen for condition in conditions)
    assert after_absence(conditions) is conditions


def test_the_quiet_times_tell_when_to_look_again():
    assert quiet_until(POLICY, ()) is None
    assert quiet_until(POLICY, (HARDWARE, RESTART, RESET, replace(UNKNOWN, needs_person=True))) is None
    assert quiet_until(POLICY, (RESET, xid(999, 10.0))) == 70.0
    assert quiet_until(POLICY, (failure(FailureKind.HUNG, 100.0), xid(999, 10.0))) == 70.0


def test_a_gpu_is_replaced_when_another_one_sits_at_its_address():
    other, free = GpuUuid("GPU-other"), PciAddress("0000:02:00.0")
    assert replaced({UUID: PCI}, [gpu(uuid=other)]) == {UUID}
    assert replaced({UUID: PCI}, [gpu()]) == set()
    assert replaced({UUID: PCI}, []) == set()
    assert replaced({UUID: PCI}, [gpu(uuid=other), gpu(pci=free)]) == set()


# ---------------------------------------------------------------- properties

times = st.floats(0.0, 1e6)
places = st.sampled_from([WHOLE_GPU, Placement(gi=1), Placement(gi=1, ci=0)])
evidence = st.one_of(
    st.builds(xid, st.sampled_from([95, 46, 79, 142, 999, 159]), times, places),
    st.builds(failure, st.sampled_from(FailureKind), times),
)
actions = st.sampled_from([None, *RecoveryAction])


def fold(all_: list[Condition]) -> Conditions:
    conditions: Conditions = ()
    for one in all_:
        conditions = merge(conditions, one)
    return conditions


known = st.lists(evidence, max_size=6).map(fold)


@settings(deadline=None)
@given(st.lists(evidence, max_size=6), st.randoms())
def test_evidence_commutes(all_, random):
    shuffled = list(all_)
    random.shuffle(shuffled)
    ours, theirs = fold(all_), fold(shuffled)
    # A level keeps the time of whichever came first, where no quiet time runs from it.
    assert [replace(one, last=0.0) for one in ours] == [replace(one, last=0.0) for one in theirs]


@settings(deadline=None)
@given(known, actions, times, st.booleans(), st.booleans())
def test_time_alone_lifts_nothing_that_needs_more(conditions, action, at, can_ask, rebound):
    after = scan(conditions, at, action, generation_changed=rebound, can_ask=can_ask)
    keys = {condition.key for condition in after}
    for condition in conditions:
        if condition.fault in (FaultClass.HARDWARE, FaultClass.RESTART):
            assert condition.key in keys
        if condition.fault is FaultClass.RESET and not rebound and condition.reason != "reset_required":
            assert condition.key in keys


@settings(deadline=None)
@given(known, actions, times, st.booleans())
def test_the_same_scan_again_changes_nothing(conditions, action, at, rebound):
    once = scan(conditions, at, action, generation_changed=rebound)
    assert scan(once, at, action) is once


@settings(deadline=None)
@given(known, times)
def test_an_unhealthy_gpu_stays_so_while_the_driver_asks(conditions, at):
    after = scan(conditions, at, RecoveryAction.RESET, NEXT_BOOT, generation_changed=True)
    assert {one.key for one in conditions} <= {one.key for one in after}
    assert any(one.placement.whole for one in after)


@settings(deadline=None)
@given(known, times)
def test_a_new_boot_and_a_long_quiet_leave_hardware_faults_only(conditions, at):
    after = scan(conditions, at + 61.0 + 1e6, RecoveryAction.NONE, NEXT_BOOT)
    assert {one.fault for one in after} <= {FaultClass.HARDWARE}


def test_a_gpu_that_makes_up_codes_has_a_bounded_number_of_conditions() -> None:
    found: tuple[Condition, ...] = ()
    for code in range(1000, 3000):
        judged = judge_xid(Policy(), WHOLE_GPU, code, float(code), "boot")
        assert judged is not None
        found = merge(found, judged)
    assert len(found) == MOST
    assert sum(condition.count for condition in found) == 2000
    assert max(condition.last for condition in found) == 2999.0
