"""How fast is it? Is the GPU worth it? Which precision, which framework? And the user's own commands and loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from mldyno.analysis import grouped
from mldyno.analysis.answers import LOADER_WORKERS, PLAIN, Answers, comparisons_along, means_by_work, typical
from mldyno.analysis.comparisons import Comparison, Mean
from mldyno.analysis.estimates import Estimate
from mldyno.analysis.outcomes import Outcome, column
from mldyno.axes import WAYS
from mldyno.units import Interval, count, digits, interval_parts
from mldyno.views.answers import answer_lines, verdict_kinds
from mldyno.views.charts import Mark, Row, Rows
from mldyno.views.claims import IN_A_CHART, WORK, arms, in_words, named, sentence
from mldyno.views.drawing import SIDES
from mldyno.views.outcomes import show_estimate, trust
from mldyno.views.report.parts import Bullets, Chart, Content, legend_of
from mldyno.views.report.subject import Subject
from mldyno.views.titles import case_title, kind_title

MOST_ROWS = 36
OTHER_WAYS = tuple(axis for axis in WAYS if axis not in ("device", "placement"))  # precision, framework and so on
ANSWERED = ("precision", LOADER_WORKERS)  # of which answers say all
Rated = list[tuple[Outcome, Estimate]]
T = TypeVar("T")


def how_fast(subject: Subject) -> Content:
    """Show the speed of all models in one chart."""
    return "", _speed_chart(subject, "speeds", [line for line in rated_cases(subject) if not line[0][0].case.own_work])


def own_work(subject: Subject) -> Content:
    """Show the speed of the user's own commands and loops; compare those of one run."""
    charts = _speed_chart(subject, "own-speeds", [line for line in rated_cases(subject) if line[0][0].case.own_work])
    titled = [replace(chart, title="What they do in a second") for chart in charts]
    return "", [*titled, Bullets("own-lines", list(map(sentence, compared_commands(subject))))]


def compared_commands(subject: Subject) -> list[Comparison]:
    """Compare the user's own commands with the first of their run; commands of two runs are unrelated."""
    commands = [outcome for outcome in subject.outcomes if outcome.case.own_command]
    runs = grouped(commands, lambda outcome: outcome.records[0].run.id)
    return [comparison for run in runs.values() for comparison in comparisons_along(run, "workload")]


def _speed_chart(subject: Subject, identity: str, lines: Sequence[Rated]) -> list[Chart]:
    """Draw the speed of each case, with the kind of its work as heading; nothing for a single one."""
    drawn = lines[:MOST_ROWS]
    if sum(map(len, drawn)) < 2:
        return []
    kinds = _by_kind(drawn, lambda line: line[0][0])
    groups = [(kind, speed_rows(subject, lines_of_kind, "mode")) for kind, lines_of_kind in kinds]
    units = sorted({unit_of(outcome) for line in drawn for outcome, _ in line})
    drawing = Rows(groups, f"{', '.join(units)}; log scale", legend_of(subject.colours))
    left_out = len(lines) - len(drawn)
    caption = f"{count(left_out, 'other case')} of smaller sizes or other ways: All cases has them." if left_out else ""
    return [Chart(identity, _leader(subject, drawn), "Speed of each case, with its 95 % interval", drawing, caption)]


def _by_kind(things: Iterable[T], outcome: Callable[[T], Outcome]) -> list[tuple[str, list[T]]]:
    """Group things by the kind of their work: training first, the user's own work last."""
    kinds = grouped(things, lambda thing: kind_title(outcome(thing).case))

    def order(kind: tuple[str, list[T]]) -> tuple[bool, bool]:
        case = outcome(kind[1][0]).case
        return case.own_work, case.mode != "train"

    return sorted(kinds.items(), key=order)


