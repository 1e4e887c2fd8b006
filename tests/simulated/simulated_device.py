"""A simulated accelerator for PyTorch, named `sim`: asynchronous, with costs and memory that are known, and faults.

Every operation runs at once on a CPU tensor and books its cost on the device's time line; only a
synchronisation, or a copy to the host, waits for that time line. So a harness that forgets to wait
measures the host, and one that waits measures a truth that is known.

Settings are JSON in MLDYNO_SIM. A rate of 0 holds nothing up.
  kernel      s that an operation takes on the device, besides
  rate        floating-point operations a second of products, convolutions and attention, or
  bandwidth   B/s of the tensors that go in and come out, whichever takes longer
  half        how many times as fast it multiplies numbers of 16 bits
  transfer    B/s between host and device
  issue       s that the host takes to issue an operation (fake time)
  cpu         {"kernel": s, "rate": ..., "half": ..., "bandwidth": ...} for operations on the CPU (fake time).
              Both sides of a comparison are on one clock then, and where they cross is known.
  virtual     true: time is virtual, and exact
  devices     how many there are; 0: none
  capacity    B of each; segment: B in which its allocator reserves them
  autocast    "works", or "deaf": it is on and does nothing
  refuses     types that the device lacks, such as ["float64"]
  hidden      every so many operations one waits for the device, as .item() in a step does
  deaf        true: torch's own synchronisation does not wait, as if the harness forgot it
  lost_after  operations after which the device is lost: all that follow fail
  gone        a file that is made when the device is lost; a process that starts after that finds no device
  spoils      relative error of every product: 0.05 makes them 5 % too large
  queue       operations in flight, from which on the host waits: 1,024 as on CUDA
  falls_back  operations that the device lets the CPU do, and says so, as MPS may be allowed to
  astray      operations whose results come out on the CPU, such as ["aten::addmm"]; with "aten::empty_strided"
              nothing reaches the device, and everything is silently computed on the CPU

Works for modules, backward, optimisers, convolutions, attention, autocast, gradient scaling; not for several
streams, LSTM's fused cell or pinned memory.
"""

from __future__ import annotations

import sys
import time
import types
import warnings
import weakref
from collections.abc import Callable
from math import prod
from typing import Any

import simulated_autocast  # type: ignore[import-not-found]
import torch
from simulated_costs import changed, composite, computes, is_product, size, tensors  # type: ignore[import-not-found]
from simulated_state import SIM, set_up  # type: ignore[import-not-found]
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

aten = torch.ops.aten
CPU = torch.device("cpu")
READS = (aten._local_scalar_dense.default, aten.equal.default, aten.nonzero.default)
MIXES = (aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default)  # these take indices of the host


class SimTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor that says it lies on `sim` and keeps its values in a CPU tensor."""

    _cpu: Any

    @staticmethod
    def __new__(cls, cpu: Any, index: int) -> SimTensor:
        storage = cpu.untyped_storage()
        SIM.check_type(cpu.dtype)
        SIM.hold(index, storage)
        made = torch.Tensor._make_wrapper_subclass(
            cls, cpu.size(), strides=cpu.stride(), storage_offset=cpu.storage_offset(), dtype=cpu.dtype,
            device=torch.device("sim", index), requires_grad=False,
        )  # fmt: skip
        made._cpu = cpu
        weakref.finalize(made, SIM.release, index, storage._cdata, storage.nbytes())
        return made  # type: ignore[no-any-return]

    def __repr__(self, **options: Any) -> str:
        return f"Sim({self._cpu!r})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if composite(func):
            return func.decompose(*args, **kwargs)  # in inference mode these come here whole
        if func is aten._to_copy.default and _crosses(args[0], kwargs.get("device")):
            return _brought(func, args[0], kwargs)
        if func is aten.copy_.default:
            return _copy(func, *args, **kwargs)
        given = tensors((args, kwargs))
        index = _place(func, given, kwargs.get("device"))
        if func._schema.name in SIM.falls_back:
            warnings.warn(
                f"The operator '{func._schema.name}' is not currently supported on the SIM backend and will fall back "
                "to run on the CPU.", stacklevel=1,
            )  # fmt: skip
        out = func(*changed(_inside, args), **changed(_inside, kwargs))
        if func in READS:
            SIM.launch(index, SIM.costs.of(func, args, kwargs, out))
            SIM.wait(index)
            return out
        fresh = computes(func)
        if SIM.spoils and is_product(func):
            out.mul_(1 + SIM.spoils)
        if fresh:
            SIM.launch(index, SIM.costs.of(func, args, kwargs, out))
        known = {id(x._cpu): x for x in given if isinstance(x, SimTensor)}
        lands = func._schema.name not in SIM.astray and _stays(kwargs.get("device"))

        def outside(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            return known[id(x)] if id(x) in known else _wrapped(x, index, fresh, known) if lands else x

        return changed(outside, out)


def _wrapped(x: Any, index: int, fresh: bool, known: dict[int, Any]) -> SimTensor:
    """A result on the device; a view of a tensor that may be changed is one too, even in inference mode."""
    if fresh or not torch.is_inference_mode_enabled():
        return SimTensor(x, index)
    with torch.inference_mode(all(tensor.is_inference() for tensor in known.values())):
        return SimTensor(x, index)


def _inside(x: Any) -> Any:
    """The CPU side of an argument."""
    if isinstance(x, SimTensor):
        return x._cpu
    return CPU if isinstance(x, torch.device) and x.type == "sim" else x


def _index(device: Any) -> int:
    """The number of a device; the current one where none is said."""
    return SIM.current if device is None or device.index is None else int(device.index)


def _place(func: Any, given: list[Any], asked: Any) -> int:
    """On which device an operation on these tensors runs; where they lie on several, it is refused, as by PyTorch."""
    on_device = [tensor for tensor in given if isinstance(tensor, SimTensor)]
    homes = dict.fromkeys(str(tensor.device) for tensor in on_device)
    if not SIM.astray and func not in MIXES:
        homes |= dict.fromkeys("cpu" for tensor in given if not isinstance(tensor, SimTensor) and tensor.dim())
    if len(homes) > 1:
        both = " and ".join([*homes][:2])
        SIM.fail(
            RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {both}!")
        )
    return _index(asked if asked is not None and asked.type == "sim" else on_device[0].device)


def _stays(device: Any) -> bool:
    """Whether a result with that device asked for lies on this one."""
    return device is None or device.type == "sim"


def _crosses(source: Any, device: Any) -> bool:
    """Whether a copy of a tensor leaves its device."""
    return device is not None and (device.type != "sim" or _index(device) != source.device.index)


def _transferred(index: int, moved: Any) -> None:
    """Book the way of a tensor between host and device."""
    SIM.launch(index, SIM.kernel + (size(moved) / SIM.transfer if SIM.transfer else 0.0))


def _brought(func: Any, source: Any, kwargs: Any) -> Any:
    """A copy on the host, for which the host waits, or on another device."""
    made = func(source._cpu, **changed(_inside, kwargs))
    _transferred(source.device.index, made)
    SIM.wait(source.device.index)
    return made if kwargs["device"].type != "sim" else SimTensor(made, _index(kwargs["device"]))


def _copy(func: Any, target: Any, source: Any, non_blocking: bool = False) -> Any:
    func(_inside(target), _inside(source))
    here = target if isinstance(target, SimTensor) else source
    if isinstance(target, SimTensor) and isinstance(source, SimTensor):
        SIM.launch(here.device.index, SIM.costs.of(func, (target, source), {}, None))
        return target
    _transferred(here.device.index, target)
    if not non_blocking or not isinstance(target, SimTensor):
        SIM.wait(here.device.index)
    return target


class HostCosts(TorchDispatchMode):  # type: ignore[misc]
    """Lets fake time pass for what is computed on the CPU."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch imports its compiler, and goes through it at every operation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        made = func(*args, **kwargs)
        if computes(func) and {tensor.device.type for tensor in tensors((args, kwargs, made))} == {"cpu"}:
            SIM.virtual_now += SIM.cpu_costs.of(func, args, kwargs, made)
        return made


class Event:
    """An event on the time line of the device that is current when it is recorded."""

    def __init__(self, enable_timing: bool = False, **options: Any) -> None:
        self.at, self.index = 0.0, 0

    def record(self, stream: Any = None) -> None:
        self.index = SIM.current
        self.at = max(SIM.now(), SIM.line(self.index).busy_until)

    def synchronize(self) -> None:
        SIM.wait(self.index)

    def query(self) -> bool:
        return bool(SIM.now() >= self.at)

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1e3


class Properties:
    """What torch.sim says of a device."""

    name = "simulated accelerator"
    total_memory = SIM.capacity


def _synchronize(device: Any = None) -> None:
    SIM.wait(_index(device) if device is None or isinstance(device, torch.device) else int(device))


def _choose(index: int) -> int:
    """Make a device the current one; gives the one that was."""
    before, SIM.current = SIM.current, int(index) if index >= 0 else SIM.current
    return int(before)


