"""What a machine is good for, in plain words: one sentence for each question, and what it rests on in brackets."""

from __future__ import annotations

from collections.abc import Sequence

from mldyno.analysis.comparisons import DELTA, Comparison, Mean
from mldyno.analysis.copying import CopyCost
from mldyno.analysis.crossover import Crossover
from mldyno.analysis.verdicts import HOST, Verdicts
from mldyno.records import Case
from mldyno.store.figures import marks
from mldyno.units import digits, show_percent
from mldyno.views.answers import copy_claim
from mldyno.views.sentences import factor

MODES = {"train": "trains", "infer": "runs models"}
WORK = {"train": "training", "infer": "inference"}
MOST_BESIDE = 4  # published machines that are named for one case
FRACTIONS = (
    (1 / 4, "a quarter"),
    (1 / 3, "a third"),
    (1 / 2, "half"),
    (2 / 3, "two thirds"),
    (3 / 4, "three quarters"),
)
NEAR = 0.08  # so far off, relative to it, a fraction may still be called that


def verdict_lines(found: Verdicts) -> list[str]:
    """All verdicts, one sentence each."""
    names = _Names(found)
    said = [
        *(names.device(one) for one in found.devices),
        *([f"only one device was found, {names.of(HOST)}: `mldyno doctor` says why"] if found.only == HOST else []),
        *(names.precision(one) for one in found.precisions),
        *(names.batches(one) for one in found.batches),
        *(names.copies(one) for one in found.copies),
        *(names.reference(several) for several in found.references),
    ]
    return [_capital(line) for line in said]


def _capital(line: str) -> str:
    """With a capital where the first word is not a name."""
    return line[0].upper() + line[1:] if line.startswith(("your", "only", "on your", "can't", "small")) else line


def _work(case: Case) -> str:
    return f"{case.workload} {WORK.get(str(case.mode), str(case.mode))}"


class _Names:
    """What devices are called: your CPU, your GPU; by their own names where there are several accelerators."""

    def __init__(self, found: Verdicts) -> None:
        cases = [one.other.case for mean in (*found.devices, *found.precisions) for one in mean.comparisons]
        self.several = len({case.device for case in cases} - {HOST}) > 1

    def of(self, device: str) -> str:
        """A device in a sentence."""
        if device == HOST:
            return "your CPU"
        return f"your {device}" if self.several else "your GPU"

    def device(self, found: Mean) -> str:
        """Is the accelerator worth it?"""
        case = found.comparisons[0].other.case
        other, does = self.of(case.device), MODES.get(str(case.mode), "works")
        if found.verdict == "equivalent":
            told = f"{other} {does} as fast as your CPU (within {show_percent(DELTA)})"
        elif found.verdict != "inconclusive":
            told = f"{other} {does} {factor(found)} {found.verdict} than your CPU"
        else:
            told = f"can't tell if {other} {does} faster than your CPU: {_looks(found)}"
        return f"{told} [{_ground(found)}]"

    def precision(self, found: Mean) -> str:
        """Does another precision pay?"""
        case = found.comparisons[0].other.case
        what = f"{WORK.get(str(case.mode), 'work')} on {self.of(case.device)}"
        if found.verdict == "equivalent":
            told = f"{case.precision} adds nothing to {what}: as fast as fp32 (within {show_percent(DELTA)})"
        elif found.verdict == "faster":
            told = f"{case.precision} {_gain(found)} {what}"
        elif found.verdict == "slower":
            told = f"{case.precision} does not pay in {what}: {factor(found)} slower than fp32"
        else:
            told = f"can't tell if {case.precision} pays in {what}: {_looks(found)}"
        return f"{told} [{_ground(found)}]"

    def batches(self, found: Crossover) -> str:
        """Are small batches faster on the CPU?"""
        other, base = self.of(str(found.other)), self.of(str(found.base))
        if not found.comparisons:
            return f"small batches on {other} and {base} can't be compared"
        first, last = found.comparisons[0], found.comparisons[-1]
        sizes = [
            f"batch {found.size(one):,}: {other} is {_side(one)}"
            for one in ([first] if first is last else [first, last])
        ]
        told = {"slower": f"small batches are faster on {base}", "faster": f"small batches too are faster on {other}",
                "equivalent": f"small batches are as fast on {base} as on {other}"}  # fmt: skip
        headline = told.get(first.verdict, f"can't tell where small batches are faster, on {base} or on {other}")
        turn = ""
        if len(found.crossings) == 1:
            turn = f"; it turns between {found.crossings[0].below:,} and {found.crossings[0].above:,}"
        return f"{headline}: {_work(first.other.case)}, {', '.join(sizes)}{turn} [{first.how}]"

    def copies(self, found: CopyCost) -> str:
        """What do copies cost?"""
        case = found.comparison.other.case
        return f"on {self.of(case.device)}, in {_work(case)}, {copy_claim(found)}"

    def reference(self, found: Sequence[Comparison]) -> str:
        """How does it stand beside published machines?"""
        case = found[0].other.case
        named = ", ".join(f"{_share(one.ratio)} as {_machine(one)}" for one in _spread(found))
        sizes = ", ".join(f"{name} {size}" for name, size in (("batch", case.batch), ("seq", case.seq)) if size)
        about = f"{self.of(case.device)} is, in {_work(case)} ({sizes}), about {named}"
        return f"{about} [published figures of the same work; they have no interval]"


