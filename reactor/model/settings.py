"""What the command line and the environment say about one run of the agent (the config file says the rest)."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, field

from reactor.model.config import Setting
from reactor.model.kubelet import Registration


class Settings(Struct, frozen=True, kw_only=True):
    config: Path | None = Path("/etc/gpu-reactor/config.yaml")
    """None: the defaults are in force, no file is read."""
    kubelet_root: Path = Path("/var/lib/kubelet")
    plugin_dir: Path | None = None
    """Directory of kubelet.sock, of our sockets, of the checkpoint and of the lock; None: below kubelet_root."""
    registration: Registration = Registration.SOCKET
    pod_resources_socket: Path | None = None
    """None: below kubelet_root."""
    state_dir: Path = Path("/var/lib/gpu-reactor")
    admin_socket: Path = Path("/run/gpu-reactor/agent.sock")
    probe_listen: str = "127.0.0.1:9465"
    """host:port of /healthz and /readyz; empty: none."""
    journal: Path | None = None
    """Every event is written there, for ``replay``; None: no journal."""
    metrics_listen: str = ""
    """host:port of /metrics; empty: none, and what it needs is not loaded."""
    node_name: str = ""
    container_driver_root: Path = Path("/driver-root")
    """Where the host's driver root is mounted in this container; libnvidia-ml.so.1 is looked for below it."""
    resync: float = 30.0
    """Seconds between scans of the GPUs that nothing asked for."""
    grace: float = 5.0
    """Seconds that handlers and servers have to end after SIGTERM."""
    allow_inject: bool = False
    simulate_nvml: str = ""
    """Such as 8xH100: run on simulated NVML, loudly marked. Empty: the real library."""
    environment: tuple[tuple[str, str], ...] = field(default=())
    """DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS, as they were set."""

    overrides: tuple[Setting, ...] = ()
    """What flags and variables say in place of the config file, at every reading of it."""

    @property
    def directory(self) -> Path:
        return self.plugin_dir or self.kubelet_root / "device-plugins"

    @property
    def kubelet_socket(self) -> Path:
        return self.directory / "kubelet.sock"

    @property
    def registry(self) -> Path:
        """Where the kubelet's plugin watcher looks. It follows the kubelet's root, the plugin directory does not."""
        return self.kubelet_root / "plugins_registry"

    @property
    def sockets(self) -> Path:
        """Where our own sockets are."""
        return self.registry if self.registration is Registration.WATCHER else self.directory

    @property
    def checkpoint(self) -> Path:
        return self.directory / "kubelet_internal_checkpoint"

    @property
    def pod_resources(self) -> Path:
        return self.pod_resources_socket or self.kubelet_root / "pod-resources" / "kubelet.sock"
