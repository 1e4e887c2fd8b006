"""The warnings of a measurement: a closed list, each with the next step.

A rule has a code, and a function that returns the message and the hint where it applies. What holds for the machine,
measured or not, is judged by `analysis.conditions`. A message names a figure only where the figure is the point.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mldyno.analysis.conditions import CLEAR_SHARE, CONDITIONS, STOLEN_LIMIT, WAITING_LIMIT, Judged, State
from mldyno.analysis.outcomes import TARGET_NOT_REACHED
from mldyno.records import Case, Machine, Series, Warning_
from mldyno.stats import shapes
from mldyno.stats.intervals import median
from mldyno.timing.blocks import DRAIN_STEPS
from mldyno.timing.stopping import SUSTAINED_S, WARMUP_SHARE
from mldyno.units import show_bytes, show_percent, show_seconds

SHORTEST_QUEUE = 512  # kernels that find room in the queue of any device
DRAINED_SHARE = 0.9  # a device that is done when the loop returns has waited for the loop, or the loop for it
EVENTS_TOLERANCE = 0.1  # how far host and device may disagree on the time of a block
LEAK_SHARE, LEAK_BYTES = 0.05, 16 << 20  # growth of resident memory: relative, and in B
HEAVY_PRESSURE = 2.0  # of macOS's levels: from here on clocks fall
HEAT_SHARE, HELD_BACK_SHARE = 0.01, 0.10  # of the measured time, that a GPU may be held back for heat; and for power
BURST_SHARE = 0.9  # of the time under load that a long run stands for
SHARED_SCOPES = ("cores", "package", "memory", "system")  # whose sensors see other processes too
SHARED_CORES = 0.1  # that other processes may have, on average
QUIET_WAITING = ("passive", "PASSIVE")

INTERRUPTED = Warning_("interrupted", "the run was ended within this case", "mldyno run --resume repeats it")
ENERGY_LOST = "energy-lost"
MEMORY_TAKEN = "memory-taken"
LEFT_OUT_CODE = "left-out"  # of the record, since it can't be what it must be


def memory_taken(held: int) -> Warning_:
    """Return the warning of a case that held that much memory in B when other programs had taken the machine's."""
    message = f"other programs took the machine's memory while it held only {show_bytes(held)}"
    return Warning_(MEMORY_TAKEN, message, "end other programs, and measure it again")


@dataclass(frozen=True)
class Evidence:
    """What is known about a case that succeeded."""

    case: Case
    series: Sequence[Series]
    facts: dict[str, Any]
    machine: Machine
    threads: int | None
    env: dict[str, str] = field(default_factory=dict)

    def values(self, metric: str, stage: str) -> list[float]:
        """Return all values of a metric in order."""
        return [v for series in self.series if (series.metric, series.stage) == (metric, stage) for v in series.values]

    def total(self, metric: str) -> float:
        """Return the sum over all windows."""
        return sum(self.values(metric, "window"))

    def last(self, metric: str) -> float | None:
        """Return a value of the process as a whole."""
        return next(iter(self.values(metric, "process")), None)

    @property
    def _slowed_down(self) -> bool:
        """Whether heat or power slowed the CPU or the case's GPU down, for more than a moment."""
        measured = self.total("window_time") or 1.0
        return bool(
            self.last("throttle_events")
            or (self.last("thermal_pressure") or 0.0) >= HEAVY_PRESSURE
            or (self.last("gpu_held_back") or 0.0) > HELD_BACK_SHARE
            or (self.last("thermal_limit_time") or 0.0) > HEAT_SHARE * measured
            or (self.last("power_limit_time") or 0.0) > HELD_BACK_SHARE * measured
        )

    @property
    def state(self) -> State:
        """The state of the machine meanwhile."""
        return State(
            power=self.machine.power, low_power=self.machine.low_power, translated=bool(self.facts.get("translated")),
            slowed_down=self._slowed_down, speed_limit=self.last("speed_limit"),
            swapped_meanwhile=self.last("swapped_memory"), memory=self.machine.memory,
        )  # fmt: skip


def _late_change(evidence: Evidence) -> Judged:
    if not evidence.facts.get("late_changes"):
        return None
    return (
        "a graph was compiled or device memory was reserved while it was measured",
        "give it more --budget to warm up; look for shapes that change from step to step",
    )


def _recompiled(evidence: Evidence) -> Judged:
    times = evidence.facts.get("recompiles")
    if not times:
        return None
    return (
        f"compiled {times} more time{'s' * (times > 1)} after its first step",
        "look for shapes or values that change from step to step; TORCH_LOGS=recompiles tells which",
    )


