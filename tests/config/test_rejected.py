"""Where and how texts are refused: all faults at once, each with its place and what was meant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import inspect

from reactor.config.document import MAX_BYTES, MAX_DEPTH, MAX_NODES
from reactor.config.schema import File
from reactor.config.values import MAX_RESOURCES
from tests.config.texts import UUID, accepted, one_problem, rejected, slicing


def test_a_misplaced_key_is_told_where_it_belongs() -> None:
    """CFG-01"""
    text = "version: v1\nflags: {renameByDefault: true}\n" + slicing("{name: nvidia.com/gpu, replicas: 8}")
    assert one_problem(text) == (
        "c.yaml:2:9: flags.renameByDefault: unknown key 'renameByDefault' here, "
        "it belongs at sharing.timeSlicing.renameByDefault"
    )


def test_a_misspelt_key_is_told_what_was_meant() -> None:
    """CFG-02"""
    text = "version: v1\nsharring:\n  timeSlicing: {resources: [{name: gpu, replicas: 2}]}\n"
    assert one_problem(text) == "c.yaml:2:1: sharring: unknown key 'sharring', did you mean 'sharing'?"


def test_a_slip_of_case_is_an_error_everywhere() -> None:
    """CFG-05"""
    text = "Version: v1\nsharing: {timeSlicing: {RenameByDefault: true, resources: [{name: gpu, Replicas: 2}]}}"
    assert [line.rsplit("did you mean ", 1)[1] for line in rejected(text)] == [
        "'version'?",
        "'renameByDefault'?",
        "'replicas'?",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  config.yaml: |\n    version: v1\n",
        "metadata: {name: x}\ndata: {}\n",
        "kind: ConfigMap\ndata: {config.yaml: 'version: v1'}\n",
        "apiVersion: v1\nkind: List\nitems: []\nversion: v1\n",
        "data:\n  config.yaml: |\n    version: v1\n",
    ],
)
def test_a_whole_manifest_is_called_by_its_name(text: str) -> None:
    """CFG-03"""
    assert "whole Kubernetes manifest" in one_problem(text)


@pytest.mark.parametrize("text", ["config.yaml: |\n  version: v1\n", "{default: 'version: v1', small: 'version: v1'}"])
def test_the_files_of_a_config_map_are_no_config(text: str) -> None:
    """CFG-03: its data alone, as a template or a dump of it has them."""
    assert "a mapping of whole files, not a config" in one_problem(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("mig-strategy: single", "here, it belongs at flags.migStrategy"),
        ("flags: {MIG_STRATEGY: single}", "did you mean 'migStrategy'?"),
        ("flags: {device-list-strategy: envvar}", "here, it belongs at flags.plugin.deviceListStrategy"),
        ("sharing: {time-slicing: {}}", "did you mean 'timeSlicing'?"),
    ],
)
def test_a_key_spelt_as_its_flag_or_its_variable_is_told_its_name(text: str, meant: str) -> None:
    """CFG-01, CFG-02"""
    assert one_problem(text).endswith(meant)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        (slicing("{name: gpu, replicas: '4'}"), True),
        ("select: {exclude: {indices: ['0']}}", True),
        ("imex: {channelIDs: ['0']}", True),
        ("health: {xids: {reset: ['79']}}", True),
        (slicing("{name: gpu, replicas: 99999999999999999999}"), False),
        (slicing("{name: gpu, replicas: \uff14}"), False),
        (slicing("{name: gpu, replicas: 010}"), False),
    ],
)
def test_only_a_number_in_quotes_is_told_to_lose_them(text: str, quoted: bool) -> None:
    """CFG-07"""
    assert one_problem(text).endswith("write it without quotes") is quoted


@pytest.mark.parametrize("path", ["etc", "../../etc", "/opt/../etc", "/..", '"/usr/bin/x\\n"', '"/a\\tb"'])
@pytest.mark.parametrize("key", ["nvidiaDriverRoot", "nvidiaDevRoot", "mpsRoot"])
def test_a_path_is_absolute_and_goes_down_only(key: str, path: str) -> None:
    """SEC-04"""
    assert f"flags.{key}: must be " in one_problem(f"flags: {{{key}: {path}}}")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_called_by_its_name(encoding: str) -> None:
    """CFG-19: an editor of another system saved it."""
    assert one_problem("\ufeffversion: v1".encode(encoding)) == "c.yaml:1:1: the file is UTF-16: save it as UTF-8"


def test_a_template_that_was_not_rendered_is_taken_for_one() -> None:
    """CFG-19"""
    problem = one_problem("version: {{ .Values.version }}\n")
    assert problem.startswith("c.yaml:1:11: version: a key must be text")
    assert "of a template, mount what it renders to" in problem


def test_time_slicing_and_mps_exclude_each_other() -> None:
    """CFG-06"""
    text = (
        "sharing:\n  timeSlicing: {resources: [{name: a, replicas: 4}]}\n  mps: {resources: [{name: b, replicas: 2}]}\n"
    )
    assert one_problem(text).startswith("c.yaml:3:8: sharing.mps: timeSlicing and mps exclude each other")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('"4"', "the text '4'"),
        ("2.5", "the number 2.5"),
        ("0", "got 0"),
        ("-3", "got -3"),
        ("true", "the boolean true"),
        ("null", "null"),
        ("010", "the text '010'"),
        ("1", "got 1"),
        ("1000000", "got 1000000"),
        ("99999999999999999999999", "the text '99999999999999999999999'"),
    ],
)
def test_wrong_replicas_are_told_with_entry_value_and_type(written: str, shown: str) -> None:
    """CFG-07"""
    problem = one_problem(
        "sharing:\n  timeSlicing:\n    resources:\n    - name: gpu\n      replicas: " + written + "\n"
    )
    assert problem.startswith("c.yaml:5:17: sharing.timeSlicing.resources[0].replicas: ")
    assert shown in problem


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("all", "all"),
        ("all", "[1]"),
        ("2", "3"),
        ("2", "[1]"),
        ("[0, 1]", "[1]"),
        (f"[GPU-{UUID}]", f"[GPU-{UUID.upper()}]"),
    ],
)
def test_a_doubled_resource_is_refused_where_devices_overlap(one: str, other: str) -> None:
    """CFG-10"""
    text = slicing(
        f"\n{{name: gpu, devices: {one}, replicas: 2}},\n{{name: nvidia.com/gpu, devices: {other}, replicas: 6}}"
    )
    problem = one_problem(text)
    assert problem.startswith(
        "c.yaml:3:8: sharing.timeSlicing.resources[1].name: nvidia.com/gpu is shared twice, first on line 2"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a" * 63, "at most 63"),
        ("nvidia.com/" + "a" * 53, "at most 63"),
        ("Gpu", "no resource name"),
        ("gpu_a", "no resource name"),
        ("gpu-", "no resource name"),
        ("nvidia.com/", "empty"),
        ('""', "empty"),
        ("foo.com/gpu", "only prefix"),
        ("$invalid$", "no resource name"),
    ],
)
@pytest.mark.parametrize("key", ["name", "rename"])
def test_names_follow_the_rules_of_kubernetes(key: str, name: str, words: str) -> None:
    """CFG-11"""
    entry = f"{{name: {name}, replicas: 2}}" if key == "name" else f"{{name: gpu, rename: {name}, replicas: 2}}"
    text = f"sharing: {{timeSlicing: {{renameByDefault: true, resources: [{entry}]}}}}"
    assert words in one_problem(text)


def test_a_name_of_the_greatest_length_can_be_renamed_by_default() -> None:
    """CFG-11: 63 characters with the prefix leave the part after the slash, .shared appended, within Kubernetes' 63."""
    name = "nvidia.com/" + "a" * 52
    found = accepted(f"sharing: {{timeSlicing: {{renameByDefault: true, resources: [{{name: {name}, replicas: 2}}]}}}}")
    assert found.config.time_slicing.resources[0].rename == name + ".shared"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"flags:\n\tmigStrategy: none\n", "2:1"),
        (b"version: v1\x00\n", "1:12"),
        (b"- version: v1\n", "1:1"),
        (b"just words\n", "1:1"),
        (b"42\n", "1:1"),
        (b'{"version": "v1"\n"flags": {}}\n', "2:1"),
        (b"version: v1\nflags: \xff\n", "2:8"),
        (b"version: 'v1\n", "2:1"),
        (b"version: v1\n---\nversion: v1\n", "2:1"),
        (b"? [a]\n: b\n", "1:3"),
        (b"version: !!binary v1\n", "1:10"),
        (b"flags: !x {}\n", "1:8"),
        (b"flags: *nothing\n", "1:8"),
        (b"flags: &a {plugin: *a}\n", "1:20"),
        (b"flags: {<<: {migStrategy: none}}\n", "1:9"),
        (b"holds: &a wait\n*a : x\n", "2:1"),
        (b"%YAML 9.9\n---\n{}\n", "1:1"),
    ],
)
def test_a_text_that_is_no_config_is_refused_with_its_place(text: bytes, place: str) -> None:
    """CFG-19, CFG-39"""
    assert one_problem(text).startswith(f"c.yaml:{place}: ")


