"""Register, the dial-back, and what a second Register does."""

from __future__ import annotations

import socket
from contextlib import contextmanager

import grpc
import trio

from reactor.kubelet._pb import deviceplugin_pb2 as pb
from tests.contract.table.plugin import OPTIONS, PREFERRED, WATCH, ProbePlugin, Refusal, Registered, devices, probe
from tests.contract.table.row import row, since
from tests.contract.table.under_test import Kubelet, Shape

NAMES = {
    "probe.test/mig-1g.10gb": True,
    "probe.test/GPU": True,
    "probe.test/" + "x" * 63: True,
    "probe.test/" + "x" * 64: False,
    "PROBE.test/gpu": False,
    "probe.test/1c.2g+me": False,
    "a/b/c": False,
    "plain": False,
    "requests.probe.test/gpu": False,
    "sub.kubernetes.io/gpu": False,
}


@row(
    "3", {name: "taken" if taken else f'UNKNOWN: the ResourceName "{name}" is invalid' for name, taken in NAMES.items()}
)
async def names_that_register_takes(kubelet: Kubelet) -> object:
    """A resource name is a qualified name with a prefix of its own; what is taken has got as far as the dial-back."""

    async def ask(name: str) -> str:
        # The dial-back has nobody to find, so a name that is taken ends with our own deadline or with the kubelet's.
        plugin = ProbePlugin(kubelet.directory, name, socket="nobody.sock")
        answer = await plugin.register(deadline=max(0.3, kubelet.quiet / 2))
        return f"{answer.code}: {answer.text}" if "invalid" in answer.text else "taken"

    return {name: await ask(name) for name in NAMES}


@row("3", ["UNKNOWN", 'requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]'])
async def another_api_version(kubelet: Kubelet) -> object:
    """Only v1beta1 is spoken."""
    answer = await ProbePlugin(kubelet.directory, "probe.test/version").register(version="v1alpha")
    return [answer.code, answer.text]


def by_the_dial_timeout(answer: Registered, kubelet: Kubelet) -> bool:
    """Not before; what comes on top is the machine's."""
    return kubelet.dial_timeout - 1 < answer.seconds < kubelet.dial_timeout + 5


@row("3", ["UNKNOWN", "failed to dial device plugin: context deadline exceeded", "by the dial timeout"])
async def no_socket_to_dial(kubelet: Kubelet) -> object:
    """The dial-back goes on for ten seconds, within Register."""
    answer = await ProbePlugin(kubelet.directory, "probe.test/nowhere").register()
    near = by_the_dial_timeout(answer, kubelet)
    return [answer.code, answer.text, "by the dial timeout" if near else answer.seconds]


@row("3", ["UNKNOWN", "failed to dial device plugin: context deadline exceeded", "by the dial timeout"])
async def a_socket_that_says_nothing(kubelet: Kubelet) -> object:
    """Accepting a connection is not enough: who speaks no HTTP/2 is not there."""
    with _mute(kubelet, "mute.sock"):
        answer = await ProbePlugin(kubelet.directory, "probe.test/mute", socket="mute.sock").register()
    near = by_the_dial_timeout(answer, kubelet)
    return [answer.code, answer.text, "by the dial timeout" if near else answer.seconds]


@contextmanager
def _mute(kubelet: Kubelet, name: str):
    path = kubelet.directory / name
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@row("3", ["OK", "at the second try"])
async def a_socket_that_comes_late(kubelet: Kubelet) -> object:
    """The dial-back tries again after a second or so, so a socket may come after the Register."""
    plugin = ProbePlugin(kubelet.directory, "probe.test/late")
    plugin.send(devices("a"))
    found = []
    async with trio.open_nursery() as nursery:

        async def register() -> None:
            found.append(await plugin.register())

        nursery.start_soon(register)
        await trio.sleep(0.2)
        plugin.serve()
    await plugin.until_streams(1)
    await plugin.close()
    return [found[0].code, "at the second try" if 0.5 < found[0].seconds < 6 else found[0].seconds]


@row("3", {"order": [OPTIONS, WATCH], "counts": (2, 2)})
async def options_come_before_the_stream(kubelet: Kubelet) -> object:
    """The options are asked for within Register, the stream is opened after it."""
    async with probe(kubelet.directory, "probe.test/order", devices("ab")) as plugin:
        counts = await kubelet.until_counts(plugin.resource, (2, 2))
        return {"order": [each.method for each in plugin.calls], "counts": counts}


