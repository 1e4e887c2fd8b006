"""Frameworks: how a case is computed. One file each, which holds one `FRAMEWORK`.

The first line of a file's docstring is the framework's title. A line "Requires: torch" names the package that it
needs, so that `mldyno list` imports nothing.
Rules: only a framework's own file imports it, and only inside `start`. A framework issues steps, and waits for the
device when asked. It never takes time, and never decides when to wait.

Eight members are abstract: `start`, `versions`, `devices` and `build_program` of a framework; `run`, `synchronize`,
`losses` and `error_vs_reference` of a program. All others have a default. The record names what a default can't check.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case, Device, Fact
    from mldyno.workloads import Build, Portable, Workload


class Unsupported(Exception):
    """Raised where the framework or device can't do what the case asks; the message says why."""


@dataclass(frozen=True)
class Trial:
    """A feature tried on a device: its relative error against the CPU, and the largest that is allowed."""

    error: float
    tolerance: float
    fallback: str = ""  # operators that fell back to the CPU; empty if the device ran them all


# Largest relative error against fp32 on the CPU, and between frameworks: of outputs, or of losses in training.
TOLERANCE = {
    "fp32": 1e-3, "tf32": 1e-2, "fp16": 2e-2, "bf16": 1e-1, "amp-fp16": 2e-2, "amp-bf16": 1e-1, "fp64": 1e-3,
}  # fmt: skip
COMPARED_UPDATES = 3  # updates between the losses that are compared
OTHER_DRAWS = 3  # passes with other random numbers, where a model draws any
CHANCE_FACTOR = 3.0  # times their largest difference: what one more draw may differ by
PROOF_ITEMS, PROOF_TOKENS = 4, 16  # in the batch that proves what a case computes
PROOF_NUMBERS = 16  # outputs in a proof
PROOF_RATE = 0.01  # times the learning rate: large updates of random weights amplify rounding


def matmul_precision(case: Case) -> str:
    """Return the precision that a case asks of its matmuls: fp32, tf32, bf16; autocast to bf16 asks for bf16."""
    return (case.precision or "fp32").removeprefix("amp-")


def proof_case(case: Case) -> Case:
    """Return the case with the small batch of a proof."""
    seq = None if case.seq is None else min(case.seq, PROOF_TOKENS)
    return replace(case, batch=min(case.batch or PROOF_ITEMS, PROOF_ITEMS), seq=seq)


def relative_error(actual: Sequence[float], expected: Sequence[float]) -> float:
    """Return the largest difference, relative to the largest value; infinite if one is not a number."""
    largest = max(1e-6, *map(abs, expected))
    error = max(abs(a - e) for a, e in zip(actual, expected, strict=True)) / largest
    return error if math.isfinite(error) else math.inf


def without_chance(errors: Sequence[tuple[float, float]], tolerance: float) -> list[float]:
    """Return the errors that the model's own random numbers do not explain.

    Each error comes with the largest difference between fp32 passes with different random numbers.
    """
    return [error for error, spread in errors if not tolerance < error <= tolerance + CHANCE_FACTOR * spread]


class Steps(Protocol):
    """Work that is repeated on a device."""

    def run(self, steps: int) -> None:
        """Issue that many steps."""

    def synchronize(self) -> None:
        """Wait until the device has done them."""


class Kernel(Steps, Protocol):
    """Fixed work on a device: the reference kernel, and the peaks."""

    work: float  # work of a step: floating-point operations, or bytes moved


class Team(Protocol):
    """The ranks that train together, seen from one of them. All ranks must make the same calls in the same order."""

    rank: int
    size: int
    local_rank: int  # the rank's number on its machine

    @property
    def leads(self) -> bool:
        """Return whether this is rank 0, which talks to the parent."""

    def share(self, text: str) -> str:
        """Return the leader's text, on every rank."""

    def broadcast(self, order: int, argument: int) -> tuple[int, int]:
        """Return the leader's order, on every rank."""

    def gather(self, number: float) -> list[float]:
        """Return the numbers of all ranks in order on the leader, and nothing on the other ranks."""

    def leave(self) -> None:
        """Leave the group."""


