"""Figure 1: what it costs to start the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from bench.processes import MLDYNO, spent
from bench.results import Chapter, Figure
from bench.work import Work

LIMIT = 5.0
COMMANDS = {"--help": ["--help"], "list": ["list"]}
HEAVY = ("numpy", "torch", "tensorflow", "jax", "mlx", "resvg_py", "rich")
_LOADED = """
import json, sys
from mldyno.cli import main
try:
    main(json.loads(sys.argv[1]))
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def measure(work: Work) -> Chapter:
    """CPU time of `--help` and `list` over that of a bare interpreter, and what they import."""
    chapter = Chapter("1. Starting")
    commands = {name: [MLDYNO, *words] for name, words in COMMANDS.items()}
    commands["bare"] = [sys.executable, "-c", "pass"]
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(work.start_repeats):
        for name, command in commands.items():
            times[name].append(spent(command).cpu)
    bare = min(times.pop("bare"))
    how = f"user and system time, least of {work.start_repeats}, in turns with `python -c pass`"
    for name, found in times.items():
        chapter.figures.append(Figure(f"`mldyno {name}` over a bare Python", min(found) / bare, "×", LIMIT, how))
        chapter.notes.append(f"`mldyno {name}`: {min(found) * 1e3:.0f} ms; bare Python: {bare * 1e3:.0f} ms.")
    for name, words in COMMANDS.items():
        heavy = [module for module in HEAVY if module in modules(words)]
        found_in = f"of {', '.join(HEAVY)} in `sys.modules`" + (f": {', '.join(heavy)}" if heavy else "")
        chapter.figures.append(Figure(f"`mldyno {name}`: heavy imports", len(heavy), "", 0, found_in))
    return chapter


def modules(words: Sequence[str]) -> list[str]:
    """The modules that a command has loaded when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, json.dumps(words)], capture_output=True, text=True, check=True
    )
    found: list[str] = json.loads(done.stderr.splitlines()[-1])
    return found
