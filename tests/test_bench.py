"""The benches of the product's own speed run, and a quick run leaves the results alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_a_quick_run_shows_its_figures_and_writes_nothing() -> None:
    results = ROOT / "bench" / "RESULTS.md"
    before = results.read_bytes()
    command = [sys.executable, str(ROOT / "bench" / "bench_self.py"), "--quick", "--only", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "records a second over a bare loop" in done.stdout
    assert results.read_bytes() == before
