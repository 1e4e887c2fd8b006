"""The steps that all tools time: one call is one inference step of a workload, on one thread.

Runs in any environment that has torch: of mldyno it takes the workload only, none of the harness.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType

Step = Callable[[], object]
WORKLOADS: Mapping[str, tuple[str, int, int | None]] = MappingProxyType(
    {"mlp": ("mlp", 128, None), "bert": ("bert-tiny", 8, 64)}
)
"""Name of a step, to workload, batch and sequence length."""
TITLES = {"mlp": "MLP, batch 128", "bert": "BERT of 2 × 128, batch 8, sequence 64"}
POOL = 4  # batches taken in turn, as mldyno does
SEED = 20240229


def build(name: str) -> Step:
    """The step as an ordinary program would write it."""
    import torch

    from mldyno import plugins
    from mldyno.records import Case

    workload, batch, seq = WORKLOADS[name]
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    recipe = plugins.workload(workload).build["torch"](torch, Case(workload, mode="infer", batch=batch, seq=seq))
    network = recipe.network.eval()
    batches = itertools.cycle([recipe.draw()[0] for _ in range(POOL)])

    def step() -> object:
        with torch.inference_mode():
            return network(next(batches))

    return step
