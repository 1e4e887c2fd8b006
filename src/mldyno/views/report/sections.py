"""The sections of the report by question, in the order of the page; one that has nothing to say is omitted."""

from __future__ import annotations

from collections.abc import Callable

from mldyno.views.report import details, energy, ranks, sizes, speeds
from mldyno.views.report.parts import Section
from mldyno.views.report.subject import Subject

SECTIONS: tuple[Callable[[Subject], Section | None], ...] = (
    speeds.how_fast,
    speeds.devices,
    speeds.ways,
    speeds.own_work,
    details.limits,
    sizes.scaling,
    ranks.ranks,
    energy.energy,
    details.sure,
    details.cases,
    details.method,
)


def sections_of(subject: Subject) -> list[Section]:
    """All sections that have something to say."""
    return [section for build in SECTIONS if (section := build(subject)) is not None]