def _drifting(evidence: Evidence) -> Judged:
    drift = shapes.drift(evidence.values("step_time", "steady"))
    if drift is None:
        return None
    way = "rose" if drift.change > 0 else "fell"
    how = "bit by bit" if drift.change_point is None else f"at once, {show_percent(drift.change_point)} into it"
    cure = "let the machine cool down and rest, then repeat; if it drifts again, look for heat, memory or a leak"
    if drift.change < 0:
        cure = "it got faster: it was still warming up, or other work ended; run it again, or longer with --budget"
    return f"step times {way} by {show_percent(abs(drift.change))} while it was measured, {how}", cure


def _two_modes(evidence: Evidence) -> Judged:
    modes = shapes.modes(evidence.values("step_time", "steady"))
    if modes is None:
        return None
    apart, share = show_percent(modes.slow / modes.fast - 1), show_percent(modes.slow_share)
    return (
        f"two speeds: {share} of the blocks took {apart} longer than the others",
        "trust neither mean nor median alone; more --repeats show which speed processes get, a quiet machine has one",
    )


def waiting_share(evidence: Evidence) -> float:
    """Return the share of the time that the case's threads waited for a core, of that in which they could run."""
    delay = evidence.total("run_delay")
    wanted = evidence.total("cpu_time") + delay
    return delay / wanted if wanted else 0.0


def _waited(evidence: Evidence) -> bool:
    """Return whether its threads waited for a core: as the system counts it, or since its one thread did not run."""
    windows = evidence.total("window_time")
    if not windows:
        return False
    if evidence.facts.get("end_to_end"):  # of a command only the process that waits for it is seen, but the machine is
        return evidence.total("cpu_pressure") > WAITING_LIMIT * windows
    if evidence.values("run_delay", "window"):
        return waiting_share(evidence) > WAITING_LIMIT
    alone = evidence.case.device == "cpu" and evidence.threads == 1
    return alone and evidence.total("cpu_time") < (1 - WAITING_LIMIT) * windows


def _contended(evidence: Evidence) -> Judged:
    windows, cores = evidence.total("window_time"), evidence.machine.cores or os.cpu_count() or 1
    advice = "end other programs, or give it fewer --threads: on a busy machine threads wait for each other"
    if windows and evidence.total("stolen_time") > STOLEN_LIMIT * windows * cores:
        taken = f"the virtual machine's host took over {show_percent(STOLEN_LIMIT)} of its time"
        return taken, "repeat it at another hour"
    if _waited(evidence) and evidence.facts.get("end_to_end"):
        waited = f"threads of this machine waited over {show_percent(WAITING_LIMIT)} of the time for a core"
        return waited, "end other programs; or it starts more threads than there are cores"
    if _waited(evidence):
        return f"its threads waited over {show_percent(WAITING_LIMIT)} of the time for a core", advice
    return None


def _oversubscribed(evidence: Evidence) -> Judged:
    ranks = (evidence.case.ranks or 1) // evidence.case.nodes
    cores, threads = evidence.machine.cores, evidence.threads or 1
    if evidence.case.device == "cpu" and cores and ranks > cores:
        return (
            f"{ranks} ranks share {cores} cores: they take turns, and wait for each other",
            "as many --ranks as there are cores at most, for times that mean something",
        )
    if evidence.case.device != "cpu" or threads < 2 or evidence.env.get("OMP_WAIT_POLICY") in QUIET_WAITING:
        return None
    if not _waited(evidence) and not (cores and threads * ranks > cores):
        return None
    return (
        "more OpenMP threads than free cores: those that wait spin, and keep the others from working",
        "--threads 1, or set OMP_WAIT_POLICY=PASSIVE, so that a waiting thread sleeps",
    )


def _issues_late(evidence: Evidence, fact: str) -> bool:
    """Return whether issuing takes about as long as the work; never on the CPU."""
    share = evidence.facts.get(fact)
    return evidence.case.device != "cpu" and isinstance(share, float) and share >= DRAINED_SHARE


def _waits_in_step(evidence: Evidence) -> str:
    """Return how a step waits for the device within itself; empty where it does not, or that is not known.

    What it reads back and copies is counted. A hidden wait shows where the host was held up in a drain test of so few
    kernels that no queue was full.
    """
    reads, copied, kernels = (
        evidence.facts.get(fact) or 0 for fact in ("host_syncs_per_step", "copied_per_step", "kernels_per_step")
    )
    drained = max(DRAIN_STEPS, evidence.facts.get("block_steps") or 1)
    if not _issues_late(evidence, "drained_share"):
        return ""
    if reads:
        return f"it reads back {reads} value{'s' * (reads != 1)}"
    if copied:
        return f"it copies {show_bytes(copied)}"
    hidden = not _issues_late(evidence, "issued_share") and 0 < kernels * drained < SHORTEST_QUEUE
    return "something in it waits" if hidden else ""


def _near_peak(evidence: Evidence) -> bool:
    """Return whether the device is near a peak: then the host waits for a full queue."""
    steps = evidence.values("step_time", "steady")
    for work, peak in (("flops_per_step", "peak_flops"), ("bytes_per_step", "peak_bandwidth")):
        done, most = evidence.facts.get(work), evidence.facts.get(peak)
        if steps and done and most and done / median(steps) >= CLEAR_SHARE * most:
            return True
    return False


