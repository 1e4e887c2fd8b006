"""Frameworks: how a case is computed, one file each, each holding one `FRAMEWORK`.

The docstring of a file begins with what it is, and names the package it needs on a separate line
("Requires: torch"), so that a list can be shown without importing it.
Rules: only a framework's own file imports it, and only inside `start`. A framework issues steps and
waits for the device when asked; it never takes time and never decides when to wait.

The core is what is abstract here, eight members: `start`, `versions`, `devices`, `build_program` of a framework, and
`run`, `synchronize`, `losses`, `error_vs_reference` of a program. All else has a default. What a default can't check,
the record names as not checked.
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
    """The framework or device can't do what the case asks; the message says why."""


@dataclass(frozen=True)
class Trial:
    """A feature tried on a device: how far its numbers are from the CPU's, relative, and how far they may be."""

    error: float
    tolerance: float
    fallback: str = ""
    """What the framework let the CPU do in the device's place; empty where the device did it all."""


# Largest relative difference from fp32 on the CPU, and between frameworks: of outputs in inference, of losses in
# training.
TOLERANCE = {
    "fp32": 1e-3, "tf32": 1e-2, "fp16": 2e-2, "bf16": 1e-1, "amp-fp16": 2e-2, "amp-bf16": 1e-1, "fp64": 1e-3,
}  # fmt: skip
COMPARED_UPDATES = 3  # after which losses are compared
OTHER_DRAWS = 3  # passes that draw other random numbers, where a model draws any
CHANCE = 3.0  # times their largest difference: what one more draw may differ by
PROOF_ITEMS, PROOF_TOKENS = 4, 16  # of the batch that proves what a case computes
PROOF_NUMBERS = 16  # of its outputs
PROOF_RATE = 0.01  # of the optimiser's own: from random weights larger updates are wild, and make much of rounding


def proof_case(case: Case) -> Case:
    """Return the case with a batch that is small enough to prove what it computes."""
    seq = None if case.seq is None else min(case.seq, PROOF_TOKENS)
    return replace(case, batch=min(case.batch or PROOF_ITEMS, PROOF_ITEMS), seq=seq)


def relative_error(actual: Sequence[float], expected: Sequence[float]) -> float:
    """Return the largest difference, relative to the largest value; infinite where one is not a number."""
    largest = max(1e-6, *map(abs, expected))
    error = max(abs(a - e) for a, e in zip(actual, expected, strict=True)) / largest
    return error if math.isfinite(error) else math.inf


def without_chance(errors: Sequence[tuple[float, float]], tolerance: float) -> list[float]:
    """Return the errors that the model's own random numbers do not explain.

    Each comes with the largest difference between passes in fp32 that drew other numbers; 0 where nothing was drawn.
    """
    return [error for error, drawn in errors if not tolerance < error <= tolerance + CHANCE * drawn]


class Steps(Protocol):
    """Work that is repeated on a device."""

    def run(self, steps: int) -> None:
        """Issue that many steps."""

    def synchronize(self) -> None:
        """Wait until the device has done them."""


class Kernel(Steps, Protocol):
    """Fixed work on a device, with which other work is compared."""

    work: float
    """What one step does: floating-point operations, or bytes that it moves."""


