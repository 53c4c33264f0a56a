"""What flags and variables say goes before the text, at every reading; the text must be all right without them."""

from __future__ import annotations

from reactor.config import Accepted, parse
from reactor.model.config import Config, DeviceListStrategy, Flags, MigStrategy, Setting, Source
from tests.config.texts import accepted


def flag(path: str, value: bool | str | tuple[str | int, ...]) -> Setting:
    return Setting(path=path, value=value, source=Source.FLAG, name="--x")


def read(text: str, *overrides: Setting) -> Config:
    found = parse(text.encode(), path="c.yaml", overrides=overrides)
    assert isinstance(found, Accepted), found
    return found.config


def sources(config: Config) -> dict[str, Source]:
    return {setting.path: setting.source for setting in config.settings}


def test_an_override_goes_before_the_file_and_the_file_before_the_default() -> None:
    text = "flags: {migStrategy: single, plugin: {passDeviceSpecs: true}}"
    config = read(text, flag("flags.migStrategy", "mixed"), flag("flags.nvidiaDriverRoot", "/d"))
    assert config.flags == Flags(mig_strategy=MigStrategy.MIXED, pass_device_specs=True, nvidia_driver_root="/d")
    assert {path: source for path, source in sources(config).items() if source is not Source.DEFAULT} == {
        "flags.migStrategy": Source.FLAG,
        "flags.nvidiaDriverRoot": Source.FLAG,
        "flags.plugin.passDeviceSpecs": Source.FILE,
    }


def test_an_override_counts_without_any_text() -> None:
    strategies = flag("flags.plugin.deviceListStrategy", ("envvar", "cdi-cri"))
    assert read("", strategies).flags.device_list_strategy == (DeviceListStrategy.ENVVAR, DeviceListStrategy.CDI_CRI)


def test_an_override_says_false_where_the_file_says_true() -> None:
    assert (
        read("flags: {failOnInitError: true}", flag("flags.failOnInitError", False)).flags.fail_on_init_error is False
    )


def test_a_fault_of_the_text_is_one_also_where_it_is_overridden() -> None:
    found = parse(b"flags: {migStrategy: mixd}", path="c.yaml", overrides=(flag("flags.migStrategy", "mixed"),))
    assert not isinstance(found, Accepted)


def test_what_is_not_served_is_told_of_wherever_it_was_said() -> None:
    assert [entry.path for entry in read("", flag("flags.mpsRoot", "/m")).unserved] == ["flags.mpsRoot"]
    assert read("flags: {mpsRoot: /m}", flag("flags.mpsRoot", "")).unserved == ()


def test_where_the_driver_is_mounted_is_for_a_flag_to_say() -> None:
    """CFG-34: what the file says of it comes too late; the root on the host is another key."""
    text = "flags: {nvidiaDriverRoot: /opt/drv, plugin: {containerDriverRoot: /x}}"
    assert [entry.path for entry in read(text).unserved] == ["flags.plugin.containerDriverRoot"]
    flagged = read(text, flag("flags.plugin.containerDriverRoot", "/driver-root"))
    assert flagged.unserved == ()
    assert flagged.flags.dev_root == "/opt/drv"


def test_every_key_of_the_file_has_a_setting() -> None:
    """CFG-35"""
    config = accepted("").config
    assert set(sources(config).values()) == {Source.DEFAULT}
    assert {"flags.plugin.passDeviceSpecs", "imex.required", "holds", "resources.gpus"} <= sources(config).keys()


def test_a_null_in_the_file_is_as_good_as_nothing() -> None:
    assert sources(read("flags: {migStrategy: null}"))["flags.migStrategy"] is Source.DEFAULT
