"""Figures 2 and 3: what a run costs beside the measuring, in time and in the parent's CPU."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.processes import MLDYNO, spent
from bench.results import Chapter, Figure
from bench.work import Work, say

from mldyno import api
from mldyno.records import Case, Record
from mldyno.runner.events import Listener
from mldyno.stats.intervals import mean, median
from mldyno.store.codec import decode_stored
from mldyno.worker.checks import DRAINS

OVERHEAD = 1.0  # s
SHARE = 1.0  # % of a core
BUDGET = "2s"  # of measuring in each run of figure 2
CASES = (("torch", "infer"), ("torch", "train"), ("fake", "infer"), ("fake", "train"))
# What torch itself loads: its compiler comes in with the first optimiser, not with `import torch`.
_IMPORTS = {
    "infer": "import torch",
    "train": "import torch; torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.01)",
}
_TIMED = """
import sys, time, warnings
warnings.simplefilter("ignore")
began = time.perf_counter()
exec(sys.argv[1])
print(time.perf_counter() - began)
"""


# -- figure 2: time ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """One run of one case, in s: the whole command, and what of it is not mldyno's doing."""

    wall: float
    steps: float
    """The measuring itself."""
    imported: float
    """The framework's import, as the worker saw it."""
    build: float
    waited: float
    """Time that the parent spent waiting for the worker, as the record says."""
    bare: float
    """The framework's import in a bare script just before, with what it loads later."""


def measure_overhead(work: Work) -> Chapter:
    """A case's time beyond the framework's import and the measuring."""
    chapter = Chapter("2. A case's time beside import and measuring")
    found: dict[tuple[str, str], list[Times]] = {case: [] for case in CASES}
    for number in range(work.case_repeats):
        say(f"  round {number + 1} of {work.case_repeats}")
        for framework, mode in CASES:
            found[framework, mode].append(_times(work.folder, framework, mode))
    how = (
        f"wall time of `mldyno run mlp --budget {BUDGET} --json` less its steps and less what the framework loads:"
        " its import in that run and, for training, what building took beyond inference's"
    )
    means = []
    for (framework, mode), times in found.items():
        plain = min(one.build for one in found[framework, "infer"])
        beyond = [one.wall - one.steps - _loading(one, plain) for one in times]
        means.append(min(beyond))
        less = f"{'whole wall time' if framework == 'fake' else how}; least of {len(times)}, in turns"
        chapter.figures.append(Figure(f"`mlp` {mode}, {framework}", min(beyond), "s", OVERHEAD, less))
        chapter.notes.append(f"`mlp` {mode}, {framework}: median {median(beyond):.2f} s. {_parts(times)}")
        if framework != "fake":
            ratio = median([_loading(one, plain) / one.bare for one in times])
            chapter.notes.append(
                f"{framework} loads in that run in {ratio:.2f} of the time of a bare script beside it."
            )
    chapter.figures.append(Figure("mean over these cases", mean(means), "s", OVERHEAD, "of the above"))
    return chapter


def _loading(one: Times, plain: float) -> float:
    """What the framework itself loads, in s: its import, and what a build takes beyond a `plain` one."""
    return one.imported + max(0.0, one.build - plain)


def _parts(times: Sequence[Times]) -> str:
    """Where the time went, each part the least of all rounds."""
    least = {
        "command outside the worker": min(one.wall - one.waited for one in times),
        "worker beside import, build and steps": min(
            one.waited - one.imported - one.build - one.steps for one in times
        ),
        "import": min(one.imported for one in times),
        "build": min(one.build for one in times),
        "steps": min(one.steps for one in times),
        "a bare script's import": min(one.bare for one in times),
    }
    parts = "; ".join(f"{name} {seconds:.2f} s" for name, seconds in least.items() if seconds)
    return f"Parts, least of each: {parts}."


