"""Admission: which calls a pod makes, what it is given, and how it is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import grpc
import trio

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from tests.contract.table.plugin import (
    ALLOCATE,
    ProbePlugin,
    Refusal,
    devices,
    plain,
    probe,
)
from tests.contract.table.row import row, since
from tests.contract.table.under_test import Kubelet, Lister, PodSeen, Shape


def told(pod: PodSeen) -> tuple[str, str, str]:
    """Phase, reason, and the core of the message."""
    core = pod.message.removeprefix("Pod was rejected: ").removeprefix("Allocate failed due to ")
    return pod.phase, pod.reason, core.removesuffix(", which is unexpected")


def over(pod: PodSeen) -> bool:
    return pod.phase in ("Failed", "Succeeded")


async def one(kubelet: Kubelet, plugin: ProbePlugin, stem: str, count: int = 1) -> PodSeen:
    """A pod of one container ``c``."""
    return await kubelet.run(kubelet.name(stem), Shape("c", {plugin.resource: count}))


def refused(cause: str) -> tuple[str, str, str]:
    return "Failed", "UnexpectedAdmissionError", cause


@row("16 (1)", {"calls": [2], "requests": [1], "seen": True, "listed": True, "alpha": True})
async def a_pod_with_two_devices(kubelet: Kubelet) -> object:
    """One Allocate with one request; the container sees the answer; both podresources services list it."""
    async with probe(kubelet.directory, "probe.test/two", devices("abcd")) as plugin:
        await kubelet.until_counts(plugin.resource, (4, 4))
        pod = await one(kubelet, plugin, "two", 2)
        (call,) = plugin.called(ALLOCATE)
        environment = await kubelet.environment(pod.name, "c")
        listed = await Lister(kubelet).pod(pod.name)
        alpha = await Lister(kubelet).raw_list("v1alpha1")
        found = [each for each in alpha.pod_resources if each.name == pod.name]
        await kubelet.delete(pod.name)
        return {
            "calls": [len(call.ids)],
            "requests": [call.size],
            "seen": environment.get("PROBE") == ",".join(sorted(call.ids)),
            "listed": listed == {"c": sorted(call.ids)},
            "alpha": len(found) == 1,
        }


@row("8", ["Running", 0, {"c": []}])
async def a_pod_that_wants_none(kubelet: Kubelet) -> object:
    """Quantity 0: no call."""
    async with probe(kubelet.directory, "probe.test/zero", devices("a")) as plugin:
        await kubelet.until_counts(plugin.resource, (1, 1))
        pod = await one(kubelet, plugin, "zero", 0)
        listed = await Lister(kubelet).pod(pod.name)
        await kubelet.delete(pod.name)
        return [pod.phase, len(plugin.called(ALLOCATE)), listed]


@row("8", ["Running", {"c": []}])
async def a_resource_that_nobody_registered(kubelet: Kubelet) -> object:
    """The kubelet has never heard of it, so the pod runs without a device."""
    pod = await kubelet.run(kubelet.name("nobody"), Shape("c", {"probe.test/nobody": 2}))
    listed = await Lister(kubelet).pod(pod.name)
    await kubelet.delete(pod.name)
    return [pod.phase, listed]


@row("8", refused("rpc error: code = ResourceExhausted desc = GPU 3 is on fire"))
async def allocate_that_is_refused(kubelet: Kubelet) -> object:
    """The plugin's code and text arrive in the pod's status, word for word."""
    async with probe(kubelet.directory, "probe.test/refuse", devices("a")) as plugin:
        await kubelet.until_counts(plugin.resource, (1, 1))
        plugin.refuse[ALLOCATE] = Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "GPU 3 is on fire")
        return told(await one(kubelet, plugin, "refuse"))


@row(
    "8, 14",
    alone=True,  # the end of anybody's pod frees what leaked
    expected=[
        ("Failed", "UnexpectedAdmissionError", "no containers return in allocation response"),
        refused("requested number of devices unavailable for probe.test/empty. Requested: 2, Available: 1"),
        "Running",
    ],
)
async def an_empty_answer(kubelet: Kubelet) -> object:
    """It leaks what was chosen, until another pod's Allocate fails or a pod ends."""
    async with probe(kubelet.directory, "probe.test/empty", devices("abc")) as plugin:
        await kubelet.until_counts(plugin.resource, (3, 3))
        plugin.answer = lambda ids: pb.AllocateResponse()
        *kind, cause = told(await one(kubelet, plugin, "empty", 2))
        seen: list[object] = [(*kind, cause.partition(" &")[0].strip())]  # the answer follows, as Go prints it
        plugin.answer = plain
        seen.append(told(await one(kubelet, plugin, "leaked", 2)))
        plugin.refuse[ALLOCATE] = Refusal(grpc.StatusCode.INTERNAL, "no")
        await one(kubelet, plugin, "recount", 1)
        del plugin.refuse[ALLOCATE]
        pod = await one(kubelet, plugin, "after", 2)
        await kubelet.delete(pod.name)
        return [*seen, pod.phase]


