"""One case in this process: built, warmed up, measured in turns, checked, closed."""

from __future__ import annotations

import gc
import os
import platform
import random
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from mldyno import messages, plugins, sources, system_queries
from mldyno.datasets import open_set
from mldyno.frameworks import Framework, Program, Team, Unsupported
from mldyno.hardware import Windows
from mldyno.messages import DataSource, TrainEndToEnd
from mldyno.records import Case, Device, Series, Software, recorded_environment
from mldyno.stats.intervals import median, rounded
from mldyno.timing import clock
from mldyno.timing.blocks import Blocks, BlocksOfOneThread, rounds, settle, time_blocks, time_phases
from mldyno.timing.stopping import warm_up
from mldyno.worker import checks, peaks, ranks, start
from mldyno.worker.checks import Wrong
from mldyno.worker.energy import EnergyMeter
from mldyno.workloads import Portable, Workload
from mldyno.workloads.user_models.code import activate

LONG_STEP_S = 5.0  # a step of this length is not run once more just to count its kernels
REPORT_EVERY_NS = 500_000_000
KERNEL_SIZE = 256  # of the reference kernel's matrices: large enough for several threads
KERNEL_BLOCKS = 3  # in a row; their median counts
KERNELS_AFTER_STEP = 10  # after a step longer than a turn; each takes a few ms
LARGEST_KERNEL_SHARE = 0.2  # of the time of the steps
SETTLE_SHARE, SHORTEST_SETTLE_S = 0.2, 0.1  # of a turn, for steps before it that do not count
FEWEST_ABLATION_ROUNDS = 4  # of the step and its ablations, however long they take
STEPS_FIRST_NS = 20_000_000  # of steps before anything else runs: other code evicts theirs from caches
PEAKS_OF_COPIES = (("peak_bandwidth", "bytes_per_step"), ("peak_copy_bandwidth", "copied_per_step"))
"""Peaks in B/s, each with the bytes of a step that are compared with it."""
Tell = Callable[[float], None]


def open_case(
    case: Case, data: DataSource | None = None, command: Sequence[str] = (), team: Team | None = None,
    progress: Tell = lambda step: None,
) -> CaseSession:  # fmt: skip
    """Start the framework and build the case.

    `data` says where its data set is, `command` is the user's own. `team` are the ranks of which this process is one;
    the leader gathers them here. `progress` gets the present time of a step in s now and then.
    """
    framework = plugins.framework(case.framework)
    if command:  # a step is one run of it
        name = case.workload
        workload = Workload(name, name, version=1, item="run", batch=1, params=0, flops=lambda case: 0.0, build={})
    else:
        workload = plugins.workload(case.workload)
    build: Any = framework.version_of(workload)
    if case.framework == "command":
        build = _command_builder(workload, case, data, command)
        data = None
    take_time = framework.clock or clock.now
    began = take_time()
    framework.start()
    imported = take_time()
    opened = open_set(**vars(data)) if data else None
    # A framework that is not parallel refuses ranks, or starts them itself.
    leads = team is None and case.in_ranks and framework.parallel
    gathered = ranks.gather_team(framework, case, build, opened, data) if leads else None
    team = team or gathered
    own = case if team is None else ranks.own_share(case, team.local_rank)
    program = framework.open(own, build, opened)
    if gathered is not None:
        program = cast(Program, ranks.Leader(program, gathered))
    built = take_time()
    if program.params not in (None, workload.params) and not workload.own:
        raise Wrong(f"the model has {program.params:,} parameters, {workload.name} has {workload.params:,}")
    in_all = 1 if team is None else team.size
    facts = {
        "items_per_step": in_all * workload.items(own), "item": workload.item,
        "params": program.params if workload.own else workload.params,
        "flops_per_step": in_all * workload.flops(own), "fake_time": framework.clock is not None,
        "import_time": (imported - began) / 1e9, "build_time": (built - imported) / 1e9,
    }  # fmt: skip
    facts |= {"data": opened.source} if opened else {}
    facts |= {"data": "own"} if case.placement == "loader" and workload.own_data else {}
    facts |= {} if team is None else {"batch_per_rank": own.batch, "batch_in_all": in_all * (own.batch or 1)}
    return CaseSession(case, framework, program, facts | dict(program.facts), workload.portable, progress)


