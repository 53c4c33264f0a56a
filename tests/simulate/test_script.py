"""The language of scripts: what each line means, and how its errors are told."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from reactor.cli import main
from reactor.simulate import steps as do
from reactor.simulate.script import WORDS, ScriptError, full_name, parse

DOCUMENT = (Path(__file__).parents[2] / "docs/simulate.md").read_text()


def only(text: str) -> do.Action:
    (step,) = parse(text).steps
    return step.action


def problems(text: str) -> dict[int, str]:
    with pytest.raises(ScriptError) as found:
        parse(text)
    return dict(found.value.problems)


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("say  GPUs appear: # 8 of them ", do.Say("GPUs appear: # 8 of them")),
        ("pod a gpu=2", do.RunPod("a", {"nvidia.com/gpu": 2})),
        ("pod a.b-1 gpu=1 example.com/nic=3", do.RunPod("a.b-1", {"nvidia.com/gpu": 1, "example.com/nic": 3})),
        ("xid 7 79", do.Xid(7, 79)),
        ("unplug 0", do.Move("unplug", 0)),
        ("plug 0", do.Move("plug", 0)),
        ("lose 3", do.Move("lose", 3)),
        ("find 3", do.Move("find", 3)),
        ("kubelet restart", do.Kubelet("restart")),
        ("kubelet restart 1.5", do.Kubelet("restart", 1.5)),
        ("kubelet stop", do.Kubelet("stop")),
        ("agent restart", do.RestartAgent()),
        ("wait 0.25", do.Wait(0.25)),
        ("show", do.Show()),
        ("expect gpu healthy=8", do.Expect(do.Counts("nvidia.com/gpu", healthy=8))),
        (
            "expect gpu.shared  unhealthy=4 healthy=0 within 20",
            do.Expect(do.Counts("nvidia.com/gpu.shared", 0, 4), 20.0),
        ),
        ("expect card 3 absent", do.Expect(do.CardIs(3, "absent"))),
        ("expect card 3 healthy within 1", do.Expect(do.CardIs(3, "healthy"), 1.0)),
        (
            "expect log config.rejected c.yaml:7: within 3",
            do.Expect(do.Logged("config.rejected", "c.yaml:7: within 3")),
        ),
        ("expect log xid.reported", do.Expect(do.Logged("xid.reported", ""))),
    ],
)
def test_a_line_is_a_step(line: str, action: do.Action):
    assert only(line) == action


def test_a_pod_can_be_expected_and_deleted_once_it_is_there():
    steps = parse("pod a gpu=1\nexpect pod a running\ndelete a\npod a gpu=2\nexpect pod a rejected within 2").steps
    assert [step.action for step in steps] == [
        do.RunPod("a", {"nvidia.com/gpu": 1}),
        do.Expect(do.PodIs("a", "running")),
        do.DeletePod("a"),
        do.RunPod("a", {"nvidia.com/gpu": 2}),
        do.Expect(do.PodIs("a", "rejected"), 2.0),
    ]


def test_steps_know_their_lines_whatever_stands_between():
    script = parse("# a comment\n\n  wait 1\n\n# another\nconfig <<X\nversion: v1\nX\nshow\n")
    assert [(step.line, step.text) for step in script.steps] == [(3, "wait 1"), (6, "config <<X"), (9, "show")]


def test_a_config_is_taken_as_it_stands():
    text = "config <<END\nversion: v1\n\n# kept\nflags:\n  migStrategy: none\n  END\nwait 1"
    assert parse(text).steps[0].action == do.WriteConfig("version: v1\n\n# kept\nflags:\n  migStrategy: none\n")


def test_a_config_may_be_empty():
    assert only("config <<END\nEND") == do.WriteConfig("")


def test_the_node_is_eight_gpus_unless_the_script_says_otherwise():
    assert parse("show").node == "8xH100"
    assert parse("node 2xT4+1xL4\nxid 2 79").node == "2xT4+1xL4"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("reboot", "'reboot' is no step; there are agent, config, delete,"),
        ("say", "write what to say"),
        ("pod a", "write pod NAME RESOURCE=N"),
        ("pod A gpu=1", "'A' is not the name of a pod"),
        ("pod a gpu", "'gpu' asks for nothing: write RESOURCE=N"),
        ("pod a gpu=0", "'0' is not a number of devices: write a number from 1 on"),
        ("pod a gpu=1 nvidia.com/gpu=1", "a resource is asked for twice"),
        ("pod a -=1", "'-' is not a resource"),
        ("delete a", "there is no pod a at this point"),
        ("delete a b", "write delete NAME"),
        ("xid 8 79", "'8' is not a card of 8xH100: write a number 0 to 7"),
        ("xid 0 -1", "'-1' is not an XID: write a number from 1 on"),
        ("xid 0", "write xid CARD CODE"),
        ("unplug", "write unplug CARD"),
        ("plug two", "'two' is not a card of 8xH100"),
        ("kubelet", "write kubelet restart [SECONDS]"),
        ("kubelet stop 3", "write kubelet restart [SECONDS]"),
        ("kubelet start", "the kubelet is up at this point"),
        ("kubelet explode", "write kubelet restart [SECONDS]"),
        ("agent stop", "write agent restart"),
        ("wait", "write wait SECONDS"),
        ("wait long", "'long' is not a number of seconds"),
        ("wait -1", "'-1' is not a number of seconds"),
        ("wait nan", "'nan' is not a number of seconds"),
        ("wait 1e9", "'1e9' is not a number of seconds up to 3600"),
        ("show all", "show stands alone"),
        ("expect gpu", "write expect RESOURCE healthy=N"),
        ("expect gpu healthy", "'healthy' is not healthy=N or unhealthy=N"),
        ("expect gpu healthy=1 healthy=2", "'healthy=2' is not healthy=N or unhealthy=N, once each"),
        ("expect gpu ill=1", "'ill=1' is not healthy=N or unhealthy=N"),
        ("expect gpu healthy=x", "'x' is not a number of ids"),
        ("expect gpu/ healthy=1", "'gpu/' is not a resource"),
        ("expect card 3 ill", "write expect RESOURCE healthy=N"),
        ("expect card 9 healthy", "'9' is not a card of 8xH100"),
        ("expect pod a running", "there is no pod a at this point"),
        ("expect log Config", "'Config' is not the name of a log event"),
        ("expect card 3 healthy within soon", "'soon' is not a number of seconds"),
        ("config", "write config <<END"),
        ("config <<", "write config <<END"),
        ("config <<A B", "write config <<END"),
        ("config <<END\nversion: v1", "the config begins here and never ends: write a line that is END"),
        ("node 8xB900", "'8xB900' is not a count and a product"),
        ("node", "write which cards the node has"),
    ],
)
def test_a_wrong_line_is_told_with_what_to_write(line: str, problem: str):
    assert problems(f"wait 0\n{line}" if not line.startswith("node") else f"\n{line}")[2].startswith(problem)


def test_every_error_is_told_at_once():
    assert sorted(problems("wait x\nwait 1\nxid 99 1\n\nfoo")) == [1, 3, 5]


def test_the_node_cannot_change_under_the_script():
    assert problems("wait 1\nnode 2xT4") == {2: "node comes before every other step"}


def test_a_kubelet_that_was_stopped_can_only_be_started():
    assert parse("kubelet stop\nkubelet start\nkubelet restart").steps[1].action == do.Kubelet("start")
    assert problems("kubelet stop\nkubelet restart") == {2: "the kubelet is down at this point"}


def test_a_pod_of_the_same_name_is_refused_while_the_first_is_there():
    assert problems("pod a gpu=1\npod a gpu=1") == {
        2: "pod a is there already: delete it first, or choose another name"
    }


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "node 8xH100"])
def test_a_script_without_a_step_is_refused(text: str):
    assert problems(text) == {1: "the script has no step"}


def test_the_error_as_text_names_each_line():
    with pytest.raises(ScriptError, match=r"line 1: 'foo' is no step; .*; line 2: 'bar' is no step"):
        parse("foo\nbar")


def test_a_short_name_is_one_of_nvidia():
    assert full_name("gpu") == "nvidia.com/gpu"
    assert full_name("example.com/gpu") == "example.com/gpu"


@pytest.mark.parametrize("word", WORDS)
def test_every_step_is_explained(word: str, capsys: pytest.CaptureFixture[str]):
    assert f"`{word} " in DOCUMENT or f"`{word}`" in DOCUMENT
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    assert re.search(rf"^  ([a-z]+ CARD, )?{word} ", capsys.readouterr().out, re.MULTILINE)


def test_the_example_of_the_document_is_a_script():
    _, _, rest = DOCUMENT.partition("A script that checks")
    assert len(parse(rest.split("```")[1]).steps) == 10


def test_the_built_in_story_is_a_script():
    script = parse(files("reactor.simulate").joinpath("story.txt").read_text())
    assert script.node == "8xH100"
    assert sum(isinstance(step.action, do.Say) for step in script.steps) >= 8
