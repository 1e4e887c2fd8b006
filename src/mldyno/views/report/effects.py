"""Sections about what changes the speed: precision, copies, length of sequences, and size."""

from __future__ import annotations

from collections.abc import Sequence

from mldyno.analysis.answers import Answers, means_by_work
from mldyno.analysis.comparisons import Comparison, Mean
from mldyno.analysis.crossover import Crossover
from mldyno.analysis.grouping import grouped
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.scaling import Scaling
from mldyno.analysis.tables import varying
from mldyno.units import count
from mldyno.views import charts
from mldyno.views.answers import answer_lines
from mldyno.views.report.parts import Chart, Paragraphs, Section, SectionPart
from mldyno.views.report.rows import copy_row, ratio_row, shown_ratio, sides_of, time_unit
from mldyno.views.report.speeds import MAX_BARS, MAX_CHARTS
from mldyno.views.report.subject import Subject, full_label, label, work_name
from mldyno.views.sentences import named, shown_time

MAX_CURVES = 6  # in one chart


def _other(result: Comparison | Mean) -> Outcome:
    return result.other if isinstance(result, Comparison) else result.comparisons[0].other


def _where(subject: Subject, result: Comparison | Mean, without: str) -> str:
    """What a comparison is about, as it stands beside a bar."""
    other = _other(result)
    axes = [axis for axis in subject.varied if axis not in (without, "machine", "workload", "mode")]
    if isinstance(result, Mean):
        axes = [axis for axis in axes if axis == "device"]
    machine = f"{other.machine}: " if len(subject.machines) > 1 else ""
    return machine + full_label(other.case, axes)


def precision(subject: Subject) -> Section | None:
    """What each precision gains over fp32, and how far its results are off."""
    gains = subject.answers.precisions
    if not gains:
        return None
    compared = [gain.comparison for gain in gains if gain.comparison is not None]
    results: Sequence[Comparison | Mean] = compared
    if len(compared) > MAX_BARS:
        results = means_by_work(compared, "precision")
    rows = [ratio_row(result, _where(subject, result, "precision"), str(_other(result).case.precision))
            for result in results[:MAX_BARS]]  # fmt: skip
    parts: list[SectionPart] = []
    if rows:
        sides = sides_of(rows)
        alt = f"Bars: speed of {', '.join(sides)} over fp32 in {count(len(rows), 'case')}, said in words below."
        spec = charts.speedups(rows, sides, "times as fast as fp32", alt)
        caption = "A bar to the right of the dashed line is faster, one to the left is slower."
        parts.append(Chart("precision", "Gain over fp32", spec, alt, caption))
    parts.append(Paragraphs("precision-lines", answer_lines(Answers(precisions=gains))))
    lead = "How much faster a step gets in another precision, and how far its results are off from fp32 on the CPU."
    return Section("precisions", "Precision", lead, parts)


def placement(subject: Subject) -> Section | None:
    """What copies to and from the device cost."""
    copies = subject.answers.copies
    if not copies:
        return None
    rows = [copy_row(cost, _where(subject, cost.comparison, "placement")) for cost in copies[:MAX_BARS]]
    alt = f"Bars: the share of a step that copying takes, in {count(len(rows), 'case')}, said in words below."
    spec = charts.bars(rows, sides_of(rows), "% of a step", alt)
    lead = (
        "Batches can lie on the device already, or be copied in each step (host), and results copied back (roundtrip)."
    )
    lines = Paragraphs("placement-lines", answer_lines(Answers(copies=copies)))
    return Section(
        "placements", "Copies", lead, [Chart("placement", "Share of a step that is copying", spec, alt), lines]
    )


def scaling(subject: Subject) -> Section | None:
    """How the time of a step grows with the length of its sequences."""
    scalings = subject.answers.scalings
    if not scalings:
        return None
    works = grouped(scalings, lambda each: work_name(each.outcomes[0].case))
    parts: list[SectionPart] = [
        _growth(subject, f"scaling-{number}", name, group[:MAX_CURVES])
        for number, (name, group) in enumerate(list(works.items())[:MAX_CHARTS])
    ]
    parts.append(Paragraphs("scaling-lines", answer_lines(Answers(scalings=scalings))))
    lead = "Both axes are logarithmic: a straight line is a power of the length, and its slope is the exponent."
    return Section("scaling", "Length of sequences", lead, parts)


def _growth(subject: Subject, identity: str, name: str, scalings: Sequence[Scaling]) -> Chart:
    axes = [axis for axis in varying([each.outcomes[0] for each in scalings]) if axis != "machine"] or ["device"]
    unit, per = time_unit(max(o.step.value for each in scalings for o in each.outcomes if o.step is not None))
    rows = []
    for each in scalings:
        side = label(each.outcomes[0].case, axes)
        side = f"{each.outcomes[0].machine}, {side}" if len(subject.machines) > 1 else side
        for outcome in each.outcomes:
            step = outcome.step
            if step is not None:
                low = step.low if step.low and step.low > 0 else None
                rows.append({"x": outcome.case.seq, "value": step.value * per, "low": low and low * per, "side": side,
                             "high": None if low is None or step.high is None else step.high * per,
                             "shown": shown_time(step), "trust": f"exponent {each.fit.value:.2f} overall"})  # fmt: skip
    alt = (
        f"Lines: the time of a step of {name} over the length of its sequences, both logarithmic, said in words below."
    )
    spec = charts.curves(rows, sides_of(rows), ("length of a sequence", f"{unit} a step"), alt)
    return Chart(identity, name, spec, alt)


def crossover(subject: Subject) -> Section | None:
    """From which size on one way beats another."""
    crossovers = [each for each in subject.answers.crossovers if each.comparisons]
    if not crossovers:
        return None
    drawn = sorted(crossovers, key=lambda each: (each.verdict != "crosses", each.axis != "device"))
    drawn = [each for each in drawn if len(each.comparisons) > 1][:MAX_CHARTS]
    parts: list[SectionPart] = [_crossing(subject, f"crossover-{number}", each) for number, each in enumerate(drawn)]
    parts.append(Paragraphs("crossover-lines", answer_lines(Answers(crossovers=crossovers))))
    lead = "Above the dashed line the other side is faster. A diamond is where both are equal, with its 95 % interval."
    return Section("crossovers", "From which size on", lead, parts)


def _crossing(subject: Subject, identity: str, crossover: Crossover) -> Chart:
    axis, over = crossover.axis, crossover.over
    other, base = named(axis, crossover.other), named(axis, crossover.base)
    rows = [{"x": crossover.size(each), "value": each.ratio, "low": each.low, "high": each.high,
             "side": f"{other} against {base}", "shown": shown_ratio(each), "trust": each.how}
            for each in crossover.comparisons]  # fmt: skip
    crossings = [(crossing.size, crossing.low, crossing.high) for crossing in crossover.crossings]
    axes = [name for name in subject.varied if name not in (axis, over, "machine", "workload", "mode")]
    title = f"{full_label(crossover.tried[0].case, axes)}: {other} against {base} over {over}"
    alt = f"Line: how many times as fast {other} is as {base} at each {over}, said in words below."
    return Chart(identity, title, charts.ratios(rows, (over, f"times as fast as {base}"), crossings, alt), alt)
