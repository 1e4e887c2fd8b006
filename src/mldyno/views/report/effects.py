"""Sections about what changes the speed: precision, copies, length of sequences, and size."""

from __future__ import annotations

from collections.abc import Sequence

from mldyno.analysis.answers import Answers
from mldyno.analysis.comparisons import Comparison, Mean
from mldyno.analysis.crossover import Crossover
from mldyno.analysis.estimates import step_time
from mldyno.analysis.headlines import means_by_work
from mldyno.analysis.scaling import Scaling
from mldyno.analysis.tables import varying
from mldyno.units import count
from mldyno.views import charts
from mldyno.views.answers import answer_lines
from mldyno.views.report.parts import Chart, Part, Section, Words
from mldyno.views.report.rows import copy_row, ratio_row, ratio_words, shown_time, sides_of, time_unit
from mldyno.views.report.speeds import MOST_BARS, MOST_CHARTS
from mldyno.views.report.subject import Subject, full_label, label, work_name
from mldyno.views.sentences import named


def _where(subject: Subject, found: Comparison | Mean, without: str) -> str:
    """What a comparison is about, as it stands beside a bar."""
    other = found.other if isinstance(found, Comparison) else found.comparisons[0].other
    left_out = (without, "machine", "workload", "mode")
    axes = [axis for axis in subject.varied if axis not in left_out]
    if isinstance(found, Mean):
        axes = [axis for axis in axes if axis == "device"]
    machine = f"{other.machine}: " if len(subject.machines) > 1 else ""
    return machine + full_label(other.case, axes)


def precision(subject: Subject) -> Section | None:
    """What each precision gains over fp32, and how far its results are off."""
    gains = subject.answers.precisions
    if not gains:
        return None
    compared = [one.comparison for one in gains if one.comparison is not None]
    found: Sequence[Comparison | Mean] = compared
    if len(compared) > MOST_BARS:
        found = means_by_work(compared, "precision")
    rows = []
    for one in found[:MOST_BARS]:
        other = one.other if isinstance(one, Comparison) else one.comparisons[0].other
        rows.append(ratio_row(one, _where(subject, one, "precision"), str(other.case.precision)))
    parts: list[Part] = []
    if rows:
        alt = (
            f"Bars: speed of {', '.join(sides_of(rows))} over fp32 in {count(len(rows), 'case')}, told in words below."
        )
        spec = charts.speedups(rows, sides_of(rows), "times as fast as fp32", alt)
        parts.append(
            Chart(
                "precision",
                "Gain over fp32",
                spec,
                alt,
                "A bar to the right of the dashed line is faster, one to the left is slower.",
            )
        )
    parts.append(Words("precision-words", answer_lines(Answers(precisions=gains))))
    lead = "How much faster a step gets in another precision, and how far its results are off from fp32 on the CPU."
    return Section("precisions", "Precision", lead, parts)


def placement(subject: Subject) -> Section | None:
    """What copies to and from the device cost."""
    copies = subject.answers.copies
    if not copies:
        return None
    rows = [copy_row(one, _where(subject, one.comparison, "placement")) for one in copies[:MOST_BARS]]
    alt = f"Bars: the share of a step that copying takes, in {count(len(rows), 'case')}, told in words below."
    chart = Chart(
        "placement", "Share of a step that is copying", charts.bars(rows, sides_of(rows), "% of a step", alt), alt
    )
    lead = (
        "Batches can lie on the device already, or be copied in each step (host), and results copied back (roundtrip)."
    )
    return Section(
        "placements", "Copies", lead, [chart, Words("placement-words", answer_lines(Answers(copies=copies)))]
    )


def scaling(subject: Subject) -> Section | None:
    """How the time of a step grows with the length of its sequences."""
    found = subject.answers.scalings
    if not found:
        return None
    works: dict[str, list[Scaling]] = {}
    for one in found:
        works.setdefault(work_name(one.outcomes[0].case), []).append(one)
    parts: list[Part] = [
        _growth(subject, f"scaling-{number}", name, several[:6])
        for number, (name, several) in enumerate(list(works.items())[:MOST_CHARTS])
    ]
    parts.append(Words("scaling-words", answer_lines(Answers(scalings=found))))
    lead = "Both axes are logarithmic: a straight line is a power of the length, and its slope is the exponent."
    return Section("scaling", "Length of sequences", lead, parts)


def _growth(subject: Subject, identity: str, name: str, several: Sequence[Scaling]) -> Chart:
    first = [one.outcomes[0] for one in several]
    axes = [axis for axis in varying(first) if axis != "machine"] or ["device"]
    longest = max(step.value for one in several for o in one.outcomes if (step := step_time(o.good)) is not None)
    unit, per = time_unit(longest)
    rows = []
    for one in several:
        side = label(one.outcomes[0].case, axes)
        side = f"{one.outcomes[0].machine}, {side}" if len(subject.machines) > 1 else side
        for outcome in one.outcomes:
            step = step_time(outcome.good)
            if step is not None:
                low = step.low if step.low and step.low > 0 else None
                rows.append({"x": outcome.case.seq, "value": step.value * per, "low": low and low * per, "side": side,
                             "high": None if low is None or step.high is None else step.high * per,
                             "shown": shown_time(step), "trust": f"exponent {one.fit.value:.2f} overall"})  # fmt: skip
    alt = (
        f"Lines: the time of a step of {name} over the length of its sequences, both logarithmic, told in words below."
    )
    return Chart(
        identity, name, charts.curves(rows, sides_of(rows), ("length of a sequence", f"{unit} a step"), alt), alt
    )


def crossover(subject: Subject) -> Section | None:
    """From which size on one way beats another."""
    found = [one for one in subject.answers.crossovers if one.comparisons]
    if not found:
        return None
    drawn = sorted(found, key=lambda one: (one.verdict != "crosses", one.axis != "device"))
    drawn = [one for one in drawn if len(one.comparisons) > 1][:MOST_CHARTS]
    parts: list[Part] = [_crossing(subject, f"crossover-{number}", one) for number, one in enumerate(drawn)]
    parts.append(Words("crossover-words", answer_lines(Answers(crossovers=found))))
    lead = "Above the dashed line the other side is faster. A diamond is where both are equal, with its 95 % interval."
    return Section("crossovers", "From which size on", lead, parts)


def _crossing(subject: Subject, identity: str, found: Crossover) -> Chart:
    other, base = named(found.axis, found.other), named(found.axis, found.base)
    rows = [{"x": found.size(one), "value": one.ratio, "low": one.low, "high": one.high, "shown": ratio_words(one),
             "trust": one.how} for one in found.comparisons]  # fmt: skip
    crossings = [(one.size, one.low, one.high) for one in found.crossings]
    left_out = (found.axis, found.over, "machine", "workload", "mode")
    axes = [axis for axis in subject.varied if axis not in left_out]
    about = full_label(found.tried[0].case, axes)
    title = f"{about}: {other} against {base} over {found.over}"
    alt = f"Line: how many times as fast {other} is as {base} at each {found.over}, told in words below."
    return Chart(identity, title, charts.ratios(rows, found.over, other, base, crossings, alt), alt)
