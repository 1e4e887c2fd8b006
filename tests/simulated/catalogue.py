"""Every workload of the catalogue on the simulated device, in every mode and placement; prints the outcomes as JSON.

Networks are narrow and batches small, so that all of it takes seconds. With the argument `whole` they have their own
sizes (`make catalogue`).
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from abilities import judged, settings  # type: ignore[import-not-found]

from mldyno import datasets, plugins
from mldyno.axes import PRECISIONS
from mldyno.messages import DataSource
from mldyno.worker import peaks, session
from mldyno.workloads import bert, encoder, gpt2, images, lstm, resnet, venv_ppo

SMALL_BERT = {"layers": 1, "width": 32, "heads": 2, "inner": 64, "vocabulary": 100}
FEW_BLOCKS = {"counts": (1, 1, 1, 1)}
NARROW: tuple[tuple[Any, dict[str, Any]], ...] = (
    (bert.TINY, SMALL_BERT), (bert.BASE, SMALL_BERT), (bert.LARGE, SMALL_BERT),
    (encoder, {"VOCABULARY": 100, "WIDTH": 32, "LAYERS": 1, "HEADS": 2, "INNER": 64}),
    (gpt2.SHAPE, {"layers": 1, "width": 32, "heads": 2}), (gpt2.PORTABLE, {"decoded": 2}),
    (images, {"CHANNELS": (3, 4, 4, 4, 4, 4)}),
    (lstm, {"LAYERS": 1}),
    (resnet, {"CHANNELS": (4, 4, 8, 8)}),
    (resnet.RESNET18, FEW_BLOCKS), (resnet.RESNET18_CIFAR, FEW_BLOCKS), (resnet.RESNET50, FEW_BLOCKS),
    (venv_ppo, {"ENVIRONMENTS": 16, "HORIZON": 3, "POLICY_UPDATES": 1, "WIDTH": 16, "LAYERS": 2, "ROLLOUT": 2,
                "ENVIRONMENT_EPOCHS": 1, "POLICY_EPOCHS": 1, "GENERATOR_UPDATES": 1, "DISCRIMINATOR_UPDATES": 1}),
)  # fmt: skip
"""Sizes of networks, by the module or the shape that has them."""
TOO_LARGE = ("cnn-224",)  # has the layers of cifar10-cnn, and larger images
IN_EVERY_PRECISION = ("mlp", "mnist-cnn", "bert-tiny", "matmul", "copy")
BATCH = {"venv-ppo": 16, "matmul": 64, "copy": 1}
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


class Items:
    """A part of a data set, in memory."""

    count = 24

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def pixels(self, index: int) -> bytes:
        return bytes(index * step % 256 for step in range(self.shape[0] * self.shape[1] * self.shape[2]))

    def label(self, index: int) -> int:
        return index % 10


def open_set(name: str, **source: Any) -> datasets.Opened:
    part: Any = Items(SHAPES[name])
    channels = SHAPES[name][0]
    return datasets.Opened(name, "synthetic", part, part, (0.5,) * channels, (0.3,) * channels)


def narrow() -> None:
    """Make the networks narrow."""
    for sized, sizes in NARROW:
        vars(sized).update(sizes)
    wide = plugins.workload
    plugins.workload = lambda name: replace(wide(name), own=True)  # its parameters are those that it has


def cases(names: Iterable[str], batch: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the axes of each case, with that batch where the workload has no other."""
    for name in names:
        workload = plugins.workload(name)
        shared = {"batch": BATCH.get(name, batch)} | ({"seq": 8} if workload.seq else {})
        for mode in workload.modes if "torch" in workload.build else ():
            for placement in plugins.framework("torch").placements:
                yield name, {"mode": mode, "placement": placement, **shared}
            for precision in PRECISIONS if name in IN_EVERY_PRECISION and mode == "infer" else ():
                yield name, {"mode": mode, "precision": precision, **shared}


def outcome(name: str, axes: dict[str, Any]) -> dict[str, Any]:
    """What a worker makes of a case."""
    data = plugins.workload(name).data if axes.get("placement") == "loader" else None
    source = None if data is None else DataSource(data, "synthetic", "")
    found = judged(name, 0.0, 1, source, **axes)
    parts = ("status", "reason", "checks", "device_seen")
    return {"workload": name, **axes, **{part: found[part] for part in parts}}


if __name__ == "__main__":
    plugins.framework("torch").start()
    gc.freeze()
    gc.freeze = gc.unfreeze = lambda: None
    vars(session)["open_set"] = open_set
    peaks.exceeded, peaks.copy_rate = (lambda *_: (1e15, False)), (lambda *_: 1e12)  # which are tested elsewhere
    names, batch = plugins.names("workloads"), 8
    if sys.argv[1:] != ["whole"]:
        gc.collect = lambda *_: 0  # it takes longer than a narrow case
        narrow()
        names, batch = [name for name in names if name not in TOO_LARGE], 2
    with settings(kernel=1.0):  # a step is long in fake time, so that few are made
        sys.stdout.write(json.dumps([outcome(name, axes) for name, axes in cases(names, batch)]))
