"""One case in one round: what is known of it so far, and the record that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from mldyno import __version__
from mldyno.measure.stopping import Stopping, relative_half_width
from mldyno.measure.warmup import FEWEST, settled_from
from mldyno.records import SCHEMA, Case, Checks, Device, Machine, Record, Run, Series, Software, Warning_, seal
from mldyno.runner.warnings import of_measurement
from mldyno.runner.worker_process import WorkerProcess

WARMUP_SHARE, WARMUP_LEAST = 0.25, 1.0  # of the budget, and s
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

    def _ask(self, do: str, **more: Any) -> dict[str, Any]:
        def heard(step: float) -> None:
            self.heard(self.case, step, self.half_width, self.elapsed)

        answer = self.worker.ask({"do": do, "key": 0, **more}, self.timeout, heard)
        self.facts |= answer.get("facts", {})
        return answer

    def open(self, content: dict[str, Any]) -> None:
        """Build the case, take its first step, warm it up."""
        budget = max(WARMUP_LEAST, WARMUP_SHARE * self.stopping.budget)
        self.worker.start()
        answer = self._ask("open", case=content, warmup=budget)
        self.software = answer["software"]
        self.devices = tuple(Device(**one) for one in answer["devices"])
        self.unsteady = answer["unsteady"]
        self.series += [_series(one) for one in answer["series"]]

    def turn(self, seconds: float) -> None:
        """Measure for about so many s, or for the steps that are still to do in that time."""
        left = None if self.stopping.steps is None else self.stopping.steps - self.steps
        if left is not None:
            due = round(seconds * self.steps / self.elapsed) if self.steps else 1
            left = min(left, max(due, int(self.facts["block_steps"])))
        answer = self._ask("turn", seconds=seconds, steps=left)
        for one in answer["series"]:
            series = replace(_series(one), turn=self.turns)
            self.series.append(series)
            self.values += series.values
            self.steps += series.block * len(series.values)
            self.elapsed += series.block * sum(series.values)
        self.turns += 1
        self.half_width = relative_half_width(self.values)
        self.heard(self.case, self.elapsed / self.steps, self.half_width, self.elapsed)

    @property
    def enough(self) -> bool:
        """Whether the stopping rule is content."""
        return self.stopping.enough(self.half_width, self.elapsed, self.steps)

    def close(self) -> None:
        """Check that the work was done, and read the meters."""
        answer = self._ask("close")
        self.series += [_series(one) for one in answer["series"]]
        self.checks = answer["checks"]

    def record(self, machine: Machine, status: str, reason: str, warnings: tuple[Warning_, ...] = ()) -> Record:
        """The record of what is known now."""
        found = list(warnings)
        series = self.series
        if status == "ok" and self.unsteady:
            start = settled_from(self.values) if len(self.values) >= FEWEST else None
            if start is None:
                status, reason = "unsteady", f"{self.unsteady}; there is a series, but no one number for it"
            else:
                series = _cut(series, start)
        if status == "ok":
            found += of_measurement(self.stopping, self.half_width, series, bool(self.facts.get("virtual_time")))
        self.facts |= {"steps": self.steps, "wall_time": self.worker.spent, "target": self.stopping.target}
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
                machine=replace(machine, devices=self.devices),
                software=Software(mldyno=__version__, **self.software),
                series=tuple(series),
                facts=dict(self.facts),
                checks=Checks(**self.checks),
                warnings=tuple(found),
            )
        )


def _series(content: dict[str, Any]) -> Series:
    return Series(**{**content, "values": tuple(content["values"])})


def _cut(series: list[Series], start: int) -> list[Series]:
    """The series with its first `start` steady values moved to the warm-up."""
    found = []
    for one in series:
        if one.phase != "steady" or one.metric != "step_time" or start == 0:
            found.append(one)
            continue
        early, late = one.values[:start], one.values[start:]
        start -= len(early)
        found += [replace(one, values=early, phase="warmup")] + ([replace(one, values=late)] if late else [])
    return found