def rated_cases(subject: Subject) -> list[Rated]:
    """Return each case with its speed on each device: the largest sizes that all devices did, and fp32, first."""
    good = [outcome for outcome in subject.outcomes if outcome.status == "ok"]
    rated = [(outcome, rate) for outcome in good if (rate := speed(outcome)) is not None and rate.value > 0]
    large = {id(outcome) for outcome in typical([outcome for outcome, _ in rated])}
    rated.sort(key=lambda pair: (id(pair[0]) not in large, pair[0].case.precision not in (PLAIN, None)))
    return list(grouped(rated, lambda pair: subject.title(pair[0], "device")).values())


def speed(outcome: Outcome) -> Estimate | None:
    """Return the throughput in items/s; in steps/s where a step has no items."""
    rate, step = outcome.figure("throughput"), outcome.step
    if rate is not None or step is None or not step.value:
        return rate
    return step.per(1, "1/s")


def unit_of(outcome: Outcome) -> str:
    """Return the unit of an outcome's speed: tokens/s."""
    counted = "item" if outcome.figure("throughput") is not None else "run" if outcome.case.own_command else "step"
    return f"{outcome.good[0].fact('item') or counted}s/s"


def shown_speed(outcome: Outcome, rate: Estimate) -> str:
    """Show a speed with its unit: 860 tokens/s."""
    return f"{digits(rate.value, rate.half_width)} {unit_of(outcome)}"


def speed_mark(outcome: Outcome, rate: Estimate, colour: str) -> Mark:
    """Return the mark of a case's speed; its unit is written at the end of the row."""
    step = outcome.step
    time = f", {show_estimate(step)} a step" if step is not None else ""
    hover = f"{shown_speed(outcome, rate)} on {outcome.case.device}{time}; {trust(outcome)}"
    return Mark(speed_interval(rate.value, step), digits(rate.value, rate.half_width), hover, colour)


def speed_interval(speed: float, step: Estimate | None) -> Interval:
    """Return a speed with the interval of the time of a step; where that may be 0, the speed has no upper bound."""
    if step is None or step.ends is None:
        return Interval(speed)
    low, high = step.ends
    return Interval(speed, speed * step.value / high, speed * step.value / low if low > 0 else math.inf)


def speed_rows(subject: Subject, lines: Sequence[Rated], *without: str) -> list[Row]:
    """Return a row for each case, the fastest first, with a mark for each device."""
    ordered = sorted(lines, key=lambda line: -max(rate.value for _, rate in line))
    rows = []
    for line in ordered:
        marks = [speed_mark(outcome, rate, subject.colours[outcome.case.device]) for outcome, rate in line]
        marks[-1] = replace(marks[-1], text=f"{marks[-1].text} {unit_of(line[0][0])}")
        rows.append(Row(subject.title(line[0][0], "device", *without), marks))
    return rows


def _leader(subject: Subject, lines: Sequence[Rated]) -> str:
    """Say which device leads; of a single one, the range of its speeds."""
    if len(subject.colours) > 1:
        shared = [line for line in lines if len({outcome.case.device for outcome, _ in line}) > 1]
        winners = [max(line, key=lambda pair: pair[1].value)[0].case.device for line in shared]
        best = max(dict.fromkeys(winners), key=winners.count, default="")
        if best:
            return f"{best} is ahead in {winners.count(best)} of {count(len(shared), 'case')}"
    rated = sorted((pair for line in lines for pair in line), key=lambda pair: pair[1].value)
    without = ("framework", "device", "batch", "seq", "placement")
    ends = [f"{shown_speed(*pair)} ({case_title(pair[0].case, without)})" for pair in (rated[0], rated[-1])]
    return f"From {ends[0]} to {ends[1]}"


def devices(subject: Subject) -> Content:
    """Show what an accelerator gains over the CPU, and from which batch on."""
    compared = comparisons_along(subject.outcomes, "device")
    if not compared:
        return "", []
    about_devices, _, about_batches, *_ = verdict_kinds(subject.verdicts)
    lines = [*about_devices, *about_batches] or list(map(sentence, compared))
    return "", [*_ratio_charts(subject, "device", compared), Bullets("device-lines", lines)]


