"""Child processes as a benchmark sees them: wall time, CPU time and peak memory of one command.

A child is started by a small process of its own. Linux hands the peak memory of whoever starts a
process on to it, so a benchmark that has grown itself would see its own size instead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MLDYNO = str(Path(sys.executable).parent / "mldyno")
_LAUNCH = """
import json, os, sys, time
out, *command = sys.argv[1:]
began = time.perf_counter()
child = os.fork()
if child == 0:
    try:
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 1)
        os.execv(command[0], command)
    finally:
        os._exit(127)
_, status, used = os.wait4(child, 0)
wall = time.perf_counter() - began
print(json.dumps([wall, used.ru_utime + used.ru_stime, used.ru_maxrss, status]))
"""
_PEAK_UNIT = 1 if sys.platform == "darwin" else 1024  # B that ru_maxrss counts in


@dataclass(frozen=True)
class Spent:
    """What a command and all that it waited for took: s, s of user and system time, B."""

    wall: float
    cpu: float
    peak: int


def spent(command: Sequence[str], out: Path | str = os.devnull, environment: Mapping[str, str] | None = None) -> Spent:
    """Run a command to its end, its output into a file; raises where it does not exit with 0."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LAUNCH, str(out), *command],
        capture_output=True, text=True, check=True, env={**os.environ, **(environment or {})},
    )  # fmt: skip
    wall, cpu, peak, status = json.loads(done.stdout)
    if status != 0:
        raise RuntimeError(f"{Path(command[0]).name} {' '.join(command[1:])} failed:\n{done.stderr}")
    return Spent(wall, cpu, peak * _PEAK_UNIT)
