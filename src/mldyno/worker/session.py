"""One case in this process: built, warmed up, measured in turns, checked, closed."""

from __future__ import annotations

import gc
import math
import os
import platform
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mldyno import plugins, system_queries
from mldyno.datasets import open_set
from mldyno.frameworks import Framework, Program, Unsupported
from mldyno.records import Case, Device, Series
from mldyno.stats.intervals import median
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks, stretch
from mldyno.timing.phases import time_phases
from mldyno.timing.rounds import rounds
from mldyno.timing.warmup import warm_up
from mldyno.worker import commands, peaks
from mldyno.worker.unchecked import unchecked
from mldyno.worker.windows import Windows

LONG = 5.0  # s: a step of this length is not run once more just to count its kernels
CHECK_STEPS = 12  # extra training steps on the fixed batch, at most, until its loss has fallen
DRAINS = 3
DRAIN_STEPS, DRAIN_LENGTH = 16, 400_000_000  # so many steps, where they take no longer in ns
EVENTS_OFF = 0.1  # by how much the device may seem to work longer than the host saw
REFERENCE_SIZE = 64  # size of the matrices whose product is the reference kernel
REFERENCE_BLOCKS = 3  # one after the other; their median counts
REFERENCE_SHARE = 0.2  # of the time of the steps, at most
PIECE = 20_000_000  # ns that steps run for before anything else is done: other code makes theirs cold
REPORT_EVERY = 500_000_000  # ns between two words of progress
ENV_THAT_MATTERS = (
    "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_NUM_THREADS", "KMP_BLOCKTIME", "GOMP_SPINCOUNT",
    "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "PYTORCH_ENABLE_MPS_FALLBACK",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "LD_PRELOAD", "MALLOC_CONF",
)  # fmt: skip


class Wrong(Exception):
    """The work was not done, or not right: no time may be given for it."""


def failure(framework: str | None, error: BaseException) -> tuple[str, str]:
    """Status and reason for an error that came up while a case was handled."""
    if isinstance(error, Wrong):
        return "wrong", str(error)
    if isinstance(error, Unsupported):
        return "unsupported", str(error)
    if framework in plugins.names("frameworks"):
        return plugins.framework(framework or "").explain(error)
    return "failed", f"{type(error).__name__}: {error}"


def open_case(content: dict[str, Any], data: dict[str, str] | None = None, command: Sequence[str] = ()) -> CaseSession:
    """Start the framework and build the case; `data` says where its data set lies, `command` what the user runs."""
    case = Case(**content)
    framework = plugins.framework(case.framework)
    workload = commands.workload_of(case, command)
    build: Callable[..., Any] | None = workload.build.get(case.framework)
    if case.framework == "command":
        build = commands.build(workload, case, data, command)
        data = None
    take_time = framework.clock or clock.now
    began = take_time()
    framework.start()
    imported = take_time()
    opened = open_set(**data) if data else None
    program = framework.open(case, build, opened)
    built = take_time()
    if program.params is not None and program.params != workload.params:
        raise Wrong(f"the model has {program.params:,} parameters, {workload.name} has {workload.params:,}")
    facts = {
        "items_per_step": workload.items(case),
        "item": workload.item,
        "params": workload.params,
        "flops_per_step": workload.flops(case),
        "import_time": (imported - began) / 1e9,
        "build_time": (built - imported) / 1e9,
        "fake_time": framework.clock is not None,
    }
    facts |= {"data": opened.source} if opened else {}
    return CaseSession(case, framework, program, facts | dict(program.facts))