def ways(subject: Subject) -> Content:
    """Show what each precision, framework, and other way to do the same work gains over the first."""
    charts: list[Chart] = []
    lines = answer_lines(Answers(precisions=subject.answers.precisions, loaders=subject.answers.loaders))
    for axis in OTHER_WAYS:
        compared = comparisons_along(subject.outcomes, axis)
        charts += _ratio_charts(subject, axis, compared)
        lines += [] if axis in ANSWERED else list(map(sentence, compared))
    lines = [*verdict_kinds(subject.verdicts)[1], *lines]
    return "", [*charts, Bullets("way-lines", lines)] if lines else []


def _ratio_charts(subject: Subject, axis: str, compared: Sequence[Comparison]) -> Iterator[Chart]:
    """Draw a chart for each base value of the axis: all bars of a chart have the same base."""
    bases = grouped(compared, lambda comparison: column(comparison.base, axis))
    charts = [chart for base, group in bases.items() for chart in _ratio_chart(subject, axis, base, group)]
    for number, chart in enumerate(charts, 1):
        yield chart if number == 1 else replace(chart, id=f"{chart.id}-{number}")


def _ratio_chart(subject: Subject, axis: str, base_value: Any, compared: Sequence[Comparison]) -> Iterator[Chart]:
    """Draw bars from 1 for each comparison, or for means where they are many; nothing for a single one."""
    results: Sequence[Comparison | Mean] = compared
    caption = ""
    if len(results) > MOST_ROWS:
        results = means_by_work(compared, axis)
        caption = f"Geometric means of {count(len(compared), 'comparison')}, by workload and mode."
    results = results[:MOST_ROWS]
    if len(results) < 2:
        return

    def value(result: Comparison | Mean) -> str:
        return named(axis, getattr(result.other.case, axis))

    def label(result: Comparison | Mean) -> str:
        sizes = ("batch", "seq", "placement") if isinstance(result, Mean) else ()
        return subject.title(result.other, axis, "mode", *sizes)

    def mark(result: Comparison | Mean) -> Mark:
        why = result.how if isinstance(result, Comparison) else f"geometric mean of {len(result.comparisons)} cases"
        number, hover = interval_parts(result.speedup, "x")[0], f"{IN_A_CHART.of(result)}; {why}"
        return Mark(result.speedup, number, hover, colours[value(result)])

    def rows(group: Sequence[Comparison | Mean]) -> list[Row]:
        """Return a row for each case, the largest gain first, with a bar for each value of the axis."""
        rows = [Row(title, list(map(mark, same))) for title, same in grouped(group, label).items()]
        return sorted(rows, key=lambda row: -row.largest)

    colours = {name: SIDES[place % len(SIDES)] for place, name in enumerate(dict.fromkeys(map(value, results)))}
    base = named(axis, base_value)
    groups = [(kind, rows(part)) for kind, part in _by_kind(results, lambda result: result.other)]
    drawing = Rows(groups, f"times as fast as {base}, log scale", legend_of(colours), bars=True, base=1.0)
    yield Chart(f"ratio-{axis}", _finding(subject, axis, base_value) or f"{', '.join(colours)} against {base}",
                f"Times as fast as {base} in the same work, with 95 % intervals", drawing, caption)  # fmt: skip


def _finding(subject: Subject, axis: str, base: Any) -> str:
    """Return the clearest mean along an axis against one base, in words."""
    clear = [mean for mean in subject.headlines
             if mean.axis == axis and column(mean.base, axis) == base and mean.conclusive]  # fmt: skip
    if not clear:
        return ""
    best = max(clear, key=lambda mean: max(mean.ratio, 1 / mean.ratio))
    case = best.other.case
    where = f" in {WORK[case.mode]}" if case.mode else ""
    device = f" on {case.device}" if axis != "device" and "device" in subject.varied else ""
    return f"{in_words(best, *arms(best.comparisons[0]))}{where}{device}"