@row("8", refused("requested number of devices unavailable for probe.test/more. Requested: 3, Available: 2"))
async def more_than_there_are(kubelet: Kubelet) -> object:
    """The pod is refused without a call."""
    async with probe(kubelet.directory, "probe.test/more", devices("ab")) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        pod = await one(kubelet, plugin, "more", 3)
        assert not plugin.called(ALLOCATE)
        return told(pod)


@row("8", refused("no healthy devices present; cannot allocate unhealthy devices probe.test/sick"))
async def all_devices_unhealthy(kubelet: Kubelet) -> object:
    """As after a reboot, before the plugin is back."""
    async with probe(kubelet.directory, "probe.test/sick", devices("ab", "ab")) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 0))
        return told(await one(kubelet, plugin, "sick"))


@row("8, 3", ["Failed", "UnexpectedAdmissionError", "ResourceExhausted", "larger than max"])
async def an_answer_that_is_too_long(kubelet: Kubelet) -> object:
    """More than 4 MiB of answer is an error of that pod."""
    async with probe(kubelet.directory, "probe.test/long-answer", devices("a")) as plugin:
        await kubelet.until_counts(plugin.resource, (1, 1))
        answer = {"X": "x" * (4 * 1024 * 1024)}
        plugin.answer = lambda ids: pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse(envs=answer)])
        pod = await one(kubelet, plugin, "long-answer")
        words = ("ResourceExhausted", "larger than max")
        return [pod.phase, pod.reason, *(each for each in words if each in pod.message)]


@row("8", refused("rpc error: code = Canceled desc = grpc: the client connection is closing"))
async def the_stream_ends_during_allocate(kubelet: Kubelet) -> object:
    """The kubelet closes the connection, and the open call with it."""
    async with probe(kubelet.directory, "probe.test/cut", devices("a")) as plugin:
        await kubelet.until_counts(plugin.resource, (1, 1))
        hold = plugin.hold(ALLOCATE)
        name = kubelet.name("cut")
        await kubelet.run(name, Shape("c", {plugin.resource: 1}), settled=False)
        await plugin.until_called(ALLOCATE)
        plugin.end_streams()
        pod = await kubelet.until_pod(name, over)
        hold.release()
        return told(pod)


@row("8", ["Pending", "Running", None])
async def a_slow_allocate_is_waited_for(kubelet: Kubelet) -> object:
    """Allocate has no deadline: the pod waits for as long as the plugin takes."""
    async with probe(kubelet.directory, "probe.test/slow", devices("a")) as plugin:
        await kubelet.until_counts(plugin.resource, (1, 1))
        hold = plugin.hold(ALLOCATE)
        name = kubelet.name("slow")
        await kubelet.run(name, Shape("c", {plugin.resource: 1}), settled=False)
        call = await plugin.until_called(ALLOCATE)
        before = await kubelet.until_pod(name, lambda pod: True)
        hold.release()
        after = await kubelet.until_pod(name, lambda pod: pod.phase == "Running")
        await kubelet.delete(name)
        return [before.phase, after.phase, call.left]


_REUSED = {"calls": 5, "sidecar of init": True, "i2 of i1": True, "apart": True}


@row(
    "8, 16 (10)",
    since(v1_29={**_REUSED, "listed": ["c1", "c2"]}, v1_30={**_REUSED, "listed": ["c1", "c2", "side"]}),
)
async def init_containers_and_a_sidecar(kubelet: Kubelet) -> object:
    """What a plain init container had goes on to later containers; a sidecar and apps take it out for good. List has no
    init containers, and in 1.29 no sidecars either."""
    async with probe(kubelet.directory, "probe.test/reuse", devices("abcdef")) as plugin:
        await kubelet.until_counts(plugin.resource, (6, 6))
        counts = {"i1": ("init", 2), "side": ("sidecar", 1), "i2": ("init", 1), "c1": ("app", 1), "c2": ("app", 1)}
        shapes = [Shape(name, {plugin.resource: count}, kind) for name, (kind, count) in counts.items()]
        pod = await kubelet.run(kubelet.name("reuse"), *shapes)
        ids = {name: set(call.ids) for name, call in zip(counts, plugin.called(ALLOCATE), strict=True)}
        lasting = [ids["side"], ids["c1"], ids["c2"]]
        listed = await Lister(kubelet).pod(pod.name)
        await kubelet.delete(pod.name)
        return {
            "calls": len(plugin.called(ALLOCATE)),
            "sidecar of init": ids["side"] <= ids["i1"],
            "i2 of i1": ids["i2"] <= ids["i1"] - ids["side"],
            "apart": len(set().union(*lasting)) == sum(map(len, lasting)),
            "listed": sorted(listed or {}),
        }


