"""Answers in words: about single cases, and about the machine as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from mldyno.analysis.answers import HOST, LOADER_WORKERS, PLAIN, Answers, CopyCost, LoaderGain, PrecisionGain, Verdicts
from mldyno.analysis.comparisons import DELTA, PAIRED, SEPARATE, Comparison, Mean
from mldyno.analysis.outcomes import Outcome, column, thinned
from mldyno.analysis.sweeps import Crossover, Exponent, Scaling
from mldyno.axes import AXIS, PRECISIONS
from mldyno.metrics import METRIC
from mldyno.records import Case
from mldyno.sources import family
from mldyno.store.figures import marks
from mldyno.units import count, digits, interval_parts, show_interval, show_percent, show_seconds
from mldyno.views import claims
from mldyno.views.claims import CANT_TELL, NO_CLEAR_DIFFERENCE, WORK, Sentence, Wording, in_words, named, times
from mldyno.views.outcomes import energy_source, show_estimate
from mldyno.views.tables import aligned
from mldyno.views.titles import case_on_device, case_without, workload_title

WIDE_EXPONENT = 0.1  # half-width of an exponent: from here on the sentence says how to narrow it
FAINT_ERROR = 0.001  # relative; a smaller error is shown as under this
MAX_MACHINES = 4  # published machines that are named for one case
BECAME = {"failed": "failed", "timeout": "timed out", "oom": "ran out of memory"}  # statuses as verbs
DOES = {"train": "trains", "infer": "runs models"}
Called = Callable[[str], str]

_LOOKS = "it looks {times} {way}, but has no interval"
DEVICE = Wording(
    faster="{other} {does} {times} faster than {base}",
    slower="{other} {does} {times} slower than {base}",
    equivalent="{other} {does} as fast as {base} (within {within})",
    unclear="can't tell if {other} {does} faster than {base}: " + NO_CLEAR_DIFFERENCE + " ({span})",
    no_interval="can't tell if {other} {does} faster than {base}: " + _LOOKS,
)
PRECISION = Wording(
    faster="{precision} is worth it{where}: {times} faster than " + PLAIN,
    slower="{precision} is not worth it{where}: {times} slower than " + PLAIN,
    equivalent="{precision} is not worth it{where}: as fast as " + PLAIN + " (within {within})",
    unclear="can't tell if {precision} is worth it{where}: " + NO_CLEAR_DIFFERENCE + " ({span})",
    no_interval="can't tell if {precision} is worth it{where}: " + _LOOKS,
)
COPY = Wording(
    faster="costs nothing: {said}",
    slower="costs {seconds} a step, {share} of it",
    equivalent="costs next to nothing: {said}",
    unclear="may cost nothing: {share} of a step",
    no_interval="costs about {share} of a step, without an interval",
)
LOADER = Wording(
    faster="{number}: {gain} over {fewest}",
    slower="slower with {number}: {ratio} over {best}",
    equivalent="{number} {gain_verb} nothing ({ends} over {best})",
    unclear=CANT_TELL + " if {number} {gain_verb} anything: {ratio} over {best}",
)
SMALL_BATCHES = Wording(
    faster="small batches too are faster on {other}",
    slower="small batches are faster on {base}",
    equivalent="small batches are as fast on {base} as on {other}",
    unclear="can't tell where small batches are faster, on {base} or on {other}",
)
AT_A_BATCH = Wording(
    faster="{other} is {times} faster",
    slower="{other} is {times} slower",
    equivalent="{other} is as fast",
    unclear=NO_CLEAR_DIFFERENCE + " ({span})",
    no_interval=_LOOKS,
)
REGION = Wording("{other} {better}", "{base} {better}", "equivalent", CANT_TELL)


def answer_lines(answers: Answers) -> list[Sentence]:
    """Return all answers about cases; a crossover of precisions or loader workers replaces the answer about them."""
    swept = {(tried.case, tried.machine) for crossover in answers.crossovers if _of_precisions(crossover)
             for tried in crossover.tried}  # fmt: skip
    gains = [gain for gain in answers.precisions if (gain.outcome.case, gain.outcome.machine) not in swept]
    swept_loaders = any(each.axis == LOADER_WORKERS for each in answers.crossovers)
    return [
        *map(crossover_sentence, answers.crossovers),
        *map(_precision_sentence, gains),
        *(_copy_claim(cost, f"{case_on_device(cost.comparison.other.case, 'placement')}:") for cost in answers.copies),
        *map(_scaling_sentence, answers.scalings),
        *map(_loader_sentence, () if swept_loaders else answers.loaders),
    ]


def answer_section(answers: Answers) -> list[str]:
    """Return all answers as a section of the output; empty where there are none."""
    lines = answer_lines(answers)
    return ["", "what this says:", *(f"- {line}" for line in lines)] if lines else []


def verdict_lines(verdicts: Verdicts) -> list[Sentence]:
    """Return all answers about the machine."""
    return [line for lines in verdict_kinds(verdicts) for line in lines]


def verdict_kinds(verdicts: Verdicts) -> list[list[Sentence]]:
    """Return the answers about the machine by question: devices, precisions, batches, copies, published machines."""
    cases = [each.other.case for mean in (*verdicts.devices, *verdicts.precisions) for each in mean.comparisons]
    many = len({case.device for case in cases} - {HOST}) > 1

    def called(device: str) -> str:
        return "your CPU" if device == HOST else f"your {device}" if many else "your GPU"

    kinds = [
        [_device_verdict(mean, called) for mean in verdicts.devices],
        [_precision_verdict(mean, called) for mean in verdicts.precisions],
        [_batch_verdict(crossover, called) for crossover in verdicts.batches],
        [_copy_claim(cost, f"on {called(case.device)}, in {_work(case, 'batch', 'seq', 'precision')},")
         for cost in verdicts.copies for case in [cost.comparison.other.case]],
        [_reference_verdict(comparisons, called) for comparisons in verdicts.references],
    ]  # fmt: skip
    kinds = [[line if line.startswith(PRECISIONS) else line.capitalised() for line in lines] for lines in kinds]
    kinds[0] += [Sentence("No GPU found; run `mldyno doctor` to see why")] if verdicts.only == HOST else []
    return kinds


def _on_mean(wording: Wording, mean: Mean, **words: str) -> Sentence:
    """Put a mean into words, with the comparisons that it is made of, and how they were made."""
    ordered = sorted(mean.comparisons, key=lambda comparison: comparison.ratio)
    names = [workload_title(each.other.case.workload) for each in ordered]
    if len(ordered) == 1:
        notes = [f"{names[0]}, {ordered[0].how}"]
    else:
        each = ", ".join(f"{name} {digits(single.ratio, most=2)}x" for name, single in zip(names, ordered, strict=True))
        kinds = [kind for kind in (PAIRED, SEPARATE) if any(single.how.startswith(kind) for single in ordered)]
        notes = [f"geometric mean of {len(ordered)} cases: {each}", " and ".join(kinds)]
    return Sentence(wording.of(mean, **words), *notes, clear=mean.conclusive)


def _own_model(mean: Mean) -> str:
    """Return the user's model, if a mean is about that alone: it need not hold for the whole machine."""
    workloads = {comparison.other.case.workload for comparison in mean.comparisons}
    name = workloads.pop()
    return workload_title(name) if not workloads and family(name) != name else ""


