"""What each part of a node is told: command lines and config files, with the reason where one was found by trying."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.world import ADDRESS, HOSTNAME

ADMIN, KUBELET = "admin-token", "kubelet-token"
PAUSE, BUSYBOX = "e2e.local/pause:1", "e2e.local/busybox:1"
Setting = object


def tokens() -> str:
    return f"{ADMIN},admin,1,system:masters\n{KUBELET},system:node:{HOSTNAME},2,system:nodes\n"


def kubeconfig(token: str) -> str:
    cluster = {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


def cni(work: Path) -> str:
    ranges = [[{"subnet": "10.88.0.0/16"}]]
    ipam = {"type": "host-local", "dataDir": f"{work}/ipam", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": ipam}]})


def containerd(work: Path, plugins: Path) -> str:
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE every pod fails at its oom_score_adj.
    return f"""version = 3
root = "{work}/containerd/root"
state = "/run/containerd"
[grpc]
  address = "{work}/containerd.sock"
[ttrpc]
  address = "{work}/containerd.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{work}/containerd/opt"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["{work}/cdi"]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{plugins}"]
    conf_dir = "{work}/cni"
"""


def etcd(work: Path) -> Sequence[str]:
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    return (
        "etcd-server",
        f"--data-dir={work}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def apiserver(work: Path, gates: Mapping[str, bool]) -> Sequence[str]:
    return (
        "kube-apiserver",
        "--etcd-servers=http://127.0.0.1:2379",
        "--bind-address=127.0.0.1",
        f"--advertise-address={ADDRESS}",
        "--secure-port=6443",
        f"--cert-dir={work}/cert",
        f"--token-auth-file={work}/cert/tokens",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-key-file={work}/cert/sa.key",
        f"--service-account-signing-key-file={work}/cert/sa.key",
        "--service-account-issuer=https://node.test",
        "--service-cluster-ip-range=10.99.0.0/24",
        "--allow-privileged=true",
        *([f"--feature-gates={_gates(gates)}"] if gates else []),
    )


def controller_manager(work: Path) -> Sequence[str]:
    # Without it pods are refused for want of a service account, and the not-ready taint stays.
    return (
        "kube-controller-manager",
        f"--kubeconfig={work}/admin.kubeconfig",
        f"--service-account-private-key-file={work}/cert/sa.key",
        f"--root-ca-file={work}/cert/apiserver.crt",
        "--leader-elect=false",
    )


def scheduler(work: Path) -> Sequence[str]:
    return ("kube-scheduler", f"--kubeconfig={work}/admin.kubeconfig", "--leader-elect=false")


def kubelet(work: Path, verbosity: int) -> Sequence[str]:
    return (
        "kubelet",
        f"--config={work}/kubelet.json",
        f"--kubeconfig={work}/kubelet.kubeconfig",
        f"--hostname-override={HOSTNAME}",
        f"--v={verbosity}",
    )


def kubelet_config(work: Path, minor: int, gates: Mapping[str, bool], own: Mapping[str, Setting]) -> str:
    """``own``: fields that a test sets otherwise; those of None are left to the kubelet."""
    settings: dict[str, Setting] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{work}/containerd.sock",
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "evictionHard": dict.fromkeys(("nodefs.available", "imagefs.available", "nodefs.inodesFree"), "0.1%"),
        "makeIPTablesUtilChains": False,
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "10s",
        "syncFrequency": "2s",
        "cgroupDriver": "cgroupfs",
        "resolvConf": "",
        "staticPodPath": f"{work}/static",
        "volumePluginDir": f"{work}/volume-plugins",
        "featureGates": dict(gates),
    }
    if minor >= 31:
        settings["failCgroupV1"] = False
    settings |= own
    return json.dumps({name: value for name, value in settings.items() if value is not None})


def _gates(gates: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())