class CaseSession:
    """A built case, and what was observed of it."""

    def __init__(
        self, case: Case, framework: Framework, program: Program, facts: dict[str, Any],
        portable: Portable | None = None, progress: Tell = lambda step: None,
    ) -> None:  # fmt: skip
        self.case, self.framework, self.program, self.facts = case, framework, program, facts
        self.portable, self.progress, self.clock = portable, progress, framework.clock or clock.now
        self.blocks = Blocks(program, self.clock, framework.asynchronous(case.device), program.steps_in_cycle)
        self.meters = plugins.meters()
        real = framework.clock is None  # nothing interferes with fake time
        self.windows = Windows(self.meters if real else (), self.clock, self._check_counters)
        self.first_losses: Mapping[str, float] | None = None
        self.steady_counters: tuple[int, ...] = ()
        self.first_counters: tuple[int, ...] = ()
        self.late_changes = 0
        self.values: list[float] = []
        self.kernel: ReferenceKernel | None = None
        self.energy_meter: EnergyMeter | None = None
        self.counters_of_steps: tuple[int, ...] = ()  # before its ablations ran, which may compile further graphs
        self.rank_peaks: list[float] = []  # peak memory of each rank in B, before anything was done for checks

    def enter(self) -> None:
        """Let the user's code import: that of another case may have imported before."""
        if (source := sources.known(self.case.workload)) is not None:
            activate(source)

    def warm_up(self, budget: float, load: float = 0.0) -> messages.CaseOpened:
        """Take the first step, warm up, and test how steps are issued; return facts, software and the series so far.

        `load` is the time in s for which the device works before the warm-up; not in fake time.
        """
        report = Reporter(self.clock, self.progress, scale=1e-9)
        began, load = self.clock(), load if self.framework.clock is None else 0.0
        if self.program.load_first():
            self.facts["first_batch"] = (self.clock() - began) / 1e9
        warm = warm_up(self.blocks, self.program.steady_counters, budget, report, self._note_loss, load)
        worked = (self.clock() - began) / 1e9
        # Elsewhere a product of this size is a launch, and lets the device rest; and while it ran, a loader's workers
        # would load batches that cost the steps nothing.
        if self.case.device == "cpu" and not self.program.loads_ahead:
            with suppress(Unsupported):  # a framework need not have a matmul
                self.kernel = ReferenceKernel(self.framework, self.case, self.clock)
                self.facts["reference_size"] = KERNEL_SIZE
        issued, drained = checks.issued_shares(self.blocks, warm.steady is not None) or (None, None)
        events = checks.events_share(self.program, self.blocks)
        last = [warm.first_step, *warm.values][-1]
        self.facts |= {
            "first_step": warm.first_step / 1e9, "warmup_steady": warm.steady, "block_steps": self.blocks.size,
            "overhead_share": self.blocks.overhead() / max(1.0, self.blocks.size * last),
            "issued_share": issued, "drained_share": drained, "events_share": events,
            "device_seen": self.program.actual_device(), "translated": translated(),
            "load_time": worked if self.case.device != "cpu" else None,
        }  # fmt: skip
        checks.check_tree(self.case)
        checks.raise_flaw(self.program.precision_flaw())
        self.facts["effective_precision"] = checks.check_precision(self.case, self.program)
        self.facts |= {"phases": ", ".join(self.program.phases)} if self.program.phases else {}
        self.facts |= {"beside": ", ".join(self.program.ablations)} if self.program.ablations else {}
        self.program.rank_times()  # of the warm-up
        checks.check_device(self.case, self.program)
        checks.check_waiting(events)
        self.steady_counters = self.program.steady_counters()
        gc.collect()
        gc.freeze()  # what is built stays; the collector need not walk it while steps are timed
        devices = self.framework.devices()
        own = next((device for device in devices if device.name == self.case.device), None)
        device = own or Device(self.case.device, self.case.framework)
        self.meters[:] = [meter for meter in self.meters if meter.start(self.case, device)]  # `windows` has this list
        series = [Series("step_time", "s", (warm.first_step / 1e9,), stage="first")]
        if warm.values:
            values = rounded([value / 1e9 for value in warm.values])
            series.append(Series("step_time", "s", values, stage="warmup", block=self.blocks.size))
        unsteady = warm.reason if warm.steady is False else ""
        software = Software(
            python=platform.python_version(), framework=self.framework.name, versions=self.framework.versions(),
            threads=self.framework.threads(), env=recorded_environment(),
        )  # fmt: skip
        return messages.CaseOpened(self.facts, software, tuple(devices), tuple(series), unsteady)

    def _note_loss(self) -> None:
        """Note the loss right after the very first step, which must find nothing warm."""
        self.first_losses = self.program.first_losses()
        self.first_counters = self.program.steady_counters()

    def _check_counters(self) -> None:
        """Count late changes: a graph compiled or memory reserved now spoils what was measured."""
        now = self.program.steady_counters()
        if now != self.steady_counters:
            self.steady_counters = now
            self.late_changes += 1

    def turn(self, seconds: float, steps: int | None = None) -> messages.Measured:
        """Measure blocks for that many s, or exactly that many steps, with the reference kernel in between."""
        kernel, report = self.kernel, Reporter(self.clock, self.progress)
        if kernel is not None:
            kernel.times = []

        def between(values: list[float], now: int) -> int:
            later = now if kernel is None else kernel.run()
            report(values, now)
            self.windows.look(now)
            return later + max(STEPS_FIRST_NS, round((later - now) / LARGEST_KERNEL_SHARE))

        if self.program.loads_ahead:  # drop what was loaded before the turn, and let the loader start again
            self.program.drop_loaded()
            settle(self.blocks, self.program.loads_ahead, max(SHORTEST_SETTLE_S, SETTLE_SHARE * seconds))
            self.program.rank_times()  # of steps that do not count
        self.windows.begin()
        values, left = time_blocks(self.blocks, seconds, steps, between)
        self.windows.end()
        if kernel is not None and not kernel.times:  # as between steps that take longer than a turn
            for _ in range(KERNELS_AFTER_STEP):
                kernel.run()
        series = [_times("step_time", values, block=self.blocks.size)] if values else []
        if kernel is not None and kernel.times:
            series.append(_times("reference_time", kernel.times, block=kernel.blocks.size))
        if left:
            last = self.blocks.time(left) / left / 1e9
            series.append(_times("step_time", [last], block=left))
            values.append(last)
        self.values += values
        series += self._by_rank({"step": self.blocks.size})
        return messages.Measured(tuple(series), {"late_changes": self.late_changes})

    def phases(self, seconds: float) -> messages.Measured:
        """Time the phases of a step, or its ablations, each by itself."""
        items = self.program.phases
        self.program.prepare_phases()
        report = Reporter(self.clock, self.progress)
        times = time_phases(self.program, items, seconds, self.clock, report) if items else {}
        series = [_times(f"{name}_time", values) for name, values in times.items()]
        series += self._ablations(seconds, report) if self.program.ablations else []
        return messages.Measured(tuple(series), {f"{name}_items": items[name] for name in items})

    def _ablations(self, seconds: float, report: Reporter) -> list[Series]:
        """Time rounds of the step and of its ablations, then restore the state of the program."""
        self.rank_peaks, self.counters_of_steps = self.program.rank_peaks(), self.program.steady_counters()
        self.program.hold_state()
        blocks = {"step": self.blocks}
        for name, steps in self.program.ablations.items():
            blocks[name] = Blocks(steps, self.clock, self.blocks.asynchronous)
            blocks[name].time(1)
            blocks[name].fit(float(blocks[name].time(1)))
        self.program.rank_times()
        times = rounds([*blocks.values()], seconds, FEWEST_ABLATION_ROUNDS, random.Random(len(blocks)), report)
        series = [
            _times(f"{name}_time", values, stage="beside", block=blocks[name].size)
            for name, values in zip(blocks, times, strict=True)
        ]
        series += self._by_rank({name: each.size for name, each in blocks.items()})
        self.program.restore_state()
        return series

    def _by_rank(self, sizes: Mapping[str, int]) -> list[Series]:
        """Return the same blocks as each rank timed them, where there are ranks."""
        return [
            _times(f"{name}_time", values, stage=f"rank-{rank}", block=sizes[name])
            for name, of_ranks in self.program.rank_times().items()
            for rank, values in enumerate(of_ranks)
        ]

    def energy(self, seconds: float, target: float, rest: float) -> messages.Measured:
        """Measure energy for that many s, or until it is known to the target; and `rest` s idle before and after."""
        if self.energy_meter is None:
            self.energy_meter = EnergyMeter(self.framework, self.case, self.framework.devices(), self.blocks)
        return self.energy_meter.measure(seconds, target, rest, self.progress)

    def close(self, prove: bool = False, unchecked: Collection[str] = ()) -> messages.CaseClosed:
        """Check the work, stop the meters, and return what they measured; `prove`: and what the case computes.

        `unchecked` are checks that the user turned off.
        """
        series = [series for meter in self.meters for series in meter.stop()]
        peak = self.program.device_peak()
        if peak is not None:
            series.append(Series("peak_device_memory", "B", (float(peak),), stage="process"))
        if self.case.compile:
            now = self.counters_of_steps or self.program.steady_counters()
            self.facts["recompiles"] = now[0] - self.first_counters[0]
        rank_peaks = self.rank_peaks or self.program.rank_peaks()
        if rank_peaks:
            series.append(Series("rank_peak_memory", "B", tuple(rank_peaks), stage="process"))
        checks.raise_flaw(self.program.rank_flaw(True))
        results = checks.check_results(self.case, self.program, self.first_losses, self.facts, unchecked)
        self.facts["flops_per_step"] = self.facts["flops_per_step"] or self.program.flops()
        checks.check_plausible(self.framework, self.case, self.clock, self.values, self.facts)
        if self.program.phases or (self.values and median(self.values) < LONG_STEP_S):
            self.facts |= self.program.counts()
        for fact, counted in PEAKS_OF_COPIES if self.framework.clock is None else ():
            if self.facts.get(counted):
                from_host = counted == "copied_per_step"
                self.facts[fact] = peaks.copy_rate(self.framework, self.case, self.clock, from_host)
        checks.check_precision(self.case, self.program)  # the user's code may have changed a setting meanwhile
        checks.check_device(self.case, self.program)  # after a step was counted, which shows where its matmuls ran
        self.facts |= dict(self.program.facts)
        if prove and self.portable is not None and (numbers := self.program.proof(self.portable)) is not None:
            self.facts["proof"] = " ".join(f"{number:.7g}" for number in numbers)
        self.facts |= checks.unchecked(self.case, self.framework, self.program, self.facts, results)
        checks.check_tree(self.case)
        self.program.end()
        return messages.CaseClosed(tuple(series), results, self.facts)


