"""One example of every line: shown in docs/events.md, checked against the schema."""

from __future__ import annotations

from reactor.record import catalogue as c
from reactor.record import served as s
from reactor.record.line import Level, Line

_GPU = "GPU-5d1f9c04-2a77-4c0e-9d5c-0b6a3e1f7c21"
_OTHER = "GPU-8e2b77aa-90c3-4f6e-b1d2-6f1c5a9e0d34"
_PCI = "0000:1b:00.0"
_NAME = "nvidia.com/gpu"
_SHARED = "nvidia.com/gpu.shared"
_TS = "2026-11-30T09:12:44.031207Z"
_LOST = "GPU is lost (NVML error 15)"

AGENT: tuple[Line, ...] = (
    c.AgentDelayed(reason="another agent serves this node", msg="gpu-reactor waits: another agent serves this node"),
    c.AgentStarted(version="0.1.0", boot="0d6c2f6e", simulated=False, msg="gpu-reactor 0.1.0 started"),
    c.AgentSettled(count=1, msg="1 resource registered and listed"),
    c.AgentSignalled(name="HUP", msg="SIGHUP received"),
    c.AgentStopped(reason="SIGTERM", msg="gpu-reactor stops: SIGTERM"),
    c.StateRestored(holds=2, conditions=1, msg="state of an earlier life: 2 held ids, 1 condition"),
    c.StateRemembered(revision=41, msg="state file written"),
    c.ConfigRead(
        digest="9f2c1b", origin="file", path="/etc/gpu-reactor/config.yaml", msg="config accepted from the file"
    ),
    c.ConfigApplied(
        digest="9f2c1b",
        changes=(c.ConfigChange(path="sharing.timeSlicing.resources[0].replicas", before="4", after="2"),),
        count=1,
        msg="config in force: sharing.timeSlicing.resources[0].replicas",
    ),
    c.ConfigRejected(
        path="/etc/gpu-reactor/config.yaml",
        digest="77ab03",
        problems=(c.ConfigFault(line=7, column=5, path="sharing.timeslicing", text="unknown key"),),
        count=1,
        msg="config rejected, what is in force stays: /etc/gpu-reactor/config.yaml:7:5: unknown key",
    ),
    c.PlanMade(
        resources=(c.PlannedShare(resource=_SHARED, gpus=6, devices=24),),
        count=1,
        unlisted=0,
        msg=f"planned: {_SHARED} 24 on 6 GPUs",
    ),
    c.FaultBegun(name="state.unwritable", error="read-only file system", msg="state.unwritable: read-only file system"),
    c.FaultEnded(name="state.unwritable", seconds=12.5, msg="state.unwritable is over after 12 s"),
    c.HandlerFailed(
        handler="register",
        lane=_NAME,
        error="kubelet refused: timed out",
        attempt=2,
        retry_s=1.0,
        msg="register failed (attempt 2), again in 1.0 s: kubelet refused: timed out",
    ),
    c.HandlerRecovered(
        handler="register", lane=_NAME, attempt=2, seconds=1.6, msg="register works again after 2 failures"
    ),
    c.SourceFailed(
        source="podresources",
        error="connection refused",
        attempt=1,
        retry_s=0.5,
        msg="podresources failed (attempt 1), again in 0.5 s: connection refused",
    ),
    c.SourceRecovered(source="podresources", attempt=1, seconds=0.5, msg="podresources works again after 1 failure"),
    c.DeadlinePassed(name="podresources", msg="podresources is due"),
    s.LogEmitted(logger="grpclib.server", level=Level.WARNING, msg="connection lost"),
    s.LogCoalesced(
        of="allocation.refused", resource=_NAME, count=64, hidden=32, first_ts=_TS, msg="64 times allocation.refused"
    ),
    s.LogDropped(count=210, total=210, msg="210 lines of this log were dropped"),
)

