"""Who holds which id: begun by grants and by the kubelet's books, ended by the rules of design.md 5.

1. The checkpoint lacks the id: at once if this life of the kubelet had written it down, else if it was read after a
   list of its resource was sent more than 1 s after a List lacked the id.
   A kubelet that lost its books begins without them while pods run on: the holds are then suspended, which means that
   nobody is given their ids, and only rule 2 ends them. Over a boot nobody runs on: then they end.
2. The id, or the pod, was in a List of this life of the kubelet and is gone from two Lists at least 2 s apart. Up to
   1.33 a List goes on naming a pod that ended, without its ids.
3. A grant that neither List nor checkpoint has shown 10 s later.
"""

from __future__ import annotations

from collections.abc import Mapping

from reactor.events import (
    Advertised,
    CheckpointFailed,
    CheckpointRead,
    Event,
    Granted,
    PodsListed,
    PodsListFailed,
    StateRestored,
)
from reactor.model.hold import Hold, HoldKey, PodRef
from reactor.model.ids import DeviceId, GpuUuid, ResourceName, identity_of, parse_device_id
from reactor.model.value import replace
from reactor.reducer import faults
from reactor.state import Nudge, State
from reactor.view import pending

RESEND_AFTER = 1.0
GONE_FOR = 2.0
UNSHOWN_FOR = 10.0
NUDGE_AGAIN = 10.0
LOST_BOOKS = 300.0
"""Seconds that a pod must be out of every List before a hold that the kubelet's books lost ends with it."""

Holds = dict[HoldKey, Hold]


def of_boot(state: State, fact: StateRestored) -> tuple[Hold, ...]:
    """The holds of an earlier life of the agent, marked where that was before the node booted."""
    if not fact.boot or fact.boot == state.boot:
        return fact.holds
    return tuple(replace(hold, rebooted=True) for hold in fact.holds)


def new_life(state: State) -> State:
    """Another kubelet: what its predecessor showed of pods and ids proves nothing now.

    A grant that nobody had shown yet may have a pod all the same: its books decide, if they were not lost.
    """
    holds = {
        key: replace(
            hold,
            in_checkpoint=False,
            lacked_at=None,
            resent_at=None,
            shown=False,
            pod_seen=False,
            pod_gone_at=None,
            suspended=hold.suspended or hold.granted_at is not None,
            granted_at=None,
        )
        for key, hold in state.holds.items()
    }
    return replace(state, holds=holds) if holds else state


def granted(state: State, event: Event, fact: Granted) -> State:
    """A grant starts its holds over: whoever had the id before, the kubelet says that it is free or reused."""
    holds: Holds = dict(state.holds)
    numa = {gpu.uuid: (gpu.numa,) for gpu in state.gpus if gpu.numa is not None}
    for one in fact.ids:
        key = HoldKey(fact.resource, one)
        known = holds.get(key)
        gpu = _gpu_of(one)
        holds[key] = Hold(
            resource=fact.resource,
            id=one,
            gpu=gpu,
            identity=identity_of(one),
            numa=known.numa if known else numa.get(gpu, ()) if gpu else (),
            since=known.since if known else event.wall,
            grant=fact.number,
            granted_at=event.at,
        )
    return replace(state, holds=holds, grants=max(state.grants, fact.number))


def advertised(state: State, event: Event, fact: Advertised) -> State:
    """A list went out: ids that Lists have lacked for more than 1 s may be asked of the checkpoint from now on."""
    if fact.standing:
        return state
    served = state.kubelet.plugins
    resent = {
        key: replace(hold, resent_at=event.at)
        for key, hold in state.holds.items()
        if hold.resent_at is None
        and hold.lacked_at is not None
        and event.at > hold.lacked_at + RESEND_AFTER
        and (key.resource == fact.resource or key.resource not in served)
    }
    return replace(state, holds={**state.holds, **resent}) if resent else state


def pods_listed(state: State, event: Event, fact: PodsListed) -> State:
    holds: Holds = dict(state.holds)
    pods = frozenset(pod.pod for pod in fact.pods)
    freed = dict(state.freed)
    shown: set[HoldKey] = set()
    for pod in fact.pods:
        for resource, one, numa in pod.devices:
            key = HoldKey(resource, one)
            if key in holds or _concerns(state, key):
                shown.add(key)
                holds[key] = _shown(state, event, holds.get(key), key, pod=pod.pod, numa=numa)
    for key in [key for key in holds if key not in shown]:
        hold = holds[key]
        if hold.lacked_at is None:
            hold = replace(hold, lacked_at=fact.asked_at)
        left = _without_pod(state, hold, pods, fact.asked_at)
        if left is None:
            del holds[key]
            if hold.pod_uid:
                freed[key] = hold.pod_uid
        else:
            holds[key] = left
    listed_at, known = fact.asked_at, state.books
    books = replace(known, listed_at=listed_at, list_error="", pods=known.pods if known.pods == pods else pods)
    state = replace(state, books=books, freed=state.freed if freed == state.freed else freed)
    state = faults.end(state, "podresources.list")
    return _nudge(_with(state, holds), event)


