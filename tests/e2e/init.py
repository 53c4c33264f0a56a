"""The first process inside a node's namespaces: lays out what the node sees, starts processes, reaps orphans.

It serves one unix socket (a descriptor that it inherits) from the tests' process: a JSON object and descriptors a
message. When the other end closes, for whatever reason, it ends, and the kernel then kills everything in the node.
Run with the standard library alone: ``python -I init.py FD WORK ADDRESS HOSTNAME``.
"""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

Request = dict[str, object]
HIERARCHIES = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
COVERED = ("/var/lib/kubelet", "/var/lib/cni", "/var/lib/gpu-reactor", "/var/log/pods", "/var/log/containers")
"""Fixed places of the kubelet, CNI and the agent: each node has its own, below ``root`` in its folder."""
NODES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
NODES |= {"kmsg": (1, 11), "fuse": (10, 229)}
GPU_NODES = {f"nvidia{minor}": (195, minor) for minor in range(16)}
GPU_NODES |= {
    "nvidiactl": (195, 255),
    "nvidia-modeset": (195, 254),
    "nvidia-uvm": (510, 0),
    "nvidia-uvm-tools": (510, 1),
    "nvidia-caps-imex-channels/channel0": (511, 0),
}
"""Nothing answers behind them; a pod can be given them all the same."""


def run(*argv: str) -> None:
    subprocess.run(argv, check=True)


def lay_out(work: Path, address: str, hostname: str) -> None:
    run("mount", "--make-rshared", "/")
    run("mount", "-t", "proc", "proc", "/proc")
    run("mount", "-t", "tmpfs", "tmpfs", "/run")  # the netns of pods, and sockets of the agent
    _lay_out_cgroups()
    _lay_out_dev(work)
    for place in COVERED:
        own = work / "root" / place[1:]
        own.mkdir(parents=True, exist_ok=True)
        Path(place).mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", str(own), place)
    run("mount", "--make-shared", "/var/lib/kubelet")
    hosts = work / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{address} {hostname}\n")
    run("mount", "--bind", str(hosts), "/etc/hosts")  # else the API server asks DNS for the kubelet
    socket.sethostname(hostname)
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "eth0", "type", "bridge")
    run("ip", "addr", "add", f"{address}/24", "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "route", "add", "default", "dev", "eth0")


def enter(group: str) -> None:
    Path(group).mkdir(parents=True, exist_ok=True)
    (Path(group) / "cgroup.procs").write_text("0")


def _lay_out_cgroups() -> None:
    """Mount them anew: in the cgroup namespace that makes the world's own groups the roots (``cgroups.py``)."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    run("umount", "-R", "/sys/fs/cgroup")
    if unified:
        run("mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")
        enter("/sys/fs/cgroup/parts")
        return
    run("mount", "-t", "tmpfs", "tmpfs", "/sys/fs/cgroup")
    for name in HIERARCHIES:
        (Path("/sys/fs/cgroup") / name).mkdir()
        option = "none,name=systemd" if name == "systemd" else name
        run("mount", "-t", "cgroup", "-o", option, "cgroup", f"/sys/fs/cgroup/{name}")


def _lay_out_dev(work: Path) -> None:
    """Device nodes of pretended GPUs must not show on the machine: the node has its own /dev."""
    own = work / "dev"
    own.mkdir()
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(own))
    for name, (major, minor) in (NODES | GPU_NODES).items():
        (own / name).parent.mkdir(exist_ok=True)
        os.mknod(own / name, 0o666 | 0o020000, os.makedev(major, minor))
    for name in ("pts", "shm"):
        (own / name).mkdir()
        run("mount", "--rbind", f"/dev/{name}", str(own / name))
    for name, target in {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1"}.items():
        (own / name).symlink_to(target)
    run("mount", "--rbind", str(own), "/dev")


class Init:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._codes: dict[int, int] = {}

    def serve(self) -> None:
        wake, told = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._control.sendall(b"{}")
        while True:
            ready, _, _ = select.select([self._control, wake], [], [])
            if wake in ready:
                os.read(wake, 4096)
            self._reap()
            if self._control in ready and not self._answer():
                return

    def _reap(self) -> None:
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self._codes[found[0]] = os.waitstatus_to_exitcode(found[1])
        except ChildProcessError:
            pass

    def _answer(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 18, 8, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return False
        request: Request = json.loads(data)
        passed: list[int] = []
        try:
            if "argv" in request:
                pid = self._start(request, descriptors)
                passed.append(os.pidfd_open(pid))
                answer: Request = {"pid": pid}
            else:
                answer = {"code": self._codes.get(int(str(request["pid"])))}
        except OSError as exc:
            answer = {"error": str(exc)}
        socket.send_fds(self._control, [json.dumps(answer).encode()], passed)
        for descriptor in (*descriptors, *passed):
            os.close(descriptor)
        return True

    def _start(self, request: Request, descriptors: list[int]) -> int:
        """Fork and exec; the complaint of an exec that fails comes back."""
        argv, environment, groups = request["argv"], request["env"], request["groups"]
        assert isinstance(argv, list)
        assert isinstance(environment, dict)
        assert isinstance(groups, list)
        complaint, told = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if not pid:
            try:
                os.setsid()
                for number, descriptor in enumerate(descriptors):
                    os.dup2(descriptor, number)
                for group in groups:
                    enter(group)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.chdir(str(request["cwd"]))
                os.execvpe(argv[0], argv, environment)
            except OSError as exc:
                os.write(told, str(exc).encode())
            finally:
                os._exit(127)
        os.close(told)
        with open(complaint, "rb") as reader:
            text = reader.read().decode()
        if text:
            raise OSError(text)
        return pid


def main() -> None:
    control, work, address, hostname = sys.argv[1:]
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: of unshare, should that be killed alone
    lay_out(Path(work), address, hostname)
    Init(socket.socket(fileno=int(control))).serve()


if __name__ == "__main__":
    main()