class Program(ABC):
    """One case, built and placed on its device."""

    # -- the core ----------------------------------------------------------------------------------

    @abstractmethod
    def run(self, steps: int) -> None:
        """Issue that many steps; may return before the device has done them."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has done all that was issued."""

    @abstractmethod
    def losses(self) -> Mapping[str, float] | None:
        """Return what training must lower, by name, such as the loss on one fixed batch; None in inference."""

    @abstractmethod
    def error_vs_reference(self) -> tuple[float, float] | None:
        """Return the relative error against fp32 on the CPU, and the tolerance; None if the case is fp32 on the CPU."""

    # -- optional: more checks ---------------------------------------------------------------------

    params: int | None = None  # parameters of the model; None if they are not counted

    def first_losses(self) -> Mapping[str, float] | None:
        """Return the losses of the first step; called once, right after it."""
        return self.losses()

    def check_step(self) -> None:
        """Train one step that lowers the losses."""
        self.run(1)

    def proof(self, portable: Portable) -> list[float] | None:
        """Return outputs, or a few losses, from the workload's first weights and batch; None if not known.

        Frameworks that do the same work return the same numbers.
        """
        return None

    def precision_flaw(self) -> str | None:
        """Return why the case's precision did not take effect; empty if it did, None if not checked.

        Raise Unsupported if the case computes nothing that a precision changes.
        """
        return None

    def effective_precision(self) -> str | None:
        """Return the precision of its matmuls as the framework reports it: fp32, tf32, bf16; None if it does not.

        A setting of the process, the session or the device can turn fp32 into tf32 or bf16. Called after
        `precision_flaw`, and again at the end.
        """
        return None

    def actual_device(self) -> str | None:
        """Return the device that holds all tensors, or words that name two devices; None if not checked."""
        return None

    returns: bool | None = None  # whether each step copies its output to the host; None if that can't be chosen

    # -- optional: facts and phases ----------------------------------------------------------------

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return facts for the record, such as the accuracy after an epoch; read after the build and at the end."""
        return {}

    @property
    def phases(self) -> Mapping[str, int]:
        """Return the phases that can be timed separately, in order, and the items in each."""
        return {}

    def run_phase(self, name: str) -> None:
        """Issue a phase."""
        raise KeyError(name)

    def prepare_phases(self) -> None:  # noqa: B027 (most have nothing to prepare)
        """Warm phases up before they are timed, such as by compiling graphs for other shapes."""

    # -- optional: batches from disk ---------------------------------------------------------------

    def load_first(self) -> bool:
        """Load the batch of the first step; return False if batches do not come from disk."""
        return False

    loads_ahead: int = 0  # batches that loader workers prefetch at most
    steps_in_cycle: int = 1  # steps after which step times repeat: one for each loader worker

    def drop_loaded(self) -> None:  # noqa: B027 (most load nothing ahead)
        """Drop the batches that were prefetched while no step ran: the next steps would be too fast."""

    # -- optional: ranks that train together -------------------------------------------------------

    @property
    def ablations(self) -> Mapping[str, Steps]:
        """Return variants of the step, such as one without waits; interleaved with the step they show its parts."""
        return {}

    def hold_state(self) -> None:  # noqa: B027 (most have no ablations)
        """Save the state that ablations change."""

    def restore_state(self) -> None:  # noqa: B027
        """Restore the state after ablations."""

    def rank_flaw(self, thorough: bool) -> str:
        """Return why the ranks did not train together; empty if they did, or if there is one process only.

        `thorough`: run every check, whatever memory it takes.
        """
        return ""

    def rank_times(self) -> Mapping[str, list[list[float]]]:
        """Return step times in s since the last call: for each kind of step, a list per rank."""
        return {}

    def rank_peaks(self) -> list[float]:
        """Return the peak memory of each rank's process in B; empty if there is one process only."""
        return []

    # -- optional: counters of the framework -------------------------------------------------------

    def steady_counters(self) -> tuple[int, ...]:
        """Return counters that are constant in the steady state: graphs compiled, device memory reserved."""
        return ()

    def device_time(self, steps: int) -> float | None:
        """Time that many steps by the device's events, in s; return None if it has no events."""
        return None

    def device_peak(self) -> int | None:
        """Return the peak memory on the device in B; None on the CPU or if it is not counted."""
        return None

    def flops(self) -> float | None:
        """Run one more step and count its floating-point operations in matmuls and convolutions; None if not known."""
        return None

    def counts(self) -> dict[str, int]:
        """Run one more step and count its kernels, device-to-host syncs and bytes moved; empty if not known."""
        return {}

    def end(self) -> None:  # noqa: B027 (most hold nothing but memory)
        """Release resources other than memory, such as loader workers."""