def _device_verdict(mean: Mean, called: Called) -> Sentence:
    case = mean.other.case
    does = DOES.get(str(case.mode), "works")
    if model := _own_model(mean):
        does = f"{does.removesuffix(' models')} {model}"
    return _on_mean(DEVICE, mean, other=called(case.device), base=called(HOST), does=does)


def _batch_verdict(crossover: Crossover, called: Called) -> Sentence:
    """Say whether small batches are faster on the CPU."""
    other, base = called(str(crossover.other)), called(str(crossover.base))
    if not crossover.comparisons:
        return Sentence(f"small batches on {other} and {base} can't be compared")
    first, last = crossover.comparisons[0], crossover.comparisons[-1]
    ends = [first] if first is last else [first, last]
    sizes = [f"batch {crossover.size(each):,}: {AT_A_BATCH.of(each, other=other)}" for each in ends]
    if len(crossover.crossings) == 1:
        crossing = crossover.crossings[0]
        sizes[-1] += f"; the crossover is between {crossing.below:,} and {crossing.above:,}"
    text = f"{SMALL_BATCHES.of(first, other=other, base=base)}: {_work(first.other.case, 'seq', 'precision')}"
    return Sentence(f"{text}, {', '.join(sizes)}", first.how, clear=all(each.settled for each in ends))


