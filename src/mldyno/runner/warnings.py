"""The warnings of a measurement: a closed list, each with the next step.

A rule has a code, and a function that returns the message and the hint where it applies. What holds for the machine,
measured or not, is judged by `conditions`, for warnings and for the doctor's findings alike. A message names a figure
only where the figure is the point.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mldyno.analysis.breakdown import CLEAR_SHARE
from mldyno.analysis.outcomes import TARGET_NOT_REACHED
from mldyno.records import Case, Machine, Series, Warning_
from mldyno.stats import shapes
from mldyno.stats.intervals import median
from mldyno.timing.blocks import DRAIN_STEPS, EVENTS_TOLERANCE
from mldyno.timing.stopping import SUSTAINED_S, WARMUP_SHARE
from mldyno.units import count, digits, show_bytes, show_percent, show_seconds

WAITING_LIMIT = 0.10  # share of the time that threads may wait for a core
STOLEN_LIMIT = 0.05  # share of the machine's time that the host of a virtual machine may take
SWAPPED_MEANWHILE = 1 << 20  # B
SWAP_SHARE = 0.1  # swap in use, over the memory
SHORTEST_QUEUE = 512  # kernels that find room in the queue of any device
DRAINED_SHARE = 0.9  # a device that is done when the loop returns has waited for the loop, or the loop for it
LEAK_SHARE, LEAK_BYTES = 0.05, 16 << 20  # growth of resident memory: relative, and in B
HEAVY_PRESSURE = 2.0  # of macOS's levels: from here on clocks fall
HEAT_SHARE, HELD_BACK_SHARE = 0.01, 0.10  # of the measured time, that a GPU may be held back for heat; and for power
BURST_SHARE = 0.9  # of the load of a long run
SHARED_SCOPES = ("cores", "package", "memory", "system")  # whose sensors see other processes too
SHARED_CORES = 0.1  # that other processes may have, on average
PASSIVE_WAITING = ("passive", "PASSIVE")  # of OMP_WAIT_POLICY

INTERRUPTED = Warning_("interrupted", "the run was ended within this case", "mldyno run --resume repeats it")
ENERGY_LOST = "energy-lost"
MEMORY_TAKEN = "memory-taken"
LEFT_OUT_CODE = "left-out"  # of the record, since it can't be what it must be


def memory_taken(held: int) -> Warning_:
    """Return the warning of a case that held that much memory in B when other programs had taken the machine's."""
    message = f"other programs took the machine's memory while it held only {show_bytes(held)}"
    return Warning_(MEMORY_TAKEN, message, "end other programs, and measure it again")


@dataclass(frozen=True)
class State:
    """The state of a machine at a check-up or during a measurement; None where unknown."""

    power: str = "unknown"
    low_power: bool | None = None
    translated: bool = False  # whether Python is Intel code on an Apple chip
    slowed_down: bool = False  # whether anything was slowed down for heat or power
    speed_limit: float | None = None  # the share of its speed that the CPU is held to
    swapped_meanwhile: float | None = None  # B that went to and from the disk during a measurement
    swap_used: int | None = None
    memory: int | None = None
    niceness: int | None = None
    cores_allowed: int | None = None
    cores_present: int | None = None
    cpu_quota: float | None = None  # the cores' worth of time that its control group may use


Judged = tuple[str, str] | None  # message and next step


