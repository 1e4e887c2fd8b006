"""How fast is it? Is the GPU worth it? Which precision, which framework? And the user's own commands and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from mldyno.analysis import grouped
from mldyno.analysis.answers import LOADER_WORKERS, PLAIN, Answers, compared_along, means_by_work, typical
from mldyno.analysis.comparisons import Comparison, Mean
from mldyno.analysis.estimates import Estimate
from mldyno.analysis.outcomes import Outcome, column
from mldyno.axes import WAYS
from mldyno.units import count
from mldyno.views.answers import answer_lines, verdict_kinds
from mldyno.views.charts import Row, Rows
from mldyno.views.claims import WORK, arms, in_words, named, sentence
from mldyno.views.drawing import SIDES
from mldyno.views.report.parts import Chart, Paragraphs, Section, SectionPart
from mldyno.views.report.rows import ratio_mark, shown_speed, speed, speed_mark, unit_of
from mldyno.views.report.subject import Subject
from mldyno.views.titles import case_title, kind_title

MOST_ROWS = 36
OTHER_WAYS = tuple(axis for axis in WAYS if axis not in ("device", "placement"))  # precision, framework and so on
ANSWERED = ("precision", LOADER_WORKERS)  # of which answers say all
Rated = list[tuple[Outcome, Estimate]]
T = TypeVar("T")


def how_fast(subject: Subject) -> Section | None:
    """The speed of all models in one chart."""
    chart = _speed_chart(subject, "speeds", [line for line in rated_cases(subject) if not line[0][0].case.own_work])
    return Section("speeds", "How fast is it?", "How fast", "", [chart]) if chart else None


def own_work(subject: Subject) -> Section | None:
    """The speed of the user's own commands and loops, whose names say what they do; those of one run are compared."""
    chart = _speed_chart(subject, "own-speeds", [line for line in rated_cases(subject) if line[0][0].case.own_work])
    lines = list(map(sentence, compared_commands(subject)))
    parts: list[SectionPart] = [replace(chart, title="What they do in a second")] if chart else []
    parts += [Paragraphs("own-lines", lines)] if lines else []
    return Section("own", "How fast are your own commands and loops?", "Your own", "", parts) if parts else None


def compared_commands(subject: Subject) -> list[Comparison]:
    """The user's own commands against the first of their run; those of two runs have nothing to do with each other."""
    commands = [outcome for outcome in subject.outcomes if outcome.case.own_command]
    runs = grouped(commands, lambda outcome: outcome.records[0].run.id)
    return [comparison for run in runs.values() for comparison in compared_along(run, "workload")]


def _speed_chart(subject: Subject, identity: str, lines: Sequence[Rated]) -> Chart | None:
    """The speed of each case, with the kind of its work as heading; none for a single one."""
    shown = lines[:MOST_ROWS]
    if sum(map(len, shown)) < 2:
        return None
    kinds = _by_kind(shown, lambda line: line[0][0])
    groups = [(kind, speed_rows(subject, lines_of_kind, "mode")) for kind, lines_of_kind in kinds]
    legend = list(subject.colours.items()) if len(subject.colours) > 1 else []
    units = sorted({unit_of(outcome) for line in shown for outcome, _ in line})
    drawing = Rows(groups, f"{', '.join(units)}; log scale", legend)
    left_out = len(lines) - len(shown)
    caption = f"{count(left_out, 'other case')} of smaller sizes or other ways: All cases has them." if left_out else ""
    return Chart(identity, _leader(subject, shown), "Speed of each case, with its 95 % interval", drawing, caption)


def _by_kind(things: Iterable[T], outcome: Callable[[T], Outcome]) -> list[tuple[str, list[T]]]:
    """The things by the kind of their work, each under its heading: training first, a user's own work last."""
    kinds = grouped(things, lambda thing: kind_title(outcome(thing).case))

    def order(kind: tuple[str, list[T]]) -> tuple[bool, bool]:
        case = outcome(kind[1][0]).case
        return case.own_work, case.mode != "train"

    return sorted(kinds.items(), key=order)


def rated_cases(subject: Subject) -> list[Rated]:
    """Each case with its speed on each device; what counts most first: the largest sizes that all devices did, fp32."""
    good = [outcome for outcome in subject.outcomes if outcome.status == "ok"]
    rated = [(outcome, rate) for outcome in good if (rate := speed(outcome)) is not None and rate.value > 0]
    large = {id(outcome) for outcome in typical([outcome for outcome, _ in rated])}
    rated.sort(key=lambda pair: (id(pair[0]) not in large, pair[0].case.precision not in (PLAIN, None)))
    return _by_case(subject, rated)


def _by_case(subject: Subject, rated: Rated) -> list[Rated]:
    """The same case on each device."""
    return list(grouped(rated, lambda pair: subject.title(pair[0], "device")).values())


def speed_rows(subject: Subject, lines: Sequence[Rated], *without: str) -> list[Row]:
    """A row for each case, the fastest first, with a mark for each device."""
    ordered = sorted(lines, key=lambda line: -max(rate.value for _, rate in line))
    rows = []
    for line in ordered:
        marks = [speed_mark(outcome, rate, subject.colours[outcome.case.device]) for outcome, rate in line]
        marks[-1] = replace(marks[-1], number=f"{marks[-1].number} {unit_of(line[0][0])}")
        rows.append(Row(subject.title(line[0][0], "device", *without), marks))
    return rows


