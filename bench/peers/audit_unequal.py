"""Audit: pyperf's verdict on a run and the same run without its last process.

From the root of the source tree: .peers/pyperf/bin/python -m bench.peers.audit_unequal
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

STATEMENT = ("-s", "x = list(range(1000))", "sum(x)")


def main() -> None:
    """Time a statement once; compare the run with itself, and with itself less one process."""
    import pyperf  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory(prefix="mldyno-audit-") as folder:
        whole, less = Path(folder) / "whole.json", Path(folder) / "less.json"
        _pyperf("timeit", "--quiet", "--name", "sum", "-o", str(whole), *STATEMENT)
        found = pyperf.Benchmark.load(str(whole))
        pyperf.Benchmark(found.get_runs()[:-1]).dump(str(less))
        for other in (whole, less):
            count = len(pyperf.Benchmark.load(str(other)).get_values())
            print(f"{len(found.get_values())} values against {count} of the same:")
            print("  " + _pyperf("compare_to", str(whole), str(other)).strip().replace("\n", "\n  "))


def _pyperf(*words: str) -> str:
    return subprocess.run([sys.executable, "-m", "pyperf", *words], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