def _work(case: Case, *axes: str) -> str:
    """Return the work, with its values on some axes: MLP inference (batch 128, bf16)."""
    values = {axis: getattr(case, axis) for axis in axes if getattr(case, axis) not in (None, PLAIN)}
    sizes = ", ".join(AXIS[axis].say(value) for axis, value in values.items())
    return f"{workload_title(case.workload)} {WORK.get(str(case.mode), str(case.mode))}{f' ({sizes})' if sizes else ''}"


def crossover_sentence(crossover: Crossover) -> Sentence:
    """Say from which size on one side beats the other, at which sizes that is clear, and which are missing."""
    case = case_on_device(crossover.tried[0].case, crossover.axis, crossover.over)
    parts = [_crossover_claim(crossover), *_gaps(crossover)]
    if _of_precisions(crossover) and crossover.value == "step":
        tried = [each for each in crossover.tried if each.case.precision == crossover.other and each.status == "ok"]
        parts += [_error_in_words(tried, f"{crossover.other}'s")] if tried else []
    clear = all(each.settled for each in crossover.comparisons)
    return Sentence(f"{case}: {'; '.join(parts)}", *_crossover_notes(crossover), clear=clear)


def _of_precisions(crossover: Crossover) -> bool:
    return (crossover.axis, crossover.base) == ("precision", PLAIN)


def _crossover_claim(crossover: Crossover) -> str:
    other, base = named(crossover.axis, crossover.other), named(crossover.axis, crossover.base)
    if not crossover.comparisons:
        return f"{other} and {base} can't be compared at any {crossover.over}"
    first, last = crossover.comparisons[0], crossover.comparisons[-1]
    smallest, largest = crossover.size(first), crossover.size(last)
    if first is last:
        text = in_words(first, other, base)
        return f"{text} at {crossover.over} {smallest:,}, the only one that both were measured at"
    energy = crossover.value == "energy"
    beats, worse = ("takes less energy than", "takes more") if energy else ("beats", "is slower")
    everywhere = f"{crossover.over} from {smallest:,} to {largest:,}"
    ends = f"{times(first)} at {smallest:,}, {times(last)} at {largest:,}"
    regions = ", ".join(_regions(crossover, other, base, "takes less" if energy else "is faster"))
    turns = [f"{' '.join((other, beats, base)[::crossing.winner])} from {crossover.over} {show_interval(crossing)} on"
             for crossing in crossover.crossings]  # fmt: skip
    number = f"it crosses {len(turns)} times: " if len(turns) > 1 else ""
    return {
        "crosses": f"{number}{', and '.join(turns)}: {regions}",
        "always": f"{other} {beats} {base} at every {everywhere}: {ends}",
        "never": f"{other} {beats} {base} at no {everywhere}: it {worse}, {ends}",
        "equivalent": f"{other} and {base} are equivalent{' in energy' if energy else ''} (within "
        f"{show_percent(DELTA)}) at every {everywhere}",
        "open": f"no crossing{' of their energies' if energy else ''} at any {everywhere}: {regions}",
    }[crossover.verdict]