def _leader(subject: Subject, lines: Sequence[Rated]) -> str:
    """Which device leads; of a single one, from what to what its speeds go."""
    if len(subject.colours) > 1:
        shared = [line for line in lines if len({outcome.case.device for outcome, _ in line}) > 1]
        winners = [max(line, key=lambda pair: pair[1].value)[0].case.device for line in shared]
        best = max(dict.fromkeys(winners), key=winners.count, default="")
        if best:
            return f"{best} is ahead in {winners.count(best)} of {count(len(shared), 'case')}"
    rated = sorted((pair for line in lines for pair in line), key=lambda pair: pair[1].value)
    ends = [f"{shown_speed(*pair)} ({_short(pair[0])})" for pair in (rated[0], rated[-1])]
    return f"From {ends[0]} to {ends[1]}"


def _short(outcome: Outcome) -> str:
    return case_title(outcome.case, ("framework", "device", "batch", "seq", "placement"))


# -- ratios ------------------------------------------------------------------------------------------


def devices(subject: Subject) -> Section | None:
    """What an accelerator gains over the CPU, and from which batch on."""
    compared = compared_along(subject.outcomes, "device")
    if not compared:
        return None
    about_devices, _, about_batches, *_ = verdict_kinds(subject.verdicts)
    lines = [*about_devices, *about_batches] or list(map(sentence, compared))
    parts: list[SectionPart] = [*_ratio_charts(subject, "device", compared), Paragraphs("device-lines", lines)]
    return Section("devices", "Is the GPU worth it?", "GPU", "", parts)


def ways(subject: Subject) -> Section | None:
    """What each precision, framework, and other way to do the same work gains over the first."""
    parts: list[SectionPart] = []
    lines = answer_lines(Answers(precisions=subject.answers.precisions, loaders=subject.answers.loaders))
    for axis in OTHER_WAYS:
        compared = compared_along(subject.outcomes, axis)
        parts += _ratio_charts(subject, axis, compared)
        lines += [] if axis in ANSWERED else list(map(sentence, compared))
    about_precisions = verdict_kinds(subject.verdicts)[1]
    lines = [*about_precisions, *lines]
    if not lines:
        return None
    return Section("ways", "Which precision, which framework?", "Precision and framework", "",
                   [*parts, Paragraphs("way-lines", lines)])  # fmt: skip


def _ratio_charts(subject: Subject, axis: str, compared: Sequence[Comparison]) -> Iterator[Chart]:
    """A chart for each value of the axis that others are held against: all bars of one have the same base."""
    bases = grouped(compared, lambda comparison: column(comparison.base, axis))
    charts = [chart for base, group in bases.items() for chart in _ratio_chart(subject, axis, base, group)]
    for number, chart in enumerate(charts, 1):
        yield chart if number == 1 else replace(chart, id=f"{chart.id}-{number}")


def _ratio_chart(subject: Subject, axis: str, base_value: Any, compared: Sequence[Comparison]) -> Iterator[Chart]:
    """Bars from 1 for each comparison with one base, or for means where they are many; none for a single one."""
    results: Sequence[Comparison | Mean] = compared
    caption = ""
    if len(results) > MOST_ROWS:
        results = means_by_work(compared, axis)
        caption = f"Geometric means of {count(len(compared), 'comparison')}, by workload and mode."
    results = results[:MOST_ROWS]
    if len(results) < 2:
        return
    values = dict.fromkeys(named(axis, getattr(result.other.case, axis)) for result in results)
    colours = {value: SIDES[place % len(SIDES)] for place, value in enumerate(values)}
    base = named(axis, base_value)
    groups = [
        (kind, _ratio_rows(subject, axis, part, colours))
        for kind, part in _by_kind(results, lambda result: result.other)
    ]
    drawing = Rows(groups, f"times as fast as {base}, log scale",
                   list(colours.items()) if len(colours) > 1 else (), bars=True, base=1.0)  # fmt: skip
    yield Chart(f"ratio-{axis}", _finding(subject, axis, base_value) or f"{', '.join(values)} against {base}",
                f"Times as fast as {base} in the same work, with 95 % intervals", drawing, caption)  # fmt: skip


def _ratio_rows(
    subject: Subject, axis: str, results: Sequence[Comparison | Mean], colours: Mapping[str, str]
) -> list[Row]:
    """A row for each case, the one that gains most first, with a bar for each value of the axis."""
    shared = grouped(results, lambda result: _label(subject, axis, result))
    rows = [
        Row(label, [ratio_mark(result, colours[named(axis, getattr(result.other.case, axis))]) for result in group])
        for label, group in shared.items()
    ]
    return sorted(rows, key=lambda row: -max(mark.value for mark in row.marks))


def _label(subject: Subject, axis: str, result: Comparison | Mean) -> str:
    sizes = ("batch", "seq", "placement") if isinstance(result, Mean) else ()
    return subject.title(result.other, axis, "mode", *sizes)


def _finding(subject: Subject, axis: str, base: Any) -> str:
    """The clearest mean along an axis against one base, in words."""
    against_it = [mean for mean in subject.headlines if mean.axis == axis and column(mean.base, axis) == base]
    conclusive = [mean for mean in against_it if mean.conclusive]
    if not conclusive:
        return ""
    best = max(conclusive, key=lambda mean: max(mean.ratio, 1 / mean.ratio))
    case = best.other.case
    where = f" in {WORK[case.mode]}" if case.mode else ""
    device = f" on {case.device}" if axis != "device" and "device" in subject.varied else ""
    text = in_words(best, *arms(best.comparisons[0]))
    return f"{text}{where}{device}"
