"""The sections of the report, in the order of the page; one that has nothing to show is omitted."""

from __future__ import annotations

from collections.abc import Callable

from mldyno.views.report import about, details, effects, speeds
from mldyno.views.report.parts import Section
from mldyno.views.report.subject import Subject

SECTIONS: tuple[Callable[[Subject], Section | None], ...] = (
    about.verdicts,
    about.machine,
    speeds.durations,
    speeds.grids,
    effects.precision,
    effects.placement,
    effects.scaling,
    effects.crossover,
    details.peaks,
    details.published,
    details.traces,
    details.cases,
    about.method,
)


def sections_of(subject: Subject) -> list[Section]:
    """All sections that have something to show."""
    return [section for build in SECTIONS if (section := build(subject)) is not None]
