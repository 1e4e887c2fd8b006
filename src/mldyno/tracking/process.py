"""Facts of the process that a loop runs in: loaded frameworks, device, ranks, name, items of a batch.

Rule: import nothing and initialise nothing. A framework or device that the process has not used yet does not count.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from mldyno.axes import AXIS, DEVICE_KINDS, TRACKED
from mldyno.printable import name_from, printable
from mldyno.records import Device, Software, recorded_environment

RECORDED_PACKAGES = (
    "torch", "tensorflow", "jax", "mlx", "mlx.core", "keras", "numpy", "lightning", "pytorch_lightning", "transformers",
    "accelerate",
)  # fmt: skip
LONGEST_RANK_WAIT_S = 20.0  # for the times of other ranks

Wait = Callable[[], object]


@dataclass(frozen=True)
class Place:
    """The device of a loop, where that is visible, and what waits for it."""

    device: str = "cpu"
    wait: Wait | None = None


def place() -> Place:
    """Return the device that this process uses: the accelerator of a framework that it has loaded and begun to use."""
    places = []
    for name, look in (("torch", _of_torch), ("mlx.core", _of_mlx), ("jax", _of_jax), ("tensorflow", _of_tensorflow)):
        if name in sys.modules:
            with suppress(Exception):  # another version: treat it as unused
                used = look(sys.modules[name])
                places += [used] if used is not None else []
    device = next((each.device for each in places if each.device != "cpu"), "cpu")
    waits = [each.wait for each in places if each.wait is not None]
    return Place(device, waits[0] if len(waits) == 1 else (lambda: [wait() for wait in waits]) if waits else None)


def _named(kind: str, index: int = 0) -> str:
    return str(AXIS["device"].parse(f"{kind}:{index}")) if kind in DEVICE_KINDS else f"{kind}:{index}"


def _of_torch(torch: Any) -> Place | None:
    accelerator = torch.accelerator
    if not accelerator.is_available():
        return None
    kind = accelerator.current_accelerator().type
    begun = getattr(getattr(torch, kind, None), "is_initialized", None)
    # Metal's own figure for the process need not be 0 without tensors.
    if (begun is not None and not begun()) or (kind == "mps" and not torch.mps.current_allocated_memory()):
        return None
    return Place(_named(kind, accelerator.current_device_index()), accelerator.synchronize)


def _of_mlx(mx: Any) -> Place:
    """Return the device of MLX; a loop may use both devices, and the CPU works asynchronously, too."""
    from mldyno.frameworks.mlx import gpu_name, has_gpu

    devices = [mx.cpu, mx.gpu] if has_gpu(mx) else [mx.cpu]
    name = gpu_name(mx) if mx.default_device().type == mx.DeviceType.gpu else "cpu"
    return Place(name, lambda: [mx.synchronize(mx.default_stream(device)) for device in devices])


def _of_jax(jax: Any) -> Place | None:
    if not sys.modules["jax._src.xla_bridge"]._backends:  # asking for devices would begin to use them
        return None
    from mldyno.frameworks.jax import device_name  # only here, where the process has loaded JAX

    return Place(device_name(jax.devices()[0]), lambda: jax.block_until_ready(jax.live_arrays()))


def _of_tensorflow(tensorflow: Any) -> Place | None:
    """Return the GPUs of TensorFlow with something in their memory; its CPU is done when a call returns."""
    context = sys.modules["tensorflow.python.eager.context"].context()
    if not context._initialized:
        return None
    from mldyno.frameworks.tensorflow import device_name, peak_memory, reading_back

    names = [gpu.name for gpu in context.list_logical_devices("GPU")]
    used = [name for name in names if peak_memory(tensorflow, name) != 0]
    waits = [reading_back(tensorflow, name) for name in used]
    return Place(device_name(tensorflow, used[0]), lambda: [wait() for wait in waits]) if used else None


def devices(name: str) -> list[Device]:
    """Return the device of a loop, with what PyTorch says about it; none for the CPU."""
    if name == "cpu":
        return []
    with suppress(Exception):
        from mldyno.frameworks.torch.devices import list_devices  # on a GPU only: it loads all that a framework needs

        return [device for device in list_devices(sys.modules["torch"]) if device.name == name]
    return [Device(name, TRACKED)]


def software() -> Software:
    """Return the interpreter, the versions of loaded packages, and recorded settings."""
    loaded = {
        name.removesuffix(".core"): str(getattr(sys.modules[name], "__version__", ""))
        for name in RECORDED_PACKAGES if name in sys.modules
    }  # fmt: skip
    threads = None
    with suppress(Exception):
        threads = int(sys.modules["torch"].get_num_threads()) if "torch" in loaded else None
    versions = {name: printable(version) for name, version in loaded.items() if version}
    return Software(
        python=platform.python_version(), framework=TRACKED, versions=versions, threads=threads,
        env=recorded_environment(),
    )  # fmt: skip


def script_name() -> str:
    """Return the program's name: its file without the path, its module, or `notebook`."""
    if interactive():
        return "notebook"
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:  # python -m package.module
        return name_from(str(spec.name).removesuffix(".__main__"))
    return name_from(os.path.basename(file)) if file else "python"


