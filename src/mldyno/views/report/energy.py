"""What does it take? Energy and power of steps, and time against energy where the same work is done in several ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mldyno.analysis import grouped
from mldyno.analysis.answers import Answers, compared_in_energy
from mldyno.analysis.comparisons import alike
from mldyno.analysis.outcomes import Outcome, column, varying
from mldyno.axes import WAYS
from mldyno.units import scale_of
from mldyno.views.answers import answer_lines
from mldyno.views.charts import Lines, Point
from mldyno.views.claims import named, sentence
from mldyno.views.outcomes import energy_summary, shown
from mldyno.views.report.parts import Chart, Charts, Grid, GridCell, Paragraphs, Section, SectionPart
from mldyno.views.report.rows import time_unit
from mldyno.views.report.subject import Subject

MOST_CHARTS = 6
FIGURES = {
    "energy": "energy a step", "energy_above_idle": "above idle", "power": "power", "peak_power": "at most",
    "idle_power": "at rest", "efficiency": "items a joule",
}  # fmt: skip
LEAD = (
    "Measured after the times, in windows that open and close on the ticks of a sensor, beside the machine at rest. "
    "What a sensor sees is its scope: energies of two scopes can't be compared. Nothing is estimated from a data sheet."
)


def energy(subject: Subject) -> Section | None:
    """What steps take of energy; nothing where no sensor told it."""
    known = [outcome for outcome in subject.outcomes if outcome.status == "ok" and outcome.figure("energy") is not None]
    if not known:
        return None
    charts = list(_against_time(subject, known))[:MOST_CHARTS]
    swept = [each for each in subject.answers.crossovers if each.value == "energy"]
    lines = [sentence(comparison) for comparison in compared_in_energy(known)]
    lines = [*answer_lines(Answers(crossovers=swept)), *lines]
    summaries = [f"{subject.title(outcome)}: {energy_summary(outcome)}" for outcome in known]
    parts: list[SectionPart] = [Charts(charts)] if charts else []
    parts += [Paragraphs("energy-lines", lines)] if lines else []
    parts += [_grid(subject, known), Paragraphs("energy-summaries", summaries)]
    return Section("energy", "What does it take?", "Energy", LEAD, parts)


def _against_time(subject: Subject, known: Sequence[Outcome]) -> Iterator[Chart]:
    """Time of a step across, its energy upwards, for each work that was done in several ways, as one scope saw it."""
    by_scope = grouped(known, lambda outcome: outcome.with_energy[0].fact("energy_scope")).values()
    groups = [group for scope in by_scope for group in alike(scope, *WAYS) if len(group) > 1]
    for number, group in enumerate(groups):
        axes = [axis for axis in varying(group) if axis != "machine"]
        steps = [(outcome, outcome.step, outcome.figure("energy")) for outcome in group]
        both = [(outcome, step, joules) for outcome, step, joules in steps if step is not None and joules is not None]
        unit, per = time_unit(max(step.value for _, step, _ in both))
        factor, name = scale_of(max(joules.value for _, _, joules in both), "J")
        lines = []
        for outcome, step, joules in both:
            side = ", ".join(named(axis, column(outcome, axis)) for axis in _needed(axes, group))
            low, high = (None if end is None else end / factor for end in (joules.low, joules.high))
            hover = f"{shown(step)}, {shown(joules)} a step"
            lines.append((side, [Point(step.value * per, joules.value / factor, hover, low, high)]))
        about = subject.title(group[0], *axes)
        drawing = Lines(lines, f"{unit} a step", f"{name} a step")
        yield Chart(f"energy-{number}", f"{about}: time against energy", "Lower left is better in both", drawing)


def _needed(axes: Sequence[str], group: Sequence[Outcome]) -> list[str]:
    """Those without which two of a group would be called the same: names at a dot are short."""
    needed = list(axes)
    for axis in reversed(axes):
        rest = [each for each in needed if each != axis]
        if rest and len({tuple(column(outcome, each) for each in rest) for outcome in group}) == len(group):
            needed = rest
    return needed


def _grid(subject: Subject, known: Sequence[Outcome]) -> Grid:
    rows = []
    for outcome in known:
        figures = [outcome.figure(name) for name in FIGURES]
        cells = [
            GridCell("" if each is None else shown(each), None if each is None else each.value) for each in figures
        ]
        scope = GridCell(str(outcome.with_energy[0].fact("energy_scope")))
        rows.append([GridCell(subject.title(outcome), head=True), *cells, scope])
    return Grid("energy-grid", "Energy and power of each case", ["case", *FIGURES.values(), "scope"], rows)
