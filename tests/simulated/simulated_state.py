"""The state of the simulated machine: its clock, and the time line and memory of each of its devices.

Nothing here computes. An error of the device is raised by `fail`: at once, or, within a backward pass, when that is
over. With a device made in Python, an error of Python that leaves a backward pass ends the process: on its way out
PyTorch's engine asks Python for the device's stream, where nothing may fail. What a real device's kernel raises is an
error of C++, and passes.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from simulated_costs import Costs  # type: ignore[import-not-found]

_costs = cache(Costs)  # each operation asks for them


@dataclass
class Line:
    """One device: when it will be done, and what it holds in B."""

    busy_until: float = 0.0
    allocated: int = 0
    peak: int = 0
    reserved: int = 0
    reserved_peak: int = 0
    ends: deque[float] = field(default_factory=deque)
    """When each operation in flight will be done."""
    holders: dict[int, int] = field(default_factory=dict)
    """Tensors by storage."""


@dataclass
class Simulation:
    """The settings, as simulated_device.py tells them, and the state."""

    kernel: float = 1e-3
    rate: float = 0.0
    half: float = 1.0
    bandwidth: float = 0.0
    transfer: float = 0.0
    cpu: dict[str, float] | None = None
    issue: float = 0.0
    capacity: int = 1 << 30
    segment: int = 2 << 20
    devices: int = 1
    virtual: bool = False
    hidden: int = 0
    deaf: bool = False
    autocast: str = "works"
    refuses: tuple[str, ...] = ()
    lost_after: int | None = None
    gone: str = ""
    spoils: float = 0.0
    astray: tuple[str, ...] = ()
    falls_back: tuple[str, ...] = ()
    queue: int = 1024
    virtual_now: float = 0.0
    launches: int = 0
    waits: int = 0
    current: int = 0
    pending: BaseException | None = None
    lines: dict[int, Line] = field(default_factory=dict)

    @property
    def costs(self) -> Any:
        """What operations cost on the device."""
        return _costs(self.kernel, self.rate, self.half, self.bandwidth)

    @property
    def cpu_costs(self) -> Any:
        """What operations cost on the CPU; None where they cost what they cost."""
        return None if self.cpu is None else _costs(**{"kernel": 0.0, **self.cpu})

    # -- time ------------------------------------------------------------------------------------

    def now(self) -> float:
        """Time in s, real or virtual."""
        return self.virtual_now if self.virtual else time.perf_counter()

    def now_ns(self) -> int:
        """The fake clock as the harness sees it: a look costs 40 ns."""
        self.virtual_now += 40e-9
        return round(self.virtual_now * 1e9)

    def line(self, index: int) -> Line:
        """The state of a device."""
        return self.lines.setdefault(index, Line())

    def launch(self, index: int, cost: float) -> None:
        """An operation is issued: the device will be busy for so many s more."""
        self.launches += 1
        self.check_present()
        if self.virtual:
            self.virtual_now += self.issue
        line = self.line(index)
        line.busy_until = max(self.now(), line.busy_until) + cost
        line.ends.append(line.busy_until)
        if len(line.ends) > self.queue:
            self.wait_until(line.ends.popleft())
        if self.hidden and self.launches % self.hidden == 0:
            self.wait(index)

    def wait(self, index: int) -> None:
        """The host waits until the device is done."""
        self.check_present()
        self.waits += 1
        line = self.line(index)
        line.ends.clear()
        self.wait_until(line.busy_until)

    def wait_until(self, then: float) -> None:
        """The host waits until a time."""
        if self.virtual:
            self.virtual_now = max(self.virtual_now, then)
        while (left := then - self.now()) > 0:
            time.sleep(left - 1e-3 if left > 2e-3 else 0)

    # -- faults ----------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Raise an error of the device; in a backward pass it is kept until `raise_pending`."""
        if torch._C._current_graph_task_id() == -1:
            try:
                raise error
            finally:
                del error  # else this frame and the error keep each other, and the tensors of all frames above, alive
        self.pending = self.pending or error

    def raise_pending(self) -> None:
        """Raise what went wrong in the backward pass that is over now."""
        error, self.pending = self.pending, None
        if error is not None:
            raise error

    def check_present(self) -> None:
        """Fail where the device is lost: then every operation does."""
        if self.lost_after is not None and self.launches > self.lost_after:
            if self.gone:
                Path(self.gone).touch()
            self.fail(RuntimeError("SIM error: the device was lost"))

    def check_type(self, dtype: Any) -> None:
        """Fail where the device has no such numbers, in the words that PyTorch has for a type that MPS lacks."""
        name = str(dtype).removeprefix("torch.")
        if name not in self.refuses:
            return
        if name == "float64":
            told = "Cannot convert a SIM Tensor to float64 dtype as the SIM framework doesn't support float64."
            self.fail(TypeError(f"{told} Please use float32 instead."))
        self.fail(TypeError(f"{name} is not supported on SIM"))

    # -- memory ----------------------------------------------------------------------------------

    def check_room(self, index: int, size: int) -> None:
        """Fail where so many B more do not fit."""
        held = self.line(index).allocated
        if held + size > self.capacity:
            self.fail(torch.OutOfMemoryError(f"sim out of memory: tried to allocate {size} B beside {held} B"))

    def hold(self, index: int, storage: Any) -> None:
        """Count a tensor's bytes, once per storage; fail where they do not fit."""
        line, key, size = self.line(index), storage._cdata, storage.nbytes()
        if key not in line.holders:
            self.check_room(index, size)
            line.allocated += size
            line.peak = max(line.peak, line.allocated)
            line.reserved = max(line.reserved, self.in_segments(line.allocated))
            line.reserved_peak = max(line.reserved_peak, line.reserved)
            line.holders[key] = 0
        line.holders[key] += 1

    def release(self, index: int, key: int, size: int) -> None:
        """One tensor less holds the storage; what was reserved for it stays so."""
        line = self.line(index)
        line.holders[key] -= 1
        if line.holders[key] == 0:
            del line.holders[key]
            line.allocated -= size

    def in_segments(self, size: int) -> int:
        """So many B as the allocator reserves them: in whole segments, within what there is."""
        return min(-(-size // self.segment) * self.segment, max(self.capacity, size))

    def empty_cache(self) -> None:
        """Give back what is reserved and not in use."""
        for line in self.lines.values():
            line.reserved = self.in_segments(line.allocated)

    def reset_peaks(self, index: int) -> None:
        """Peaks begin anew with what is held now."""
        line = self.line(index)
        line.peak, line.reserved_peak = line.allocated, line.reserved

    def statistics(self, index: int) -> dict[str, Any]:
        """The allocator's counters, as torch.accelerator reads them."""
        line = self.line(index)
        return {
            "allocated_bytes": {"all": {"current": line.allocated, "peak": line.peak}},
            "reserved_bytes": {"all": {"current": line.reserved, "peak": line.reserved_peak}},
        }


SIM = Simulation()


def set_up() -> None:
    """Begin anew with the settings of this process's environment."""
    vars(SIM).update(vars(Simulation(**json.loads(os.environ.get("MLDYNO_SIM", "{}")))))
    if SIM.gone and Path(SIM.gone).exists():
        SIM.devices = 0