class Team(Protocol):
    """The ranks that train together, as one of them sees them; all must call the same in the same order."""

    rank: int
    size: int
    local_rank: int
    """Among those of its machine."""

    @property
    def leads(self) -> bool:
        """Return whether this is rank 0, which talks to the parent."""

    def share(self, text: str) -> str:
        """Return the leader's text, on every rank."""

    def broadcast(self, order: int, argument: int) -> tuple[int, int]:
        """Return the leader's order, on every rank."""

    def gather(self, number: float) -> list[float]:
        """Return the numbers of all ranks in order to the leader; nothing to the others."""

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
        """Return the relative error against the CPU in fp32, and the tolerance; None where the case is that itself."""

    # -- optional: more checks ---------------------------------------------------------------------

    params: int | None = None
    """Parameters of the model; None where they are not counted."""

    def first_losses(self) -> Mapping[str, float] | None:
        """Return the losses in the first step or right after it; called once, after that step."""
        return self.losses()

    def check_step(self) -> None:
        """Train one step that lowers the losses."""
        self.run(1)

    def proof(self, portable: Portable) -> list[float] | None:
        """Return what the case computes from the workload's first weights and batch: outputs, or a few losses.

        In every framework the same numbers come out where the work is the same; None where it is not known.
        """
        return None

    def precision_flaw(self) -> str | None:
        """Return why the case's precision did not take effect; empty where it did, None where it is not checked.

        Raises Unsupported where the case has nothing that a precision changes.
        """
        return None

    def actual_device(self) -> str | None:
        """Return the device that all of it really lies on, or words that name two; None where it is not checked."""
        return None

    # -- optional: what else can be seen -----------------------------------------------------------

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return more facts for the record, such as the accuracy after an epoch; read when built, and at the end."""
        return {}

    @property
    def phases(self) -> Mapping[str, int]:
        """Return the phases that can be timed apart from the step, in this order, and the items in each."""
        return {}

    def run_phase(self, name: str) -> None:
        """Issue one of the phases."""
        raise KeyError(name)

    def prepare_phases(self) -> None:  # noqa: B027 (most have nothing to prepare)
        """Prepare, before phases are timed, what only their first run needs, such as graphs of other shapes."""

    # -- optional: batches from disk ---------------------------------------------------------------

    def load_first(self) -> bool:
        """Get the first batch, for the first step; False where none comes from disk."""
        return False

    loads_ahead: int = 0
    """Batches that loader workers may hold ready when a step asks for one."""
    steps_in_cycle: int = 1
    """Steps after which their times repeat, since each may wait for another loader worker."""

    def drop_loaded(self) -> None:  # noqa: B027 (most load nothing ahead)
        """Drop what was loaded ahead while no step ran: it would make the next ones too fast."""

    # -- optional: ranks that train together -------------------------------------------------------

    @property
    def ablations(self) -> Mapping[str, Steps]:
        """Return variants of the step, such as one without waits; timed interleaved with it, they show its parts."""
        return {}

    def hold_state(self) -> None:  # noqa: B027 (most have no ablations)
        """Save what ablations change, before they run."""

    def restore_state(self) -> None:  # noqa: B027
        """Restore it after they ran."""

    def rank_flaw(self, thorough: bool) -> str:
        """Return why the ranks did not train together; empty where they did, or there is one process only.

        `thorough`: by all that can be checked, whatever memory that takes.
        """
        return ""

    def rank_times(self) -> Mapping[str, list[list[float]]]:
        """Return times of a step in s since the last call: for each kind of step, a list per rank."""
        return {}

    def rank_peaks(self) -> list[float]:
        """Return the peak memory of each rank's process in B; empty where there is one process only."""
        return []

    def end(self) -> None:  # noqa: B027 (most hold nothing but memory)
        """Release what it holds besides memory."""

    # ----------------------------------------------------------------------------------------------

    def steady_counters(self) -> tuple[int, ...]:
        """Return counters that are constant in the steady state: graphs compiled, device memory reserved."""
        return ()

    def device_time(self, steps: int) -> float | None:
        """Return the time in s of that many steps by the device's events; None where it has none."""
        return None

    def device_peak(self) -> int | None:
        """Return the peak memory on the device in B; None on the CPU or where it is not counted."""
        return None

    def flops(self) -> float | None:
        """Run one more step and count its floating-point operations in matmuls and convolutions; None if not known."""
        return None

    def counts(self) -> dict[str, int]:
        """Run one more step and count its kernels, device-to-host syncs and bytes moved; empty where not known."""
        return {}