def _without_pod(state: State, hold: Hold, pods: frozenset[PodRef], asked_at: float) -> Hold | None:
    """Rule 2, for a hold that this List does not show; None: it ends."""
    if hold.granted_at is not None or (hold.pod is None and not hold.suspended):
        return hold
    if hold.shown and hold.lacked_at is not None and asked_at - hold.lacked_at >= GONE_FOR:
        return None
    if hold.pod in pods:
        return hold if hold.pod_seen and hold.pod_gone_at is None else replace(hold, pod_seen=True, pod_gone_at=None)
    if not hold.pod_seen and not hold.suspended:
        return hold
    if hold.pod_gone_at is None:
        return replace(hold, pod_gone_at=asked_at)
    wait = GONE_FOR if hold.pod_seen else LOST_BOOKS
    return None if asked_at - hold.pod_gone_at >= wait else hold


def list_failed(state: State, event: Event, fact: PodsListFailed) -> State:
    books = state.books if state.books.list_error == fact.error else replace(state.books, list_error=fact.error)
    return faults.begin(replace(state, books=books), event, "podresources.list", fact.error)


def checkpoint_read(state: State, event: Event, fact: CheckpointRead) -> State:
    holds: Holds = dict(state.holds)
    written = state.kubelet.wrote(fact.asked_at)
    seen: dict[HoldKey, tuple[str, tuple[int, ...]]] = {}
    freed: dict[HoldKey, str] = {}
    for entry in fact.entries:
        key = HoldKey(entry.resource, entry.id)
        if state.freed.get(key) == entry.pod_uid:
            freed[key] = entry.pod_uid
        elif key in holds or _concerns(state, key):
            seen[key] = (entry.pod_uid, entry.numa)
    for key, (uid, numa) in seen.items():
        shown = _shown(state, event, holds.get(key), key, numa=numa)
        proven = shown.in_checkpoint or written
        if shown.pod_uid != uid or shown.in_checkpoint is not proven or shown.suspended:
            shown = replace(shown, pod_uid=uid, in_checkpoint=proven, suspended=False)
        holds[key] = shown
    _name_pods(holds, seen)
    lost = _lost(state, holds, seen, fact.resources)
    for key in [key for key in holds if key not in seen]:
        hold = replace(holds[key], suspended=True) if key in lost else holds[key]
        if hold.rebooted or _ended(state, hold, fact.asked_at):
            del holds[key]
        elif hold is not holds[key]:
            holds[key] = hold
    books = replace(
        state.books,
        checkpoint_known=True,
        checkpoint_error="",
        checkpoint_life=state.kubelet.life,
        looked_life=state.kubelet.life,
        looked_at=fact.asked_at,
        checkpoint_ids=state.books.checkpoint_ids if state.books.checkpoint_ids == seen.keys() else frozenset(seen),
    )
    if books != state.books or freed != state.freed:
        state = replace(state, books=books, freed=state.freed if freed == state.freed else freed)
    return _nudge(_with(faults.end(state, "checkpoint"), holds), event)


def checkpoint_failed(state: State, event: Event, fact: CheckpointFailed) -> State:
    """Missing or unreadable: a warning; holds then end by their pods alone (rule 2).

    A kubelet that begins its life with such a file begins without books.
    """
    begins = state.books.looked_life != state.kubelet.life
    books = replace(
        state.books,
        checkpoint_known=True,
        checkpoint_error=fact.error,
        looked_life=state.kubelet.life,
        looked_at=event.at,
    )
    if books != state.books:
        state = replace(state, books=books)
    if begins and state.holds:
        left = {
            key: replace(hold, suspended=True)
            for key, hold in state.holds.items()
            if not (fact.missing and hold.rebooted)
        }
        state = replace(state, holds=left)
    told = any(plugin.sent_revision is not None for plugin in state.kubelet.plugins.values())
    # A kubelet writes it with the first list that it gets: until then there is nothing to miss.
    return state if fact.missing and not told else faults.begin(state, event, "checkpoint", fact.error)


def _ended(state: State, hold: Hold, asked_at: float) -> bool:
    """Rules 1 and 3, for a hold that this checkpoint does not show."""
    if hold.granted_at is not None:
        listed = state.books.list_error or (state.books.listed_at or 0.0) >= hold.granted_at + UNSHOWN_FOR
        return bool(listed) and asked_at >= hold.granted_at + UNSHOWN_FOR
    if hold.in_checkpoint and not state.kubelet.doubted:
        return True  # this life of the kubelet has written it down, and now without
    if hold.suspended or hold.lacked_at is None or hold.resent_at is None or asked_at <= hold.resent_at:
        return False
    # A pod that is listed while the books of this life never had its id: they were lost, not closed.
    return hold.pod is None or hold.pod not in state.books.pods


