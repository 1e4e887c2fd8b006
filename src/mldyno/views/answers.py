"""Answers in plain words, about cases and about the machine; each with its interval, how it was obtained, or what
would help. One question is answered in the same words wherever it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from mldyno.analysis.answers import HOST, Answers, Verdicts
from mldyno.analysis.comparisons import DELTA, PAIRED, SEPARATE, Comparison, Mean
from mldyno.analysis.copying import CopyCost
from mldyno.analysis.crossover import Crossing, Crossover
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.precisions import PLAIN, PrecisionGain, error_of
from mldyno.analysis.scaling import Exponent, Scaling
from mldyno.analysis.tables import column
from mldyno.axes import AXIS
from mldyno.records import Case
from mldyno.store.figures import marks
from mldyno.units import count, digits, show_interval, show_percent, show_seconds
from mldyno.views.loading import loader_sentence
from mldyno.views.sentences import CANT_TELL, NO_CLEAR_DIFFERENCE, WORK, arms, claim, factor, named, span
from mldyno.views.titles import case_on_device, workload_title

WIDE_EXPONENT = 0.1  # half of an exponent's interval from which on it is said how to narrow it
FAINT_ERROR = 0.001  # an error under this is not told more closely
DOES = {"train": "trains", "infer": "runs models"}
MAX_MACHINES = 4  # published ones that are named for one case
Called = Callable[[str], str]


def answer_lines(answers: Answers) -> list[str]:
    """All answers about cases, one sentence each; of a precision that a crossover is about, the crossover says all."""
    swept = {(tried.case, tried.machine) for crossover in answers.crossovers if _of_precisions(crossover)
             for tried in crossover.tried}  # fmt: skip
    gains = [gain for gain in answers.precisions if (gain.outcome.case, gain.outcome.machine) not in swept]
    return [
        *map(crossover_sentence, answers.crossovers),
        *map(_precision_sentence, gains),
        *map(_copy_sentence, answers.copies),
        *map(_scaling_sentence, answers.scalings),
        *map(loader_sentence, [] if any(each.axis == "loader_workers" for each in answers.crossovers)
             else answers.loaders),
    ]  # fmt: skip


def answer_section(answers: Answers) -> list[str]:
    """All answers as the end of an output; nothing where there are none."""
    lines = answer_lines(answers)
    return ["", "what this says:", *(f"- {line}" for line in lines)] if lines else []


def verdict_lines(verdicts: Verdicts) -> list[str]:
    """All answers about the machine, one sentence each."""
    return [line for lines in verdict_kinds(verdicts) for line in lines]


def verdict_kinds(verdicts: Verdicts) -> list[list[str]]:
    """The same by question: devices, precisions, batches, copies, published machines."""
    called = _called(verdicts)
    only = [f"only one device was found, {called(HOST)}: `mldyno doctor` says why"] if verdicts.only == HOST else []
    kinds = [
        [*(_device_verdict(mean, called) for mean in verdicts.devices), *only],
        [_precision_verdict(mean, called) for mean in verdicts.precisions],
        [_batch_verdict(crossover, called) for crossover in verdicts.batches],
        [_copy_verdict(cost, called) for cost in verdicts.copies],
        [_reference_verdict(comparisons, called) for comparisons in verdicts.references],
    ]
    return [list(map(with_capital, lines)) for lines in kinds]


def with_capital(line: str) -> str:
    """With a capital where the first word is not a name."""
    return (
        line[0].upper() + line[1:]
        if line.startswith(("your", "only", "on your", "can't", "small", "geometric"))
        else line
    )


def _called(verdicts: Verdicts) -> Called:
    """What devices are called: your CPU, your GPU; by their own names where there are several accelerators."""
    cases = [each.other.case for mean in (*verdicts.devices, *verdicts.precisions) for each in mean.comparisons]
    many = len({case.device for case in cases} - {HOST}) > 1
    return lambda device: "your CPU" if device == HOST else f"your {device}" if many else "your GPU"


def _became(status: str) -> str:
    """What became of a case that is not ok, as a verb."""
    return {"failed": "failed", "timeout": "timed out", "oom": "ran out of memory"}.get(status, f"is {status}")


def _noted(text: str, *notes: str) -> str:
    noted = "; ".join(filter(None, notes))
    return f"{text} [{noted}]" if noted else text


def _looks(result: Comparison | Mean) -> str:
    if result.low is None:
        return f"it looks {_faster(result)}, without an interval"
    return f"{NO_CLEAR_DIFFERENCE} ({span(result)})"


def _faster(result: Comparison | Mean) -> str:
    return f"{factor(result)} {'faster' if result.ratio > 1 else 'slower'}"


def _ground(mean: Mean) -> str:
    """The comparisons behind a mean, and how they were made."""
    ordered = sorted(mean.comparisons, key=lambda comparison: comparison.ratio)
    if len(ordered) == 1:
        return f"{workload_title(ordered[0].other.case.workload)}, {ordered[0].how}"
    names = [workload_title(single.other.case.workload) for single in ordered]
    each = ", ".join(f"{name} {digits(single.ratio, most=2)}x" for name, single in zip(names, ordered, strict=True))
    kinds = [kind for kind in (PAIRED, SEPARATE) if any(single.how.startswith(kind) for single in ordered)]
    return f"geometric mean of {len(ordered)} cases: {each}; {' and '.join(kinds)}"


# -- is the accelerator worth it -------------------------------------------------------------------


def _device_verdict(mean: Mean, called: Called) -> str:
    case = mean.comparisons[0].other.case
    other, does, host = called(case.device), DOES.get(str(case.mode), "works"), called(HOST)
    if mean.verdict == "equivalent":
        text = f"{other} {does} as fast as {host} (within {show_percent(DELTA)})"
    elif mean.verdict != "inconclusive":
        text = f"{other} {does} {factor(mean)} {mean.verdict} than {host}"
    else:
        text = f"can't tell if {other} {does} faster than {host}: {_looks(mean)}"
    return f"{text} [{_ground(mean)}]"


def _batch_verdict(crossover: Crossover, called: Called) -> str:
    """Are small batches faster on the CPU?"""
    other, base = called(str(crossover.other)), called(str(crossover.base))
    if not crossover.comparisons:
        return f"small batches on {other} and {base} can't be compared"
    first, last = crossover.comparisons[0], crossover.comparisons[-1]
    ends = [first] if first is last else [first, last]
    sizes = [f"batch {crossover.size(each):,}: {_side(each, other)}" for each in ends]
    claims = {"slower": f"small batches are faster on {base}", "faster": f"small batches too are faster on {other}",
              "equivalent": f"small batches are as fast on {base} as on {other}"}  # fmt: skip
    text = claims.get(first.verdict, f"can't tell where small batches are faster, on {base} or on {other}")
    if len(crossover.crossings) == 1:
        crossing = crossover.crossings[0]
        sizes[-1] += f"; the crossover is between {crossing.below:,} and {crossing.above:,}"
    return f"{text}: {_work(first.other.case, 'seq', 'precision')}, {', '.join(sizes)} [{first.how}]"


def _side(comparison: Comparison, other: str) -> str:
    if comparison.verdict == "inconclusive":
        return _looks(comparison)
    return f"{other} is {'as fast' if comparison.verdict == 'equivalent' else _faster(comparison)}"


def _work(case: Case, *axes: str) -> str:
    """What is computed, with its values on some axes: MLP inference (batch 128, bf16)."""
    values = {axis: getattr(case, axis) for axis in axes if getattr(case, axis) not in (None, PLAIN)}
    sizes = ", ".join(AXIS[axis].say(value) for axis, value in values.items())
    return f"{workload_title(case.workload)} {WORK.get(str(case.mode), str(case.mode))}{f' ({sizes})' if sizes else ''}"


# -- from which size on one beats the other ------------------------------------------------------


def crossover_sentence(crossover: Crossover) -> str:
    """From which size on one beats the other, at which sizes that is clear, and what is not known."""
    case = case_on_device(crossover.tried[0].case, crossover.axis, crossover.over)
    parts = [_crossover_claim(crossover), *_gaps(crossover)]
    if _of_precisions(crossover) and crossover.value == "step":
        others = [
            outcome
            for outcome in crossover.tried
            if outcome.case.precision == crossover.other and outcome.status == "ok"
        ]
        parts += [_off(others, f"{crossover.other}'s")] if others else []
    return _noted(f"{case}: {'; '.join(parts)}", *_crossover_notes(crossover))


def _of_precisions(crossover: Crossover) -> bool:
    return (crossover.axis, crossover.base) == ("precision", PLAIN)


def _sides(crossover: Crossover) -> tuple[str, str]:
    """The two sides in words: the other one, and the base."""
    return named(crossover.axis, crossover.other), named(crossover.axis, crossover.base)


def _crossover_claim(crossover: Crossover) -> str:
    other, base = _sides(crossover)
    if not crossover.comparisons:
        return f"{other} and {base} can't be compared at any {crossover.over}"
    first, last = crossover.comparisons[0], crossover.comparisons[-1]
    smallest, largest = crossover.size(first), crossover.size(last)
    if first is last:
        return f"{claim(first, other, base)} at {crossover.over} {smallest:,}, the only one that both were measured at"
    energy = crossover.value == "energy"
    beats, worse = ("takes less energy than", "takes more") if energy else ("beats", "is slower")
    everywhere = f"{crossover.over} from {smallest:,} to {largest:,}"
    ends = f"{factor(first)} at {smallest:,}, {factor(last)} at {largest:,}"
    regions, crossed = ", ".join(_regions(crossover)), crossover.crossings
    claims = {
        "always": f"{other} {beats} {base} at every {everywhere}: {ends}",
        "never": f"{other} {beats} {base} at no {everywhere}: it {worse}, {ends}",
        "equivalent": f"{other} and {base} are equivalent{' in energy' if energy else ''} (within "
        f"{show_percent(DELTA)}) at every {everywhere}",
        "open": f"no crossing{' of their energies' if energy else ''} was seen at any {everywhere}: {regions}",
    }
    if not crossed:
        return claims[crossover.verdict]
    times = f"it crosses {len(crossed)} times: " if len(crossed) > 1 else ""
    return f"{times}{', and '.join(_turn(crossover, crossing) for crossing in crossed)}: {regions}"


def _turn(crossover: Crossover, crossing: Crossing) -> str:
    """Who beats whom from where on."""
    other, base = _sides(crossover)
    winner, loser = (other, base) if crossing.winner > 0 else (base, other)
    beats = "takes less energy than" if crossover.value == "energy" else "beats"
    return f"{winner} {beats} {loser} from {crossover.over} {show_interval(crossing)} on"


def _regions(crossover: Crossover) -> Iterator[str]:
    """At which sizes what is clear."""
    other, base = _sides(crossover)
    better = "takes less" if crossover.value == "energy" else "is faster"
    claims = {"faster": f"{other} {better}", "slower": f"{base} {better}", "equivalent": "equivalent"}
    for verdict, group in groupby(crossover.comparisons, key=lambda comparison: comparison.verdict):
        sizes = [crossover.size(comparison) for comparison in group]
        place = f"at {sizes[0]:,}" if len(sizes) == 1 else f"from {sizes[0]:,} to {sizes[-1]:,}"
        yield f"{claims.get(verdict, CANT_TELL)} {place}"


def _gaps(crossover: Crossover) -> Iterator[str]:
    """What did not succeed on either side, from which size on."""
    for value in (crossover.base, crossover.other):
        name = named(crossover.axis, value)
        missing = [outcome for outcome in crossover.missing if column(outcome, crossover.axis) == value]
        for status, group in groupby(missing, key=lambda outcome: outcome.status):
            first, *larger = group
            size = f"{crossover.over} {column(first, crossover.over):,}"
            if status == "oom":  # nothing larger was tried
                yield f"{name} {_became(status)} {'from' if larger else 'at'} {size}{' on' if larger else ''}"
            else:
                others = f" and {count(len(larger), 'larger one')}" if larger else ""
                yield f"{name} {_became(status)} at {size}{others} ({first.reason})"


def _crossover_notes(crossover: Crossover) -> Iterator[str]:
    paired = sum(comparison.how.startswith(PAIRED) for comparison in crossover.comparisons)
    kinds = {PAIRED: paired, SEPARATE: len(crossover.comparisons) - paired}
    yield ", ".join(f"{kind} at {count(number, 'size')}" for kind, number in kinds.items() if number)
    if crossover.verdict == "crosses":
        straight = ", which are only two: a bend would not be seen" if len(crossover.points) == 2 else ""
        yield f"interpolated between them{straight}"
    elif crossover.verdict == "never" and not crossover.missing:
        yield "nothing larger was measured"
    elif crossover.verdict == "always" and crossover.size(crossover.comparisons[0]) > 1:
        yield "nothing smaller was measured"
    yield next((comparison.advice for comparison in crossover.comparisons if comparison.advice), "")


# -- which precision is worth it -------------------------------------------------------------------


def _precision_sentence(gain: PrecisionGain) -> str:
    outcome, comparison = gain.outcome, gain.comparison
    case, precision = case_on_device(outcome.case, "precision"), str(outcome.case.precision)
    if comparison is None:
        return f"{case}: {precision} {_became(outcome.status)}: {outcome.reason}"
    layout = "its convolutions ran contiguous, --layout channels-last may be faster" if gain.held_back_by_layout else ""
    return _noted(
        f"{case}: {_worth(comparison, precision)}; {_off([outcome])}", comparison.how, comparison.advice, layout
    )


def _precision_verdict(mean: Mean, called: Called) -> str:
    case = mean.comparisons[0].other.case
    where = f" in {WORK.get(str(case.mode), 'work')} on {called(case.device)}"
    return f"{_worth(mean, str(case.precision), where)} [{_ground(mean)}]"


def _worth(result: Comparison | Mean, precision: str, where: str = "") -> str:
    """Whether a precision is worth it, and by how much it is faster or slower than fp32."""
    if result.verdict == "equivalent":
        return f"{precision} is not worth it{where}: as fast as {PLAIN} (within {show_percent(DELTA)})"
    if result.verdict == "inconclusive":
        return f"can't tell if {precision} is worth it{where}: {_looks(result)}"
    worth = "is" if result.verdict == "faster" else "is not"
    return f"{precision} {worth} worth it{where}: {factor(result)} {result.verdict} than {PLAIN}"


def _off(outcomes: Sequence[Outcome], whose: str = "its") -> str:
    """How far off a precision is, from the least to the most, in what its check looked at."""
    what, are = ("loss", "is") if outcomes[0].case.mode == "train" else ("results", "are")
    errors = [error for outcome in outcomes if (error := error_of(outcome)) is not None]
    if not errors:
        return f"how far {whose} {what} {are} off was not checked"
    if not any(errors):
        return f"{whose} {what} {are} the same"
    ends = [min(errors), max(errors)]
    shown = dict.fromkeys("under 0.1 %" if end < FAINT_ERROR else show_percent(end) for end in ends)
    return f"{whose} {what} {are} {' to '.join(shown)} off"


# -- what the copy costs -------------------------------------------------------------------------


def _copy_sentence(cost: CopyCost) -> str:
    return f"{case_on_device(cost.comparison.other.case, 'placement')}: {_copy_claim(cost)}"


def _copy_verdict(cost: CopyCost, called: Called) -> str:
    case = cost.comparison.other.case
    return f"on {called(case.device)}, in {_work(case, 'batch', 'seq', 'precision')}, {_copy_claim(cost)}"


def _copy_claim(cost: CopyCost) -> str:
    """What a copy costs, how that was found out, and what would help."""
    comparison = cost.comparison
    share = show_interval(cost.share, "%")
    if comparison.verdict == "slower":
        text = f"costs {show_seconds(cost.seconds or 0.0)} a step, {share} of it"
    elif comparison.verdict == "inconclusive":
        text = f"looks like {share} of a step; {CANT_TELL if comparison.low is not None else 'no interval'}"
    else:
        nearly = "next to " if comparison.verdict == "equivalent" else ""
        text = f"costs {nearly}nothing: {claim(comparison, *arms(comparison))}"
    return _noted(f"copying {cost.way} {text}", comparison.how, comparison.advice)


# -- how time grows with the length --------------------------------------------------------------


def _scaling_sentence(scaling: Scaling) -> str:
    case = case_on_device(scaling.outcomes[0].case, "seq")
    many = len(scaling.outcomes) > 2
    text = f"{case}: the time of a step grows with seq to the power of {_power(scaling.fit)}"
    if many:
        text += f", {scaling.fit.how}"
    if scaling.bends:
        text += f"; but it bends: {_power(scaling.first)}, and {_power(scaling.last)}"
    elif many:
        text += f"; between the two longest {_power(scaling.last)}"
    return _noted(text, scaling.last.how, _how_to_narrow(scaling))


def _power(exponent: Exponent) -> str:
    """An exponent, its interval, and between which lengths it holds."""
    interval = "" if exponent.low is not None else " (no interval)"
    return f"{show_interval(exponent, decimals=2)}{interval} from {exponent.shortest:,} to {exponent.longest:,}"


def _how_to_narrow(scaling: Scaling) -> str:
    if scaling.fit.half_width is None:
        return "too few samples for an interval: a larger --budget, or more --repeats"
    width = scaling.last.half_width
    if width is not None and width < WIDE_EXPONENT:
        return ""
    separate = scaling.last.how == SEPARATE
    return "mldyno run --by seq pairs the lengths, which tells more" if separate else "more --repeats tell more"


# -- how it stands among published machines --------------------------------------------------------


def _reference_verdict(comparisons: Sequence[Comparison], called: Called) -> str:
    case = comparisons[0].other.case
    sure = [comparison for comparison in comparisons if not _suspect(comparison)] or list(comparisons)
    chosen = spread(sure, MAX_MACHINES)
    speeds = ", ".join(f"{show_interval(each.speedup, 'x')} the speed of {_machine(each)}" for each in chosen)
    known = "own interval only" if any(each.low is not None for each in chosen) else "they have no interval"
    return (
        f"{called(case.device)} has, in {_work(case, 'batch', 'seq')}, {speeds} "
        f"[published figures of the same work; {known}]"
    )


def _suspect(comparison: Comparison) -> bool:
    return any(code == "suspect" for code, _ in marks(comparison.base.records[0]))


def spread(comparisons: Sequence[Comparison], most: int) -> list[Comparison]:
    """Comparisons that stand in order: all of them, or so many from the first to the last."""
    if len(comparisons) <= most:
        return list(comparisons)
    return [comparisons[round(place * (len(comparisons) - 1) / max(1, most - 1))] for place in range(most)]


def _machine(comparison: Comparison) -> str:
    theirs, doubt = comparison.base, " (suspect)" if _suspect(comparison) else ""
    return f"{theirs.machine} ({theirs.case.device}){doubt}"