class CaseSession:
    """A built case and what has been seen of it."""

    def __init__(self, case: Case, framework: Framework, program: Program, facts: dict[str, Any]) -> None:
        self.case, self.framework, self.program, self.facts = case, framework, program, facts
        self.clock = framework.clock or clock.now
        self.blocks = Blocks(program, self.clock)
        self.meters = plugins.meters()
        real = framework.clock is None  # nobody gets in the way of fake time
        self.windows = Windows(self.meters if real else (), self.clock, self._check_counters)
        self.first_losses: Mapping[str, float] | None = None
        self.steady_counters: tuple[int, ...] = ()
        self.first_counters: tuple[int, ...] = ()
        self.late_changes = 0
        self.values: list[float] = []
        self.reference_kernel: Blocks | None = None

    def warm_up(self, budget: float, progress: Callable[[float], None]) -> dict[str, Any]:
        """First step, warm-up and drain test; gives facts, software and the series so far."""
        report = Reporter(self.clock, progress, scale=1e-9)
        warm = warm_up(self.blocks, self.program.steady_counters, budget, report, self._note_loss)
        self._set_up_reference_kernel()
        drains = self._drain_test(warm.steady is not None)
        self.facts |= {
            "first_step": warm.first_step / 1e9,
            "warmup_steady": warm.steady,
            "block_steps": self.blocks.size,
            "overhead_share": self.blocks.overhead() / max(1.0, self.blocks.size * warm.values[-1]),
            "drained_share": drains[0] / max(1, drains[1]) if drains else None,
            "device_seen": self.program.actual_device(),
            "events_share": self._events_share(),
            "translated": translated(),
        }
        self._check_precision()
        self.facts |= {"phases": ", ".join(self.program.phases)} if self.program.phases else {}
        self._check_device()
        self._check_waiting()
        self.steady_counters = self.program.steady_counters()
        gc.collect()
        gc.freeze()  # what is built stays; the collector need not walk it while steps are timed
        devices = self.framework.devices()
        own = next((device for device in devices if device.name == self.case.device), None)
        device = own or Device(self.case.device, self.case.framework)
        self.meters[:] = [meter for meter in self.meters if meter.start(self.case, device)]  # `windows` has this list
        software = {
            "python": platform.python_version(),
            "framework": self.framework.name,
            "versions": self.framework.versions(),
            "threads": self.framework.threads(),
            "env": {name: os.environ[name] for name in ENV_THAT_MATTERS if name in os.environ},
        }
        series = [
            Series("step_time", "s", (warm.first_step / 1e9,), stage="first"),
            Series("step_time", "s", _rounded([v / 1e9 for v in warm.values]), stage="warmup", block=self.blocks.size),
        ]
        return {
            "facts": self.facts,
            "software": software,
            "devices": [asdict(device) for device in devices],
            "series": [vars(one) for one in series],
            "unsteady": warm.reason if warm.steady is False else "",
        }

    def _note_loss(self) -> None:
        """The loss at the start, asked for after the very first step, which must find nothing warm."""
        self.first_losses = self.program.first_losses()
        self.first_counters = self.program.steady_counters()

    def _check_device(self) -> None:
        seen = self.program.actual_device()
        if seen is not None and seen not in (
            self.case.device,
            f"{self.case.device}:0",
            self.case.device.removesuffix(":0"),
        ):
            raise Wrong(f"the case asks for {self.case.device}, the tensors lie on {seen}")

    def _check_precision(self) -> None:
        flaw = self.program.precision_flaw()
        if flaw:
            raise Wrong(flaw)

    def _drain_test(self, steps_are_short: bool) -> tuple[int, int] | None:
        """Time in ns until loops of steps returned, and until the device was done; several steps, where they are short.

        A wait hidden in a step shows by the next one. The CPU has nothing to drain: it is done when its call returns.
        """
        if self.case.device == "cpu":
            return None
        steps, times = self.blocks.size, 1
        if steps_are_short:
            step = self.blocks.time(self.blocks.size) / self.blocks.size
            steps = max(self.blocks.size, min(DRAIN_STEPS, math.ceil(DRAIN_LENGTH / max(1.0, step))))
            times = DRAINS
        drains = [self.blocks.drain(steps) for _ in range(times)]
        return sum(issued for issued, _ in drains), sum(total for _, total in drains)

    def _events_share(self) -> float | None:
        """Time by the device's own events over time on the host, of the same blocks; None without events."""
        host, device = 0, 0.0
        for _ in range(DRAINS):
            began = self.clock()
            seen = self.program.device_time(self.blocks.size)
            if seen is None:
                return None
            host += self.clock() - began
            device += seen
        return device * 1e9 / max(1, host)

    def _check_waiting(self) -> None:
        """A device that worked for longer than the host's clock saw was not waited for."""
        share = self.facts["events_share"]
        if share is not None and share > 1 + EVENTS_OFF:
            raise Wrong(f"the device's own events show {share:.3g} times the host's time: it was not waited for")

    def _check_counters(self) -> None:
        """A graph compiled or memory reserved this late has spoiled what was measured."""
        now = self.program.steady_counters()
        if now != self.steady_counters:
            self.steady_counters = now
            self.late_changes += 1

    def _set_up_reference_kernel(self) -> None:
        """A fixed product, run between the steps: what slows it down slows them down too."""
        try:
            self.reference_kernel = Blocks(self.framework.matmul(self.case, REFERENCE_SIZE), self.clock)
        except Unsupported:
            return
        self.reference_kernel.time(8)
        self.reference_kernel.fit(min(self.reference_kernel.time(4) for _ in range(4)) / 4)

    def turn(self, seconds: float, steps: int | None, progress: Callable[[float], None]) -> dict[str, Any]:
        """Measure blocks for so many s, or exactly so many steps; a reference kernel block stands among them."""
        reference_kernel, references = self.reference_kernel, list[float]()
        report = Reporter(self.clock, progress)

        def between(values: list[float], now: int) -> int:
            later = now
            if reference_kernel is not None:
                times, later = reference_kernel.run(REFERENCE_BLOCKS, sys.maxsize)
                references.append(median(times) / reference_kernel.size / 1e9)
            report(values, now)
            self.windows.look(now)
            return later + max(PIECE, round((later - now) / REFERENCE_SHARE))

        self.windows.begin()
        values, left = stretch(self.blocks, seconds, steps, between)
        self.windows.end()
        series = [Series("step_time", "s", _rounded(values), block=self.blocks.size)] if values else []
        if reference_kernel is not None and references:
            series.append(Series("reference_time", "s", _rounded(references), block=reference_kernel.size))
        if left:
            last = self.blocks.time(left) / left / 1e9
            series.append(Series("step_time", "s", _rounded([last]), block=left))
            values.append(last)
        self.values += values
        return {"series": [vars(one) for one in series], "facts": {"late_changes": self.late_changes}}

    def phases(self, seconds: float, progress: Callable[[float], None]) -> dict[str, Any]:
        """Time the phases of a step, or what else there is beside it, each by itself."""
        items = self.program.phases
        found = time_phases(self.program, items, seconds, self.clock, Reporter(self.clock, progress))
        series = [Series(f"{name}_time", "s", _rounded(values)) for name, values in found.items()]
        return {"series": [vars(one) for one in series], "facts": {f"{name}_items": items[name] for name in items}}

    def close(self) -> dict[str, Any]:
        """Check that the work was done, stop the meters, and give what they saw."""
        series = [one for meter in self.meters for one in meter.stop()]
        peak = self.program.device_peak()
        if peak is not None:
            series.append(Series("peak_device_memory", "B", (float(peak),), stage="process"))
        if self.case.compile:
            self.facts["recompiles"] = self.program.steady_counters()[0] - self.first_counters[0]
        checks = self._checks()
        self._check_plausible()
        self._measure_copies()
        if self.program.phases or (self.values and median(self.values) < LONG):
            self.facts |= self.program.counts()
        self._check_device()  # after a step was counted, which shows where its products ran
        self.facts |= dict(self.program.facts)
        self.facts |= unchecked(self.case, self.framework, self.program, self.facts, checks)
        return {"series": [vars(one) for one in series], "checks": checks, "facts": self.facts}

    def _check_plausible(self) -> None:
        """More operations a second than plain matrix products reach can't be; in fake time there are none."""
        flops = self.facts["flops_per_step"]
        if not flops or not self.values or self.framework.clock is not None:
            return
        rate = flops / max(1e-12, median(self.values))
        peak, too_fast = peaks.exceeded(self.framework, self.case, self.clock, rate)
        self.facts["peak_flops"] = peak or None  # None where the framework has no matmul
        if too_fast:
            reached = f"{rate / 1e9:,.4g} GFLOP/s are more than the {self.facts['peak_flops'] / 1e9:,.4g}"
            raise Wrong(f"{reached} that this device reaches in plain matrix products: work was left out")

    def _measure_copies(self) -> None:
        """The peaks in B/s that a step's bytes are held against; in fake time there are none."""
        if self.framework.clock is None:
            for name, from_host in (("peak_bandwidth", False), ("peak_copy_bandwidth", True)):
                self.facts[name] = peaks.moved(self.framework, self.case, self.clock, from_host)

    def _checks(self) -> dict[str, Any]:
        checks: dict[str, Any] = {"learned": self._learned(), "agrees": None, "error": None}
        difference = self.program.disagreement()
        if difference is not None:
            error, tolerance = difference
            if not error <= tolerance:
                if not math.isfinite(error):
                    raise Wrong(f"results are not finite in {self.case.precision}; in fp32 on the CPU they are")
                told = f"results differ from fp32 on the CPU by {error:.2g}"
                raise Wrong(f"{told}; at most {tolerance:.2g} is allowed in {self.case.precision}")
            if error == 0 and self.case.precision not in ("fp32", None):
                raise Wrong(f"{self.case.precision} did not take effect: results are those of fp32 to the last bit")
            checks |= {"agrees": True, "error": error}
        return checks

    def _learned(self) -> bool | None:
        """Training must bring the loss on a fixed batch down, or what else proves it; else it did not train."""
        first = self.first_losses
        if first is None:
            return None
        for check_step in range(CHECK_STEPS + 1):
            last = self.program.losses() or {}
            for name, value in first.items():
                if not (math.isfinite(value) and math.isfinite(last[name]) and value >= 0 and last[name] >= 0):
                    raise Wrong(f"{_told(name, value, last[name])}: it must be finite and not negative")
            stuck = [name for name, value in first.items() if last[name] >= value]
            if not stuck:
                for name, value in first.items():
                    self.facts |= {f"{_named(name)}_first": value, f"{_named(name)}_last": last[name]}
                return True
            if check_step < CHECK_STEPS:
                self.program.check_step()
        name = stuck[0]
        raise Wrong(f"{_told(name, first[name], last[name])}: it did not fall")