def measure_rounds(cases: Sequence[CaseSession], seconds: float, fewest: int, seed: float) -> messages.Measured:
    """Time rounds of all these cases; return a series for each, with one value a round, then one of delays for each."""
    blocks = [_blocks_for_rounds(case) for case in cases]
    report = Reporter(cases[0].clock, cases[0].progress)
    for each, case in zip(blocks, cases, strict=True):
        each.prepare = case.enter
    times = rounds(blocks, seconds, fewest, random.Random(seed), report)
    for case in cases:
        case.enter()
        checks.check_tree(case.case)
    measured = [("step_time", values) for values in times]
    delays = [each.delays for each in blocks if isinstance(each, BlocksOfOneThread)]
    if len(delays) == len(cases) and all(delays):
        measured += [("run_delay", values) for values in delays]
    return messages.Measured(
        tuple(
            _times(metric, values, stage="paired", block=blocks[place % len(blocks)].size)
            for place, (metric, values) in enumerate(measured)
        ),
        {},
    )


def _blocks_for_rounds(case: CaseSession) -> Blocks:
    """Return the case's blocks; where one thread does all the work, they record how long it had no core."""
    by_caller = case.framework.computes_in_caller and case.framework.threads() == 1
    if case.case.device == "cpu" and case.framework.clock is None and by_caller:
        return BlocksOfOneThread(case.program, case.clock, case.blocks.size)
    return case.blocks


