"""The closed list of warnings that a measured record can carry, each with the next step.

Each is one entry of WARNINGS: a code, and a function that looks at what was seen and gives the
message and the hint where it applies. A message names a figure only where the figure is the point.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mldyno.records import Case, Machine, Series, Warning_
from mldyno.stats import shapes
from mldyno.stats.intervals import median
from mldyno.timing.stopping import Stopping
from mldyno.units import show_bytes, show_percent

CONTENDED = 0.1  # share of the time that threads may wait for a core before a reader must know
STOLEN = 0.05  # share of the machine's time that its host may take
DRAINED = 0.9  # a device that is done when the loop returns has waited for the loop
EVENTS_OFF = 0.1  # how far host and device may disagree on the time of a block
SWAPPED = 1 << 20  # B
LEAK, LEAK_LEAST = 0.05, 16 << 20  # relative growth of resident memory, and B
QUIET_WAITING = ("passive", "PASSIVE")

INTERRUPTED = Warning_("interrupted", "the run was ended within this case", "mldyno run --resume repeats it")


@dataclass(frozen=True)
class Seen:
    """What is known of a case that came out well."""

    case: Case
    series: Sequence[Series]
    facts: dict[str, Any]
    machine: Machine
    threads: int | None
    stopping: Stopping
    half_width: float | None
    env: dict[str, str] = field(default_factory=dict)

    def values(self, metric: str, stage: str) -> list[float]:
        """All values of a metric in order."""
        return [v for one in self.series if (one.metric, one.stage) == (metric, stage) for v in one.values]

    def total(self, metric: str) -> float:
        """The sum over all windows."""
        return sum(self.values(metric, "window"))

    def last(self, metric: str) -> float | None:
        """A value of the process as a whole."""
        return next(iter(self.values(metric, "process")), None)


Found = tuple[str, str] | None


def _target_not_reached(seen: Seen) -> Found:
    if seen.stopping.steps is not None or seen.stopping.reached(seen.half_width):
        return None
    shown = show_percent(seen.stopping.target)
    few = seen.half_width is None
    said = f"too few steps to know it to ±{shown}" if few else f"not known to the ±{shown} asked for"
    return said, "give it more time with --budget, or a quieter machine"


def _late_change(seen: Seen) -> Found:
    if not seen.facts.get("late_changes"):
        return None
    return (
        "a graph was compiled or device memory was reserved while it was measured",
        "give it more --budget to warm up; look for shapes that change from step to step",
    )


def _recompiled(seen: Seen) -> Found:
    again = seen.facts.get("recompiles")
    if not again:
        return None
    return (
        f"compiled {again} more time{'s' * (again > 1)} after its first step",
        "look for shapes or values that change from step to step; TORCH_LOGS=recompiles tells which",
    )


def _drifting(seen: Seen) -> Found:
    found = shapes.drift(seen.values("step_time", "steady"))
    if found is None:
        return None
    way = "rose" if found.change > 0 else "fell"
    how = "bit by bit" if found.change_point is None else f"at once, {show_percent(found.change_point)} into it"
    return (
        f"step times {way} by {show_percent(abs(found.change))} while it was measured, {how}",
        "let the machine cool down and rest, then repeat; if it drifts again, look for heat, memory or a leak",
    )


def _two_modes(seen: Seen) -> Found:
    found = shapes.modes(seen.values("step_time", "steady"))
    if found is None:
        return None
    apart, share = show_percent(found.slow / found.fast - 1), show_percent(found.slow_share)
    return (
        f"two speeds: {share} of the blocks took {apart} longer than the others",
        "trust neither mean nor median alone; more --repeats show which speed processes get, a quiet machine has one",
    )


def waiting_share(seen: Seen) -> float:
    """Of the time that the case's threads ran or could have run, the share that they waited for a core."""
    delay = seen.total("run_delay")
    wanted = seen.total("cpu_time") + delay
    return delay / wanted if wanted else 0.0


def _waited(seen: Seen) -> bool:
    """Whether its threads waited for a core: as the system counts it, or from one thread that did not always run."""
    windows = seen.total("window_time")
    if not windows or seen.facts.get("end_to_end"):  # of a command only the process that waits for it is seen
        return False
    if seen.values("run_delay", "window"):
        return waiting_share(seen) > CONTENDED
    return seen.case.device == "cpu" and seen.threads == 1 and seen.total("cpu_time") < (1 - CONTENDED) * windows


