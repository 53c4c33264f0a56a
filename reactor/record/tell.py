"""The kubelet's side of the story: what its facts say by themselves. Pure."""

from __future__ import annotations

from reactor import events as facts
from reactor.events import Fact
from reactor.record import served as say
from reactor.record.line import Level, Line
from reactor.record.look import cut, gpus_of, many
from reactor.state import State


def served(fact: Fact, before: State, after: State) -> tuple[Line, ...]:
    """Lines of a fact about the kubelet; none for any other."""
    match fact:
        case facts.Advertised():
            return (_advertised(fact, before),)
        case facts.Granted():
            return (_granted(fact),)
        case facts.Refused():
            return (_refused(fact),)
        case facts.PodsListed() | facts.PodsListFailed() | facts.CheckpointRead() | facts.CheckpointFailed():
            return _books(fact, before)
        case facts.KubeletUp() | facts.KubeletDown():
            return _kubelet(fact, before, after)
    return _plugin(fact)


def _kubelet(fact: facts.KubeletUp | facts.KubeletDown, before: State, after: State) -> tuple[Line, ...]:
    if isinstance(fact, facts.KubeletUp):
        if fact.identity == before.kubelet.identity:
            return ()
        return (say.KubeletAppeared(life=after.kubelet.life, msg="kubelet accepts connections"),)
    if before.kubelet.identity is None and fact.reason == before.kubelet.reason:
        return ()
    return (say.KubeletVanished(error=fact.reason, msg=f"kubelet does not answer: {fact.reason}"),)


def _plugin(fact: Fact) -> tuple[Line, ...]:
    match fact:
        case facts.PluginSocketGone():
            told = f"socket of {fact.resource} was removed, serving anew"
            line: Line = say.PluginSwept(resource=fact.resource, socket=fact.socket, msg=told)
        case facts.PluginDirectoryGone():
            line = say.PluginStranded(error=fact.error, msg=f"no kubelet can be met any more: {fact.error}")
        case facts.PluginServing():
            line = say.PluginServed(
                resource=fact.resource, socket=fact.socket, msg=f"{fact.resource} is served on {fact.socket}"
            )
        case facts.PluginClosed():
            line = say.PluginClosed(resource=fact.resource, msg=f"{fact.resource} is no longer served")
        case facts.PluginOffered():
            told = f"{fact.resource} is there for the kubelet to find"
            line = say.PluginOffered(resource=fact.resource, socket=fact.socket, msg=told)
        case facts.PluginRefused():
            told = f"kubelet did not take {fact.resource}: {fact.error}"
            line = say.PluginRefused(resource=fact.resource, socket=fact.socket, error=fact.error, msg=told)
        case facts.PluginRegistered():
            told = f"kubelet took {fact.resource}"
            line = say.PluginRegistered(resource=fact.resource, socket=fact.socket, msg=told)
        case facts.StreamOpened():
            told = f"kubelet listens to {fact.resource}"
            line = say.StreamOpened(resource=fact.resource, stream=fact.stream, msg=told)
        case facts.StreamEnded():
            told = f"a stream of {fact.resource} ended"
            line = say.StreamClosed(resource=fact.resource, stream=fact.stream, msg=told)
        case _:
            return ()
    return (line,)


def _advertised(fact: facts.Advertised, before: State) -> Line:
    plugin = before.kubelet.plugins.get(fact.resource)
    first = plugin is None or plugin.sent_revision is None
    was_healthy, was_unhealthy = (plugin.sent_healthy, plugin.sent_unhealthy) if plugin and not first else (0, 0)
    healthier, sicker = fact.healthy - was_healthy, fact.unhealthy - was_unhealthy
    same = not first and plugin is not None and plugin.sent_revision == fact.revision
    told = "has this list already" if fact.standing else "was told"
    return say.DevicesAdvertised(
        level=Level.DEBUG if same or fact.standing else Level.INFO,
        resource=fact.resource,
        healthy=fact.healthy,
        unhealthy=fact.unhealthy,
        added=max(healthier + sicker, 0),
        removed=max(-healthier - sicker, 0),
        turned=min(abs(healthier), abs(sicker)) if healthier * sicker < 0 else 0,
        revision=fact.revision,
        bytes=fact.size,
        msg=f"kubelet {told} of {fact.resource}: {fact.healthy} healthy, {fact.unhealthy} unhealthy",
    )


def _granted(fact: facts.Granted) -> Line:
    gpus = gpus_of(fact.ids)
    return say.AllocationAnswered(
        resource=fact.resource,
        ids=cut(fact.ids),
        gpus=cut(gpus),
        count=len(fact.ids),
        grant=fact.number,
        msg=f"{many(len(fact.ids), 'id')} of {fact.resource} on {many(len(gpus), 'GPU')} given to a container",
    )


def _refused(fact: facts.Refused) -> Line:
    return say.AllocationRefused(
        resource=fact.resource,
        ids=cut(fact.ids),
        count=len(fact.ids),
        error=fact.message,
        faulty=len(fact.faulty),
        msg=f"{many(len(fact.ids), 'id')} of {fact.resource} refused: {fact.message}",
    )


Books = facts.PodsListed | facts.PodsListFailed | facts.CheckpointRead | facts.CheckpointFailed


def _books(fact: Books, before: State) -> tuple[Line, ...]:
    books = before.books
    match fact:
        case facts.PodsListed() if books.list_error:
            told = f"kubelet lists pods again: {many(len(fact.pods), 'pod')}"
            return (say.PodresourcesAnswered(count=len(fact.pods), msg=told),)
        case facts.PodsListFailed() if fact.error != books.list_error:
            told = f"kubelet does not list pods, holds stay: {fact.error}"
            return (say.PodresourcesFailed(error=fact.error, msg=told),)
        case facts.CheckpointRead() if books.checkpoint_error:
            return (say.CheckpointRead(count=len(fact.entries), msg="kubelet's checkpoint can be read again"),)
        case facts.CheckpointFailed() if fact.error != books.checkpoint_error:
            told = f"kubelet's checkpoint {'is missing' if fact.missing else 'cannot be read'}: {fact.error}"
            return (say.CheckpointFailed(missing=fact.missing, error=fact.error, msg=told),)
    return ()
