"""Audit: CPU time of the parent in the last 8 s of the measured child, of optimum-benchmark and of mldyno.

From the root of the source tree: .venv/bin/python -m bench.peers.audit_launcher
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
from bench.peers import environments
from bench.peers.optimum import Optimum
from bench.peers.ours import Ours
from bench.peers.tools import ROOT, Tool

LOOK, LAST = 0.05, 8.0  # s between two looks; s before the end of the child, when it surely measures
TOOLS: tuple[Tool, ...] = (Optimum("process"), Ours())


def main() -> None:
    """Start each tool, and print what its parent used while its child measured."""
    for tool in TOOLS:
        with tempfile.TemporaryDirectory(prefix="mldyno-audit-") as folder:
            parent, children, wall = watched(tool, Path(folder))
        print(f"{tool.name}, {wall:.1f} s: the parent used {parent:.2f} s of CPU time, the child {children:.2f} s")


def watched(tool: Tool, folder: Path) -> tuple[float, float, float]:
    """CPU time in s of the parent alone and of its children, and the time in s, until its child ended."""
    call = tool.call("bert", folder, False)
    command = [str(environments.binaries(tool.environment) / call.words[0]), *call.words[1:]]
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    parent = psutil.Popen(command, cwd=folder, env={**os.environ, **paths, **call.settings}, **quiet)
    looks: list[tuple[float, float, float]] = []
    while parent.poll() is None:
        looks += _look(parent)
        time.sleep(LOOK)
    first = next(look for look in looks if look[2] > looks[-1][2] - LAST)
    most = max(look[1] for look in looks)  # a child that has ended is no longer counted
    return looks[-1][0] - first[0], most - first[1], looks[-1][2] - first[2]


def _look(parent: psutil.Popen) -> list[tuple[float, float, float]]:
    """The CPU time of the parent and of its children, and the clock, while it has a child; nothing before and after."""
    try:
        children = parent.children(recursive=True)
        return [(_cpu(parent), sum(map(_cpu, children)), time.perf_counter())] if children else []
    except psutil.Error:
        return []


def _cpu(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


if __name__ == "__main__":
    main()
