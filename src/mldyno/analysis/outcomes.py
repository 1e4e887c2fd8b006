"""Outcomes: the records of one case in one run on one machine, with their figures and samples."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from mldyno.analysis import grouped
from mldyno.analysis.estimates import Estimate, of_metric, step_time
from mldyno.axes import AXES, NAMES
from mldyno.errors import MldynoError, UsageError, unknown
from mldyno.metrics import METRIC, METRICS, metric_named
from mldyno.records import Case, Record, Warning_
from mldyno.stats.intervals import half_width, median
from mldyno.units import PERIODS, Price, show_percent

VALUES = (*(metric.name for metric in METRICS if metric.of_every_case), "time:100steps")
DERIVED = tuple(metric.name for metric in METRICS if metric.derived)
PRICED = ("steps", "items", "tokens")  # that a million of has a price
T = TypeVar("T")
TARGET_NOT_REACHED = "target-not-reached"
POWERS = ("power", "peak_power", "idle_power")  # measured in the same scope as energy
OF_THE_MACHINE = ("virtualised", "on-battery", "low-power", "rosetta")
_TIME = re.compile(r"^time:([0-9]{1,12})steps$")
_RATE = re.compile(r"^throughput:([a-z]+)$")


@dataclass(frozen=True)
class Outcome:
    """All processes of one case in one run on one machine."""

    records: tuple[Record, ...]  # those of processes that ran the case alone
    pairings: tuple[Record, ...] = ()  # those of head-to-head measurements: times for ratios only

    @property
    def case(self) -> Case:
        return self.records[0].case

    @property
    def machine(self) -> str:
        return self.records[0].shown_machine

    def renamed(self, workload: str) -> Outcome:
        """Return a copy with another name for its workload; unchanged where the name is empty."""
        sides = (tuple(replace(record, case=replace(record.case, workload=workload)) for record in records)
                 for records in (self.records, self.pairings))  # fmt: skip
        return Outcome(*sides) if workload else self

    @cached_property
    def good(self) -> list[Record]:
        return [record for record in self.records if record.status == "ok"]

    @cached_property
    def step(self) -> Estimate | None:
        """Time of one step in s; cached, since everything uses it."""
        return step_time(self.good)

    @property
    def status(self) -> str:
        """Ok where any process succeeded; else the status of the first."""
        return "ok" if self.good else self.records[0].status

    @property
    def reason(self) -> str:
        return "" if self.good else self.records[0].reason

    @property
    def published(self) -> bool:
        return self.records[0].provenance == "published"

    @property
    def warnings(self) -> list[Warning_]:
        """The warnings of its processes, each once, and whether all of them together missed the target."""
        warnings = list(dict.fromkeys(warning for record in self.records for warning in record.warnings))
        target, width = self.records[-1].fact("target"), self.step and self.step.half_width
        missed = target and self.step and width and width > target * self.step.value
        if not missed or any(warning.code == TARGET_NOT_REACHED for warning in warnings):
            return warnings
        message = f"its interval is wider than the ±{show_percent(target)} asked for"
        hint = "give it more time with --budget, or a quieter machine"
        return [Warning_(TARGET_NOT_REACHED, message, hint), *warnings]

    @property
    def notes(self) -> list[str]:
        """The warnings as text, without those about the whole machine, which are shown elsewhere."""
        warnings = (warning for warning in self.warnings if warning.code not in OF_THE_MACHINE)
        return [f"{each.message}; {each.hint}" if each.hint else each.message for each in warnings]

    @property
    def error(self) -> float | None:
        """The largest relative difference from the results in fp32 on the CPU; None where unchecked."""
        return max((record.checks.error for record in self.good if record.checks.error is not None), default=None)

    @property
    def item(self) -> str:
        """The item that its throughput counts: token, image, B; if the record names none, that of the workload."""
        named = next((record.fact("item") for record in self.good), None) or "item"
        if named != "item" or self.case.tracked:
            return str(named)
        from mldyno import plugins  # a tracked loop loads no workload

        if self.case.workload in plugins.names("workloads"):
            workload = plugins.workload(self.case.workload)
            return workload.item if workload.items(self.case) == self.case.batch else named
        return named

    def figure(self, value: str) -> Estimate | None:
        """Return a value by name; None where this outcome does not have it."""
        if not self.good:
            return None
        derived: dict[str, Callable[[], Estimate | None]] = {
            "step": lambda: self.step, "throughput": lambda: self._per_step(self.step, "1/s"),
            **{name: partial(self._median_of_fact, name) for name in ("first_step", "first_batch")},
            "peak_share": self._share_of_peak, "energy": self._energy, "energy_above_idle": self._energy_above_idle,
            "efficiency": lambda: self._per_step(self._energy(), "1/J"),
            **{f"price_per_million_{per}": partial(self._price, per) for per in PRICED},
        }  # fmt: skip
        if value in derived:
            return derived[value]()
        if times := _TIME.match(value):
            return self._time_of(int(times.group(1)))
        if rate := _RATE.match(value):
            return self._rate_of(rate.group(1))
        return of_metric(self.with_energy if value in POWERS else self.good, value)

    @property
    def phases(self) -> list[str]:
        """The names of the phases that were timed apart from the step."""
        return [name for name in (self.records[0].fact("phases") or "").split(", ") if name]

    def _rate_of(self, phase: str) -> Estimate | None:
        time, items = of_metric(self.good, f"{phase}_time"), self.good[0].fact(f"{phase}_items")
        return time.per(items, "1/s") if time is not None and time.value and items else None

    def waits_for_data(self) -> float | None:
        """Return the share of a step that getting its batch takes; with workers, of what they can load a second."""
        rate, throughput = self._rate_of("data"), self.figure("throughput")
        return None if rate is None or throughput is None else min(1.0, throughput.value / rate.value)

    def _median_of_fact(self, fact: str) -> Estimate | None:
        """Return the median over processes of a time in s that each has once."""
        times = [float(time) for record in self.good if (time := record.fact(fact)) is not None]
        return Estimate(sorted(times)[len(times) // 2], unit="s", processes=len(times)) if times else None

    def _per_step(self, amount: Estimate | None, unit: str) -> Estimate | None:
        """Return the items of a step per unit of what the step takes."""
        items = self.good[0].fact("items_per_step") or self.case.batch
        return None if amount is None or not amount.value or items is None else amount.per(items, unit)

    @property
    def price(self) -> Price | None:
        """What its machine costs; None where that was not stated, or its processes state several prices."""
        stated = {(record.fact("price_per_hour"), record.fact("currency")) for record in self.good}
        amount, currency = stated.pop() if len(stated) == 1 else (None, None)
        return Price(amount, currency) if amount and currency else None

    def _price(self, per: str) -> Estimate | None:
        """Return the price of a million steps, items or tokens, in its currency, with the interval of the time."""
        step, price, items = self.step, self.price, 1.0
        if per != "steps":
            items = self.good[0].fact("items_per_step") or 0.0
        if step is None or price is None or not items or (per == "tokens" and self.item != "token"):
            return None
        return step.scaled(1e6 / items * price.per_hour / PERIODS["h"][1], price.currency)

    def _share_of_peak(self) -> Estimate | None:
        """Return floating-point operations per second over the device's peak in matmuls."""
        step = self.step
        flops, peak = (self.good[0].fact(name) for name in ("flops_per_step", "peak_flops"))
        return None if step is None or not flops or not peak else step.per(flops / peak, "1")

    @cached_property
    def with_energy(self) -> list[Record]:
        """Those of one scope, which is the first's that has some; all of them, where none names its scope."""
        scopes = [record.fact("energy_scope") for record in self.good]
        scope = next(filter(None, scopes), None)
        return [record for record, each in zip(self.good, scopes, strict=True) if each == scope]

    def _energy(self) -> Estimate | None:
        """Return the energy of one step in J; its interval includes the variation between processes."""
        energy, power, step = *(of_metric(self.with_energy, name) for name in ("energy", "power")), self.step
        if energy is None:
            return None
        parts = [each.half_width / each.value for each in (power, step)
                 if each is not None and each.half_width is not None and each.value]  # fmt: skip
        if len(parts) < 2:
            return energy
        energies = [record.values("energy") for record in self.with_energy]
        windows = [values for values in energies if len(values) > 1 and median(values) > 0]
        within = math.hypot(*(half_width(values) / median(values) for values in windows)) / max(1, len(windows))
        off = self.with_energy[0].fact("energy_error") or 0.0
        return energy.with_half_width(energy.value * math.hypot(*parts, within, off))

    def _energy_above_idle(self) -> Estimate | None:
        """Return the energy of one step without the machine's idle energy in that time."""
        energy, power, idle = self._energy(), *(of_metric(self.with_energy, name) for name in ("power", "idle_power"))
        if energy is None or power is None or idle is None or not power.value:
            return None
        seconds = energy.value / power.value
        known = energy.half_width is not None and idle.half_width is not None
        width = math.hypot(energy.half_width or 0.0, seconds * (idle.half_width or 0.0)) if known else None
        return energy.with_half_width(width, value=energy.value - seconds * idle.value)

    def _time_of(self, steps: int) -> Estimate | None:
        loop = of_metric(self.good, "loop_time")
        if loop is not None and self.good[0].fact("steps") == steps:
            return loop
        step = self.step
        return None if step is None else step.scaled(steps, "s")