@row("3", {"preferred": 0, "phase": "Running"})
async def options_of_the_request(kubelet: Kubelet) -> object:
    """Only GetDevicePluginOptions counts: what the request says of options is not looked at."""
    async with probe(kubelet.directory, "probe.test/options", devices("ab"), registered=False) as plugin:
        await plugin.register(options=pb.DevicePluginOptions(get_preferred_allocation_available=True))
        await kubelet.until_counts(plugin.resource, (2, 2))
        pod = await kubelet.run(kubelet.name("options"), Shape("c", {plugin.resource: 1}))
        await kubelet.delete(pod.name)
        return {"preferred": len(plugin.called(PREFERRED)), "phase": pod.phase}


@row(
    "3, 16 (13)",
    {
        "code": "UNKNOWN",
        "text": "failed to get device plugin options: rpc error: code = Internal desc = no options today",
        "calls": [OPTIONS],
        "counts": None,
    },
    window=True,
)
async def failing_options(kubelet: Kubelet) -> object:
    """Register fails with the plugin's own words; there is one call, no stream, and no resource on the node."""
    async with probe(kubelet.directory, "probe.test/no-options", devices("a"), registered=False) as plugin:
        plugin.refuse[OPTIONS] = Refusal(grpc.StatusCode.INTERNAL, "no options today")
        answer = await plugin.register()
        await trio.sleep(kubelet.quiet)
        calls = [each.method for each in plugin.calls]
        return {
            "code": answer.code,
            "text": answer.text,
            "calls": calls,
            "counts": await kubelet.counts(plugin.resource),
        }


@row("3", since(v1_29="for ever", v1_35="until the plugin's deadline"))
async def hanging_options(kubelet: Kubelet) -> object:
    """From 1.35 the deadline of the plugin's Register is that of the options call too; before, it has none."""
    async with probe(kubelet.directory, "probe.test/hang", registered=False) as plugin:
        hold = plugin.hold(OPTIONS)
        answer = await plugin.register(deadline=max(0.5, kubelet.quiet))
        hold.release()
        assert answer.code == "DEADLINE_EXCEEDED", answer
        call = await plugin.until_called(OPTIONS)
        return "for ever" if call.left is None else "until the plugin's deadline"


@row("3", "taken")
async def an_endpoint_that_leads_out(kubelet: Kubelet) -> object:
    """The endpoint is joined to the directory and not looked at."""
    inner = kubelet.directory / "inner"
    inner.mkdir(exist_ok=True)
    async with probe(inner, "probe.test/out", devices("a"), registered=False, socket="p.sock") as plugin:
        plugin.directory = kubelet.directory
        answer = await plugin.register(endpoint="../device-plugins/inner/p.sock")
        plugin.directory = inner
        return "taken" if answer.ok else answer.text


# ---------------------------------------------------------------- section 4: a second Register


@row(
    "4",
    since(
        v1_29={"answer": "OK", "streams": 2, "after its end": (2, 0), "the socket again": "OK", "another": (2, 2)},
        v1_37={
            "answer": "device plugin already connected: SOCKET",
            "streams": 1,
            "after its end": (2, 2),
            "the socket again": "device plugin already connected: SOCKET",
            "another": (2, 2),
        },
    ),
)
async def register_twice_on_one_socket(kubelet: Kubelet) -> object:
    """Up to 1.36 a second stream. From 1.37 refused; the live connection is forgotten and its end goes unnoticed; that
    socket is refused for as long as the kubelet lives, and another one is taken."""
    plugin = ProbePlugin(kubelet.directory, "probe.test/twice")
    plugin.send(devices("ab"))

    def told(answer: Registered) -> str:
        return answer.text.replace(answer.text.rpartition(" ")[2], "SOCKET") if answer.text else answer.code

    plugin.serve()
    await plugin.register()
    await kubelet.until_counts(plugin.resource, (2, 2))
    answer = await plugin.register()
    if not kubelet.version.many_endpoints:
        await plugin.until_streams(2)
    await trio.sleep(kubelet.quiet)
    seen = {"answer": told(answer), "streams": plugin.streams}
    await plugin.close()
    after = (2, 2) if kubelet.version.many_endpoints else (2, 0)
    await trio.sleep(kubelet.quiet)
    seen["after its end"] = await kubelet.until_counts(plugin.resource, after)
    plugin.serve()
    seen["the socket again"] = told(await plugin.register())
    if not kubelet.version.many_endpoints:  # an end that is noticed late takes the next one down
        await kubelet.until_counts(plugin.resource, (2, 2))
        await plugin.close()
        await kubelet.until_counts(plugin.resource, (2, 0))
    await plugin.close()
    async with probe(kubelet.directory, plugin.resource, devices("ab")) as other:
        seen["another"] = await kubelet.until_counts(other.resource, (2, 2))
    return seen


