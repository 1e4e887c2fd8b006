"""A simulated accelerator for PyTorch, named `sim`: asynchronous, with memory that can run out.

Every operation runs at once on a CPU tensor and books its cost on the device's time line; only a
synchronisation, or a copy to the host, waits for that time line. So a harness that forgets to wait
measures the host, and one that waits measures a truth that is known.

Settings are JSON in MLDYNO_SIM: kernel (s that an operation takes on the device), issue (s that the
host takes to issue one), capacity (B), virtual (true: time is virtual, and exact), hidden (every so
many operations one waits for the device, as .item() in a step does), deaf (true: torch's own
synchronisation does not wait, as if the harness forgot it).
Works for modules, backward, optimisers, convolutions, attention; not for several streams, LSTM's
fused cell, real autocast or pinned memory.
"""

from __future__ import annotations

import json
import os
import time
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

aten = torch.ops.aten
CPU = torch.device("cpu")


@dataclass
class Simulation:
    """The device's time line and memory."""

    kernel: float = 1e-3
    issue: float = 0.0
    capacity: int = 1 << 30
    virtual: bool = False
    hidden: int = 0
    deaf: bool = False
    busy_until: float = 0.0
    virtual_now: float = 0.0
    allocated: int = 0
    peak: int = 0
    holders: dict[int, int] = field(default_factory=dict)
    launches: int = 0
    waits: int = 0

    def now(self) -> float:
        """Time in s, real or virtual."""
        return self.virtual_now if self.virtual else time.perf_counter()

    def now_ns(self) -> int:
        """The virtual clock as the harness sees it: a look costs 40 ns."""
        self.virtual_now += 40e-9
        return round(self.virtual_now * 1e9)

    def launch(self) -> None:
        """An operation is issued: the device will be busy for one kernel more."""
        self.launches += 1
        if self.virtual:
            self.virtual_now += self.issue
        self.busy_until = max(self.now(), self.busy_until) + self.kernel
        if self.hidden and self.launches % self.hidden == 0:
            self.wait()

    def wait(self) -> None:
        """The host waits until the device is done."""
        self.waits += 1
        if self.virtual:
            self.virtual_now = max(self.virtual_now, self.busy_until)
        while (left := self.busy_until - self.now()) > 0:
            time.sleep(left - 1e-3 if left > 2e-3 else 0)

    def hold(self, storage: Any) -> None:
        """Count a tensor's bytes, once per storage; raise where they do not fit."""
        key, size = storage._cdata, storage.nbytes()
        if key not in self.holders:
            if self.allocated + size > self.capacity:
                raise torch.OutOfMemoryError(f"sim out of memory: tried to allocate {size} B beside {self.allocated} B")
            self.allocated += size
            self.peak = max(self.peak, self.allocated)
            self.holders[key] = 0
        self.holders[key] += 1

    def release(self, key: int, size: int) -> None:
        """One tensor less holds the storage."""
        self.holders[key] -= 1
        if self.holders[key] == 0:
            del self.holders[key]
            self.allocated -= size


SIM = Simulation(**json.loads(os.environ.get("MLDYNO_SIM", "{}")))


class SimTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor that says it lies on `sim` and keeps its values in a CPU tensor."""

    _cpu: Any

    @staticmethod
    def __new__(cls, cpu: Any) -> SimTensor:
        SIM.hold(cpu.untyped_storage())
        made = torch.Tensor._make_wrapper_subclass(
            cls, cpu.size(), strides=cpu.stride(), storage_offset=cpu.storage_offset(), dtype=cpu.dtype,
            device=torch.device("sim:0"), requires_grad=False,
        )  # fmt: skip
        made._cpu = cpu
        storage = cpu.untyped_storage()
        weakref.finalize(made, SIM.release, storage._cdata, storage.nbytes())
        return made  # type: ignore[no-any-return]

    def __repr__(self, **options: Any) -> str:
        return f"Sim({self._cpu!r})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            return func.decompose(*args, **kwargs)  # in inference mode these come here whole
        if func is aten._to_copy.default and isinstance(args[0], SimTensor) and kwargs.get("device") == CPU:
            return _to_host(lambda: func(args[0]._cpu, **kwargs))
        if func is aten.copy_.default:
            return _copy(func, *args, **kwargs)
        if func in (aten._local_scalar_dense.default, aten.equal.default, aten.nonzero.default):
            return _to_host(lambda: func(*tree_map(_inside, args), **tree_map(_inside, kwargs)))
        out = func(*tree_map(_inside, args), **tree_map(_inside, kwargs))
        if _computes(func):
            SIM.launch()
        known = {id(x._cpu): x for x in tree_flatten((args, kwargs))[0] if isinstance(x, SimTensor)}

        def outside(x: Any) -> Any:
            return x if not isinstance(x, torch.Tensor) else known[id(x)] if id(x) in known else SimTensor(x)

        return tree_map(outside, out)


def _inside(x: Any) -> Any:
    """The CPU side of an argument."""
    if isinstance(x, SimTensor):
        return x._cpu
    return CPU if isinstance(x, torch.device) and x.type == "sim" else x


def _computes(func: Any) -> bool:
    """Whether an operation is more than a view of its argument."""
    aliases = [result.alias_info for result in func._schema.returns]
    return not any(aliases) or any(alias is not None and alias.is_write for alias in aliases)


def _to_host(compute: Any) -> Any:
    """A result for the host: the host waits for the device."""
    SIM.launch()
    SIM.wait()
    return compute()


def _copy(func: Any, target: Any, source: Any, non_blocking: bool = False) -> Any:
    SIM.launch()
    func(_inside(target), _inside(source))
    crosses = isinstance(target, SimTensor) != isinstance(source, SimTensor)
    if crosses and (not non_blocking or not isinstance(target, SimTensor)):
        SIM.wait()
    return target


class Event:
    """An event on the device's time line."""

    def __init__(self, enable_timing: bool = False, **options: Any) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        self.at = max(SIM.now(), SIM.busy_until)

    def synchronize(self) -> None:
        SIM.wait()

    def query(self) -> bool:
        return SIM.now() >= self.at

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1e3


class Properties:
    """What torch.sim says of the device."""

    name = "simulated accelerator"
    total_memory = SIM.capacity


class Module:
    """torch.sim."""

    Event = Event
    is_initialized = staticmethod(lambda: True)
    is_available = staticmethod(lambda: True)
    current_device = staticmethod(lambda: 0)
    device_count = staticmethod(lambda: 1)
    _is_in_bad_fork = staticmethod(lambda: False)
    manual_seed_all = staticmethod(lambda seed: None)
    synchronize = staticmethod(lambda *device: SIM.wait())
    get_device_properties = staticmethod(lambda *device: Properties)
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16])


def _empty(size: Any, *, dtype: Any = None, memory_format: Any = None, **options: Any) -> SimTensor:
    return SimTensor(torch.empty(size, dtype=dtype or torch.get_default_dtype(), memory_format=memory_format))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **options: Any) -> SimTensor:
    return SimTensor(torch.empty_strided(size, stride, dtype=dtype or torch.get_default_dtype()))


def _stats(*device: Any) -> dict[str, Any]:
    counted = {"all": {"current": SIM.allocated, "peak": SIM.peak}}
    return {"allocated_bytes": counted, "reserved_bytes": {"all": {"current": SIM.peak, "peak": SIM.peak}}}


def install() -> torch.library.Library:
    """Make `sim` the accelerator of this process; keep what is returned alive."""
    _setup_privateuseone_for_python_backend("sim", backend_module=Module)
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    torch._C._accelerator_synchronizeDevice = lambda *device: None if SIM.deaf else SIM.wait()
    torch._C._accelerator_isAllocatorInitialized = lambda *device: True
    torch._C._accelerator_getDeviceStats = _stats
    if SIM.virtual:
        time.perf_counter_ns = SIM.now_ns
    return library