def conditions(state: State) -> dict[str, tuple[str, str]]:
    """Return the conditions that hold, by code, each with its message and the next step."""
    held = {}
    if state.translated:
        held["rosetta"] = (
            "this Python is Intel code that Rosetta translates; it can't use the GPU, and is slow",
            "install Python for arm64 (python.org, Homebrew in /opt/homebrew, Miniforge), and the framework in it",
        )
    if state.niceness and state.niceness > 0:
        held["niced"] = (
            f"it runs at niceness {state.niceness}: any other process gets the cores first",
            "start it without nice; under Ray, start the node with RAY_worker_niceness=0",
        )
    if (few := _few_cores(state)) and state.cores_present:
        held["few-cores"] = (
            f"it may use {few} of the machine's {count(state.cores_present, 'core')}",
            "under Slurm ask for all of them (-c), in a container raise its limit; or compare it only with its like",
        )
    if state.power == "battery":
        held["on-battery"] = "it runs on battery", "plug it in: a battery's power plan is another machine"
    if state.low_power:
        held["low-power"] = "it is in low-power mode", "switch low-power mode off"
    moved, used, memory = state.swapped_meanwhile or 0.0, state.swap_used, state.memory
    if moved >= SWAPPED_MEANWHILE:
        message = f"the machine swapped {show_bytes(moved)} meanwhile"
        held["swapping"] = message, "end other programs, or take a smaller batch"
    if used and memory and used > SWAP_SHARE * memory:
        held["swapped"] = (
            f"{show_bytes(used)} have gone from memory to the disk",
            "end other programs, and restart those that stay: what they have swapped comes back only when they need it",
        )
    limited = state.speed_limit is not None and state.speed_limit < 1
    if state.slowed_down or limited:
        limit = f", to {show_percent(state.speed_limit)} of its speed" if limited and state.speed_limit else ""
        message = f"it is slowed down for heat or power{limit}"
        held["throttled"] = message, "let it cool down, give it air and mains power"
    return held


def _few_cores(state: State) -> str:
    """Return how many cores it may use, where these are not all; else an empty text."""
    present, allowed = state.cores_present or 0, state.cores_allowed or math.inf
    usable = min(allowed, state.cpu_quota or math.inf)
    if usable >= present:
        return ""
    return f"{usable:.0f}" if usable == allowed else f"the time of {digits(usable, most=2)}"


@dataclass(frozen=True)
class Evidence:
    """The evidence about a case that succeeded."""

    case: Case
    series: Sequence[Series]
    facts: dict[str, Any]
    machine: Machine
    threads: int | None
    env: dict[str, str] = field(default_factory=dict)

    def values(self, metric: str, stage: str = "steady") -> list[float]:
        return [v for series in self.series if (series.metric, series.stage) == (metric, stage) for v in series.values]

    def total(self, metric: str) -> float:
        """Return the sum over all windows."""
        return sum(self.values(metric, "window"))

    def of_process(self, metric: str) -> float:
        """Return a value of the process as a whole; 0 where there is none."""
        return next(iter(self.values(metric, "process")), 0.0)

    @property
    def power_capped(self) -> str:
        """The time that the GPU's power limit held its clock down, and the limit; empty if not for long."""
        share = self.of_process("power_limit_time") / (self.total("window_time") or 1.0)
        own = (device.facts for device in self.machine.devices if device.name == self.case.device)
        limit = next((facts.get("power_limit") for facts in own), None)
        watts = f" of {digits(limit)} W" if isinstance(limit, float) else ""
        return (
            f"its power limit{watts} held its clock down for {show_percent(min(1.0, share))}"
            if share > HELD_BACK_SHARE
            else ""
        )

    @property
    def on_cpu(self) -> bool:
        return self.case.device == "cpu"

    @property
    def is_command(self) -> bool:
        return bool(self.facts.get("end_to_end"))

    @property
    def local_ranks(self) -> int:
        """The number of ranks on this machine."""
        return (self.case.ranks or 1) // self.case.nodes

    @property
    def state(self) -> State:
        """The state of the machine during the measurement."""
        measured = self.total("window_time") or 1.0
        slowed_down = bool(
            self.of_process("throttle_events")
            or self.of_process("thermal_pressure") >= HEAVY_PRESSURE
            or self.of_process("gpu_held_back") > HELD_BACK_SHARE
            or self.of_process("thermal_limit_time") > HEAT_SHARE * measured
        )
        return State(
            power=self.machine.power, low_power=self.machine.low_power, translated=bool(self.facts.get("translated")),
            slowed_down=slowed_down, speed_limit=next(iter(self.values("speed_limit", "process")), None),
            swapped_meanwhile=next(iter(self.values("swapped_memory", "process")), None), memory=self.machine.memory,
            **{name: self.facts.get(name) for name in ("niceness", "cores_allowed", "cores_present", "cpu_quota")},
        )  # fmt: skip


