"""Frameworks: how a case is computed, one file each, each holding one `FRAMEWORK`.

The docstring of a file begins with what it is, and names the package it needs in a line of its own
("Requires: torch"), so that a list can be shown without importing it.
Rules: only a framework's own file imports it, and only inside `start`. A framework issues steps and
waits for the device when told; it never takes time and never decides when to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mldyno.datasets import Opened
    from mldyno.records import Case, Device, Fact


class Unsupported(Exception):
    """The framework or device can't do what the case asks; the message says why."""


@dataclass(frozen=True)
class Trial:
    """A feature tried on a device: how far its numbers are from the CPU's, relative, and how far they may be."""

    error: float
    tolerance: float
    fallback: str = ""
    """What the framework let the CPU do in the device's place; empty where the device did it all."""


class Kernel(Protocol):
    """A fixed phase of work on a device, against which other work is held."""

    work: float
    """What one step does: floating-point operations, or bytes that it moves."""

    def run(self, steps: int) -> None:
        """Issue that many steps."""

    def synchronize(self) -> None:
        """Wait until the device has done them."""


class Program(Protocol):
    """One case, built and placed on its device."""

    params: int | None
    """Parameters of the model; None where nothing is really built."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What else has come up that a record should tell, such as the accuracy after an epoch."""

    @property
    def phases(self) -> Mapping[str, int]:
        """What can be timed apart from the step, in this order, and the items in it."""

    def run(self, steps: int) -> None:
        """Issue that many steps; may return before the device has done them."""

    def synchronize(self) -> None:
        """Wait until the device has done all that was issued."""

    def device_time(self, steps: int) -> float | None:
        """Time in s of that many steps by the device's own events; None where it has none."""

    def steady_counters(self) -> tuple[int, ...]:
        """Counters that stand still in the steady state: graphs compiled, device memory reserved."""

    def run_phase(self, name: str) -> None:
        """Issue one of the phases."""

    def counts(self) -> dict[str, int]:
        """Kernels, device-to-host syncs and bytes moved of a step, which is run once more; empty where not known."""

    def first_losses(self) -> Mapping[str, float] | None:
        """Training: what must fall by name, as it was in the first step or right after it; None in inference."""

    def losses(self) -> Mapping[str, float] | None:
        """Training: the same now, such as the loss on one fixed batch; None in inference."""

    def check_step(self) -> None:
        """Training: one step that brings these down."""

    def precision_flaw(self) -> str:
        """Why the case's precision did not take effect, in words; empty where it did.

        Raises Unsupported where the case has nothing that a precision changes.
        """

    def disagreement(self) -> tuple[float, float] | None:
        """Relative error against the CPU in fp32 and the tolerance; None where the case is that itself."""

    def device_peak(self) -> int | None:
        """Peak memory on the device in B; None on the CPU or where it is not counted."""

    def seen_device(self) -> str:
        """The device that all of it really lies on; words that name two, where something lies elsewhere."""


class Framework(Protocol):
    """One way to compute."""

    name: str
    clock: Callable[[], int] | None
    """A clock of its own in ns, only where time itself is simulated."""
    features: Mapping[str, float]
    """What can be tried on a device, the plainest first, and how long each may take in s."""
    fallback: Mapping[str, str]
    """Settings of the environment that let the CPU do what a device can't."""

    def start(self) -> None:
        """Import the framework."""

    def versions(self) -> dict[str, str]:
        """Versions of what computes."""

    def threads(self) -> int | None:
        """CPU threads in use."""

    def limit_threads(self, threads: int) -> None:
        """Use so many CPU threads from now on."""

    def devices(self) -> list[Device]:
        """The devices that can be used now."""

    def support(self) -> dict[str, Fact]:
        """What this build is for: cuda, rocm, xpu, mps, each a version or true; and the `reason` why there is none."""

    def examine(self, feature: str, device: str) -> Trial:
        """Compute with one of the features on a device, and the same on the CPU in full precision.

        Raises Unsupported, or the framework's own error, where the device can't do it.
        """

    def open(self, case: Case, build: Callable[..., Any] | None, data: Opened | None = None) -> Program:
        """Build the case; `build` is the workload's own function for this framework, `data` its data set, if any."""

    def forecast_memory(self, case: Case, build: Callable[..., Any] | None) -> int | None:
        """Memory in B that the case will need on its device, without taking it; None where that can't be told."""

    layouts: tuple[str, ...]
    """Ways in which the factors of a product can lie in memory, the usual one first; some are faster than others."""

    def product(self, case: Case, size: int, layout: str | None = None) -> Kernel:
        """The product of two square matrices of that size, on the case's device and in its precision.

        Raises Unsupported where the framework has no products.
        """

    def allocate(self, case: Case, size: int) -> object:
        """Memory of so many B on the case's device, held as long as what is returned.

        Raises the framework's own error where there is not so much.
        """

    def move(self, case: Case, size: int, from_host: bool) -> Kernel:
        """A copy of so many B on the case's device, or to it from the host.

        Raises Unsupported where there is no such copy.
        """

    def explain(self, error: BaseException) -> tuple[str, str]:
        """The status (oom, unsupported, failed) and the reason in words for an error."""