def known_value(word: str, metrics: Iterable[str]) -> str:
    """Return the value that a word means, measured in these records or not; raise unless there is such a value."""
    value = metric_named(word).name
    if value.startswith("time:"):
        match = _TIME.match(value)
        if not match or int(match.group(1)) == 0:
            raise UsageError(f"'{value[:40]}' is not a time of steps; write it as time:100steps.")
        return value
    named = sorted(set(metrics))
    phases = [name.removesuffix("_time") for name in named if name.endswith("_time") and name not in METRIC]
    rates = [f"throughput:{phase}" for phase in phases]
    possible = list(dict.fromkeys([*VALUES, *DERIVED, *named, *rates]))
    if value not in (*possible, *METRIC) and (rates or not _RATE.match(value)):
        raise unknown("value", value, possible)
    return value


def missing(value: str) -> MldynoError:
    """Return the error for a value that none of the records has, with what measures it."""
    if value in (*POWERS, "energy", "energy_above_idle", "efficiency"):
        return MldynoError("no energy was measured in these records; measure it with: mldyno run WORKLOAD --energy")
    if value.startswith("price_per_million_"):
        how = "state it when you measure: mldyno run WORKLOAD --price '0.80 EUR/h'"
        return MldynoError(f"none of these records has a price of its machine; {how}")
    return MldynoError(f"none of these records has {value} ({metric_named(value).title}).")


