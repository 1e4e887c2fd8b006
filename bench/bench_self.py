"""mldyno's own speed, as ratios taken side by side in one run: `make bench-self` writes bench/RESULTS.md.

python bench/bench_self.py             all figures
python bench/bench_self.py --only 3    one chapter anew; the others stay as they were measured
python bench/bench_self.py --quick     a small version of each, shown only: does it still work?

A chapter is kept in bench/results.json as soon as it is measured, with its date, commit and machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.results import Chapter, Measured, circumstances, keep, page
from bench.work import Work, say

from bench import (
    bert_suite,
    framework_loops,
    framework_speeds,
    loops,
    memory,
    models,
    own_models,
    ranks,
    running,
    starting,
    storing,
    tracking,
    watching,
)

FIGURES: dict[int, Callable[[Work], Chapter]] = {
    1: starting.measure,
    2: running.measure_overhead,
    3: running.measure_parent,
    4: storing.measure_import,
    5: storing.measure_reading,
    6: storing.measure_export,
    7: models.measure,
    8: loops.measure,
    9: memory.measure,
    10: bert_suite.measure,
    11: watching.measure,
    12: framework_loops.measure,
    13: framework_speeds.measure,
    14: ranks.measure_loops,
    15: ranks.measure_scaling,
    16: ranks.measure_bandwidth,
    17: own_models.measure,
    18: tracking.measure,
}
RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
DATA = RESULTS.with_name("results.json")


def main() -> None:
    """Measure what is asked for; keep what was measured in full."""
    parser = argparse.ArgumentParser(description="mldyno's own speed, as ratios")
    parser.add_argument("--quick", action="store_true", help="a small version of each figure, shown only")
    parser.add_argument("--only", type=int, choices=FIGURES, action="append", help="one chapter")
    parser.add_argument("--bert-store", type=Path, help="a store with a run of apple-silicon-bert, for chapter 10")
    given = parser.parse_args()
    now, shown = circumstances(os.getloadavg()[0]), {}
    with tempfile.TemporaryDirectory(prefix="mldyno-bench-") as folder:
        os.environ["MLDYNO_STORE"] = str(Path(folder) / "default.sqlite")
        work = Work(Path(folder), given.quick, given.bert_store)
        for number in given.only or FIGURES:
            say(f"chapter {number}")
            shown[number] = Measured(FIGURES[number](work), now)
            for figure in shown[number].chapter.figures:
                say(f"  {figure.name}: {figure.shown} ({figure.target or 'no target'})")
            if not given.quick:
                keep(number, shown[number], DATA, RESULTS)
                say(f"kept in bench/{DATA.name} and bench/{RESULTS.name}")
    if given.quick:
        print(page(shown), end="")


if __name__ == "__main__":
    main()
