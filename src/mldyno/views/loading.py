"""How many workers a loader should have, in words and as data."""

from __future__ import annotations

from typing import Any

from mldyno.analysis.comparisons import Comparison
from mldyno.analysis.loading import AXIS, LoaderGain, MoreWorkers
from mldyno.axes import AXIS as ENTRIES
from mldyno.units import show_interval
from mldyno.views.sentences import CANT_TELL
from mldyno.views.titles import case_on_device


def loader_sentence(gain: LoaderGain) -> str:
    """What each number of workers brings: 2 loader workers: 1.7x (1.6-1.8) over 0; 4 bring nothing."""
    first = gain.steps[0].over_fewest
    parts = [_brings(step, whole=step is gain.steps[0]) for step in gain.steps]
    advice = next((step.over_best.advice for step in gain.steps if step.over_best.advice), "")
    notes = "; ".join(filter(None, [first.how, advice]))
    return f"{case_on_device(first.other.case, AXIS)}: {'; '.join(parts)} [{notes}]"


def _brings(step: MoreWorkers, whole: bool) -> str:
    number = ENTRIES[AXIS].say(step.workers) if whole else f"{step.workers:,}"
    best = step.over_best.base.case.loader_workers
    if step.over_best.verdict == "faster":
        return f"{number}: {_times(step.over_fewest)} over {step.over_fewest.base.case.loader_workers}"
    bring, are = ("brings", "is") if step.workers == 1 else ("bring", "are")
    over = f"{_times(step.over_best)} over {best}"
    if step.over_best.verdict == "equivalent":
        return f"{number} {bring} nothing ({over.partition('(')[2].replace(')', '')})"
    if step.over_best.verdict == "slower":
        return f"{number} {are} slower: {over}"
    return f"{CANT_TELL} if {number} {bring} anything: {over}"


def _times(comparison: Comparison) -> str:
    return show_interval(comparison.speedup, "x")


def loader_json(gain: LoaderGain) -> dict[str, Any]:
    """The same as data."""
    fewest = gain.steps[0].over_fewest.base
    return {
        "case": fewest.case.id, "machine": fewest.records[0].machine.name,
        "imported_from": fewest.records[0].imported_from or None, "fewest": fewest.case.loader_workers,
        "best": gain.best,
        "workers": [{"workers": step.workers, "over_best": step.over_best.base.case.loader_workers,
                     **{f"{name}_{part}": getattr(comparison, part) for part in ("ratio", "low", "high", "verdict")
                        for name, comparison in (("fewest", step.over_fewest), ("best", step.over_best))}}
                    for step in gain.steps],
    }  # fmt: skip
