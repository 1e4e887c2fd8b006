"""The metrics and the facts of a record: one entry each.

The entry of a metric says in which stages its values count, how those of a process become one number, what it is
called and which way is better. The entry of a fact, of a record or a device, says what its value may be. Tables, CSV,
JSON and the checks of what is written or imported follow from the entries; tests hold docs/reference.md to them.
A record may hold metrics and facts without an entry: those of a phase, or of another version. Such a metric is shown
by a general entry; such a fact is any plain value, on whose type nothing may rely.

Rule: standard library only, since a worker in any interpreter uses this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mldyno.printable import LONGEST_NAME, LONGEST_TEXT
from mldyno.stats.intervals import mean, median
from mldyno.units import Interval, Scale, count, digits, show, show_error, show_hertz

Unit = Literal["s", "B", "J", "W", "1/s", "1/J", "1"]
Reduce = Literal["median", "mean", "sum", "max", "last"]
Better = Literal["lower", "higher"]
Kind = Literal["count", "number", "text", "flag"]


@dataclass(frozen=True)
class Metric:
    """One quantity, in its SI unit."""

    name: str
    unit: Unit
    title: str
    stages: tuple[str | None, ...] = ("steady",)  # its values count in the first of these that has some; None is any
    reduce: Reduce = "median"  # how the values of a process are reduced to one number
    better: Better | None = None  # which way is better; None where neither is
    aliases: tuple[str, ...] = ()  # former names
    over_zero: bool = False  # whether 0 is out of range: a step that takes no time was not done
    ratio: bool = False  # whether it is shown as a factor: 1.40x
    derived: bool = False  # whether it is computed on reading, from other metrics and facts
    of_every_case: bool = False  # whether every case that succeeded has it: a table says why another has not

    def show(self, number: Interval, unit: str, scale: Scale | None = None) -> str:
        """Show a number of it with its relative error: 2.31 ms ±1.2 %, 1.40x ±2.0 %."""
        error = show_error(number.value, number.half_width)
        if self.ratio:
            return f"{digits(number.value, number.half_width)}x{error}"
        return show(number.value, unit, number.half_width, scale) + error

    def number(self, values: Sequence[float]) -> float:
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
    Metric("price_per_million_steps", "1", "price of a million steps", better="lower", derived=True),
    Metric("price_per_million_items", "1", "price of a million items", better="lower", derived=True),
    Metric("price_per_million_tokens", "1", "price of a million tokens", better="lower", derived=True),
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
    """Return the entry of a metric by its present or former name; a general one where there is none.

    `time:100steps` and `throughput:decode` are the time of a step and the throughput, of just that.
    """
    kind, _, part = name.partition(":")
    if kind == "time" and (steps := part.removesuffix("steps")).isdecimal() and len(steps) < 13:
        return replace(METRIC["step"], name=name, title=f"time of {int(steps):,} steps")
    if kind == "throughput" and part:
        return replace(METRIC["throughput"], name=name, title=f"items per second, {part}")
    return METRIC.get(name) or Metric(name, "1", name.replace("_", " "), ("steady", "process", "window", None))


SMALLEST, LARGEST = 1e-30, 1e30  # what a number in a record may be, apart from 0, so that ratios stay finite
LONGEST_TIME_S = 1e9  # 30 years: beyond this no system waits
_WORDS = {"count": "a whole number", "number": "a number", "flag": "true or false", "text": "text"}
_TYPES = {"count": (int,), "number": (float, int), "flag": (bool,), "text": (str,)}


@dataclass(frozen=True)
class Entry:
    """One fact: its type, SI unit, range and wording."""

    kind: Kind
    unit: str = ""
    least: float = 0
    most: float = LARGEST  # of a text: characters
    show: Callable[[Any], str] | None = None  # puts a value into words; None where its name and value suffice

    def flaw(self, value: Any) -> str:
        """Return what the value must be and is not; empty where it fits."""
        if type(value) not in _TYPES[self.kind]:
            return f"must be {_WORDS[self.kind]}"
        if self.kind == "flag":
            return ""
        if self.kind == "text":
            longest = int(min(self.most, LONGEST_TEXT))
            return "" if len(value) <= longest else f"is longer than {longest:,} characters"
        fits = self.least <= value <= self.most and (value == 0 or abs(value) >= SMALLEST)
        return "" if fits else f"must be {_WORDS[self.kind]} from {self.least:g} to {self.most:g}"

    def within(self, value: float) -> float:
        """Return the nearest value that it may have."""
        return min(self.most, max(self.least, value))


_COUNT, _SOME = Entry("count"), Entry("count", least=1)
_TIME, _NUMBER = Entry("number", "s", most=LONGEST_TIME_S), Entry("number", "1")
_SHARE, _FREEDOM = Entry("number", "1", most=10), Entry("number", "1", least=0.1, most=1000)
_RATE, _TEXT, _FLAG = Entry("number", "1/s"), Entry("text"), Entry("flag")
_LABEL = Entry("text", show=lambda value: "")  # says which one it is, not what it is

FACTS: Mapping[str, Entry] = {
    # the work
    "items_per_step": _SOME, "item": _TEXT, "params": _COUNT, "flops_per_step": _NUMBER,
    "bytes_per_step": Entry("number", "B"), "copied_per_step": Entry("number", "B"), "kernels_per_step": _COUNT,
    "host_syncs_per_step": _COUNT, "phases": Entry("text", most=LONGEST_NAME),
    "beside": _TEXT, "data": _TEXT, "end_to_end": _FLAG,
    "architecture": _TEXT, "transformers": _TEXT, "weights": _TEXT, "weights_in": _TEXT,
    "batch_per_rank": _SOME, "batch_in_all": _SOME, "nodes": _TEXT,
    "epochs": _SOME, "ended": _TEXT,
    # how it was measured
    "import_time": _TIME, "build_time": _TIME, "first_batch": _TIME, "first_step": _TIME, "wall_time": _TIME,
    "steps": _COUNT, "block_steps": _SOME, "target": _NUMBER, "warmup_steady": _FLAG, "overhead_share": _NUMBER,
    "load_time": _TIME, "issued_share": _NUMBER, "drained_share": _NUMBER, "events_share": _NUMBER,
    "fallbacks_per_step": _COUNT, "emulated": _FLAG, "convolutions": _FLAG, "late_changes": _COUNT, "fake_time": _FLAG,
    "translated": _FLAG, "step_per_reference": _NUMBER, "reference_size": _SOME,
    # what its processes were allowed, and what ran before
    "niceness": Entry("count", least=-20, most=20), "cores_allowed": _SOME, "cores_present": _SOME,
    "cpu_quota": Entry("number", "1", least=1e-6), "memory_limit": Entry("count", "B"), "load_before": _NUMBER,
    # what its machine costs
    "price_per_hour": Entry("number"), "currency": Entry("text", most=3),
    # what is usual on its machine
    "process_spread": _SHARE, "process_freedom": _FREEDOM, "reference_slope": Entry("number", "1", most=3),
    "reference_slope_error": _SHARE,
    "reference_usual": _TIME, "reference_error": _SHARE, "reference_freedom": _FREEDOM,
    "compile_time": _TIME, "graphs": _COUNT, "graph_breaks": _COUNT, "compile_cached": _FLAG, "recompiles": _COUNT,
    # checks and proofs
    "proof": _TEXT, "blas": _TEXT,
    "device_seen": _TEXT, "products_in": _TEXT, "effective_precision": _TEXT, "not_checked": _TEXT,
    "device_peak_by": _TEXT,
    "accuracy": Entry("number", "1", most=1), "loss_first": _NUMBER, "loss_last": _NUMBER,
    "gradient_error": _NUMBER,
    # DistributedDataParallel's own log
    "ddp_buckets": _TEXT, "ddp_forward_compute_time": _TIME, "ddp_backward_compute_time": _TIME,
    "ddp_backward_comm_time": _TIME, "ddp_backward_compute_comm_overlap_time": _TIME,
    # the source of its energy figures
    "energy_scope": _TEXT, "energy_by": _TEXT, "energy_method": _TEXT, "energy_error": _SHARE, "energy_lost": _TEXT,
    "energy_others": _NUMBER,
    # peaks
    "peak_flops": _RATE, "peak_bandwidth": Entry("number", "B/s"), "peak_copy_bandwidth": Entry("number", "B/s"),
    # published figures
    "note": _TEXT,
    # commands, and copies without them
    "command": _TEXT, "private": _FLAG,
    # the user's own models
    "restored_settings": _TEXT, "same_batch": _TEXT, "inference_without": _TEXT, "loss_in_inference": _FLAG,
    "draws_random": _FLAG,
}  # fmt: skip
NAMED: Mapping[str, Entry] = {"_items": _SOME, "_loss_first": _NUMBER, "_loss_last": _NUMBER}
"""Facts of a phase, or of a check of a workload's own, by what follows its name."""
DEVICE_FACTS: Mapping[str, Entry] = {
    "driver": _TEXT, "kernel_driver": _TEXT,
    "power_limit": Entry("number", "W", show=lambda value: f"at most {digits(value)} W"),
    "clock": Entry("number", "1/s", show=lambda value: f"up to {show_hertz(value)}"),
    "memory_clock": Entry("number", "1/s", show=lambda value: f"memory at up to {show_hertz(value)}"),
    "cores": _COUNT, "performance_cores": _COUNT, "efficiency_cores": _COUNT,
    "threads": _COUNT, "governor": _TEXT, "compute_capability": _TEXT, "multiprocessors": _COUNT,
    "compute_units": _COUNT, "uuid": _LABEL, "pci_bus": _LABEL, "pci_product": _LABEL,
}  # fmt: skip

_ANY_NUMBER = Entry("number", least=-LARGEST)
_OF_TYPE: Mapping[type, Entry] = {str: _TEXT, bool: _FLAG, int: _ANY_NUMBER, float: _ANY_NUMBER}


def flaw(entries: Mapping[str, Entry], name: str, value: Any) -> str:
    """Return what is wrong with the value of a fact; empty if nothing is."""
    if value is None:
        return ""
    entry = entries.get(name) or next((NAMED[end] for end in NAMED if name.endswith(end)), None)
    return (entry or _OF_TYPE[type(value)]).flaw(value)


def flaws(entries: Mapping[str, Entry], facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts with wrong values, each with what is wrong."""
    return {name: wrong for name, value in facts.items() if (wrong := flaw(entries, name, value))}


def in_words(entries: Mapping[str, Entry], name: str, value: Any) -> str:
    """Put a fact into words: driver 535.104.05, 12 performance cores; empty if there is nothing to say."""
    entry, spoken = entries.get(name), name.replace("_", " ")
    if entry is not None and entry.show is not None and value is not None:
        return entry.show(value)
    if isinstance(value, str):
        return f"{spoken} {value}"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return count(int(value), spoken.removesuffix("s")) if is_number else ""
