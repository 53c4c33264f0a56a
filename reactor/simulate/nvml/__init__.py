"""GPUs that are not there: ``hardware`` is what would sit in the node, ``functions`` the C functions of its NVML.

nvidia-ml-py runs unchanged above ``functions``. ``host`` keeps the hardware outside the worker, so that a new worker
sees the same GPUs; ``files`` lays out /dev and /sys for them. Imported by the worker: nothing is imported here.
"""


def provider(socket: str) -> str:
    """What a worker is told in order to find the hardware that a host keeps behind this socket."""
    return f"reactor.simulate.nvml.remote:library:{socket}"