# -- causes ----------------------------------------------------------------------------------------
def _drift(evidence: Evidence, rises: bool) -> str:
    """Return by how much step times drifted, and how; empty where they did not in that direction."""
    drift = shapes.drift(evidence.values("step_time"))
    if drift is None or (drift.change > 0) != rises:
        return ""
    how = "bit by bit" if drift.change_point is None else f"at once, {show_percent(drift.change_point)} into it"
    return f"{show_percent(abs(drift.change))} while it was measured, {how}"


def _two_speeds(evidence: Evidence) -> str:
    modes = shapes.modes(evidence.values("step_time"))
    if modes is None:
        return ""
    ratio = modes.slow / modes.fast
    longer = f"{show_percent(ratio - 1)} longer than" if ratio < 2 else f"{digits(ratio)} times as long as"
    return f"{show_percent(modes.slow_share)} of the blocks took {longer} the others"


def _waited(evidence: Evidence) -> bool:
    """Return whether its threads waited for a core: as the system counts it, or because its only thread did not run."""
    windows, delay, cpu_time = map(evidence.total, ("window_time", "run_delay", "cpu_time"))
    if not windows:
        return False
    if evidence.is_command:  # only the process that waits for the command is counted; so look at the whole machine
        return evidence.total("cpu_pressure") > WAITING_LIMIT * windows
    if evidence.values("run_delay", "window"):
        return delay > WAITING_LIMIT * (cpu_time + delay)
    return evidence.on_cpu and evidence.threads == 1 and cpu_time < (1 - WAITING_LIMIT) * windows


def _stolen(evidence: Evidence) -> bool:
    cores, windows = evidence.machine.cores or os.cpu_count() or 1, evidence.total("window_time")
    return bool(windows) and evidence.total("stolen_time") > STOLEN_LIMIT * windows * cores


def _threads_capped(evidence: Evidence) -> str:
    """Return how a setting of the environment leaves cores unused; empty where none does, or the user asked for it."""
    cores, setting = evidence.facts.get("cores_allowed") or 0, evidence.env.get("OMP_NUM_THREADS", "")
    capped = evidence.on_cpu and not evidence.case.threads and setting.isdecimal() and int(setting) == evidence.threads
    asked = evidence.case.in_ranks or evidence.is_command
    if not capped or asked or int(setting) >= cores:
        return ""
    return f"OMP_NUM_THREADS={setting} gives it {count(int(setting), 'thread')} on {count(cores, 'core')}"


def _ranks_share_cores(evidence: Evidence) -> str:
    ranks, cores = evidence.local_ranks, evidence.machine.cores
    return f"{ranks} ranks share {cores} cores" if evidence.on_cpu and cores and ranks > cores else ""


def _threads_spin(evidence: Evidence) -> bool:
    """Return whether there are more OpenMP threads than free cores, and those that wait spin."""
    threads, cores = evidence.threads or 1, evidence.machine.cores
    if not evidence.on_cpu or threads < 2 or evidence.env.get("OMP_WAIT_POLICY") in PASSIVE_WAITING:
        return False
    return _waited(evidence) or bool(cores and threads * evidence.local_ranks > cores)


def _issues_late(evidence: Evidence, fact: str) -> bool:
    """Return whether issuing takes about as long as the work; never on the CPU."""
    share = evidence.facts.get(fact)
    return not evidence.on_cpu and isinstance(share, float) and share >= DRAINED_SHARE


def _waits_in_step(evidence: Evidence) -> str:
    """Return how a step waits for the device within itself; empty where it does not, or that is not known.

    What it reads back and copies is counted. A hidden wait shows where the host was held up in a drain test of so few
    kernels that no queue was full.
    """
    reads, copied, kernels = (
        evidence.facts.get(fact) or 0 for fact in ("host_syncs_per_step", "copied_per_step", "kernels_per_step")
    )
    if not _issues_late(evidence, "drained_share"):
        return ""
    if reads:
        return f"it reads back {count(reads, 'value')}"
    if copied:
        return f"it copies {show_bytes(copied)}"
    drained = max(DRAIN_STEPS, evidence.facts.get("block_steps") or 1)
    hidden = not _issues_late(evidence, "issued_share") and 0 < kernels * drained < SHORTEST_QUEUE
    return "something in it waits" if hidden else ""