def _times(metric: str, values: Sequence[float], stage: str = "steady", block: int = 1) -> Series:
    return Series(metric, "s", rounded(values), stage, block)


class ReferenceKernel:
    """A fixed matmul, run between the steps, and its times in s: what slows it down slows the steps down too."""

    def __init__(self, framework: Framework, case: Case, take_time: clock.Clock, trials: int = 4) -> None:
        """Raise Unsupported where the framework has no matmuls."""
        self.blocks = Blocks(framework.matmul(case, KERNEL_SIZE), take_time)
        self.blocks.time(2 * trials)
        self.blocks.fit(min(self.blocks.time(trials) for _ in range(trials)) / trials)
        self.times: list[float] = []

    def run(self) -> int:
        """Time it now; return the clock after it, in ns."""
        times, now = self.blocks.run(KERNEL_BLOCKS, sys.maxsize)
        self.times.append(median(times) / self.blocks.size / 1e9)
        return now


def translated() -> bool:
    """Return whether this interpreter runs under Rosetta, as Intel code on an Apple chip."""
    if sys.platform != "darwin" or platform.machine() != "x86_64":
        return False
    return system_queries.ask("sysctl", "-n", "sysctl.proc_translated") == "1"


class Reporter:
    """Reports the time of a step a few times a second, never within a block."""

    def __init__(self, take_time: clock.Clock, tell: Tell, scale: float = 1.0) -> None:
        self.take_time, self.tell, self.scale = take_time, tell, scale
        self.due = take_time() + REPORT_EVERY_NS

    def __call__(self, values: list[float], now: int) -> None:
        """Report the median of the latest values in s, if it is time."""
        if now >= self.due:
            self.tell(median(values[-50:]) * self.scale)
            self.due = self.take_time() + REPORT_EVERY_NS


# -- commands as cases -----------------------------------------------------------------------------


COLD = "cold"  # folder next to the data sets, which is empty at the first run from end to end


def _command_builder(
    workload: Workload, case: Case, data: DataSource | None, command: Sequence[str]
) -> Callable[[], list[str]] | None:
    """Return a function that returns the words of the command; None where the workload has none."""
    if command:
        return lambda: list(command)
    end_to_end = workload.end_to_end
    if end_to_end is None:
        return None
    if data is None:
        raise Unsupported(f"{workload.name} reads a data set: it has placement loader only")
    folder = os.path.join(data.folder, COLD, workload.name)
    shutil.rmtree(folder, ignore_errors=True)
    trained = replace(case, workload=end_to_end.workload, framework="torch")
    line = messages.encode(TrainEndToEnd(trained, end_to_end.epochs, replace(data, folder=folder)), 0).decode()
    launched = start.launch_words(trained.ranks or 1, trained.nodes) if trained.in_ranks else []
    return lambda: [sys.executable, start.__file__, *launched, start.END_TO_END, line]