@row("16 (29)", {"sidecars of init": True, "apart": True})
async def two_sidecars(kubelet: Kubelet) -> object:
    """An init container with three, then sidecars with one and two of them, then two apps."""
    async with probe(kubelet.directory, "probe.test/sidecars", devices("abcdef")) as plugin:
        await kubelet.until_counts(plugin.resource, (6, 6))
        counts = {"i": ("init", 3), "s1": ("sidecar", 1), "s2": ("sidecar", 2), "c1": ("app", 1), "c2": ("app", 2)}
        shapes = [Shape(name, {plugin.resource: count}, kind) for name, (kind, count) in counts.items()]
        pod = await kubelet.run(kubelet.name("sidecars"), *shapes)
        ids = {name: set(call.ids) for name, call in zip(counts, plugin.called(ALLOCATE), strict=True)}
        lasting = [ids[each] for each in ("s1", "s2", "c1", "c2")]
        await kubelet.delete(pod.name)
        return {
            "sidecars of init": ids["s1"] | ids["s2"] == ids["i"],
            "apart": len(set().union(*lasting)) == sum(map(len, lasting)),
        }


@row("16 (3)", {"calls": 1, "same": True, "other": True})
async def a_container_that_starts_again(kubelet: Kubelet) -> object:
    """No Allocate: the cached answer. Another pod gets another id."""
    async with probe(kubelet.directory, "probe.test/again", devices("ab")) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        pod = await one(kubelet, plugin, "again")
        before = (await kubelet.environment(pod.name, "c"))["PROBE"]
        await kubelet.restart_container(pod.name, "c")
        after = (await kubelet.environment(pod.name, "c"))["PROBE"]
        calls = len(plugin.called(ALLOCATE))
        second = await one(kubelet, plugin, "again-other")
        other = (await kubelet.environment(second.name, "c"))["PROBE"]
        for each in (pod, second):
            await kubelet.delete(each.name)
        return {"calls": calls, "same": before == after, "other": other != before}


# ---------------------------------------------------------------- section 9: merging


@row(
    "9, 16 (31)",
    {"one of both": True, "own": {"RED": "1", "BLUE": "1"}, "cdi": {"CDI_R": "1", "CDI_B": "1", "CDI_X": "1"}},
)
async def two_resources_in_one_container(kubelet: Kubelet) -> object:
    """The same variable from two resources is a coin toss; CDI names are united, without duplicates."""

    def answer(colour: str) -> Callable[[Sequence[str]], pb.AllocateResponse]:
        environment = {"SAME": colour, colour.upper(): "1"}
        names = [f"probe.test/card={colour}", "probe.test/card=both"]
        cdi = [pb.CDIDevice(name=each) for each in names]
        response = pb.ContainerAllocateResponse(envs=environment, cdi_devices=cdi)
        return lambda ids: pb.AllocateResponse(container_responses=[response])

    cards = {"red": {"CDI_R": "1"}, "blue": {"CDI_B": "1"}, "both": {"CDI_X": "1"}}
    async with (
        kubelet.spec("probe.test/card", cards),
        probe(kubelet.directory, "probe.test/red", devices("a")) as red,
        probe(kubelet.directory, "probe.test/blue", devices("a")) as blue,
    ):
        red.answer, blue.answer = answer("red"), answer("blue")
        for each in (red, blue):
            await kubelet.until_counts(each.resource, (1, 1))
        pod = await kubelet.run(kubelet.name("merged"), Shape("c", {red.resource: 1, blue.resource: 1}))
        environment = await kubelet.environment(pod.name, "c")
        await kubelet.delete(pod.name)
        return {
            "one of both": environment.get("SAME") in ("red", "blue"),
            "own": {name: environment.get(name) for name in ("RED", "BLUE")},
            "cdi": {name: value for name, value in environment.items() if name.startswith("CDI_")},
        }


@row("9, 16 (2)", {"FIRST": "1", "SECOND": None, "CARD": "1"})
async def only_the_first_response_counts(kubelet: Kubelet) -> object:
    """Further responses are not looked at; a CDI name is resolved on the node."""
    async with (
        kubelet.spec("probe.test/gpu", {"0": {"CARD": "1"}}),
        probe(kubelet.directory, "probe.test/first", devices("a")) as plugin,
    ):
        await kubelet.until_counts(plugin.resource, (1, 1))
        first = pb.ContainerAllocateResponse(envs={"FIRST": "1"}, cdi_devices=[pb.CDIDevice(name="probe.test/gpu=0")])
        second = pb.ContainerAllocateResponse(envs={"SECOND": "1"})
        plugin.answer = lambda ids: pb.AllocateResponse(container_responses=[first, second])
        pod = await one(kubelet, plugin, "first")
        environment = await kubelet.environment(pod.name, "c")
        await kubelet.delete(pod.name)
        return {name: environment.get(name) for name in ("FIRST", "SECOND", "CARD")}


@row("8", {"pods": ["Running"] * 3, "apart": True})
async def pods_at_once(kubelet: Kubelet) -> object:
    """Pods are admitted one after another, and never get the same id."""
    async with probe(kubelet.directory, "probe.test/race", devices("abc")) as plugin:
        await kubelet.until_counts(plugin.resource, (3, 3))
        pods: list[PodSeen] = []

        async def run(stem: str) -> None:
            pods.append(await one(kubelet, plugin, stem))

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(run, f"race-{number}")
        ids = [call.ids for call in plugin.called(ALLOCATE)]
        for each in pods:
            await kubelet.delete(each.name)
        return {"pods": [each.phase for each in pods], "apart": len(set(ids)) == 3}