def _host_bound(evidence: Evidence) -> bool:
    """Return whether the host holds the device up; near a peak it waits for a full queue instead."""
    events = evidence.facts.get("events_share")
    idle = not evidence.on_cpu and isinstance(events, float) and abs(1 - events) > EVENTS_TOLERANCE
    late = _issues_late(evidence, "issued_share") and not _waits_in_step(evidence)
    steps, near_peak = evidence.values("step_time"), False
    for work, peak in (("flops_per_step", "peak_flops"), ("bytes_per_step", "peak_bandwidth")):
        done, most = evidence.facts.get(work), evidence.facts.get(peak)
        near_peak |= bool(steps and done and most and done / median(steps) >= CLEAR_SHARE * most)
    return (late or idle) and not near_peak


def _burst(evidence: Evidence) -> str:
    worked = evidence.facts.get("load_time")
    short = isinstance(worked, float) and worked < BURST_SHARE * SUSTAINED_S
    return show_seconds(worked or 0.0) if short and not evidence.on_cpu else ""


def _may_fall_back(evidence: Evidence) -> bool:
    allowed = evidence.env.get("PYTORCH_ENABLE_MPS_FALLBACK") == "1"
    return allowed and evidence.case.device.startswith("mps") and evidence.facts.get("fallbacks_per_step") is None


def _leaked(evidence: Evidence) -> str:
    sizes = evidence.values("resident_memory", "window")
    if len(sizes) < 8:
        return ""
    quarter = len(sizes) // 4
    first, last = median(sizes[quarter : 2 * quarter]), median(sizes[-quarter:])
    return show_bytes(last - first) if last - first >= max(LEAK_BYTES, LEAK_SHARE * first) else ""


def _cores_of_others(evidence: Evidence) -> str:
    cores = evidence.facts.get("energy_others") or 0.0
    shared = evidence.facts.get("energy_scope") in SHARED_SCOPES and cores >= SHARED_CORES
    return f"{cores:.2g}" if shared else ""


# -- the list --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rule:
    """A warning: its code, its cause, which fills the message, and the next step.

    Without a message it is judged by the condition with its code.
    """

    code: str
    cause: Callable[[Evidence], Any] = lambda evidence: None
    message: str = ""
    hint: str = ""

    def judge(self, evidence: Evidence) -> Judged:
        """Return the message and the hint, where it applies."""
        if not self.message:
            return conditions(evidence.state).get(self.code)
        cause = self.cause(evidence)
        return (self.message.format(cause), self.hint) if cause else None