def test_tabs_are_named_as_the_cause() -> None:
    """CFG-19"""
    assert "indent with spaces, not with a tab" in one_problem("flags:\n\tmigStrategy: none\n")


def test_a_doubled_key_is_told_with_both_lines() -> None:
    """CFG-21"""
    text = "sharing:\n  timeSlicing:\n    resources:\n    - name: gpu\n      replicas: 2\n      replicas: 8\n"
    assert one_problem(text) == (
        "c.yaml:6:7: sharing.timeSlicing.resources[0].replicas: "
        "the key stands twice in one mapping, on lines 5 and 6: keep one"
    )


@pytest.mark.parametrize(
    "item", ["010", "1_000", "-1", "foo", "GPU-UUID", f"MIG-GPU-{UUID}", "1.5", "null", "[0]", "true", "12:30:15"]
)
def test_what_is_no_index_and_no_uuid_is_no_device(item: str) -> None:
    """CFG-22"""
    problem = one_problem(slicing(f"{{name: gpu, replicas: 2, devices: [0, {item}]}}"))
    assert "sharing.timeSlicing.resources[0].devices[1]: " in problem


@pytest.mark.parametrize("devices", ["foo", "0", "-2", "2.0", "[]", "{}", "''"])
def test_wrong_devices_are_refused(devices: str) -> None:
    assert ".devices: " in one_problem(slicing(f"{{name: gpu, replicas: 2, devices: {devices}}}"))


