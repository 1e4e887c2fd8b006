"""LSTM of 4 layers, hidden size 512, over sequences of 128 vectors: one small matmul after the other.

Inputs of 1024 features, sequence first; the outputs of the last time step are the logits of 512
classes. Train: SGD 0.1, cross-entropy.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.workloads import Batch, Optimiser, Portable, Workload

LAYERS, FEATURES, HIDDEN = 4, 1024, 512
GATES = 4 * HIDDEN
BATCH, SEQ = 8, 128


def torch_network(torch: ModuleType) -> Any:
    """Make PyTorch's network: one kernel runs all four layers, so layers that follow each other would be other work."""

    class Last(torch.nn.LSTM):  # type: ignore[name-defined,misc]
        """An LSTM that returns the outputs of the last time step only."""

        def forward(self, x: Any) -> Any:
            outputs, _ = super().forward(x)
            return outputs[-1]

    return Last(FEATURES, HIDDEN, LAYERS)


def network(nn: Any, _: Case) -> Any:
    """Make the network in any other framework: inputs are (sequence, batch, features)."""
    stack = [nn.lstm(f"l{layer}", FEATURES if layer == 0 else HIDDEN, HIDDEN) for layer in range(LAYERS)]

    def forward(x: Any) -> Any:
        for each in stack:
            x = each(x)
        return x[-1]

    return forward


def examples(case: Case, draws: Any) -> Batch:
    """Draw random features and labels."""
    batch, seq = case.batch or BATCH, case.seq or SEQ
    return draws.numbers((seq, batch, FEATURES)), draws.labels((batch,), HIDDEN)


def flops(case: Case) -> float:
    """Count two per weight and token; backward twice that, but for gradients of inputs and of the first state."""
    batch, seq = case.batch or BATCH, case.seq or SEQ
    widths = [FEATURES + HIDDEN] + (LAYERS - 1) * [HIDDEN + HIDDEN]
    forward = 2 * batch * seq * GATES * sum(widths)
    unused = 2 * batch * GATES * (seq * FEATURES + LAYERS * HIDDEN)
    return float(forward if case.mode == "infer" else 3 * forward - unused)


PORTABLE = Portable(network, examples, Optimiser("sgd", 0.1), torch_network=torch_network)
WORKLOAD = Workload(
    name="lstm", title="LSTM", version=1, item="token", batch=BATCH, seq=SEQ, params=9_453_568, flops=flops,
    build={"torch": PORTABLE.in_torch}, portable=PORTABLE,
)  # fmt: skip
