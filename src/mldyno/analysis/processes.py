"""The processes that a case was measured in: the time of each, and what else tells how good its minutes were."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from mldyno.metrics import metric_named
from mldyno.records import Record
from mldyno.stats.intervals import median

T = TypeVar("T")
THIS_PROCESS = "python"  # the framework of a function that was timed where it was called


@dataclass(frozen=True)
class Process:
    """One process of a case: when it was, how long a step took, and how long its reference kernel; times in log s."""

    case: str
    run: str
    kernel: tuple[object, ...]
    """What its reference kernel depends on, apart from the machine; of one without it, just device and threads."""
    power: str | None
    when: float
    """In s since 1970."""
    time: float
    reference: float
    """0 where there is none, as of a command."""
    contended: bool = False
    """Whether its threads had to wait for a core."""

    def near(self, other: Process) -> bool:
        """Whether it ran on the same device with as many threads."""
        return self.kernel[:2] == other.kernel[:2]

    def without(self, slope: float) -> float:
        """Its time without what the reference kernel explains."""
        return self.time - slope * self.reference


def processes_of(record: Record, metric: str = "step_time") -> list[Process]:
    """The processes of a case that was measured alone, well and in real time: one, or every run of a command."""
    if record.status != "ok" or not record.alone or record.case.framework == THIS_PROCESS:
        return []
    if record.fact("wall_time") is None or record.fact("fake_time"):  # a figure, or nothing that varies
        return []
    case, software, size = record.case, record.software, record.fact("reference_size")
    references = record.values("reference_time") if size else []  # earlier versions had another kernel
    place: tuple[object, ...] = (case.device, software.threads)
    when = datetime.fromisoformat(record.created.replace("Z", "+00:00")).timestamp()
    return [
        Process(
            case=f"{case.id} {sorted(software.versions.items())}",
            run=record.run.id,
            kernel=(*place, case.framework, case.precision, size) if references else place,
            power=record.machine.power,
            when=when,
            time=math.log(median(values)),
            reference=math.log(median(references)) if references else 0.0,
            contended=contended(record),
        )
        for values in by_process(record, metric)
        if median(values) > 0
    ]


def telling(records: Iterable[Record]) -> list[Process]:
    """The processes that tell how much those of a machine differ: all but users' loops, which change in between."""
    return [process for record in records if not record.case.tracked for process in processes_of(record)]


def undisturbed(items: Sequence[T], waited: Callable[[T], bool]) -> list[T]:
    """Those that did not have to wait for a core, where there are such."""
    return [item for item in items if not waited(item)] or list(items)


def contended(record: Record) -> bool:
    """Whether its threads had to wait for a core, or the machine's host took much of its time."""
    return any(warning.code == "contended" for warning in record.warnings)


def by_process(record: Record, metric: str) -> list[list[float]]:
    """The values that count, of each process apart: of a command every run was one."""
    values = counted(record, metric)
    if record.fact("end_to_end"):
        return [[value] for value in values]
    return [values] if values else []


def counted(record: Record, metric: str) -> list[float]:
    """The metric's values that count: those of the first of its stages that has some.

    A figure from a CSV is `steady`, whatever it is.
    """
    stages = (*metric_named(metric).stages, "steady")
    return next((values for stage in stages if (values := record.values(metric, stage))), [])