def outcomes(records: Sequence[Record]) -> list[Outcome]:
    """Group records by machine, case and run, in the order they came."""
    whole = (record for record in records if not record.interrupted)
    groups = grouped(whole, lambda record: (record.shown_machine, record.case.id, record.run.id))
    sides = ([tuple(record for record in group if record.alone is alone) for alone in (True, False)]
             for group in groups.values())  # fmt: skip
    return [Outcome(alone, pairings) for alone, pairings in sides if alone]


Key = tuple[Any, ...]
# What comes first in a table: the defaults; of frameworks none comes before another.
ORDER = {word: place for axis in AXES if not axis.plugins for place, word in enumerate(axis.planned)
         if isinstance(word, str)}  # fmt: skip


def column(outcome: Outcome, name: str) -> Any:
    """Return an outcome's value on an axis, its machine, or its run."""
    if name == "run":
        return outcome.records[0].run.id
    return outcome.machine if name == "machine" else getattr(outcome.case, name)


def varying(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the axes, machine among them, in which these outcomes differ."""
    return [name for name in (*NAMES, "machine") if len({column(outcome, name) for outcome in outcomes}) > 1]


def in_order(keys: set[Key]) -> list[Key]:
    """Sort keys as a reader expects: numbers by size, the CPU and fp32 first."""

    def order(part: Any) -> tuple[int, int, str]:
        return (0, part, "") if isinstance(part, int) else (ORDER.get(str(part), 1 << 60), 0, str(part))

    return sorted(keys, key=lambda key: list(map(order, key)))


@dataclass(frozen=True)
class Sample:
    """The time in s of a step in one block, and the number of steps that were done before it in its process."""

    process: int
    stage: str
    step: int
    seconds: float


def _samples(number: int, record: Record) -> Iterator[Sample]:
    done = 1  # the first step is a separate series
    for series in record.series:
        if series.metric == "step_time" and series.stage in ("warmup", "steady"):
            for value in series.values:
                yield Sample(number, series.stage, done, value)
                done += series.block


def sample_count(outcome: Outcome) -> int:
    """Return how many samples there are."""
    return sum(1 for record in outcome.records for _ in _samples(1, record))


def trace(outcome: Outcome, most: int) -> list[Sample]:
    """Return about `most` samples of all processes of a case."""
    every = [list(_samples(number, record)) for number, record in enumerate(outcome.records, 1)]
    share = most / max(most, sum(map(len, every)))
    return [sample for samples in every for sample in thinned(samples, max(2, round(share * len(samples))))]


def thinned(items: Sequence[T], most: int) -> list[T]:
    """Return at most that many items at even distances: the first, and the last unless `most` is 1."""
    if len(items) <= most:
        return list(items)
    return [items[round(place * (len(items) - 1) / max(1, most - 1))] for place in range(most)]
