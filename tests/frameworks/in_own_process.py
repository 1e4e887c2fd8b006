"""What one framework computes, seen from inside a process of its own: `python in_own_process.py jax` prints JSON.

Several frameworks in one process fight for threads, and some crash; in the product each has a process of its own too.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import cache
from typing import Any

from mldyno import plugins
from mldyno.datasets import Opened
from mldyno.frameworks import Unsupported
from mldyno.records import Case
from mldyno.workloads import Batch, Workload, gpt2

QUICK = ("mlp", "mnist-cnn", "cifar10-cnn", "resnet18-cifar", "attention", "bert-tiny", "lstm")
LEARNING = ("mlp", "mnist-cnn", "bert-tiny")
EXPORTED = ("onnxruntime", "openvino")
SIDE = 24  # pixels of the images for ResNet-18 here, instead of 64: a seventh of the time, all layers the same


def small_images(case: Case, draws: Any) -> Batch:
    count = case.batch or 1
    return draws.numbers((count, 3, SIDE, SIDE)), draws.labels((count,), 10)


def definition_of(workload: str) -> Workload:
    definition = plugins.workload(workload)
    if workload != "resnet18-cifar" or definition.portable is None:
        return definition
    return replace(definition, portable=replace(definition.portable, examples=small_images))


def opened(framework: str, workload: str, mode: str, **axes: Any) -> Any:
    sizes = {"batch": 2, "seq": 8 if definition_of(workload).seq else None}
    return program_of(Case(workload, framework=framework, mode=mode, **{**sizes, **axes}))  # type: ignore[arg-type]


@cache
def program_of(case: Case) -> Any:
    its = plugins.framework(case.framework)
    return its.open(case, its.version_of(definition_of(case.workload)))


def proofs(framework: str, workloads: tuple[str, ...], modes: tuple[str, ...]) -> dict[str, list[float]]:
    return {
        f"{workload} {mode}": opened(framework, workload, mode).proof(definition_of(workload).portable)
        for workload in workloads
        for mode in modes
    }


def learned(framework: str, workload: str) -> list[float]:
    """The loss of the first step, and the one after twelve more."""
    program = opened(framework, workload, "train", batch=8)
    program.run(1)
    program.synchronize()
    first = program.first_losses()["loss"]
    for _ in range(12):
        program.check_step()
    return [first, program.losses()["loss"]]


def placed(framework: str, placement: str) -> str:
    program = opened(framework, "mlp", "infer", placement=placement)
    program.run(3)
    program.synchronize()
    return str(program.actual_device())


class Few:
    """A small data set in memory, as the readers give one: images of one grey, which is their label."""

    def __init__(self, count: int) -> None:
        self.count, self.shape = count, (1, 28, 28)

    def pixels(self, index: int) -> bytes:
        return bytes([25 * (index % 10)]) * 784

    def label(self, index: int) -> int:
        return index % 10


def from_disk(framework: str) -> dict[str, Any]:
    """A training whose batches come from a data set: phases, what a pixel became, traces of two epochs, accuracy."""
    data: Any = Opened("few", "synthetic", Few(130), Few(40), (0.1,), (0.3,))  # type: ignore[arg-type]
    definition, its = plugins.workload("mnist-cnn"), plugins.framework(framework)
    case = Case("mnist-cnn", framework=framework, mode="train", batch=16, placement="loader")
    program: Any = its.open(case, its.version_of(definition), data)
    program.run(3)
    first = program.first_losses()
    program.prepare_phases()
    prepared = list(program.steady_counters())
    for name in ("data", "epoch", "epoch"):
        program.run_phase(name)
        program.synchronize()
    inputs, targets = program.fixed
    return {
        "phases": dict(program.phases), "traces": [prepared, list(program.steady_counters())],
        "labels": program.backend.sample_values(targets, 16),
        "pixels": program.backend.sample_values(inputs, 16 * 784)[3 * 784],
        "losses": [first["loss"], program.losses()["loss"]], "accuracy": program.facts["accuracy"],
    }  # fmt: skip


def in_precision(framework: str, precision: str, mode: str) -> list[Any]:
    program = opened(framework, "mlp", mode, precision=precision)
    program.run(1)
    program.synchronize()
    return [program.precision_flaw(), program.facts["products_in"], *program.error_vs_reference()]


def traced(framework: str) -> list[list[int]]:
    """The counters after three steps, and after a batch of another shape."""
    program = opened(framework, "mlp", "infer")
    program.run(3)
    program.synchronize()
    before = list(program.steady_counters())
    portable: Any = plugins.workload("mlp").portable
    larger = portable.batch(replace(program.case, batch=3), 0)[0]
    program.backend.infer(program.backend.place(program.framework.array(larger, program.case)))
    return [before, list(program.steady_counters())]


def refused(framework: str, *case: str, **axes: Any) -> str:
    try:
        opened(framework, *case, **axes)
    except Unsupported as error:
        return str(error)
    return ""


def generated(framework: str) -> dict[str, int]:
    """The phases of GPT-2, each once and all in a step; of a narrow one with two layers, which takes seconds less."""
    gpt2.SHAPE = replace(gpt2.SHAPE, layers=2, width=96, heads=2)
    program = opened(framework, "gpt2", "infer", batch=1, seq=8)
    for name in program.phases:
        program.run_phase(name)
        program.synchronize()
    program.run(1)
    program.synchronize()
    return dict(program.phases)


def main(framework: str) -> dict[str, Any]:
    its = plugins.framework(framework)
    its.start()
    if framework == "torch":
        return {"proofs": proofs(framework, QUICK, ("infer", "train"))}
    if framework == "numpy":
        own = {"refused": refused(framework, "mnist-cnn", "infer"), "learned": {"mlp": learned(framework, "mlp")}}
        return {**own, "proofs": proofs(framework, ("mlp",), ("infer", "train"))}
    common = {"params": opened(framework, "bert-tiny", "infer").params,
              "placed": [placed(framework, placement) for placement in ("device", "host", "roundtrip")]}  # fmt: skip
    if framework in EXPORTED:
        some = ("mlp", "mnist-cnn", "bert-tiny")
        off = opened(framework, "mlp", "infer").error_vs_reference()
        return {**common, "proofs": proofs(framework, some, ("infer",)), "off": off,
                "refused": refused(framework, "mlp", "train")}  # fmt: skip
    facts = {**common, "proofs": proofs(framework, QUICK, ("infer", "train")), "phases": generated(framework)}
    facts["learned"] = {name: learned(framework, name) for name in LEARNING}
    facts["from_disk"] = from_disk(framework)
    if framework == "mlx":
        return {**facts, "refused": refused(framework, "mlp", "infer", precision="bf16")}
    kinds = [(precision, mode) for precision in ("bf16", "amp-bf16") for mode in ("train", "infer")]
    facts["precisions"] = {" ".join(kind): in_precision(framework, *kind) for kind in kinds}
    facts["traced"] = traced(framework)
    if framework == "tensorflow":
        program = opened(framework, "mlp", "train", compile=True)
        program.run(2)
        facts["compiled"] = program.error_vs_reference()
    return facts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])))