def _regions(crossover: Crossover, other: str, base: str, better: str) -> Iterator[str]:
    """Say which side wins at which sizes."""

    def said(comparison: Comparison) -> str:
        return REGION.of(comparison, other=other, base=base, better=better)

    for words, group in groupby(crossover.comparisons, key=said):
        sizes = [crossover.size(comparison) for comparison in group]
        yield f"{words} at {sizes[0]:,}" if len(sizes) == 1 else f"{words} from {sizes[0]:,} to {sizes[-1]:,}"


def _gaps(crossover: Crossover) -> Iterator[str]:
    """Say which sizes did not succeed on either side, and why."""
    for value in (crossover.base, crossover.other):
        name = named(crossover.axis, value)
        missing = [outcome for outcome in crossover.missing if column(outcome, crossover.axis) == value]
        for status, group in groupby(missing, key=lambda outcome: outcome.status):
            first, *larger = group
            size = f"{crossover.over} {column(first, crossover.over):,}"
            if status == "oom":  # nothing larger was tried
                yield f"{name} {BECAME[status]} {f'from {size} on' if larger else f'at {size}'}"
            else:
                more = f" and {count(len(larger), 'larger one')}" if larger else ""
                yield f"{name} {BECAME.get(status, f'is {status}')} at {size}{more} ({first.reason})"


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


def crossover_table(crossover: Crossover) -> str:
    """Return the time or energy of a step on both sides at each size, with the verdict."""
    other, base = named(crossover.axis, crossover.other), named(crossover.axis, crossover.base)
    rows: dict[int, list[str]] = {}
    for outcome in crossover.tried:
        figure = outcome.figure(crossover.value)
        text = outcome.status if figure is None else show_estimate(figure)
        rows.setdefault(int(column(outcome, crossover.over)), []).append(text)
    wording = claims.ENERGY_IN_A_CELL if crossover.value == "energy" else claims.IN_A_CELL
    verdicts = {crossover.size(comparison): wording.of(comparison) for comparison in crossover.comparisons}
    body = [[f"{size:,}", *figures, verdicts.get(size, "")] for size, figures in rows.items()]
    about = METRIC[crossover.value].title
    if crossover.value == "energy":
        about += f" [{energy_source(crossover.tried[0])}]"
    title = f"{case_without(crossover.tried[0].case, crossover.axis, crossover.over)}: {about}"
    does = "takes" if crossover.value == "energy" else "is"
    return aligned([crossover.over, base, other, f"{other} {does}"], body, 0, title)


def _precision_sentence(gain: PrecisionGain) -> Sentence:
    outcome, comparison = gain.outcome, gain.comparison
    case, precision = case_on_device(outcome.case, "precision"), str(outcome.case.precision)
    if comparison is None:
        return Sentence(f"{case}: {precision} {BECAME.get(outcome.status, f'is {outcome.status}')}: {outcome.reason}")
    layout = "its convolutions ran contiguous, --layout channels-last may be faster" if gain.held_back_by_layout else ""
    text = f"{case}: {PRECISION.of(comparison, precision=precision, where='')}; {_error_in_words([outcome])}"
    clear = comparison.conclusive
    return Sentence(text, comparison.how, comparison.advice, layout, clear=clear)


def _precision_verdict(mean: Mean, called: Called) -> Sentence:
    case = mean.other.case
    of_model = f" of {model}" if (model := _own_model(mean)) else ""
    where = f" in {WORK.get(str(case.mode), 'work')}{of_model} on {called(case.device)}"
    return _on_mean(PRECISION, mean, precision=str(case.precision), where=where)


def _error_in_words(outcomes: Sequence[Outcome], whose: str = "its") -> str:
    """Say how far off a precision is, from the least to the most: its loss in training, its results in inference."""
    what, are = ("loss", "is") if outcomes[0].case.mode == "train" else ("results", "are")
    errors = [error for outcome in outcomes if (error := outcome.error) is not None]
    if not errors:
        return f"{whose} {what} {'was' if are == 'is' else 'were'} not checked"
    if not any(errors):
        return f"{whose} {what} {are} the same"
    ends = [min(errors), max(errors)]
    shown = dict.fromkeys("under 0.1 %" if end < FAINT_ERROR else show_percent(end) for end in ends)
    return f"{whose} {what} {are} {' to '.join(shown)} off"