@pytest.mark.parametrize("interval", ["60", "'60'", "0s", "-5s", "500ms", "1d", "true", "1s2", "''"])
def test_a_duration_needs_its_unit_and_at_least_a_second(interval: str) -> None:
    """CFG-13, CFG-14"""
    assert "flags.gfd.sleepInterval: " in one_problem(f"flags: {{gfd: {{sleepInterval: {interval}}}}}")


@pytest.mark.parametrize("channels", ["[1]", "[0, 0]", "['0']", "0"])
def test_the_only_channel_is_0(channels: str) -> None:
    """CFG-17"""
    assert "imex.channelIDs" in one_problem(f"imex: {{channelIDs: {channels}}}")


@pytest.mark.parametrize("body", ["null", "{}", "{resources: []}", "{resources: null}", "{renameByDefault: true}"])
def test_time_slicing_without_resources_is_refused(body: str) -> None:
    assert "sharing.timeSlicing" in one_problem(f"sharing: {{timeSlicing: {body}}}")


@pytest.mark.parametrize("version", ["v2", "V1", "1", "[v1]"])
def test_the_version_is_v1(version: str) -> None:
    assert "c.yaml:1:10: version: " in one_problem(f"version: {version}")


@pytest.mark.parametrize("word", ["yes", "on", "'true'", "1", "0x1", "2020-01-01"])
def test_a_boolean_is_true_or_false(word: str) -> None:
    assert "flags.failOnInitError: expected true or false" in one_problem(f"flags: {{failOnInitError: {word}}}")


