"""Figure 17: a file of the user's own that repeats `resnet18`, over the workload of the catalogue."""

from __future__ import annotations

from pathlib import Path

from bench.results import Chapter, Figure
from bench.work import Work, say

from mldyno import api
from mldyno.analysis.comparisons import compare
from mldyno.store import Store

LEAST, MOST = 0.99, 1.01
BATCH = 8
BUDGET_S, QUICK_BUDGET_S, REPEATS = 30.0, 1.0, 3
FILE = Path(__file__).resolve().parent / "own_resnet18.py"


def measure(work: Work) -> Chapter:
    """Both in turns, block by block in one process."""
    chapter = Chapter("17. A file that repeats `resnet18`, over the built-in one")
    chapter.notes.append(
        f"`mldyno run resnet18 bench/{FILE.name} --by workload`, batch {BATCH}, this CPU with one thread: interleaved"
        f" in one process, in {REPEATS} processes. The value is the time of the file's step over the built-in one's,"
        " with half of its 95 % interval."
    )
    store = Store(work.folder / "own.sqlite")
    for mode in ("train", "infer")[: 1 if work.quick else None]:
        repeats, budget = (1, QUICK_BUDGET_S) if work.quick else (REPEATS, BUDGET_S)
        results = api.run("resnet18", str(FILE), mode=mode, batch=BATCH, threads=1, by="workload", store=store,
                          repeats=repeats, budget=budget)  # fmt: skip
        built_in, own = results.outcomes
        comparison = compare(built_in, own)
        if comparison is None or comparison.low is None or comparison.high is None:
            raise RuntimeError(f"{own.status}: {own.reason}")
        ratio, width = 1 / comparison.ratio, (comparison.high - comparison.low) / 2
        say(f"  {mode}: {ratio:.4f} ± {width:.4f}")
        chapter.figures.append(Figure(f"{mode}, a file of your own", ratio, "", MOST, comparison.how, LEAST, width))
    return chapter