MORE_BUDGET = f"--budget {math.ceil(SUSTAINED_S / WARMUP_SHARE) * 3}s"
REFUSE_FALLBACK = "unset PYTORCH_ENABLE_MPS_FALLBACK: then it says which, and refuses"
WAITED_LONG = f"over {show_percent(WAITING_LIMIT)} of the time for a core"
RULES = (
    Rule("late-change", lambda evidence: evidence.facts.get("late_changes"),
         "a graph was compiled or device memory was reserved while it was measured",
         "give it more --budget to warm up; look for shapes that change from step to step"),
    Rule("recompiled", lambda evidence: (times := evidence.facts.get("recompiles")) and count(times, "more time"),
         "compiled {} after its first step",
         "look for shapes or values that change from step to step; TORCH_LOGS=recompiles shows which"),
    Rule("drifting", lambda evidence: _drift(evidence, rises=True), "step times rose by {}",
         "let the machine cool down and rest, then repeat; if it drifts again, look for heat, memory or a leak"),
    Rule("drifting", lambda evidence: _drift(evidence, rises=False), "step times fell by {}",
         "it got faster: it was still warming up, or other work ended; run it again, or longer with --budget"),
    Rule("two-modes", _two_speeds, "two speeds: {}",
         "trust neither mean nor median alone; more --repeats show which speed processes get, a quiet machine has one"),
    Rule("host-bound", _host_bound, "the host holds the device up: steps end no later than they are issued",
         "a larger batch or --compile yes gives the device more to do; look for copies and .item() within the step"),
    Rule("step-waits", _waits_in_step,
         "each step waits for the device within itself: {}, so that the host can't run ahead",
         "it is part of the step; only where that can be left out, as .item() often can, will it be faster"),
    Rule("falls-back", lambda evidence: evidence.facts.get("fallbacks_per_step"),
         "{} of its operations ran on the CPU in each step: the device lacks them", REFUSE_FALLBACK),
    Rule("falls-back", _may_fall_back, "parts of it may have run on the CPU: the device lacks them", REFUSE_FALLBACK),
    Rule("emulated", lambda evidence: evidence.facts.get("emulated"),
         "this GPU has no bf16: PyTorch emulates it", "take fp16 or amp-fp16 here"),
)  # fmt: skip
RULES_OF_REAL_TIME = (
    Rule("contended", _stolen, f"the virtual machine's host took over {show_percent(STOLEN_LIMIT)} of its time",
         "repeat it at another hour"),
    Rule("contended", lambda evidence: evidence.is_command and _waited(evidence),
         f"threads of this machine waited {WAITED_LONG}",
         "end other programs; or it starts more threads than there are cores"),
    Rule("contended", _waited, f"its threads waited {WAITED_LONG}",
         "end other programs, or give it fewer --threads: on a busy machine threads wait for each other"),
    Rule("oversubscribed", _ranks_share_cores, "{}: they take turns, and wait for each other",
         "as many --ranks as there are cores at most, for times that mean something"),
    Rule("oversubscribed", _threads_spin,
         "more OpenMP threads than free cores: those that wait spin, and keep the others from working",
         "--threads 1, or set OMP_WAIT_POLICY=PASSIVE, so that a waiting thread sleeps"),
    Rule("niced"),
    Rule("few-cores"),
    Rule("few-cores", _threads_capped, "{}",
         "unset it, as where a scheduler has set it; or say how many you want with --threads"),
    Rule("throttled"),
    Rule("power-capped", lambda evidence: evidence.power_capped, "{} of the time: normal for a card at full load",
         "compare it with cards of the same limit; nvidia-smi -pl sets another one"),
    Rule("burst", _burst, "a burst: the device had worked for {} only, and may be slower when it gets warm",
         f"{MORE_BUDGET} and more gives it {SUSTAINED_S:.0f} s of load first"),
    Rule("swapping"),
    Rule("leaking", _leaked, "its memory grew by {} while it was measured", "look for what each step keeps"),
    Rule("on-battery"),
    Rule("shared-power", _cores_of_others,
         "other processes had {} of the cores meanwhile, whose power is in its energy too",
         "end other programs: a sensor of the whole package counts them too"),
    Rule("low-power"),
    Rule("virtualised", lambda evidence: evidence.machine.virtualised, "a virtual machine",
         "its host can't be seen from inside: prefer comparisons within one run"),
    Rule("rosetta"),
)  # fmt: skip
WARNING_CODES = (
    *dict.fromkeys(rule.code for rule in (*RULES, *RULES_OF_REAL_TIME)),
    INTERRUPTED.code, LEFT_OUT_CODE, ENERGY_LOST, TARGET_NOT_REACHED,
)  # fmt: skip


def of_measurement(evidence: Evidence) -> list[Warning_]:
    """Return the warnings of a case that succeeded, each code once; nothing interferes with fake time."""
    warnings: dict[str, Warning_] = {}
    for rule in RULES if evidence.facts.get("fake_time") else (*RULES, *RULES_OF_REAL_TIME):
        judged = rule.judge(evidence)
        if judged is not None:
            warnings.setdefault(rule.code, Warning_(rule.code, *judged))
    return list(warnings.values())
