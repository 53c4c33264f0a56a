"""Where this agent reads a config otherwise than the device plugin: what ``check --from-peer`` tells.

Of a text that is refused here, each problem knows what the plugin makes of it. Of one that is accepted, keys act here
that the plugin drops, and some act there that this version does not serve. What differs whatever the text says, XIDs
above all, is told apart from that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from reactor.conditions.classes import classify, in_force
from reactor.config import Accepted, Plain, Rejected
from reactor.model.condition import Policy, XidClass
from reactor.model.config import Config, ConfigProblem, SharedResource

_IGNORED_THERE = frozenset({13, 31, 43, 45, 68, 109})
_HARMLESS = (XidClass.APPLICATION, XidClass.IGNORE)
_CODES = range(1, 1000)
_OTHERS = 9999
"""Stands for every code above those."""
_OWN = ("select", "health", "holds", "cdi")
_STRATEGIES = "flags.plugin.deviceListStrategy"
_LABELS = ("flags.gfd", "flags.useNodeFeatureAPI")
"""Keys that the plugin itself does not act on either: they are for the labels of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    line: int
    column: int
    path: str
    here: str
    peer: str

    def render(self, file: str) -> str:
        where = f"{file}:{self.line}:{self.column}: " if self.line else f"{file}: "
        key = f"{self.path}: " if self.path else ""
        return f"{where}{key}here: {self.here}; the device plugin: {self.peer}"


def differences(found: Accepted | Rejected) -> tuple[Difference, ...]:
    """In the order of the text."""
    refused, whole = (found.problems, found.rest) if isinstance(found, Rejected) else ((), found)
    points = [
        Difference(
            line=problem.line,
            column=problem.column,
            path=problem.path,
            here=f"refused, {problem.message}",
            peer=_there(problem),
        )
        for problem in refused
    ]
    for path, here, peer in _acting(whole):
        line, column = _place(whole, path)
        points.append(Difference(line=line, column=column, path=path, here=here, peer=peer))
    return tuple(sorted(points, key=lambda point: (point.line, point.column)))


def _there(problem: ConfigProblem) -> str:
    """What the plugin makes of what is refused here. It knows nothing of our own sections."""
    return "ignores it" if problem.path.split(".")[0] in _OWN else problem.peer or "refuses it as well"


def _place(found: Accepted, path: str) -> tuple[int, int]:
    """Of the value; of a flag or a variable there is none."""
    return found.places.get(path, (0, 0))


def _acting(found: Accepted) -> Iterator[tuple[str, str, str]]:
    """(path, here, there) for each key that acts on one side only."""
    config, written = found.config, found.places
    for index, entry in enumerate(config.gpus):
        path = f"resources.gpus[{index}]"
        if path in written:
            yield path, f"GPUs that match {entry.pattern!r} are {entry.name}", "drops it, every GPU is nvidia.com/gpu"
    yield from _strategies(found)
    for index, shared in enumerate(config.time_slicing.resources):
        yield from _sharing(found, f"sharing.timeSlicing.resources[{index}]", shared)
    if config.imex.required and config.imex.channels:
        yield "imex.required", "nothing is handed out while the channel is missing", "ends while the channel is missing"
    for key in _OWN:
        if key in written and not any(lack.path.split(".")[0] == key for lack in config.unserved):
            yield key, "acts", "ignores it"
    for lack in config.unserved:
        there = "ignores it, gpu-feature-discovery acts on it" if lack.path in _LABELS else "acts on it"
        if lack.path == "resources.mig":
            there = "drops it"
        elif lack.path.split(".")[0] in _OWN:
            there = "ignores it"
        yield lack.path, f"no effect, {lack.message}", there


def _strategies(found: Accepted) -> Iterator[tuple[str, str, str]]:
    """Ways to write the list that the plugin reads otherwise: several in one text, and none."""
    written = _written(found.written, _STRATEGIES)
    names = ", ".join(found.config.flags.device_list_strategy)
    if isinstance(written, str) and ("," in written or not written):
        yield _STRATEGIES, f"it means {names}", "refuses it, unless a flag or a variable says another"
    elif written == []:
        yield _STRATEGIES, f"it means {names}", "hands out nothing"


def _written(value: Plain, path: str) -> Plain:
    """What the text has at a key, None for nothing."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _sharing(found: Accepted, path: str, shared: SharedResource) -> Iterator[tuple[str, str, str]]:
    by_default = f"{shared.name}.shared"
    renames = any(
        setting.path == "sharing.timeSlicing.renameByDefault" and setting.value is True
        for setting in found.config.settings
    )
    there = by_default if renames else shared.name
    if f"{path}.rename" in found.places and shared.rename not in (None, there):
        yield f"{path}.rename", f"the shares are {shared.rename}", f"drops it, the shares are {there}"
    written = f"{path}.devices"
    if written in found.places and found.config.settings and not _all(shared):
        yield written, "only these GPUs are shared, the others stay whole", "drops it, every GPU is shared"


def _all(shared: SharedResource) -> bool:
    return shared.devices == SharedResource(name=shared.name, replicas=shared.replicas).devices


# ---------------------------------------------------------------- whatever the text says


def always(config: Config, environment: Policy) -> Iterator[str]:
    """What differs on any node, a line each."""
    policy = in_force(environment, config.health)
    spared = [code for code in (*_CODES, _OTHERS) if _counts_there(environment, code) and _harmless(policy, code)]
    marked = [
        code for code in (*_CODES, _OTHERS) if not _counts_there(environment, code) and not _harmless(policy, code)
    ]
    if spared:
        yield f"XIDs that leave a GPU healthy here, and mark it for good there: {_ranges(spared)}"
    if marked:
        yield f"XIDs that mark a GPU here, and are ignored there: {_ranges(marked)}"
    yield "a GPU that was marked returns on evidence here; there on a restart of the plugin, whatever its state"
    yield "a fault of a whole GPU marks every share of it here; there one of them"
    if config.holds == "wait":
        yield "a GPU that a pod owns whole is shared only when that pod has ended (holds: wait); there at once"
    yield "an edit of the file acts at once, a broken one changes nothing; there one wants SIGHUP, the other ends it"
    if config.flags.fail_on_init_error:
        yield "without a driver the agent waits, not ready (failOnInitError: true); there that ends the plugin"
    else:
        yield "without a driver the agent waits for it; there the plugin idles until it is restarted"


def _harmless(policy: Policy, code: int) -> bool:
    return classify(policy, code) in _HARMLESS


def _counts_there(environment: Policy, code: int) -> bool:
    """As the plugin acts, which is not as it documents: disabling all wins over single codes that are enabled."""
    if environment.enable_all:
        return True
    if environment.disable_all:
        return False
    return code in environment.enabled or code not in environment.disabled | _IGNORED_THERE


def _ranges(codes: Iterable[int]) -> str:
    runs = [[code for _, code in run] for _, run in groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0])]
    words = []
    for run in runs:
        if run == [_OTHERS]:
            words.append("and above")
        else:
            words.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return " ".join(words)