def _times(folder: Path, framework: str, mode: str) -> Times:
    out = folder / "record.json"
    bare = 0.0
    if framework != "fake":
        script = [sys.executable, "-c", _TIMED, _IMPORTS[mode]]
        bare = float(subprocess.run(script, capture_output=True, text=True, check=True).stdout)
    words = [
        "run",
        "mlp",
        "--framework",
        framework,
        "--device",
        "cpu",
        "--mode",
        mode,
        "--threads",
        "1",
        "--repeats",
        "1",
    ]
    words += ["--budget", BUDGET, "--json", "--store", str(folder / "overhead.sqlite")]
    took = spent([MLDYNO, *words], out)
    record = decode_stored(out.read_text().strip())
    assert record.status == "ok", record.reason
    virtual = framework == "fake"
    facts: dict[str, Any] = record.facts
    return Times(
        wall=took.wall,
        steps=0.0 if virtual else measuring(record),
        imported=0.0 if virtual else facts["import_time"],
        build=0.0 if virtual else facts["build_time"],
        waited=facts["wall_time"],
        bare=bare,
    )


def measuring(record: Record) -> float:
    """Time in s of all the steps that a record tells of, and of those that only tell of the drain."""
    series = [one for one in record.series if one.metric == "step_time"]
    drains = DRAINS if record.facts["warmup_steady"] is not None else 1
    unseen = int(record.facts["block_steps"] or 1) * drains + 1
    return sum(one.block * sum(one.values) for one in series) + unseen * median(record.values("step_time"))


# -- figure 3: the parent ------------------------------------------------------------------------


class Watch(Listener):
    """Takes the parent's CPU time and the time at the first, the last and the end of what it hears."""

    def __init__(self) -> None:
        self.first: tuple[float, float] | None = None
        self.last = self.ended = (0.0, 0.0)
        self.values = 0

    def progress(self, case: Case, step: float, half_width: float | None, elapsed: float) -> None:
        """Set-up is over once a first turn has been measured."""
        if elapsed > 0:
            self.last = (time.process_time(), time.perf_counter())
            self.first = self.first or self.last

    def case_ended(self, record: Record) -> None:
        """A case is saved."""
        self.ended = (time.process_time(), time.perf_counter())
        self.values += len(record.values("step_time"))

    def share(self, end: tuple[float, float]) -> float:
        """CPU time in % of a core from the first progress to `end`."""
        assert self.first is not None
        return 100 * (end[0] - self.first[0]) / (end[1] - self.first[1])


def measure_parent(work: Work) -> Chapter:
    """The parent's CPU while its workers measure."""
    chapter = Chapter("3. The parent's CPU while it measures")
    runs: dict[str, dict[str, Any]] = {
        "one case": {"batch": 128},
        "two cases that take turns": {"batch": 128, "placement": ["device", "roundtrip"]},
        "one case of the shortest blocks (batch 1)": {"batch": 1},
    }
    found: dict[str, list[Watch]] = {name: [] for name in runs}
    for number in range(work.parent_repeats):
        say(f"  round {number + 1} of {work.parent_repeats}")
        for name, axes in runs.items():
            found[name].append(_watched(work, axes))
    how = (
        f"`time.process_time` of a process in `api.run`, torch `mlp` infer, {work.budget:g} s a case, from the end"
        f" of the first turn to the last record in the store; workers not counted; least of {work.parent_repeats}"
    )
    for name, watches in found.items():
        best = min(watches, key=lambda watch: watch.share(watch.ended))
        chapter.figures.append(Figure(name, best.share(best.ended), "%", SHARE, how))
        every = ", ".join(f"{watch.share(watch.ended):.2f} %" for watch in watches)
        chapter.notes.append(
            f"{name}: {every}; of the least, {best.share(best.last):.2f} % until the last turn ended, before the"
            f" record was made; {best.values:,} values."
        )
    return chapter


def _watched(work: Work, axes: dict[str, Any]) -> Watch:
    watch = Watch()
    api.run(
        "mlp", mode="infer", device="cpu", threads=1, store=str(work.folder / "parent.sqlite"), listener=watch,
        budget=work.budget, target=1e-9, repeats=1, **axes,
    )  # fmt: skip
    return watch
