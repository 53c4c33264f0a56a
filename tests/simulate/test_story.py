"""``gpu-reactor simulate``: the real agent in a process of its own, on real sockets, in real time."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import trio

from reactor.model.settings import Settings
from reactor.simulate import story as told
from reactor.simulate.kubelet.plugin import KubeletPanic
from reactor.simulate.script import parse
from reactor.simulate.sight import Sight
from reactor.simulate.teller import Teller

ACTS = """\
node 2xT4
say The node starts.
expect gpu healthy=2 unhealthy=0
pod a gpu=1
expect pod a running
say It goes on under another agent.
agent restart
expect gpu healthy=2
expect log agent.started
expect card 1 healthy
say The kubelet is away for a while.
kubelet stop
expect log kubelet.vanished
kubelet start
expect log plugin.registered
expect gpu healthy=2
xid 1 79
expect card 1 unhealthy
pod b gpu=1
expect pod b rejected
show
"""


def test_a_script_is_followed_and_told(simulate):
    run = simulate(ACTS)
    run.finish(within=20)
    assert (run.code, run.errors) == (0, "")
    assert "--- 1. The node starts." in run.told
    assert "> xid 1 79" in run.told
    assert "XID 79 (restart) on GPU 1: unhealthy from now, 1 id affected" in run.told
    assert "the kubelet now sees: nvidia.com/gpu 1 healthy + 1 unhealthy (1 in use)" in run.told
    assert "all 10 expectations came true" in run.told
    assert run.told.index("agent.stopped") < run.told.index("What the kubelet saw at the end")
    assert run.left_behind() == []


def test_what_was_expected_in_vain_is_told_and_makes_the_code_1(simulate):
    run = simulate("node 1xT4\nexpect gpu healthy=2 within 5\nexpect card 0 healthy\n")
    run.finish(within=20)
    assert run.code == 1
    missed = "MISSED  line 2: expect gpu healthy=2 within 5: nvidia.com/gpu has 1 healthy"
    assert run.told.count(missed) == 2  # where it happened, and at the end
    assert "ok      card 0 healthy" in run.told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything(simulate, number):
    run = simulate("node 1xT4\nexpect gpu healthy=1\nwait 60\n")
    run.until("ok      gpu healthy=1")
    run.signal(number)
    run.finish(within=10)
    assert (run.code, run.errors) == (130, "")
    assert "gpu-reactor stops" in run.told
    assert run.left_behind() == []


def test_a_signal_before_the_agent_runs_ends_everything(simulate):
    run = simulate("say Nothing yet.\nwait 60\n")
    run.until("A node with")
    run.signal(signal.SIGINT)
    run.finish(within=10)
    assert (run.code, run.errors) == (130, "")
    assert run.left_behind() == []


def test_it_ends_when_nobody_reads(simulate):
    run = simulate("node 1xT4\nexpect gpu healthy=1\nkubelet restart\nexpect gpu healthy=1\nwait 60\n")
    run.until("A node with")
    run.hang_up()
    run.finish(within=10)
    assert (run.code, run.errors) == (1, "")
    assert run.left_behind() == []


def test_a_script_with_errors_is_not_begun(tmp_path: Path, capsys):
    script = tmp_path / "mine"
    script.write_text("wait 1\nreboot\nxid 9 79\n")
    assert told.main(script, colour=False) == 2
    out, errors = capsys.readouterr()
    assert out == ""
    assert errors.splitlines()[0].startswith(f"{script}:2: 'reboot' is no step; there are ")
    assert errors.splitlines()[1] == f"{script}:3: '9' is not a card of 8xH100: write a number 0 to 7"


def test_a_script_that_cannot_be_read_is_wrong_usage(tmp_path: Path, capsys):
    assert told.main(tmp_path / "none", colour=False) == 2
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert told.main(tmp_path / "binary", colour=False) == 2
    missing, binary = capsys.readouterr().err.splitlines()
    assert missing == f"gpu-reactor simulate: {tmp_path}/none cannot be read: No such file or directory"
    assert "cannot be read" in binary


class PanickedStage:
    """A node whose kubelet did not survive what the agent told it."""

    root = Path("/node")
    settings = Settings()
    started = True
    panicked = "device map lacks an id"

    async def act(self, action):
        raise KubeletPanic(self.panicked)

    async def look(self):
        return Sight(cards=(), listed={}, used={}, pods={})

    async def stop(self):
        pass


async def test_what_would_have_ended_a_real_kubelet_is_told_and_makes_the_code_1():
    written: list[str] = []
    teller = Teller(written.append, colour=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(teller.run, nursery.cancel_scope)
        code = await told.Player(parse("pod a gpu=1"), PanickedStage(), teller).play()
        await teller.close()
    assert code == 1
    text = "".join(written)
    assert "line 1: pod a gpu=1: the agent would have ended a real kubelet: device map lacks an id" in text
    assert "\x1b[1;31m  MISSED  the agent would have ended a real kubelet: device map lacks an id\x1b[0m" in text


# ---------------------------------------------------------------- make demo


@pytest.mark.story
def test_the_built_in_story_ends_well(story):
    assert story.errors == ""
    assert "MISSED" not in story.told
    assert story.code == 0


@pytest.mark.story
def test_the_built_in_story_shows_what_it_promises(story):
    rest = story.told
    for scene in (
        "8 GPUs: 8 new",
        "the kubelet now sees: nvidia.com/gpu 8 healthy\n",
        "2 ids of nvidia.com/gpu on 2 GPUs given to a container",
        "nvidia.com/gpu 0 healthy + 2 unhealthy (2 in use), nvidia.com/gpu.shared 24 healthy + 8 unhealthy",
        "2 ids of nvidia.com/gpu free, default/train had them",
        "XID 79 (restart) on GPU 6: unhealthy from now, 4 ids affected",
        "kubelet was told of nvidia.com/gpu.shared: 28 healthy, 4 unhealthy",
        "kubelet does not answer",
        "kubelet accepts connections",
        "GPU 3 is gone",
        "GPU 3: healthy again",
        "config rejected, what is in force stays",
        "config.yaml:7:17: sharing.timeSlicing.resources[0].replicas",
        "What the kubelet saw at the end",
        "nvidia.com/gpu.shared       28          4       1",
    ):
        _, found, rest = rest.partition(scene)
        assert found, f"{scene!r} does not come where it should"


@pytest.mark.story
def test_the_built_in_story_leaves_nothing_behind(story):
    assert story.left_behind() == []