HARDWARE: tuple[Line, ...] = (
    c.DriverFound(driver="580.95.05", generation=1, msg="NVML answers, driver 580.95.05"),
    c.DriverLost(state="absent", error="no libnvidia-ml.so.1", msg="NVML no longer answers (absent)"),
    c.DriverMismatched(error="NVML error 18", msg="driver library and module disagree: NVML error 18"),
    c.InventoryTaken(
        gpus_added=(_GPU,), gpus_removed=(), gpus_changed=(), count=1, msg="1 GPU: 1 new, 0 gone, 0 changed"
    ),
    c.InventoryFailed(state="hung", error="scan took over 5 s", msg="GPUs cannot be scanned (hung)"),
    c.DevicesChanged(what="uevent add", msg="uevent add: looking at the devices again"),
    c.WorkerStarted(pid=4711, msg="NVML worker 4711 started"),
    c.WorkerLost(hung=True, error="no answer for 5 s", index=3, msg="NVML worker hung: no answer for 5 s"),
    c.GpuAdded(gpu=_GPU, pci=_PCI, index=0, product="NVIDIA H100 80GB HBM3", memory=85520809984, msg="GPU 0 is here"),
    c.GpuRemoved(gpu=_GPU, pci=_PCI, msg="GPU 0 is gone"),
    c.GpuLost(
        gpu=_GPU, pci=_PCI, fault="unreachable", reason="lost", error=_LOST, msg=f"GPU 0 cannot be reached: {_LOST}"
    ),
    c.GpuCondemned(
        gpu=_GPU,
        pci=_PCI,
        fault="restart",
        reason="xid",
        error="XID 79",
        xid=79,
        msg="GPU 0 is unhealthy (restart): XID 79",
    ),
    c.GpuRecovered(
        gpu=_GPU, pci=_PCI, reasons=("lost",), remaining=0, seconds=31.0, msg="GPU 0: healthy again after 31 s"
    ),
    c.GpuUnmonitored(gpu=_GPU, pci=_PCI, msg="GPU 0 reports no XIDs: only scans show its faults"),
    c.XidReported(
        gpu=_GPU,
        pci=_PCI,
        index=0,
        xid=79,
        xid_class="restart",
        decision="condemned",
        devices_affected=4,
        synthetic=True,
        msg="XID 79 (restart) on GPU 0: unhealthy from now, 4 ids affected",
    ),
    c.XidCoalesced(gpu=_GPU, count=512, hidden=256, first_ts=_TS, msg=f"512 times xid.reported {_GPU}, 256 not shown"),
    c.EccReported(
        gpu=_GPU,
        pci=_PCI,
        decision="condemned",
        devices_affected=1,
        msg="double-bit ECC error on GPU 0: unhealthy from now, 1 id affected",
    ),
    c.RecoveryChanged(gpu=_GPU, action="reset", msg="GPU 0: driver asks for reset"),
    c.FaultUnattributed(what="XID 31", msg="XID 31, at a GPU that could not be told: all are checked"),
    c.FaultAcknowledged(gpu=_GPU, reason="board replaced", msg="GPU 0 cleared by a person: board replaced"),
)

KUBELET: tuple[Line, ...] = (
    s.KubeletAppeared(life=2, msg="kubelet accepts connections"),
    s.KubeletVanished(error="connection refused", msg="kubelet does not answer: connection refused"),
    s.PluginStranded(
        error="/var/lib/kubelet/device-plugins was deleted under its mount",
        msg="no kubelet can be met any more: /var/lib/kubelet/device-plugins was deleted under its mount",
    ),
    s.PluginSwept(resource=_NAME, socket="gpu-reactor-1.sock", msg=f"socket of {_NAME} was removed, serving anew"),
    s.PluginServed(resource=_NAME, socket="gpu-reactor-2.sock", msg=f"{_NAME} is served on gpu-reactor-2.sock"),
    s.PluginClosed(resource=_NAME, msg=f"{_NAME} is no longer served"),
    s.PluginOffered(resource=_NAME, socket="gpu-reactor-2.sock", msg=f"{_NAME} is there for the kubelet to find"),
    s.PluginRefused(
        resource=_NAME,
        socket="gpu-reactor-2.sock",
        error='the ResourceName "nvidia.com/" is invalid',
        msg=f'kubelet did not take {_NAME}: the ResourceName "nvidia.com/" is invalid',
    ),
    s.PluginRegistered(resource=_NAME, socket="gpu-reactor-2.sock", msg=f"kubelet took {_NAME}"),
    s.StreamOpened(resource=_NAME, stream=3, msg=f"kubelet listens to {_NAME}"),
    s.StreamClosed(resource=_NAME, stream=3, msg=f"a stream of {_NAME} ended"),
    s.DevicesAdvertised(
        resource=_NAME,
        healthy=7,
        unhealthy=1,
        added=0,
        removed=0,
        turned=1,
        revision=57,
        bytes=642,
        msg=f"kubelet was told of {_NAME}: 7 healthy, 1 unhealthy",
    ),
    s.AllocationAnswered(
        resource=_NAME,
        ids=(_GPU, _OTHER),
        gpus=(_GPU, _OTHER),
        count=2,
        grant=5,
        msg=f"2 ids of {_NAME} on 2 GPUs given to a container",
    ),
    s.AllocationRefused(
        resource=_NAME, ids=(_GPU,), count=1, error="unhealthy: XID 79", faulty=1, msg=f"1 id of {_NAME} refused"
    ),
    s.HoldBegun(resource=_NAME, ids=(_GPU,), count=1, pod="ml/train-0", msg=f"1 id of {_NAME} held by ml/train-0"),
    s.HoldEnded(
        resource=_NAME,
        ids=(_GPU,),
        count=1,
        pod="ml/train-0",
        seconds=3600.0,
        msg=f"1 id of {_NAME} free, ml/train-0 had them",
    ),
    s.HoldSuspended(
        resource=_NAME,
        ids=(_GPU,),
        count=1,
        pod="ml/train-0",
        msg=f"kubelet forgot who has 1 id of {_NAME}: kept for ml/train-0 until that ends",
    ),
    s.PodresourcesFailed(error="deadline exceeded", msg="kubelet does not list pods, holds stay: deadline exceeded"),
    s.PodresourcesAnswered(count=12, msg="kubelet lists pods again: 12 pods"),
    s.CheckpointFailed(missing=True, error="no such file", msg="kubelet's checkpoint is missing: no such file"),
    s.CheckpointRead(count=2, msg="kubelet's checkpoint can be read again"),
)

EXAMPLES: tuple[tuple[str, tuple[Line, ...]], ...] = (
    ("Agent, config and the log itself", AGENT),
    ("Driver, GPUs and their faults", HARDWARE),
    ("Kubelet, allocation and holds", KUBELET),
)
