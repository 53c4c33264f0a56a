"""A node in memory whose every list and event is watched, under a clock that jumps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from reactor.model.kubelet import Registration
from reactor.nvml import Nvml
from reactor.record.recorder import Recorder
from reactor.simulate.kubelet.core import Traits
from reactor.simulate.kubelet.topology import Policy
from reactor.simulate.kubelet.version import Version
from reactor.simulate.node import SimNode, sim_node
from reactor.simulate.nvml.direct import direct
from reactor.simulate.nvml.files import lay_out
from reactor.simulate.nvml.hardware import Hardware
from tests.flows.witness import Witness

Flow = Callable[..., AbstractAsyncContextManager[SimNode]]


@pytest.fixture
def seen(recorder: Recorder) -> Witness:
    """What was seen of the flow."""
    return Witness(recorder)


@pytest.fixture
def flow(seen: Witness, tmp_path: Path) -> Flow:
    """Opens a node: ``async with flow(version="1.29", replicas=2) as node``. At its end nothing may stay broken.

    ``faults``: names of handlers and sources that may still fail then.
    """

    @asynccontextmanager
    async def opened(
        *,
        gpus: str = "2xH100",
        version: str = "1.34",
        replicas: int = 0,
        config: str | None = None,
        started: bool = True,
        numa: bool = False,
        faults: tuple[str, ...] = (),
        registration: Registration = Registration.SOCKET,
        nvml: Callable[[Hardware], Nvml] = direct,
        **traits: object,
    ) -> AsyncIterator[SimNode]:
        if numa:
            nvml = partial(_with_files, root=tmp_path)
            traits.setdefault("policy", Policy.BEST_EFFORT)
        kind = Traits(version=Version.parse(version), **traits)  # type: ignore[arg-type]
        async with sim_node(
            seen, gpus=gpus, traits=kind, config=None, started=False, registration=registration, nvml=nvml
        ) as node:
            seen.attend(node)
            node.share(replicas) if config is None else node.edit_config(config)
            if started:
                await node.kubelet.start()
                await node.start_agent()
                await node.settle()
            yield node
            seen.verdict(faults)

    return opened


def _with_files(hardware: Hardware, root: Path) -> Nvml:
    """NVML with /dev and /sys, which is where NUMA nodes are."""
    lay_out(hardware, root)
    return direct(hardware, root)