class Framework(ABC):
    """A framework, and what it can be asked for."""

    name: str
    """That of its file, with dashes for underscores."""

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "name"):
            cls.name = cls.__module__.rpartition(".")[2].replace("_", "-")

    # -- the core ----------------------------------------------------------------------------------

    @abstractmethod
    def start(self) -> None:
        """Import what computes; full precision must be full precision."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return the versions of what computes."""

    @abstractmethod
    def devices(self) -> list[Device]:
        """Return the devices that can be used now; the CPU is called `cpu`."""

    @abstractmethod
    def build_program(self, case: Case, build: Any, data: Opened | None) -> Program:
        """Build a case that `check` let pass, from what `version_of` gave; `data` is its data set, if any."""

    # -- optional: what more than the plain case can be asked for ----------------------------------

    precisions: tuple[str, ...] = ("fp32",)
    placements: tuple[str, ...] = ("device",)
    memory_formats: tuple[str, ...] = ("contiguous",)
    """Values of `--layout`."""
    compiles: bool = False
    """Whether it can compile a model (`--compile yes`)."""
    loads_in_workers: bool = False
    """Whether its loader can have workers, and pinned memory."""
    parallel: tuple[str, ...] = ()
    """Ways in which its ranks can train together (`--parallel`), the usual one first."""

    builds_from: str = ""
    """The framework whose version of a workload it builds from; its own, if this is empty."""
    example: bool = False
    """Whether it is there to be read rather than used."""
    portable: bool = False
    """Whether it builds workloads from layers."""

    def version_of(self, workload: Workload) -> Build | Portable | None:
        """Return what it builds a workload from; None where it can't."""
        own = workload.build.get(self.builds_from or self.name)
        return own or (workload.portable if self.portable else None)

    computes_in_caller: bool = False
    """Whether, with one thread, the one that calls does all of the work."""

    def asynchronous(self, device: str) -> bool:
        """Return whether a device may still work when a call has returned."""
        return device != "cpu"

    def environment(self, case: Case) -> dict[str, str]:
        """Return the environment variables that a process needs before the framework starts in it for a case."""
        return {}

    def launches(self, case: Case) -> bool:
        """Return whether a case is computed by ranks that a launcher starts."""
        return case.in_ranks and bool(self.parallel)

    def team(self) -> Team:
        """Join the ranks that this process was started with."""
        raise Unsupported(f"{self.name} can't train in ranks here; torch can")

    def threads(self) -> int | None:
        """Return the CPU threads in use; None where that is not known."""
        return None

    def limit_threads(self, threads: int) -> None:
        """Use that many CPU threads from now on."""
        raise Unsupported(f"{self.name} can't be told how many threads to use")

    def open(self, case: Case, build: Any, data: Opened | None = None) -> Program:
        """Return the case as a program; raise Unsupported, with the reason, where it can't be done as asked."""
        self.check(case, build, data)
        if case.threads:
            self.limit_threads(case.threads)
        assert build is not None
        return self.build_program(case, build, data)

    def check(self, case: Case, build: Any, data: Opened | None) -> None:
        """Raise Unsupported where a case can't be done as asked: nothing is ever replaced."""
        if build is None:
            raise Unsupported(f"{case.workload} has no version for {self.name}")
        if (case.precision or "fp32") not in self.precisions:
            raise Unsupported(f"{self.name} has no precision {case.precision}; it has {', '.join(self.precisions)}")
        if (case.placement or "device") not in self.placements:
            raise Unsupported(f"{self.name} has no placement {case.placement}; it has {', '.join(self.placements)}")
        if case.layout not in self.memory_formats:
            raise Unsupported(f"{self.name} has no layout {case.layout}")
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

    packages: tuple[str, ...] = ()
    """What it imports; its extra installs them."""
    not_supported: tuple[str, ...] = ()
    """Words in lower case of its errors that mean: unsupported."""
    out_of_memory: tuple[str, ...] = ()
    """Words in lower case of its errors that mean: out of memory."""

    def explain(self, error: BaseException) -> tuple[str, str]:
        """Return the status (oom, unsupported, failed) and the reason in words for an error."""
        name = type(error).__name__
        text = str(error).strip().split("\n")[0] or name
        words = f"{name} {error}".lower()
        if isinstance(error, Unsupported | NotImplementedError) or any(part in words for part in self.not_supported):
            return "unsupported", text
        if isinstance(error, MemoryError) or any(part in words for part in self.out_of_memory):
            return "oom", text
        missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if missing in self.packages:
            return "failed", f"{missing} is not installed for this Python; pip install 'mldyno[{self.name}]'"
        return "failed", f"{name}: {text}"

    # -- optional: what a result is held against ---------------------------------------------------

    layouts: tuple[str, ...] = ("nn",)
    """Layouts in memory of the factors of a matmul, the usual one first; some are faster than others."""

    def matmul(self, case: Case, size: int, layout: str | None = None) -> Kernel:
        """Return the product of two square matrices of that size, on the case's device and in its precision.

        It is the reference kernel and the peak. Raises Unsupported where the framework has none.
        """
        raise Unsupported(f"{self.name} has no matmul of its own")

    def copy(self, case: Case, size: int, from_host: bool) -> Kernel:
        """Return a copy of that many B on the case's device, or to it from the host; the peak of memory.

        Raises Unsupported where there is no such copy.
        """
        raise Unsupported(f"{self.name} has no copy of its own")

    def allocate(self, case: Case, size: int) -> object:
        """Allocate that many B on the case's device, for as long as what is returned lives.

        Raises the framework's own error where there is not so much.
        """
        raise Unsupported(f"{self.name} has no memory of its own to allocate")

    def limit_memory(self, case: Case) -> None:  # noqa: B027 (most need not do anything)
        """From now on, refuse what does not fit on the case's device, where other memory could be used instead."""

    def forecast_memory(self, case: Case, build: Any) -> int | None:
        """Return the memory in B that the case will need on its device; None where that is not known."""
        return None

    # -- optional: what `mldyno doctor` looks at ---------------------------------------------------

    features: Mapping[str, float] = {}
    """What can be tried on a device, the plainest first, and how long each may take in s."""
    fallback: Mapping[str, str] = {}
    """Settings of the environment that let the CPU do what a device can't."""

    def try_feature(self, feature: str, device: str) -> Trial:
        """Compute with one of the features on a device, and the same on the CPU in full precision.

        Raises Unsupported, or the framework's own error, where the device can't do it.
        """
        raise Unsupported(f"{self.name} has no features to try")

    def support(self) -> dict[str, Fact]:
        """Return what this build is for (cuda, rocm, xpu, mps): a version or true; and the `reason` if for none."""
        return {}

    # -- only where time itself is simulated -------------------------------------------------------

    clock: Callable[[], int] | None = None
    """A clock of its own in ns."""
