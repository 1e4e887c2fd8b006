"""Records of a store that has everything in it, made, not measured: what a machine holds after some weeks of use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.views.report.made_records import BENCH, met, record

from mldyno.analysis.scores import reference
from mldyno.axes import unstated
from mldyno.records import Case, Device, Machine, Record, Run, Series, Software, seal

HERE = replace(BENCH, name="AMD EPYC, 2 cores, 24 GB", cpu="AMD EPYC", cores=2, memory=24 << 30,
               devices=(Device("cpu", "torch", "AMD EPYC"),), virtualised=True)  # fmt: skip
ADA = replace(BENCH, name="Ada's M3 laptop", cpu="Apple M3", arch="arm64", system="Darwin")
GPT, OTHER_GPT, ONNX, HF = "gpt.py@26d20ce6", "gpt.py@8f01aa2c", "gpt.onnx@11aa22bb", "hf:distilbert@0a1b2c3d"
VERSIONS = {"torch": {"torch": "2.13"}, "jax": {"jax": "0.9"}, "onnxruntime": {"onnxruntime": "1.30"},
            "openvino": {"openvino": "2026.1"}}  # fmt: skip
LONG = "python train.py --data-directory datasets/imagenet --epochs 90 --batch-size 256 --learning-rate 0.1 --workers"


def made(case: Case, step: float, run: str, machine: Machine = HERE, **facts: Any) -> Iterator[Record]:
    """Three processes of a case in a run."""
    for number in range(3):
        one = record(case, step, machine, number, **facts)
        software = Software("0.1.0", "3.11", case.framework, VERSIONS.get(case.framework, {}), 2)
        known = {name: fact for name, fact in one.facts.items() if name != "items_per_step" or not case.own_command}
        yield seal(replace(one, run=Run(run, repeat=number), software=software, facts=known))


def paired(cases: dict[Case, float], run: str, **facts: Any) -> Iterator[Record]:
    """Cases of one run that took turns."""
    for case, step in cases.items():
        yield from made(case, step, run, **facts)
        turns = met(case, step, 1, HERE)
        yield seal(replace(turns, run=replace(turns.run, id=run)))


def commands() -> Iterator[Record]:
    """Commands of three runs; two of one run took turns."""
    for run, times in (("c1", {"sleep 0.1": 0.1}), ("c2", {"ls /": 1e-3}),
                       ("c3", {f"{LONG} 4": 2.0, f"{LONG} 8": 1.0})):  # fmt: skip
        cases = {replace(unstated(words, "command"), device="cpu"): time for words, time in times.items()}
        yield from paired(cases, run, end_to_end=True)


def own_models() -> Iterator[Record]:
    """Two versions of a file, with one thread and as usual; a model of Hugging Face; an ONNX file in two runtimes."""
    for workload, step in ((GPT, 20e-3), (OTHER_GPT, 22e-3)):
        for threads, times in ((None, 1.0), (1, 1.6)):
            for mode, more in (("train", 3.0), ("infer", 1.0)):
                case = Case(workload, mode=mode, batch=8, seq=64, threads=threads)  # type: ignore[arg-type]
                yield from made(case, step * times * more, f"gpt-{threads}", item="token", items_per_step=512)
    yield from made(Case(HF, mode="infer", batch=4, seq=128), 30e-3, "hf", item="token", items_per_step=512)
    for batch in (8, 16):
        runtimes = {Case(ONNX, framework=name, mode="infer", batch=batch): batch * step
                    for name, step in (("onnxruntime", 6e-4), ("openvino", 4e-4))}  # fmt: skip
        yield from paired(runtimes, f"onnx-{batch}", proof="1.0 2.0")


def catalogue() -> Iterator[Record]:
    """The set that makes a score in two frameworks; threads, precisions, ranks and energy beside it."""
    for framework, times in (("torch", 1.0), ("jax", 0.8)):
        for case, rate in reference().rates.items():
            yield from made(replace(case, framework=framework), times / rate / 1.1, f"set-{framework}", proof="1.0 2.0")
    frameworks = {Case("mlp", framework=name, mode="infer", batch=512): step
                  for name, step in (("torch", 9e-3), ("jax", 5e-3), ("tensorflow", 12e-3))}  # fmt: skip
    yield from paired(frameworks, "frameworks", proof="1.0 2.0")
    mlp = Case("mlp", mode="infer", batch=128)
    yield from made(replace(mlp, threads=1), 4e-3, "threads")
    precisions = {Case("mlp", mode="infer", batch=128, precision=name): step  # type: ignore[arg-type]
                  for name, step in (("bf16", 2e-3), ("fp16", 5e-3))}  # fmt: skip
    yield from paired(precisions, "precisions")
    yield from made(Case("mlp", mode="train", batch=128, ranks=2), 8e-3, "ranks", batch_per_rank=128, batch_in_all=256)
    watts: dict[str, Any] = {"energy_scope": "package", "energy_by": "rapl", "energy_method": "counter"}
    for one in made(Case("mlp", mode="train", batch=64), 6e-3, "energy", **watts):
        joules = (Series("energy", "J", (0.2,) * 8), Series("power", "W", (30.0,) * 8))
        yield seal(replace(one, series=(*one.series, *joules)))


def loops(machine: Machine = HERE) -> Iterator[Record]:
    """Loops of the user's own programs."""
    for name, step in (("train", 50e-3), ("val", 20e-3)):
        case = replace(unstated(name, "tracked"), device="cpu", batch=32)
        yield from made(case, step, f"loop-{name}", machine, items_per_step=32)


def imported() -> list[Record]:
    """What another machine has measured, brought here in a file."""
    shared = [each for name, step in (("train", 2e-3), ("infer", 0.9e-3))
              for each in made(Case("mlp", mode=name, batch=128), step, "ada", ADA)]  # type: ignore[arg-type]  # fmt: skip
    theirs = [*shared, *loops(ADA), *made(replace(unstated("sleep 0.1", "command"), device="cpu"), 0.1, "ada-c", ADA)]
    for each in theirs:
        object.__setattr__(each, "imported_from", "ada.jsonl")
    return theirs


def everything() -> list[Record]:
    """All of them."""
    return [*commands(), *own_models(), *catalogue(), *loops(), *imported()]
