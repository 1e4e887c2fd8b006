"""LSTM of 4 layers, hidden size 512, over sequences of 128 vectors: one small matmul after the other.

Inputs of 1024 features, sequence first; the outputs of the last time step are the logits of 512
classes. Train: SGD 0.1, cross-entropy.
"""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.values import Values
from mldyno.workloads import Optimiser, Portable, Recipe, Workload, random_integers, random_values

LAYERS, FEATURES, HIDDEN = 4, 1024, 512
GATES = 4 * HIDDEN
BATCH, SEQ = 8, 128
OPTIMISER = Optimiser("sgd", 0.1)


def torch(torch: ModuleType, case: Case) -> Recipe:
    """The recipe for PyTorch."""
    batch, seq = case.batch or BATCH, case.seq or SEQ

    class Last(torch.nn.LSTM):  # type: ignore[name-defined,misc]
        """The LSTM, of whose outputs only those of the last time step are given."""

        def forward(self, x: Any) -> Any:
            outputs, _ = super().forward(x)
            return outputs[-1]

    return Recipe(
        network=Last(FEATURES, HIDDEN, LAYERS),
        draw=lambda: (torch.randn(seq, batch, FEATURES), torch.randint(HIDDEN, (batch,))),
        loss=torch.nn.functional.cross_entropy,
        optimiser=lambda parameters: OPTIMISER.in_torch(torch, parameters),
    )


def network(nn: Any, _: Case) -> Any:
    """The network in any framework: inputs are (sequence, batch, features)."""
    stack = [nn.lstm(f"l{layer}", FEATURES if layer == 0 else HIDDEN, HIDDEN) for layer in range(LAYERS)]

    def forward(x: Any) -> Any:
        for each in stack:
            x = each(x)
        return x[-1]

    return forward


def examples(case: Case, chance: random.Random) -> tuple[Values, Values]:
    """Random features and labels."""
    batch, seq = case.batch or BATCH, case.seq or SEQ
    return random_values(chance, (seq, batch, FEATURES)), random_integers(chance, (batch,), 0, HIDDEN)


def flops(case: Case) -> float:
    """Two per weight and token; backward twice that, but for the gradients of the inputs and of the first state."""
    batch, seq = case.batch or BATCH, case.seq or SEQ
    widths = [FEATURES + HIDDEN] + (LAYERS - 1) * [HIDDEN + HIDDEN]
    forward = 2 * batch * seq * GATES * sum(widths)
    unused = 2 * batch * GATES * (seq * FEATURES + LAYERS * HIDDEN)
    return float(forward if case.mode == "infer" else 3 * forward - unused)


WORKLOAD = Workload(
    name="lstm", title="LSTM", version=1, item="token", batch=BATCH, seq=SEQ, params=9_453_568, flops=flops,
    build={"torch": torch}, portable=Portable(network, examples, OPTIMISER),
)  # fmt: skip