def _copy_claim(cost: CopyCost, where: str) -> Sentence:
    comparison, share = cost.comparison, show_interval(cost.share, "%")
    said, seconds = in_words(comparison, *claims.arms(comparison)), show_seconds(cost.seconds or 0.0)
    text = f"{where} copying {cost.way} {COPY.of(comparison, said=said, seconds=seconds, share=share)}"
    return Sentence(text, comparison.how, comparison.advice, clear=comparison.settled)


def _loader_sentence(gain: LoaderGain) -> Sentence:
    """Say what each number of workers gains: 2 loader workers: 1.7x (1.6-1.8) over 0; 4 gain nothing."""
    first, over_best = gain.over_fewest[0], gain.over_best
    parts: list[str] = []
    for fewest, best in zip(gain.over_fewest, over_best, strict=True):
        workers, *bases = (side.case.loader_workers for side in (best.other, fewest.base, best.base))
        parts.append(LOADER.of(
            best, number=f"{workers:,}" if parts else AXIS[LOADER_WORKERS].say(workers),
            gain=show_interval(fewest.speedup, "x"), gain_verb="gains" if workers == 1 else "gain",
            ends=interval_parts(best.speedup, "x")[1].strip("()"), fewest=str(bases[0]), best=str(bases[1]),
        ))  # fmt: skip
    advice = next((each.advice for each in over_best if each.advice), "")
    text = f"{case_on_device(first.other.case, LOADER_WORKERS)}: {'; '.join(parts)}"
    return Sentence(text, first.how, advice, clear=all(each.settled for each in over_best))


def _scaling_sentence(scaling: Scaling) -> Sentence:
    many, last = len(scaling.outcomes) > 2, scaling.last
    text = f"the time of a step grows with seq to the power of {_power(scaling.fit)}"
    text += f", {scaling.fit.how}" if many else ""
    if scaling.bends:
        text += f"; but it bends: {_power(scaling.first)}, and {_power(last)}"
    elif many:
        text += f"; between the two longest {_power(last)}"
    narrower = "more --repeats would narrow it"
    if last.how == SEPARATE:
        narrower = "mldyno run --by seq would pair the lengths"
    if scaling.fit.half_width is None:
        narrower = "too few samples for an interval: a larger --budget, or more --repeats"
    elif last.half_width is not None and last.half_width < WIDE_EXPONENT:
        narrower = ""
    return Sentence(f"{case_on_device(scaling.outcomes[0].case, 'seq')}: {text}", last.how, narrower)


def _power(exponent: Exponent) -> str:
    """Show an exponent, its interval, and between which lengths it holds."""
    interval = "" if exponent.low is not None else " (no interval)"
    return f"{show_interval(exponent, decimals=2)}{interval} from {exponent.shortest:,} to {exponent.longest:,}"


def _reference_verdict(comparisons: Sequence[Comparison], called: Called) -> Sentence:
    case, sure = comparisons[0].other.case, [each for each in comparisons if not _suspect(each)]
    chosen = thinned(sure or comparisons, MAX_MACHINES)
    speeds = ", ".join(
        f"{show_interval(each.speedup, 'x')} the speed of {each.base.machine} ({each.base.case.device})"
        f"{' (suspect)' if _suspect(each) else ''}" for each in chosen
    )  # fmt: skip
    known = "own interval only" if any(each.low is not None for each in chosen) else "they have no interval"
    text = f"in {_work(case, 'batch', 'seq')}, {called(case.device)} has {speeds}"
    return Sentence(text, "published figures of the same work", known)


def _suspect(comparison: Comparison) -> bool:
    return any(code == "suspect" for code, _ in marks(comparison.base.records[0]))