class Current:
    """Makes a device the current one for a while."""

    def __init__(self, device: Any) -> None:
        self.index = _index(device)

    def __enter__(self) -> None:
        self.before = _choose(self.index)

    def __exit__(self, *error: object) -> None:
        _choose(self.before)


class Module:
    """torch.sim."""

    Event = Event
    device = Current
    is_initialized = staticmethod(lambda: True)
    is_available = staticmethod(lambda: SIM.devices > 0)
    current_device = staticmethod(lambda: SIM.current)
    set_device = staticmethod(_choose)
    device_count = staticmethod(lambda: SIM.devices)
    _is_in_bad_fork = staticmethod(lambda: False)
    manual_seed_all = staticmethod(lambda seed: None)
    synchronize = staticmethod(_synchronize)
    get_device_properties = staticmethod(lambda *device: Properties)
    get_amp_supported_dtype = staticmethod(
        lambda: [dtype for dtype in simulated_autocast.HALF if str(dtype).removeprefix("torch.") not in SIM.refuses]
    )


def _made(operation: str, device: Any, wanted: int, make: Callable[[], Any]) -> Any:
    """An empty tensor of so many B on a device, or on the CPU where it goes astray."""
    index = _index(device)
    SIM.check_present()
    if index >= SIM.devices:
        SIM.fail(RuntimeError(f"SIM error: invalid device ordinal {index}"))
    SIM.check_room(index, wanted)
    return make() if operation in SIM.astray else SimTensor(make(), index)


def _empty(shape: Any, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **options: Any) -> Any:
    kind = dtype or torch.get_default_dtype()
    make = lambda: torch.empty(shape, dtype=kind, memory_format=memory_format)  # noqa: E731
    return _made("aten::empty", device, prod(shape) * kind.itemsize, make)


def _empty_strided(shape: Any, stride: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    kind = dtype or torch.get_default_dtype()
    places = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True)) if prod(shape) else 0
    make = lambda: torch.empty_strided(shape, stride, dtype=kind)  # noqa: E731
    return _made("aten::empty_strided", device, places * kind.itemsize, make)


def _told_after(run_backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass that raises at its end what went wrong on the device."""

    def run(*given: Any, **named: Any) -> Any:
        SIM.pending = None
        result = run_backward(*given, **named)
        SIM.raise_pending()
        return result

    return run


def _speak_for_the_accelerator() -> None:
    """What torch.accelerator asks of C++, where a device made in Python can't answer."""
    own = torch._C
    own._accelerator_synchronizeDevice = lambda index: None if SIM.deaf else SIM.wait(index)
    own._accelerator_getDeviceIndex = lambda: SIM.current
    own._accelerator_setDeviceIndex = own._accelerator_exchangeDevice = own._accelerator_maybeExchangeDevice = _choose
    own._accelerator_isAllocatorInitialized = lambda: True
    own._accelerator_getDeviceStats = SIM.statistics
    own._accelerator_resetPeakStats = SIM.reset_peaks
    own._accelerator_emptyCache = SIM.empty_cache
    own._accelerator_getMemoryInfo = lambda index: (SIM.capacity - SIM.line(index).reserved, SIM.capacity)


def _leave_out(name: str, **parts: Any) -> None:
    """Put a module of a few parts in the place of one that PyTorch would import, for a second, to ask little of it."""
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(parts)
    parent, _, own = name.rpartition(".")
    setattr(sys.modules[parent], own, sys.modules[name])


ALIVE: list[Any] = []  # registrations, which end with their objects
real_clock = time.perf_counter_ns


def install() -> None:
    """Make `sim` the accelerator of this process."""
    _leave_out("torch.distributed.tensor", DTensor=type("DTensor", (torch.Tensor,), {}))
    _leave_out("torch._dynamo", disable=lambda function, *how, **more: function, graph_break=lambda: None)
    _setup_privateuseone_for_python_backend("sim", backend_module=Module)
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", _empty, "PrivateUse1")
    library.impl("empty_strided", _empty_strided, "PrivateUse1")
    _speak_for_the_accelerator()
    torch.autograd._engine_run_backward = _told_after(torch.autograd._engine_run_backward)
    time.perf_counter_ns = lambda: SIM.now_ns() if SIM.virtual else real_clock()
    ALIVE.extend([library, simulated_autocast.register(library)])
    begin()


def begin() -> None:
    """Begin anew with the settings of this process, which may have been forked from one with others."""
    set_up()
    Properties.total_memory = SIM.capacity
    # PyTorch takes a device made in Python for the only one of its kind, and has no thread for another's gradients.
    torch._C._set_multithreading_enabled(SIM.devices <= 1)
    if SIM.virtual and SIM.cpu is not None:
        ALIVE.append(HostCosts().__enter__())
