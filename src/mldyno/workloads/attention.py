"""Self-attention of any width, and the workloads that consist of it alone.

attention: Self-attention, hidden size 512, 8 heads: how its cost grows with the length of a sequence
attention-1head: Self-attention, hidden size 512, one head: as attention, in fewer and larger matmuls

As Vaswani et al. 2017: one matmul makes queries, keys and values, another joins the heads. The
state-dict keys are those of nn.MultiheadAttention, so that its weights load.
Train: forward and backward only; the squared error of a token against a random target, mean over the
tokens. Where it must show that it learns: SGD 0.001, which finds the targets' mean. As in the published
m4-gpu comparison, over sequences of 32 to 1024.
"""

from __future__ import annotations

from typing import Any

from mldyno.records import Case
from mldyno.workloads import Batch, Optimiser, Portable, Workload

WIDTH, BATCH, SEQ = 512, 32, 512
TARGET_MEAN = 1.0  # targets are random but for that
OPTIMISER = Optimiser("sgd", 1e-3)


def layer(nn: Any, name: str, width: int, heads: int, dropout: float = 0.0) -> Any:
    """Make such a layer: every token looks at all tokens of its sequence, or at those that a mask lets through."""
    projection = nn.projection(f"{name}in_proj", width, 3 * width)
    joined = nn.linear(f"{name}out_proj", width, width)
    nn.initialise("xavier_uniform_", f"{name}in_proj_weight")
    nn.initialise("zeros_", f"{name}out_proj.bias", 1)

    def forward(x: Any, **mask: Any) -> Any:
        return joined(nn.attention(nn.split(projection(x), 3), heads, dropout, **mask))

    return forward


def forward_flops(width: int, batch: int, seq: int) -> tuple[int, int]:
    """Return the operations of a forward pass: of the matmul that makes queries, keys and values, and of the rest."""
    return 6 * batch * seq * width**2, 2 * batch * seq * (width**2 + 2 * seq * width)


def workload(name: str, title: str, heads: int, *, version: int) -> Workload:
    """Return the workload of self-attention with that many heads."""

    def examples(case: Case, draws: Any) -> Batch:
        size = (case.batch or BATCH, case.seq or SEQ, WIDTH)
        return draws.numbers(size), draws.numbers(size, TARGET_MEAN)

    def network(nn: Any, _: Case) -> Any:
        return layer(nn, "", WIDTH, heads)

    portable = Portable(network, examples, OPTIMISER, "squared_error", updates=False)
    return Workload(
        name=name, title=title, version=version, item="token", batch=BATCH, seq=SEQ, params=1_050_624, flops=_flops,
        build={"torch": portable.in_torch}, portable=portable,
    )  # fmt: skip


def _flops(case: Case) -> float:
    """Count twice as many backward as forward, but for the gradient of the inputs."""
    first, rest = forward_flops(WIDTH, case.batch or BATCH, case.seq or SEQ)
    return float(first + rest if case.mode == "infer" else 2 * first + 3 * rest)


WORKLOADS = {each.name: each for each in (
    workload("attention", "Attention", heads=8, version=1),
    workload("attention-1head", "Attention with one head", heads=1, version=1),
)}  # fmt: skip
