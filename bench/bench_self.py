"""mldyno's own speed, as ratios taken side by side in one run: `make bench-self` writes bench/RESULTS.md.

python bench/bench_self.py             all figures, into bench/RESULTS.md
python bench/bench_self.py --quick     a small version of each, shown only: does it still work?
python bench/bench_self.py --only 3    one figure, shown only
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import running, starting, storing
from bench.results import Chapter, page
from bench.work import Work, say

FIGURES: dict[int, Callable[[Work], Chapter]] = {
    1: starting.measure,
    2: running.measure_overhead,
    3: running.measure_parent,
    4: storing.measure_import,
    5: storing.measure_reading,
    6: storing.measure_export,
}
RESULTS = Path(__file__).resolve().parent / "RESULTS.md"


def main() -> None:
    """Measure what is asked for; write the page only where all of it was measured in full."""
    parser = argparse.ArgumentParser(description="mldyno's own speed, as ratios")
    parser.add_argument("--quick", action="store_true", help="a small version of each figure, shown only")
    parser.add_argument("--only", type=int, choices=FIGURES, action="append", help="one figure, shown only")
    given = parser.parse_args()
    chapters, load = [], os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="mldyno-bench-") as folder:
        os.environ["MLDYNO_STORE"] = str(Path(folder) / "default.sqlite")
        work = Work(Path(folder), given.quick)
        for number in given.only or FIGURES:
            say(f"figure {number}")
            chapter = FIGURES[number](work)
            for figure in chapter.figures:
                say(f"  {figure.name}: {figure.shown} ({figure.target})")
            chapters.append(chapter)
    if given.quick or given.only:
        print(page(chapters, "python bench/bench_self.py " + " ".join(sys.argv[1:]), load), end="")
    else:
        RESULTS.write_text(page(chapters, "make bench-self", load), encoding="utf-8")
        say(f"written: bench/{RESULTS.name}")


if __name__ == "__main__":
    main()