def _looks(found: Mean) -> str:
    way = "faster" if found.ratio > 1 else "slower"
    return f"it looks {factor(found)} {way}{'' if found.low is not None else ', without an interval'}"


def _side(found: Comparison) -> str:
    if found.verdict == "equivalent":
        return "as fast"
    way = "faster" if found.ratio > 1 else "slower"
    return f"{factor(found)} {way}" + (", can't tell" if found.verdict == "inconclusive" else "")


def _gain(found: Mean) -> str:
    """What a faster precision gives: a share up to twice the speed, from there on a factor."""
    if found.ratio >= 2 or found.low is None or found.high is None:
        return f"is {factor(found)} faster than fp32 in"
    decimals = 1 if found.high - found.low < 0.02 else 0
    low, high = (f"{100 * (end - 1):.{decimals}f}" for end in (found.low, found.high))
    return f"adds {100 * (found.ratio - 1):.{decimals}f} % ({low}-{high} %) to the speed of"


def _ground(found: Mean) -> str:
    """The comparisons behind a mean, and how they were made."""
    several = found.comparisons
    kinds = [kind for kind in ("paired", "archived") if any(one.how.startswith(kind) for one in several)]
    if len(several) == 1:
        return f"{several[0].other.case.workload}, {several[0].how}"
    ordered = sorted(several, key=lambda one: one.ratio)
    each = ", ".join(f"{one.other.case.workload} {digits(one.ratio, most=2)}x" for one in ordered)
    return f"geometric mean of {len(several)} cases: {each}; {' and '.join(kinds)}"


def _spread(found: Sequence[Comparison]) -> list[Comparison]:
    """The published machines that are named: all, or those that tell most, from the slowest to the fastest."""
    sure = [one for one in found if not any(code == "suspect" for code, _ in marks(one.base.records[0]))] or list(found)
    if len(sure) <= MOST_BESIDE:
        return sure
    return [sure[round(place * (len(sure) - 1) / (MOST_BESIDE - 1))] for place in range(MOST_BESIDE)]


def _share(ratio: float) -> str:
    """A ratio as it is said: a third as fast, 1.4 times as fast; a small one as one part of so many."""
    if 1 - NEAR < ratio < 1 + NEAR:
        return "as fast"
    named = next((words for value, words in FRACTIONS if abs(ratio / value - 1) < NEAR), "")
    if not named:
        named = f"1/{digits(1 / ratio, most=2)}" if ratio < FRACTIONS[0][0] else f"{digits(ratio, most=2)} times"
    return f"{named} as fast"


def _machine(found: Comparison) -> str:
    theirs = found.base
    doubt = " (suspect)" if any(code == "suspect" for code, _ in marks(theirs.records[0])) else ""
    return f"{theirs.machine} ({theirs.case.device}){doubt}"