@row("4", since(v1_29=[(2, 0), 0], v1_37=[(2, 2), 1]))
async def the_old_instance_leaves(kubelet: Kubelet) -> object:
    """Up to 1.36 the end of the old instance takes the new one down with it; from 1.37 the new one stays."""
    async with (
        probe(kubelet.directory, "probe.test/handover", devices("ab")) as old,
        probe(kubelet.directory, "probe.test/handover", devices("ab")) as new,
    ):
        await kubelet.until_counts(new.resource, (2, 2))
        await old.close()
        await old.until_streams(0)
        counts = (2, 2) if kubelet.version.many_endpoints else (2, 0)
        if not kubelet.version.many_endpoints:
            await new.until_streams(0)
        return [await kubelet.until_counts(new.resource, counts), new.streams]


@row("4", [(1, 1), (2, 2), (1, 1)])
async def two_instances_feed_one_list(kubelet: Kubelet) -> object:
    """Both streams live, and the list is what was sent last, by whichever."""
    async with probe(kubelet.directory, "probe.test/both", devices("a")) as old:
        seen = [await kubelet.until_counts(old.resource, (1, 1))]
        async with probe(kubelet.directory, "probe.test/both", devices("ab")):
            seen.append(await kubelet.until_counts(old.resource, (2, 2)))
            old.send(devices("b"))
            seen.append(await kubelet.until_counts(old.resource, (1, 1)))
    return seen


@row("4", ["new", "new"])
async def allocate_goes_to_the_latest(kubelet: Kubelet) -> object:
    """Of two live instances the one that registered last is asked, whoever sent the last list."""
    async with (
        probe(kubelet.directory, "probe.test/latest", devices("ab")) as old,
        probe(kubelet.directory, "probe.test/latest", devices("ab")) as new,
    ):
        asked = []
        for stem in ("latest-1", "latest-2"):
            await kubelet.until_counts(old.resource, (2, 2))
            pod = await kubelet.run(kubelet.name(stem), Shape("c", {old.resource: 1}))
            asked.append("new" if len(new.called("Allocate")) > len(asked) else f"old ({pod.phase})")
            old.send(devices("ab"))
        return asked


@row("4", since(v1_29=[(2, 2), "UnexpectedAdmissionError"], v1_37=[(2, 0), "UnexpectedAdmissionError"]))
async def a_failed_register_over_a_live_plugin(kubelet: Kubelet) -> object:
    """Up to 1.36 the live connection is forgotten: its end goes unnoticed, and a dead plugin is advertised healthy."""
    async with probe(kubelet.directory, "probe.test/forgotten", devices("ab")) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        other = ProbePlugin(kubelet.directory, plugin.resource, socket="not-there.sock")
        answer = await other.register()
        assert not answer.ok
        await plugin.close()
        if not kubelet.version.many_endpoints:
            await trio.sleep(kubelet.quiet)
        counts = await kubelet.until_counts(plugin.resource, (2, 0) if kubelet.version.many_endpoints else (2, 2))
        pod = await kubelet.run(kubelet.name("forgotten"), Shape("c", {plugin.resource: 1}))
        return [counts, pod.reason]


@row("4", [(2, 0), (2, 2)])
async def a_stream_that_ends_is_healed_by_register(kubelet: Kubelet) -> object:
    """The kubelet never opens a stream again by itself; another Register does it."""
    async with probe(kubelet.directory, "probe.test/heal", devices("ab")) as plugin:
        await kubelet.until_counts(plugin.resource, (2, 2))
        plugin.end_streams()
        await plugin.until_streams(0)
        seen = [await kubelet.until_counts(plugin.resource, (2, 0))]
        await plugin.register()
        seen.append(await kubelet.until_counts(plugin.resource, (2, 2)))
        assert len(plugin.called(WATCH)) == 2, plugin.calls
        return seen