def test_every_error_is_told_at_once_in_the_order_of_the_text() -> None:
    text = (
        "version: v1\nfalgs: {}\nflags:\n  migStrategy: mixd\n  failOnInitError: yes\nsharing:\n  timeSlicing:\n"
        "    resources:\n    - name: gpu\n    - {name: gpu, replicas: 2}\n    - {name: gpu, replicas: 3}\nholds: no\n"
    )
    assert [line.split(": ")[0:2] for line in rejected(text)] == [
        ["c.yaml:2:1", "falgs"],
        ["c.yaml:4:16", "flags.migStrategy"],
        ["c.yaml:5:20", "flags.failOnInitError"],
        ["c.yaml:9:7", "sharing.timeSlicing.resources[0]"],
        ["c.yaml:11:14", "sharing.timeSlicing.resources[2].name"],
        ["c.yaml:12:8", "holds"],
    ]


def _keys(kind: inspect.Type, opening: str, closing: str, path: str) -> Iterator[tuple[str, str]]:
    """(path, a text in which the value of that key is of a wrong type), for every key of the schema."""
    match kind:
        case inspect.Metadata(type=inner):
            yield from _keys(inner, opening, closing, path)
        case inspect.UnionType(types=types):
            for member in types:
                yield from _keys(member, opening, closing, path)
        case inspect.ListType(item_type=item):
            yield from _keys(item, opening + "[", "]" + closing, f"{path}[0]")
        case inspect.StructType(fields=fields):
            for field in fields:
                at = f"{path}.{field.encode_name}" if path else field.encode_name
                start = f"{opening}{{{field.encode_name}: "
                yield at, f"{start}1.5}}{closing}"
                yield from _keys(field.type, start, "}" + closing, at)


@pytest.mark.parametrize(("path", "text"), list(_keys(inspect.type_info(File), "", "", "")))
def test_every_key_refuses_a_value_of_another_type(path: str, text: str) -> None:
    assert any(f": {path}: expected " in line for line in rejected(text))


def test_a_text_is_cut_short_in_a_message() -> None:
    assert len(one_problem("holds: " + "x" * 10_000)) < 200


def test_no_node_has_so_many_resources() -> None:
    entries = ", ".join(f"{{name: gpu{n}, replicas: 2}}" for n in range(MAX_RESOURCES + 1))
    assert f"more than {MAX_RESOURCES} resources" in one_problem(slicing(entries))


def test_a_huge_file_is_refused() -> None:
    assert "larger than" in one_problem(b"#" * (MAX_BYTES + 1))


def test_aliases_cannot_stand_for_more_values_than_a_file_may_have() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert f"more than {MAX_NODES} values" in one_problem("\n".join(rows))


@pytest.mark.parametrize("text", ["[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "{a: " * 900 + "}" * 900, "- " * 900])
def test_deep_nesting_is_an_error(text: str) -> None:
    assert "nested more than" in one_problem(text)


def test_very_deep_nesting_is_an_error() -> None:
    assert rejected("[" * 100_000)


def test_many_problems_are_cut_short_with_their_number() -> None:
    found = rejected("".join(f"key{n}: 1\n" for n in range(250)))
    assert found[-1] == "c.yaml: and 150 more problems"
    assert len(found) == 101
