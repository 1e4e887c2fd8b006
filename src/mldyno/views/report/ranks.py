"""How well does it scale? Speed-up over one process against the ideal, and what a step of several ranks is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mldyno.analysis.breakdown import RankSplit, split
from mldyno.analysis.comparisons import alike
from mldyno.analysis.outcomes import Outcome
from mldyno.units import Interval, show_interval, show_percent
from mldyno.views.charts import Lines, Mark, Point, Row, Rows
from mldyno.views.outcomes import rank_lines
from mldyno.views.report.parts import Chart, Charts, Paragraphs, Section, SectionPart
from mldyno.views.report.subject import Subject

MOST_CHARTS = 6
MOST_ROWS = 12
Split = tuple[Outcome, RankSplit]


def ranks(subject: Subject) -> Section | None:
    """What several ranks gain, and how long they wait for each other; nothing where no case has ranks."""
    known = [(outcome, parts) for outcome in subject.outcomes if (parts := split(outcome)) is not None]
    if not known:
        return None
    gained = [each for each in known if each[1].over_same_threads is not None]
    charts = [_gain(subject, number, group) for number, group in enumerate(_by_work(gained)[:MOST_CHARTS])]
    lines = [f"{subject.title(outcome)}: {'; '.join(rank_lines(outcome, parts))}" for outcome, parts in known]
    shown: list[SectionPart] = [
        *([Charts(charts)] if charts else []),
        *_made_of(subject, known),
        Paragraphs("rank-lines", lines),
    ]
    lead = (
        "All of it was measured in one job, in rounds: steps with an exchange of gradients, without one, and of one "
        "process alone took turns. Dashed would be one process; a rank more is a process more, ideally a whole one."
    )
    return Section("ranks", "How well does it scale?", "Ranks", lead, shown)


def _by_work(known: Sequence[Split]) -> list[list[Split]]:
    parts = {outcome.records[0].id: each for outcome, each in known}
    groups = alike([outcome for outcome, _ in known], "ranks")
    return [sorted(((o, parts[o.records[0].id]) for o in group), key=lambda each: each[1].ranks) for group in groups]


def _gain(subject: Subject, number: int, group: Sequence[Split]) -> Chart:
    """Speed-up against ranks, and the line on which each rank brings as much as the first."""
    counts = [1, *(parts.ranks for _, parts in group if parts.ranks > 1)]
    ideal = [Point(count, count, "each rank brings as much as the first") for count in counts]
    lines = [("ideal", ideal), ("same threads", _points(group, "over_same_threads"))]
    if any(parts.over_all_cores is not None for _, parts in group):
        lines.append(("all cores", _points(group, "over_all_cores")))
    gains = [(parts.over_same_threads, parts.ranks) for _, parts in group if parts.over_same_threads is not None]
    best, ranks = max(gains, key=lambda gain: gain[0].value)
    title = f"{subject.title(group[0][0], 'ranks')}: {ranks} ranks give {show_interval(best, 'x')}"
    drawing = Lines(lines, "ranks", "times as fast", 1.0)
    return Chart(f"ranks-{number}", title, "Times as many items a second as one process", drawing)


def _points(group: Sequence[Split], which: str) -> list[Point]:
    factors: list[tuple[int, Interval | None]] = [(parts.ranks, getattr(parts, which)) for _, parts in group]
    known = [(count, each) for count, each in factors if each is not None]
    return [Point(count, each.value, show_interval(each, "x"), each.low, each.high) for count, each in known]


def _made_of(subject: Subject, known: Sequence[Split]) -> Iterator[Chart]:
    """The share of a step that computes, and the share that waits for gradients."""
    rows = []
    for outcome, parts in known[:MOST_ROWS]:
        waiting = min(1.0, max(0.0, parts.waiting.value))
        tip = f"{show_interval(parts.waiting, '%')} of a step waits for gradients"
        rows.append(Row(subject.title(outcome), [
            Mark(100 * (1 - waiting), show_percent(1 - waiting), tip, colour="s1"),
            Mark(100 * waiting, show_percent(waiting), tip, colour="s4"),
        ]))  # fmt: skip
    legend = (("computing", "s1"), ("waiting for gradients", "s4"))
    worst = max((parts for _, parts in known), key=lambda parts: parts.waiting.value)
    title = f"Up to {show_percent(max(0.0, worst.waiting.value))} of a step waits for gradients"
    drawing = Rows([("", rows)], "% of a step", legend, bars=True, base=0.0, linear=True)
    yield Chart("rank-steps", title, "What a step of several ranks is made of", drawing)
