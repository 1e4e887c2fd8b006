"""The metrics of a record, and the figures that are worked out from them: one entry each.

An entry says in which stages the values count, how those of a process become one number, what it is called and
which way is better. Tables, CSV, JSON and the range check follow from it; the table in docs/reference.md is held
to it by a test. A record may hold metrics that have no entry: those of a phase, or of another version. They are
shown by a general entry.

Rule: standard library only, since a worker in any interpreter uses this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mldyno.stats.intervals import mean, median
from mldyno.units import Interval, Scale, digits, show, show_error

Unit = Literal["s", "B", "J", "W", "1/s", "1/J", "1"]
Reduce = Literal["median", "mean", "sum", "max", "last"]
Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Metric:
    """One quantity, in its SI unit."""

    name: str
    unit: Unit
    title: str
    stages: tuple[str | None, ...] = ("steady",)
    """Where its values count: the first of these stages that has some; None is any stage."""
    reduce: Reduce = "median"
    """How the values of a process become one number."""
    better: Better | None = None
    """Which way is better; None where that can't be said."""
    aliases: tuple[str, ...] = ()
    """What it was called before."""
    over_zero: bool = False
    """Whether 0 is out of range: work that takes no time was not done."""
    ratio: bool = False
    """Whether it is shown as a factor: 1.40x."""
    derived: bool = False
    """Whether it is worked out on reading, from other metrics and from facts."""
    of_every_case: bool = False
    """Whether every case that succeeded has it, so that a table shows why another has not."""

    def show(self, number: Interval, unit: str, scale: Scale | None = None) -> str:
        """Show a number of it with its relative error: 2.31 ms ±1.2 %, 1.40x ±2.0 %."""
        error = show_error(number.value, number.half_width)
        if self.ratio:
            return f"{digits(number.value, number.half_width)}x{error}"
        return show(number.value, unit, number.half_width, scale) + error

    def number(self, values: Sequence[float]) -> float:
        """Return the one number that the values of a process become."""
        return _REDUCERS[self.reduce](values)


_REDUCERS: Mapping[Reduce, Callable[[Sequence[float]], float]] = {
    "median": median, "mean": mean, "sum": sum, "max": max, "last": lambda values: values[-1],
}  # fmt: skip
_WINDOWS = ("window",)
_PROCESS = ("process",)
METRICS: tuple[Metric, ...] = (
    Metric("step", "s", "time of one step", better="lower", derived=True, of_every_case=True),
    Metric("throughput", "1/s", "items per second", better="higher", derived=True, of_every_case=True),
    Metric("speedup", "1", "speed-up", better="higher", derived=True, of_every_case=True, ratio=True),
    Metric("score", "1", "score, over all cases of quick", better="higher", derived=True),
    Metric("first_step", "s", "time of the first step", better="lower", derived=True, of_every_case=True),
    Metric("first_batch", "s", "time of the first batch from disk", better="lower", derived=True),
    Metric("peak_share", "1", "share of the peak matmul rate", better="higher", derived=True,
           ratio=True, aliases=("roof",)),
    Metric("step_time", "s", "time of one step", better="lower", over_zero=True),
    Metric("data_wait", "s", "time of a step within the loader", better="lower"),
    Metric("held_time", "s", "time of one step with a batch that is held", ("beside",), better="lower"),
    Metric("apart_time", "s", "time between steps: validation, saving", ("apart", "between"), "sum"),
    Metric("loop_time", "s", "time of a loop of steps", better="lower", over_zero=True),
    Metric("process_time", "s", "time of a whole program", better="lower", over_zero=True),
    Metric("reference_time", "s", "time of the reference kernel", aliases=("yardstick",)),
    Metric("peak_memory", "B", "peak memory of the process", _PROCESS, "max", "lower", of_every_case=True),
    Metric("peak_device_memory", "B", "peak memory on the device", _PROCESS, "max", "lower"),
    Metric("rank_peak_memory", "B", "peak memory of a rank's process", _PROCESS, "max", "lower"),
    Metric("efficiency", "1/J", "items per joule", better="higher", derived=True),
    Metric("energy_above_idle", "J", "energy of one step above idle", better="lower",
           derived=True),
    Metric("energy", "J", "energy of one step", better="lower"),
    Metric("power", "W", "mean power", reduce="mean", better="lower"),
    Metric("idle_power", "W", "mean power at rest", reduce="mean", better="lower"),
    Metric("peak_power", "W", "peak power", ("steady", "process"), "max", "lower"),
    Metric("resident_memory", "B", "resident memory at the end of a window", _WINDOWS, "max"),
    Metric("window_time", "s", "time of all windows", _WINDOWS, "sum", aliases=("lap_time",)),
    Metric("cpu_time", "s", "CPU time in all windows", _WINDOWS, "sum"),
    Metric("run_delay", "s", "time runnable without a core, in all windows", _WINDOWS, "sum"),
    Metric("stolen_time", "s", "time taken by the host, in all windows", _WINDOWS, "sum"),
    Metric("cpu_pressure", "s", "time that any thread of the machine waited for a core, in all windows", _WINDOWS,
           "sum"),
    Metric("forced_switches", "1", "forced switches in all windows", _WINDOWS, "sum"),
    Metric("page_faults", "1", "page faults in all windows", _WINDOWS, "sum"),
    Metric("load", "1", "load of the system at the start", _PROCESS, "last"),
    Metric("throttle_events", "1", "times that cores were slowed down for heat", _PROCESS, "sum"),
    Metric("speed_limit", "1", "share of its full speed that the CPU was allowed", _PROCESS, "last"),
    Metric("thermal_pressure", "1", "highest level of thermal pressure", _PROCESS, "max"),
    Metric("gpu_held_back", "1", "share of samples in which the driver held a clock down", _PROCESS, "last"),
    Metric("thermal_limit_time", "s", "time that heat held the GPU's clock down", _PROCESS, "sum"),
    Metric("power_limit_time", "s", "time that power held the GPU's clock down", _PROCESS, "sum"),
    Metric("gpu_clock", "1/s", "clock of the GPU at the end of a window", _WINDOWS, "median"),
    Metric("swapped_memory", "B", "memory swapped meanwhile", _PROCESS, "sum"),
)  # fmt: skip
METRIC: dict[str, Metric] = {name: metric for metric in METRICS for name in (metric.name, *metric.aliases)}


def metric_named(name: str) -> Metric:
    """Return the entry of a metric, by its name of today or of before; a general one where there is none.

    `time:100steps` and `throughput:decode` are the time of a step and the throughput, of just that.
    """
    kind, _, part = name.partition(":")
    if kind == "time" and (steps := part.removesuffix("steps")).isdecimal() and len(steps) < 13:
        return replace(METRIC["step"], name=name, title=f"time of {int(steps):,} steps")
    if kind == "throughput" and part:
        return replace(METRIC["throughput"], name=name, title=f"items per second, {part}")
    return METRIC.get(name) or Metric(name, "1", name.replace("_", " "), ("steady", "process", "window", None))