def _contended(seen: Seen) -> Found:
    windows, cores = seen.total("window_time"), seen.machine.cores or os.cpu_count() or 1
    advice = "end other programs, or give it fewer --threads: on a busy machine threads wait for each other"
    if windows and seen.total("stolen_time") > STOLEN * windows * cores:
        return f"the virtual machine's host took over {show_percent(STOLEN)} of its time", "repeat it at another hour"
    if _waited(seen):
        return f"its threads waited over {show_percent(CONTENDED)} of the time for a core", advice
    return None


def _oversubscribed(seen: Seen) -> Found:
    threads, cores = seen.threads or 1, seen.machine.cores
    if seen.case.device != "cpu" or threads < 2 or seen.env.get("OMP_WAIT_POLICY") in QUIET_WAITING:
        return None
    if not _waited(seen) and not (cores and threads > cores):
        return None
    return (
        "more OpenMP threads than free cores: those that wait spin, and keep the others from working",
        "--threads 1, or set OMP_WAIT_POLICY=PASSIVE, so that a waiting thread sleeps",
    )


def _throttled(seen: Seen) -> Found:
    limit, on_gpu = seen.last("speed_limit"), seen.case.device.startswith("cuda")
    held_back = on_gpu and seen.last("gpu_held_back")
    if seen.last("throttle_events") or held_back or (limit is not None and limit < 1):
        return "the machine was slowed down for heat or power", "let it cool down, give it air and mains power"
    return None


def _host_bound(seen: Seen) -> Found:
    share, events = seen.facts.get("drained_share"), seen.facts.get("events_share")
    if seen.case.device == "cpu" or not isinstance(share, float):
        return None
    off = isinstance(events, float) and abs(1 - events) > EVENTS_OFF
    if share < DRAINED and not off:
        return None
    return (
        "the host holds the device up: steps end no later than they are issued",
        "a larger batch or --compile yes gives the device more to do; look for copies and .item() within the step",
    )


def _swapping(seen: Seen) -> Found:
    moved = seen.last("swapped_memory") or 0.0
    if moved < SWAPPED:
        return None
    return f"the machine swapped {show_bytes(moved)} meanwhile", "end other programs, or take a smaller batch"


def _leaking(seen: Seen) -> Found:
    sizes = seen.values("resident_memory", "window")
    if len(sizes) < 8:
        return None
    quarter = len(sizes) // 4
    first, last = median(sizes[quarter : 2 * quarter]), median(sizes[-quarter:])
    if last - first < max(LEAK_LEAST, LEAK * first):
        return None
    return f"its memory grew by {show_bytes(last - first)} while it was measured", "look for what each step keeps"


def _on_battery(seen: Seen) -> Found:
    if seen.machine.power != "battery":
        return None
    return "on battery", "plug it in: a battery's power plan is another machine"


def _low_power(seen: Seen) -> Found:
    return ("in low-power mode", "switch low-power mode off") if seen.machine.low_power else None


def _virtualised(seen: Seen) -> Found:
    if not seen.machine.virtualised:
        return None
    return ("a virtual machine", "its host can't be seen from inside: trust ratios of one run before times of two days")


def _rosetta(seen: Seen) -> Found:
    if not seen.facts.get("translated"):
        return None
    return "Intel code translated by Rosetta", "install Python and the framework for arm64"


Look = Callable[[Seen], Found]
# Those that concern fake time, then those that need a real machine.
_ALWAYS: dict[str, Look] = {
    "target-not-reached": _target_not_reached, "late-change": _late_change, "recompiled": _recompiled,
    "drifting": _drifting, "two-modes": _two_modes, "host-bound": _host_bound,
}  # fmt: skip
_REAL: dict[str, Look] = {
    "contended": _contended, "oversubscribed": _oversubscribed, "throttled": _throttled, "swapping": _swapping,
    "leaking": _leaking, "on-battery": _on_battery, "low-power": _low_power, "virtualised": _virtualised,
    "rosetta": _rosetta,
}  # fmt: skip
CODES = (*_ALWAYS, *_REAL, INTERRUPTED.code)


def of_measurement(seen: Seen) -> list[Warning_]:
    """What a reader must know of a case that came out well; nobody gets in the way of fake time."""
    looks = _ALWAYS if seen.facts.get("fake_time") else {**_ALWAYS, **_REAL}
    found = ((code, look(seen)) for code, look in looks.items())
    return [Warning_(code, *told) for code, told in found if told is not None]