def _named(name: str) -> str:
    """What a loss is called in a record."""
    return name if name == "loss" else f"{name}_loss"


def _told(name: str, first: float, last: float) -> str:
    return f"the {_named(name).replace('_', ' ')} went from {first:.6g} to {last:.6g}"


def interleaved(
    cases: list[CaseSession], command: dict[str, Any], progress: Callable[[float], None]
) -> list[dict[str, Any]]:
    """Rounds of all these cases; gives a series for each, with one value a round."""
    blocks = [case.blocks for case in cases]
    report = Reporter(cases[0].clock, progress)
    chance = random.Random(command["seed"])
    found = rounds(blocks, command["seconds"], command["least"], chance, report)
    return [
        vars(Series("step_time", "s", _rounded(values), stage="paired", block=one.size))
        for one, values in zip(blocks, found, strict=True)
    ]


def translated() -> bool:
    """Whether this interpreter runs under Rosetta, as Intel code on an Apple chip."""
    if sys.platform != "darwin" or platform.machine() != "x86_64":
        return False
    return system_queries.ask("sysctl", "-n", "sysctl.proc_translated") == "1"


def _rounded(values: list[float]) -> tuple[float, ...]:
    """Times to six digits: a millionth is below any clock's truth, and a record stays small."""
    return tuple(float(f"{value:.6g}") for value in values)


class Reporter:
    """Says what a step takes at present, a few times a second and never within a block."""

    def __init__(self, take_time: clock.Clock, say: Callable[[float], None], scale: float = 1.0) -> None:
        self.take_time, self.say, self.scale = take_time, say, scale
        self.due = take_time() + REPORT_EVERY

    def __call__(self, values: list[float], now: int) -> None:
        """Report the median of the latest values, in s, if it is time."""
        if now >= self.due:
            self.say(median(values[-50:]) * self.scale)
            self.due = self.take_time() + REPORT_EVERY