def _lost(
    state: State, holds: Holds, seen: Mapping[HoldKey, object], resources: frozenset[ResourceName]
) -> frozenset[HoldKey]:
    """Ids that the kubelet forgot: its books had them in its life before, and the first ones of this life lack them.

    If these know the resource, which cannot have registered in this life yet, they are the old ones continued, and the
    id was freed.
    A file that it does not trust, for its checksum, it passes over without a word and then writes anew: neither this
    life's List nor a checkpoint of its own has ever had the id, and its pod is listed.
    """
    if state.books.checkpoint_life not in (-1, state.kubelet.life):
        return frozenset(key for key in state.books.checkpoint_ids if key not in seen and key.resource not in resources)
    pods = state.books.pods
    return frozenset(
        key
        for key, hold in holds.items()
        if key not in seen
        and hold.pod in pods
        and not (hold.shown or hold.in_checkpoint or hold.granted_at is not None)
    )


def _name_pods(holds: Holds, seen: Mapping[HoldKey, tuple[str, tuple[int, ...]]]) -> None:
    """Ids of one pod UID belong to one pod: a List names it for one of them (never for a plain init container's)."""
    pods = {hold.pod_uid: hold.pod for hold in holds.values() if hold.pod_uid and hold.pod}
    for key in seen:
        hold = holds[key]
        pod = pods.get(hold.pod_uid or "")
        if pod is not None and hold.pod is None:
            holds[key] = replace(hold, pod=pod, pod_seen=True)


def _shown(
    state: State, event: Event, known: Hold | None, key: HoldKey, *, numa: tuple[int, ...], pod: PodRef | None = None
) -> Hold:
    """The hold as the kubelet's books show it."""
    if known is None:
        known = Hold(
            resource=key.resource,
            id=key.id,
            gpu=_gpu_of(key.id),
            identity=identity_of(key.id),
            since=event.wall,
            ours=_served(state, key.resource),
        )
    numa = numa or known.numa
    # Looked at before it is replaced: most books show the same as those before, and all of their ids.
    if pod is None:
        if known.granted_at is None and known.numa == numa and not known.rebooted:
            return known
        return replace(known, granted_at=None, numa=numa, rebooted=False)
    waits = (known.pod_gone_at, known.granted_at, known.lacked_at, known.resent_at)
    still = known.shown and not known.rebooted
    if still and known.pod == pod and known.numa == numa and waits == (None, None, None, None):
        return known
    return replace(
        known,
        pod=pod,
        shown=True,
        pod_seen=True,
        pod_gone_at=None,
        granted_at=None,
        lacked_at=None,
        resent_at=None,
        suspended=False,
        rebooted=False,
        numa=numa,
    )


def _nudge(state: State, event: Event) -> State:
    """Ask for lists to be sent again, unchanged, where a hold waits for its checkpoint to be rewritten."""
    wanted: set[ResourceName] = set()
    for key, hold in state.holds.items():
        if not pending(state, hold) or hold.lacked_at is None or event.at <= hold.lacked_at + RESEND_AFTER:
            continue
        plugins = state.kubelet.plugins
        resource = key.resource if key.resource in plugins else min(plugins, default=None)
        nudge = state.nudges.get(resource) if resource is not None else None
        fresh = nudge is None or nudge.at <= hold.lacked_at + RESEND_AFTER or event.at >= nudge.at + NUDGE_AGAIN
        if resource is not None and fresh:
            wanted.add(resource)
    if not wanted:
        return state
    nudges = {name: Nudge(state.nudges[name].count + 1 if name in state.nudges else 1, event.at) for name in wanted}
    return replace(state, nudges={**state.nudges, **nudges})


def _concerns(state: State, key: HoldKey) -> bool:
    """Whether an id in the kubelet's books is of a GPU of ours, or of a resource that we list."""
    return parse_device_id(key.id) is not None or _served(state, key.resource)


def _served(state: State, resource: ResourceName) -> bool:
    planned = any(one.name == resource for one in state.plan.resources)
    return planned or resource in state.kubelet.plugins


def _gpu_of(one: DeviceId) -> GpuUuid | None:
    ref = parse_device_id(one)
    return None if ref is None else ref.gpu


def _with(state: State, holds: Holds) -> State:
    """These holds. An id that was refused because its pod had been forgotten is free with the end of that."""
    if holds == state.holds:
        return state
    ended = {key for key in state.refused if key not in holds and key in state.holds and state.holds[key].suspended}
    refused = {key: why for key, why in state.refused.items() if key not in ended} if ended else state.refused
    return replace(state, holds=holds, refused=refused)
