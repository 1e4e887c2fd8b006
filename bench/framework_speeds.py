"""Figure 13: how fast each framework does the same work on this CPU, beside PyTorch, and how far off it is."""

from __future__ import annotations

import ctypes.util
import os
from typing import Any

from bench.results import Chapter, Figure
from bench.work import Work, say

from mldyno import api
from mldyno.analysis.comparisons import compare, disagreement, not_comparable
from mldyno.analysis.outcomes import Outcome
from mldyno.store import Store

SIZES: dict[str, dict[str, int]] = {
    "mlp": {}, "mnist-cnn": {}, "resnet18-cifar": {"batch": 8}, "encoder": {"batch": 8}, "lstm": {},
    "bert-base": {"batch": 2, "seq": 64},
}  # fmt: skip
TRAINING = ("torch", "tensorflow", "jax", "mlx")
FRAMEWORKS = {"train": TRAINING, "infer": (*TRAINING, "onnxruntime", "openvino")}
TRAINED = ("mlp",)  # the others are run only: a training in four frameworks takes many minutes
BUDGET_S, QUICK_BUDGET_S = 6.0, 0.5


def measure(work: Work) -> Chapter:
    """Each workload and mode in every framework, paired with PyTorch's as it is and compiled."""
    chapter = Chapter("13. Frameworks beside PyTorch, doing the same work")
    chapter.notes.append(
        "`mldyno run WORKLOAD --framework ...` on this CPU, fp32, all cores: live processes that take turns. The value"
        " is how many times as fast the framework is as PyTorch without compilation, with half of its 95 % interval;"
        " beside it how far its results from the same weights are off, relative to the largest. There is no target."
    )
    library = ctypes.util.find_library("openblas")
    if library is not None:  # the cure that `mldyno doctor` names for MLX
        os.environ["MLDYNO_MLX_PRELOAD"] = library
    multiplies = library or "the system's BLAS"
    chapter.notes.append(f"MLX multiplies with {multiplies} here; the others bring their own.")
    store = Store(work.folder / "frameworks.sqlite")
    for workload, sizes in list(SIZES.items())[: 1 if work.quick else None]:
        for mode in ("train", "infer") if workload in TRAINED else ("infer",):
            for outcome, base in _measured(workload, mode, sizes, store, work.quick):
                _add(chapter, base, outcome)
    return chapter


def _measured(
    workload: str, mode: str, sizes: dict[str, int], store: Store, quick: bool
) -> list[tuple[Outcome, Outcome]]:
    """Each outcome beside that of PyTorch as it is."""
    settings: dict[str, Any] = {"mode": mode, "store": store, "budget": QUICK_BUDGET_S if quick else BUDGET_S,
                                "repeats": 1, **sizes}  # fmt: skip
    names = list(FRAMEWORKS[mode])
    results = [*api.run(workload, framework=names, **settings).outcomes]
    results += api.run(workload, framework="torch", compile=["no", "yes"], **settings).outcomes if not quick else []
    plain = [each for each in results if each.case.framework == "torch" and not each.case.compile]
    others = [each for each in results if each not in plain]
    return [(other, plain[1 if other.case.compile else 0]) for other in others]


def _add(chapter: Chapter, base: Outcome, other: Outcome) -> None:
    case = other.case
    name = f"`{case.workload}` {case.mode}, {case.framework}{' compiled' if case.compile else ''}"
    comparison = compare(base, other)
    if comparison is None or comparison.low is None or comparison.high is None:
        why = other.reason or (not_comparable([(base, other)]) or ["no interval"])[0]
        chapter.notes.append(f"{name}: {other.status}: {why}.")
        return
    error = disagreement(base, other)
    checked = other.records[0].checks.error if error is None else error[0]
    off = "" if checked is None else f"; results {checked:.1g} off"
    half = (comparison.high - comparison.low) / 2
    say(f"  {name}: {comparison.ratio:.3f} ± {half:.3f}{off}")
    chapter.figures.append(Figure(name, comparison.ratio, "×", None, f"{comparison.how}{off}", None, half))
