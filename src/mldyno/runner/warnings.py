"""The closed list of warnings that a measured record can carry, each with the next step.

Each is a code, and a function that looks at the measurement and gives the message and the hint where it applies.
What holds for the machine, measured or not, is judged by `analysis.conditions`. A message names a figure only where
the figure is the point.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mldyno.analysis.conditions import CONDITIONS, STOLEN_LIMIT, WAITING_LIMIT, Judged, State
from mldyno.analysis.outcomes import TARGET_NOT_REACHED
from mldyno.records import Case, Machine, Series, Warning_
from mldyno.stats import shapes
from mldyno.stats.intervals import median
from mldyno.units import show_bytes, show_percent

DRAINED_SHARE = 0.9  # a device that is done when the loop returns has waited for the loop
EVENTS_TOLERANCE = 0.1  # how far host and device may disagree on the time of a block
LEAK_SHARE, LEAK_BYTES = 0.05, 16 << 20  # growth of resident memory: relative, and in B
QUIET_WAITING = ("passive", "PASSIVE")

INTERRUPTED = Warning_("interrupted", "the run was ended within this case", "mldyno run --resume repeats it")
LEFT_OUT = "left-out"  # of the record, since it can't be what it must be


@dataclass(frozen=True)
class Evidence:
    """What is known of a case that succeeded."""

    case: Case
    series: Sequence[Series]
    facts: dict[str, Any]
    machine: Machine
    threads: int | None
    env: dict[str, str] = field(default_factory=dict)

    def values(self, metric: str, stage: str) -> list[float]:
        """All values of a metric in order."""
        return [v for series in self.series if (series.metric, series.stage) == (metric, stage) for v in series.values]

    def total(self, metric: str) -> float:
        """The sum over all windows."""
        return sum(self.values(metric, "window"))

    def last(self, metric: str) -> float | None:
        """A value of the process as a whole."""
        return next(iter(self.values(metric, "process")), None)

    @property
    def state(self) -> State:
        """The state of the machine meanwhile."""
        held_back = self.case.device.startswith("cuda") and self.last("gpu_held_back")
        return State(
            power=self.machine.power, low_power=self.machine.low_power, translated=bool(self.facts.get("translated")),
            slowed_down=bool(self.last("throttle_events") or held_back), speed_limit=self.last("speed_limit"),
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
    return (
        f"step times {way} by {show_percent(abs(drift.change))} while it was measured, {how}",
        "let the machine cool down and rest, then repeat; if it drifts again, look for heat, memory or a leak",
    )


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
    """Of the time that the case's threads ran or could have run, the share that they waited for a core."""
    delay = evidence.total("run_delay")
    wanted = evidence.total("cpu_time") + delay
    return delay / wanted if wanted else 0.0


def _waited(evidence: Evidence) -> bool:
    """Whether its threads waited for a core: as the system counts it, or from one thread that did not always run."""
    windows = evidence.total("window_time")
    if not windows or evidence.facts.get("end_to_end"):  # of a command only the process that waits for it is seen
        return False
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
    if _waited(evidence):
        return f"its threads waited over {show_percent(WAITING_LIMIT)} of the time for a core", advice
    return None


def _oversubscribed(evidence: Evidence) -> Judged:
    threads, cores = evidence.threads or 1, evidence.machine.cores
    if evidence.case.device != "cpu" or threads < 2 or evidence.env.get("OMP_WAIT_POLICY") in QUIET_WAITING:
        return None
    if not _waited(evidence) and not (cores and threads > cores):
        return None
    return (
        "more OpenMP threads than free cores: those that wait spin, and keep the others from working",
        "--threads 1, or set OMP_WAIT_POLICY=PASSIVE, so that a waiting thread sleeps",
    )


def _host_bound(evidence: Evidence) -> Judged:
    share, events = evidence.facts.get("drained_share"), evidence.facts.get("events_share")
    if evidence.case.device == "cpu" or not isinstance(share, float):
        return None
    off = isinstance(events, float) and abs(1 - events) > EVENTS_TOLERANCE
    if share < DRAINED_SHARE and not off:
        return None
    return (
        "the host holds the device up: steps end no later than they are issued",
        "a larger batch or --compile yes gives the device more to do; look for copies and .item() within the step",
    )


def _leaking(evidence: Evidence) -> Judged:
    sizes = evidence.values("resident_memory", "window")
    if len(sizes) < 8:
        return None
    quarter = len(sizes) // 4
    first, last = median(sizes[quarter : 2 * quarter]), median(sizes[-quarter:])
    if last - first < max(LEAK_BYTES, LEAK_SHARE * first):
        return None
    return f"its memory grew by {show_bytes(last - first)} while it was measured", "look for what each step keeps"


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
}  # fmt: skip
_REAL: dict[str, Rule] = {
    "contended": _contended, "oversubscribed": _oversubscribed, "throttled": _of_state("throttled"),
    "swapping": _of_state("swapping"), "leaking": _leaking, "on-battery": _of_state("on-battery"),
    "low-power": _of_state("low-power"), "virtualised": _virtualised, "rosetta": _of_state("rosetta"),
}  # fmt: skip
CODES = (*_ALWAYS, *_REAL, INTERRUPTED.code, LEFT_OUT, TARGET_NOT_REACHED)


def of_measurement(evidence: Evidence) -> list[Warning_]:
    """What a reader must know of a case that succeeded; nobody gets in the way of fake time."""
    rules = _ALWAYS if evidence.facts.get("fake_time") else {**_ALWAYS, **_REAL}
    judged = ((code, rule(evidence)) for code, rule in rules.items())
    return [Warning_(code, *texts) for code, texts in judged if texts is not None]