def _host_bound(evidence: Evidence) -> Judged:
    events = evidence.facts.get("events_share")
    idle = evidence.case.device != "cpu" and isinstance(events, float) and abs(1 - events) > EVENTS_TOLERANCE
    late = _issues_late(evidence, "issued_share") and not _waits_in_step(evidence)
    if not (late or idle) or _near_peak(evidence):
        return None
    return (
        "the host holds the device up: steps end no later than they are issued",
        "a larger batch or --compile yes gives the device more to do; look for copies and .item() within the step",
    )


def _step_waits(evidence: Evidence) -> Judged:
    how = _waits_in_step(evidence)
    if not how:
        return None
    return (
        f"each step waits for the device within itself: {how}, so that the host can't run ahead",
        "it is part of the step; only where that can be left out, as .item() often can, will it be faster",
    )


def _burst(evidence: Evidence) -> Judged:
    worked = evidence.facts.get("load_time")
    if evidence.case.device == "cpu" or not isinstance(worked, float) or worked >= BURST_SHARE * SUSTAINED_S:
        return None
    return (
        f"a burst: the device had worked for {show_seconds(worked)} only, and may be slower when it gets warm",
        f"--budget {math.ceil(SUSTAINED_S / WARMUP_SHARE) * 3}s and more gives it {SUSTAINED_S:.0f} s of load first",
    )


def _falls_back(evidence: Evidence) -> Judged:
    times, allowed = evidence.facts.get("fallbacks_per_step"), evidence.env.get("PYTORCH_ENABLE_MPS_FALLBACK") == "1"
    if not times and not (allowed and evidence.case.device.startswith("mps") and times is None):
        return None
    what = f"{times} of its operations ran on the CPU in each step" if times else "parts of it may have run on the CPU"
    return f"{what}: the device lacks them", "unset PYTORCH_ENABLE_MPS_FALLBACK: then it says which, and refuses"


def _emulated(evidence: Evidence) -> Judged:
    if not evidence.facts.get("emulated"):
        return None
    return "this GPU has no bf16 of its own: PyTorch emulates it", "take fp16 or amp-fp16 here"


def _leaking(evidence: Evidence) -> Judged:
    sizes = evidence.values("resident_memory", "window")
    if len(sizes) < 8:
        return None
    quarter = len(sizes) // 4
    first, last = median(sizes[quarter : 2 * quarter]), median(sizes[-quarter:])
    if last - first < max(LEAK_BYTES, LEAK_SHARE * first):
        return None
    return f"its memory grew by {show_bytes(last - first)} while it was measured", "look for what each step keeps"


def _shared_power(evidence: Evidence) -> Judged:
    others = evidence.facts.get("energy_others")
    if evidence.facts.get("energy_scope") not in SHARED_SCOPES or not others or others < SHARED_CORES:
        return None
    return (
        f"other processes had {others:.2g} of the cores meanwhile, whose power is in its energy too",
        "end other programs: what a sensor of the whole package counts can't be told apart",
    )


def _virtualised(evidence: Evidence) -> Judged:
    if not evidence.machine.virtualised:
        return None
    return ("a virtual machine", "its host can't be seen from inside: trust ratios of one run before times of two days")


def _of_state(code: str) -> Rule:
    return lambda evidence: CONDITIONS[code](evidence.state)


Rule = Callable[[Evidence], Judged]
# Those that concern fake time, then those that need a real machine.
_ALWAYS: dict[str, Rule] = {
    "late-change": _late_change, "recompiled": _recompiled,
    "drifting": _drifting, "two-modes": _two_modes, "host-bound": _host_bound,
    "step-waits": _step_waits, "falls-back": _falls_back, "emulated": _emulated,
}  # fmt: skip
_REAL: dict[str, Rule] = {
    "contended": _contended, "oversubscribed": _oversubscribed, "throttled": _of_state("throttled"),
    "burst": _burst, "swapping": _of_state("swapping"), "leaking": _leaking, "on-battery": _of_state("on-battery"),
    "shared-power": _shared_power,
    "low-power": _of_state("low-power"), "virtualised": _virtualised, "rosetta": _of_state("rosetta"),
}  # fmt: skip
WARNING_CODES = (*_ALWAYS, *_REAL, INTERRUPTED.code, LEFT_OUT_CODE, ENERGY_LOST, TARGET_NOT_REACHED)


def of_measurement(evidence: Evidence) -> list[Warning_]:
    """Return the warnings of a case that succeeded; nothing interferes with fake time."""
    rules = _ALWAYS if evidence.facts.get("fake_time") else {**_ALWAYS, **_REAL}
    judged = ((code, rule(evidence)) for code, rule in rules.items())
    return [Warning_(code, *texts) for code, texts in judged if texts is not None]
