"""One case in one round: what is known of it so far, and the record that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from mldyno import __version__
from mldyno.records import SCHEMA, Case, Checks, Device, Machine, Record, Run, Series, Software, Warning_, seal
from mldyno.runner.warnings import Evidence, of_measurement
from mldyno.runner.worker_process import WorkerProcess
from mldyno.stats.intervals import batches, median
from mldyno.stats.shapes import drift
from mldyno.timing.stopping import Stopping, relative_half_width
from mldyno.timing.warmup import MIN_BLOCKS, settled_from

HALF = 0.5
WARMUP_SHARE, WARMUP_LEAST = 0.25, 1.0  # of the budget, and s
PHASES_SHARE = 0.25  # of the budget, for what is timed apart
PAIRED_FACTS = ("block_steps", "fake_time", "steps", "wall_time", "target")
Heard = Callable[[Case, float, float | None, float], None]


def now() -> str:
    """The time now, UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class CaseRun:
    """A case that a worker has, or had, in hand."""

    case: Case
    run: Run
    worker: WorkerProcess
    stopping: Stopping
    timeout: float
    heard: Heard
    key: int = 0
    """Under which its worker keeps the case, where it keeps several."""
    sharing: int = 1
    """How many cases the worker works for."""
    given: dict[str, Any] = field(default_factory=dict)
    """What the worker needs beside the case: where its data set lies, the words of a command."""
    series: list[Series] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    software: dict[str, Any] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    checks: dict[str, Any] = field(default_factory=dict)
    values: list[float] = field(default_factory=list)
    half_width: float | None = None
    """How well the mean is known, relative to it; None while there are too few blocks to say."""
    elapsed: float = 0.0
    steps: int = 0
    turns: int = 0
    unsteady: str = ""

    def tell(self, step: float) -> None:
        """Pass on what a step takes at present, in s."""
        self.heard(self.case, step, self.half_width, self.elapsed)

    def _ask(self, do: str, **more: Any) -> dict[str, Any]:
        answer = self.worker.ask({"do": do, "key": self.key, **more}, self.timeout, self.tell)
        self.facts |= answer.get("facts", {})
        return answer

    def open(self, start: bool = True) -> None:
        """Build the case, take its first step, warm it up; in a worker that is started, or that others use too."""
        budget = max(WARMUP_LEAST, WARMUP_SHARE * self.stopping.budget)
        if start:
            self.worker.start()
        answer = self._ask("open", case=asdict(self.case), warmup=budget, **self.given)
        self.software = answer["software"]
        self.devices = tuple(Device(**one) for one in answer["devices"])
        self.unsteady = answer["unsteady"]
        self.series += [series_of(one) for one in answer["series"]]

    def turn(self, seconds: float) -> None:
        """Measure for about so many s, or for the steps that are still to do in that time."""
        left = None if self.stopping.steps is None else self.stopping.steps - self.steps
        if left is not None:
            due = round(seconds * self.steps / self.elapsed) if self.steps else 1
            left = min(left, max(due, int(self.facts["block_steps"])))
        answer = self._ask("turn", seconds=seconds, steps=left)
        for one in answer["series"]:
            self.take(replace(series_of(one), turn=self.turns, stage="steady" if self.alone else "paired"))
        self.turns += 1
        self.half_width = relative_half_width(self.values)
        self.tell(self.elapsed / self.steps)

    def time_phases(self) -> None:
        """Time what can be timed apart from the step, for a share of the budget."""
        if self.facts.get("phases"):
            answer = self._ask("phases", seconds=PHASES_SHARE * self.stopping.budget)
            self.series += [series_of(one) for one in answer["series"]]

    def take(self, series: Series) -> None:
        """Keep a series; that of the steps counts as measuring time."""
        self.series.append(series)
        if series.metric == "step_time":
            self.values += series.values
            self.steps += series.block * len(series.values)
            self.elapsed += series.block * sum(series.values)

    @property
    def alone(self) -> bool:
        """Whether no other case has to do with it."""
        return self.run.pairing == "alone"

    @property
    def enough(self) -> bool:
        """Whether the stopping rule is content."""
        return self.stopping.enough(self.half_width, self.elapsed, self.steps)

    def close(self) -> None:
        """Check that the work was done, and read the meters."""
        answer = self._ask("close")
        self.series += [series_of(one) for one in answer["series"]]
        self.checks = answer["checks"]

    def _settled(self) -> int | None:
        """From which measured block on the case is steady; None where it never was.

        The warm-up has judged that; what it could not settle, or a slow start that outlasted it, is judged here.
        """
        if self.unsteady:
            return settled_from(self.values) if len(self.values) >= MIN_BLOCKS else None
        return (settled_from(self.values) or 0) if slow_start(self.values) else 0

    def record(self, machine: Machine, status: str, reason: str, warnings: tuple[Warning_, ...] = ()) -> Record:
        """The record of what is known now; `machine` with the devices that the worker has seen, and what they are."""
        found = list(warnings)
        series = self.series
        facts = self.facts | {
            "steps": self.steps,
            "wall_time": self.worker.spent / self.sharing,
            "target": self.stopping.target,
        }
        if not self.alone:  # times for ratios only
            series = [one for one in series if one.stage == "paired"]
            facts = {name: facts[name] for name in PAIRED_FACTS if name in facts}
        elif status == "ok":
            facts |= ratio_to_reference(series)
            start = self._settled()
            if start is None:
                status, reason = "unsteady", f"{self.unsteady}; there is a series, but no one number for it"
            else:
                series = _cut(series, start)
                known = relative_half_width(self.values[start:])
                threads, env = self.software["threads"], self.software["env"]
                found += of_measurement(Evidence(self.case, series, facts, machine, threads, self.stopping, known, env))
        return seal(
            Record(
                schema=SCHEMA,
                id="",
                created=now(),
                provenance="measured",
                run=self.run,
                case=self.case,
                status=status,  # type: ignore[arg-type]
                reason=reason,
                machine=machine,
                software=Software(mldyno=__version__, **self.software),
                series=tuple(series),
                facts=facts,
                checks=Checks(**self.checks),
                warnings=tuple(found),
            )
        )


def slow_start(values: list[float]) -> bool:
    """Whether the first part was slower, up to one jump: a plateau that outlasted the looks of the warm-up."""
    found = drift(values)
    return found is not None and found.change < 0 and found.change_point is not None and found.change_point < HALF


def ratio_to_reference(series: list[Series]) -> dict[str, float]:
    """How many reference kernels a step takes, each against the blocks around it: what slows both down falls out."""
    ratios = []
    for one in series:
        near = [s for s in series if (s.metric, s.stage, s.turn) == ("reference_time", one.stage, one.turn)]
        if (one.metric, one.stage) == ("step_time", "steady") and near and len(one.values) >= len(near[0].values):
            around = batches(one.values, len(near[0].values))
            ratios += [median(steps) / stick for steps, stick in zip(around, near[0].values, strict=True)]
    return {"step_per_reference": float(f"{median(ratios):.6g}")} if ratios else {}


def series_of(content: dict[str, Any]) -> Series:
    """A series as a worker sent it."""
    return Series(**{**content, "values": tuple(content["values"])})


def _cut(series: list[Series], start: int) -> list[Series]:
    """The series with its first `start` steady values moved to the warm-up."""
    found = []
    for one in series:
        if one.stage != "steady" or one.metric != "step_time" or start == 0:
            found.append(one)
            continue
        early, late = one.values[:start], one.values[start:]
        start -= len(early)
        found += [replace(one, values=early, stage="warmup")] + ([replace(one, values=late)] if late else [])
    return found