def interactive() -> bool:
    """Return whether a user types at this process, so that it does not end when a loop does."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return hasattr(sys, "ps1") or (shell is not None and shell() is not None)


@dataclass(frozen=True)
class Ranks:
    """The ranks of a torch.distributed job, of which this process is one, and the store that they share.

    Not their process group: a program may have ended that long before it ends itself.
    """

    rank: int
    world: int
    shared: Any

    def tell(self, key: str, text: str) -> None:
        self.shared.set(f"mldyno/{key}/{self.rank}", text)

    def hear(self, key: str) -> dict[int, str]:
        """Return the texts of the other ranks, within a time; a rank that ended without one has none."""
        texts, ends = {}, time.monotonic() + LONGEST_RANK_WAIT_S
        for rank in range(1, self.world):
            name, left = f"mldyno/{key}/{rank}", max(0.1, ends - time.monotonic())
            with suppress(Exception):
                self.shared.wait([name], timedelta(seconds=left))
                texts[rank] = self.shared.get(name).decode()
        return texts


def ranks() -> Ranks | None:
    """Return the job that this process is a rank of; None where it is by itself."""
    distributed = sys.modules.get("torch.distributed")
    with suppress(Exception):
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            world = distributed.get_world_size()
            if world > 1:
                shared = distributed.distributed_c10d._get_default_store()
                return Ranks(distributed.get_rank(), world, shared)
    return None


MOST_BATCHES_COUNTED = 64  # batches that show how many items one has
DEEPEST = 8  # levels of a nested batch that are looked into

Items = int | Callable[[Any], float] | None


def items_of(batch: Any, depth: int = 0) -> int | None:
    """Return the length of the first tensor within tuples, lists, mappings and objects; None where there is none."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if depth >= DEEPEST or isinstance(batch, str | bytes):
        return None
    if isinstance(batch, Mapping):
        parts: Any = batch.values()
    elif isinstance(batch, list | tuple):
        parts = batch
    else:
        parts = getattr(batch, "__dict__", {}).values()
    lengths = (items_of(part, depth + 1) for part in parts)
    return next((length for length in lengths if length), None)


class ItemCount:
    """Count the items of batches: of the first ones by their first tensor, of all where the user has a function."""

    def __init__(self, items: Items) -> None:
        self.items = items
        self.counts: list[float] = []
        self.total, self.batches = 0.0, 0

    def look_at(self, batch: Any) -> bool:
        """Count a batch; return whether more batches are needed."""
        try:
            if callable(self.items):
                self.total += float(self.items(batch))
                self.batches += 1
                return True
            length = items_of(batch) if self.items is None else self.items
        except Exception:  # a batch may be anything
            return False
        if length is None:
            return False
        self.counts.append(length)
        return self.items is None and len(self.counts) < MOST_BATCHES_COUNTED

    @property
    def per_step(self) -> int | None:
        """Items of a step: the user's number or mean, else the median, since the last batch may be short."""
        if isinstance(self.items, int):
            return self.items
        if self.batches:
            return round(self.total / self.batches) or None
        return round(sorted(self.counts)[len(self.counts) // 2]) if self.counts else None
