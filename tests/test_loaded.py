"""What a process loads: an agent pays for every module at each start and for as long as it runs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import reactor

_SHOW = "import sys; import {}; print(*sys.modules, sep='\\n')"


def loaded_by(module: str) -> set[str]:
    command = [sys.executable, "-c", _SHOW.format(module)]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize("module", ["reactor.agent", "reactor.simulate.hosted"])
def test_an_agent_loads_neither_nvml_nor_what_it_has_no_use_for(module: str) -> None:
    dear = {"pynvml", "kubernetes_asyncio", "aiohttp", "prometheus_client", "importlib.metadata", "rich", "pyudev"}
    assert not loaded_by(module) & dear


def test_the_command_line_is_read_before_what_reads_the_config_file_is_loaded() -> None:
    """The NVML worker is started in between."""
    assert not loaded_by("reactor.cli.run, reactor.cli.settings") & {"yaml", "trio", "grpclib"}


def test_the_version_is_that_of_the_distribution() -> None:
    assert reactor.__version__ == version("gpu-reactor")