class Framework(ABC):
    """A framework, and the cases that it supports."""

    name: str  # the name of its file, with dashes for underscores

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "name"):
            cls.name = cls.__module__.rpartition(".")[2].replace("_", "-")

    # -- the core ----------------------------------------------------------------------------------

    @abstractmethod
    def start(self) -> None:
        """Import the framework, and make fp32 full precision."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return the versions of the framework and its libraries."""

    @abstractmethod
    def devices(self) -> list[Device]:
        """Return the devices that are available now; the CPU is called `cpu`."""

    @abstractmethod
    def build_program(self, case: Case, build: Any, data: Opened | None) -> Program:
        """Build a case that `check` accepted, from the result of `version_of`; `data` is its data set, if any."""

    # -- optional: supported cases -----------------------------------------------------------------

    precisions: tuple[str, ...] = ("fp32",)
    placements: tuple[str, ...] = ("device",)
    memory_formats: tuple[str, ...] = ("contiguous",)  # values of `--layout`
    compiles: bool = False  # whether it can compile a model (`--compile yes`)
    loads_in_workers: bool = False  # whether its loader supports workers and pinned memory
    parallel: tuple[str, ...] = ()  # ways in which its ranks can train together (`--parallel`), the usual one first

    builds_from: str = ""  # the framework whose version of a workload it builds from; empty: its own
    example: bool = False  # whether it is an example to read rather than to use
    portable: bool = False  # whether it builds workloads from layers

    def version_of(self, workload: Workload) -> Build | Portable | None:
        """Return its version of a workload; None if it has none."""
        own = workload.build.get(self.builds_from or self.name)
        return own or (workload.portable if self.portable else None)

    computes_in_caller: bool = False  # whether the calling thread does all of the work if there is only one

    def asynchronous(self, device: str) -> bool:
        """Return whether calls return before the device is done."""
        return device != "cpu"

    def environment(self, case: Case) -> dict[str, str]:
        """Return the environment variables that must be set before the framework starts for a case."""
        return {}

    def team(self) -> Team:
        """Join the ranks that were started with this process."""
        raise Unsupported(f"{self.name} can't train in ranks here; torch can")

    def threads(self) -> int | None:
        """Return the CPU threads in use; None if not known."""
        return None

    def limit_threads(self, threads: int) -> None:
        """Use that many CPU threads from now on."""
        raise Unsupported(f"{self.name} has no setting for the number of threads")

    def open(self, case: Case, build: Any, data: Opened | None = None) -> Program:
        """Return the case as a program; raise Unsupported, with the reason, if it can't run as asked."""
        self.check(case, build, data)
        if case.threads:
            self.limit_threads(case.threads)
        return self.build_program(case, build, data)

    def check(self, case: Case, build: Any, data: Opened | None) -> None:
        """Raise Unsupported if a case can't run as asked: nothing is ever replaced."""
        if build is None:
            raise Unsupported(f"{case.workload} has no version for {self.name}")
        offered = {
            "precision": (case.precision or "fp32", self.precisions),
            "placement": (case.placement or "device", self.placements),
            "layout": (case.layout, self.memory_formats),
        }
        for axis, (value, supported) in offered.items():
            if value not in supported:
                raise Unsupported(f"{self.name} has no {axis} {value}; it has {', '.join(supported)}")
        if case.compile and not self.compiles:
            raise Unsupported(f"{self.name} has no compiler")
        if case.in_ranks:
            if not self.parallel:
                raise Unsupported(f"{self.name} can't train in ranks here; torch can")
            if case.mode != "train":
                raise Unsupported("ranks train together; inference has no ranks")
        if case.placement == "loader" and data is None and not getattr(build, "loads", False):
            raise Unsupported(f"{case.workload} has no data set on disk; take placement device, host or roundtrip")
        if case.sets_loader and not self.loads_in_workers:
            raise Unsupported(f"{self.name}'s batches are loaded in its own process; torch has loader workers")
        devices = [device.name for device in self.devices()]
        if case.device not in devices:
            raise Unsupported(f"no device '{case.device}' here; {self.name} sees {', '.join(devices)}")

    packages: tuple[str, ...] = ()  # packages that it imports; its extra installs them
    not_supported: tuple[str, ...] = ()  # lower-case parts of error messages that mean: unsupported
    out_of_memory: tuple[str, ...] = ()  # lower-case parts of error messages that mean: out of memory

    def explain(self, error: BaseException) -> tuple[str, str]:
        """Return the status (oom, unsupported, failed) and the reason for an error."""
        name = type(error).__name__
        text = str(error).strip().split("\n")[0] or name
        words = f"{name} {error}".lower()
        if isinstance(error, Unsupported | NotImplementedError) or any(part in words for part in self.not_supported):
            return "unsupported", text
        if isinstance(error, MemoryError) or any(part in words for part in self.out_of_memory):
            return "oom", text
        if isinstance(error, ModuleNotFoundError) and error.name in self.packages:
            return "failed", f"{error.name} is not installed for this Python; pip install 'mldyno[{self.name}]'"
        return "failed", f"{name}: {text}"

    # -- optional: reference kernel, peaks, memory -------------------------------------------------

    layouts: tuple[str, ...] = ("nn",)  # memory layouts of the factors of a matmul, the usual one first

    def matmul(self, case: Case, size: int, layout: str | None = None) -> Kernel:
        """Return a matmul of two square matrices on the case's device, in its precision: reference kernel and peak."""
        raise Unsupported(f"{self.name} has no matmul")

    def copy(self, case: Case, size: int, from_host: bool) -> Kernel:
        """Return a copy of `size` B on the case's device, or from the host to it: the peak of memory."""
        raise Unsupported(f"{self.name} has no copy")

    def allocate(self, case: Case, size: int) -> object:
        """Allocate `size` B on the case's device until the result is deleted; raise the framework's own error."""
        raise Unsupported(f"{self.name} can't allocate device memory")

    def limit_memory(self, case: Case) -> None:  # noqa: B027 (most need not do anything)
        """From now on, refuse allocations that do not fit on the case's device."""

    def forecast_memory(self, case: Case, build: Any) -> int | None:
        """Return the memory in B that the case will need on its device; None if not known."""
        return None

    # -- optional: features that `mldyno doctor` tries ---------------------------------------------

    features: Mapping[str, float] = {}  # features to try on a device, the plainest first, each with its timeout in s
    fallback: Mapping[str, str] = {}  # environment variables that let the CPU run operators that a device lacks

    def try_feature(self, feature: str, device: str) -> Trial:
        """Try a feature on a device, and compute the same on the CPU in full precision.

        Raise Unsupported, or the framework's own error, if the device can't do it.
        """
        raise Unsupported(f"{self.name} has no features to try")

    def support(self) -> dict[str, Fact]:
        """Return the platforms of this build (cuda, rocm, xpu, mps): a version or true; and why none is available."""
        return {}

    clock: Callable[[], int] | None = None  # a simulated clock in ns; None: time is real
