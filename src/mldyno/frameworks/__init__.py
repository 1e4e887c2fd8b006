"""Frameworks: how a case is computed, one file each, each holding one `FRAMEWORK`.

The docstring of a file begins with what it is, and names the package it needs in a line of its own
("Requires: torch"), so that a list can be shown without importing it.
Rules: only a framework's own file imports it, and only inside `start`. A framework issues steps and
waits for the device when told; it never takes time and never decides when to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mldyno.records import Case, Device


class Unsupported(Exception):
    """The framework or device can't do what the case asks; the message says why."""


class Kernel(Protocol):
    """A fixed piece of work on a device, against which other work is held."""

    flops: float
    """Floating-point operations of one step."""

    def run(self, steps: int) -> None:
        """Issue that many steps."""

    def synchronize(self) -> None:
        """Wait until the device has done them."""


class Program(Protocol):
    """One case, built and placed on its device."""

    params: int | None
    """Parameters of the model; None where nothing is really built."""

    def run(self, steps: int) -> None:
        """Issue that many steps; may return before the device has done them."""

    def synchronize(self) -> None:
        """Wait until the device has done all that was issued."""

    def device_time(self, steps: int) -> float | None:
        """Time in s of that many steps by the device's own events; None where it has none."""

    def causes(self) -> tuple[int, ...]:
        """Counters that stand still in the steady state: graphs compiled, device memory reserved."""

    def loss(self) -> float | None:
        """Training: the loss on one fixed batch now; None in inference."""

    def learn(self) -> None:
        """Training: one step on that fixed batch."""

    def disagreement(self) -> tuple[float, float] | None:
        """Relative error against the CPU in fp32 and the tolerance; None where the case is that itself."""

    def device_peak(self) -> int | None:
        """Peak memory on the device in B; None on the CPU or where it is not counted."""

    def seen_device(self) -> str:
        """The device that the results really lie on."""


class Framework(Protocol):
    """One way to compute."""

    name: str
    clock: Callable[[], int] | None
    """A clock of its own in ns, only where time itself is simulated."""

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

    def open(self, case: Case, build: Callable[..., Any] | None) -> Program:
        """Build the case; `build` is the workload's own function for this framework, if it has one."""

    def product(self, case: Case, size: int) -> Kernel:
        """The product of two square matrices of that size, on the case's device and in its precision."""

    def explain(self, error: BaseException) -> tuple[str, str]:
        """The status (oom, unsupported, failed) and the reason in words for an error."""
