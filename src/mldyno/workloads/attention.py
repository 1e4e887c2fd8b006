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

import random
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.values import Values
from mldyno.workloads import Optimiser, Portable, Recipe, Workload, random_values

WIDTH, BATCH, SEQ = 512, 32, 512
TARGET_MEAN = 1.0  # targets are random but for that
OPTIMISER = Optimiser("sgd", 1e-3)


def self_attention(torch: ModuleType) -> Any:
    """The class of such a layer in PyTorch."""
    nn = torch.nn

    class SelfAttention(nn.Module):  # type: ignore[name-defined,misc]
        """Every token looks at all tokens of its sequence, or at those that a mask lets through."""

        def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
            super().__init__()
            self.heads = heads
            self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
            self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
            self.out_proj = nn.Linear(width, width)
            self.dropout = nn.Dropout(dropout)
            nn.init.xavier_uniform_(self.in_proj_weight)
            nn.init.zeros_(self.out_proj.bias)

        def forward(self, x: Any, mask: Any = None) -> Any:
            parts = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=2)
            query, key, value = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
            dropped = self.dropout.p if self.dropout.training else 0.0
            attended = nn.functional.scaled_dot_product_attention(query, key, value, mask, dropped)
            return self.out_proj(attended.transpose(1, 2).flatten(2))

    return SelfAttention


def layer(nn: Any, name: str, width: int, heads: int, dropout: float = 0.0) -> Any:
    """Such a layer in any framework, with the same names."""
    projection = nn.linear(None, width, 3 * width, weight=f"{name}in_proj_weight", bias=f"{name}in_proj_bias")
    joined = nn.linear(f"{name}out_proj", width, width)

    def forward(x: Any) -> Any:
        return joined(nn.attention(*nn.split(projection(x), 3), heads, dropout))

    return forward


def forward_flops(width: int, batch: int, seq: int) -> tuple[int, int]:
    """Operations of a forward pass: of the matmul that makes queries, keys and values, and of all the others."""
    return 6 * batch * seq * width**2, 2 * batch * seq * (width**2 + 2 * seq * width)


def workload(name: str, title: str, heads: int, *, version: int) -> Workload:
    """The workload of self-attention with that many heads."""

    def build(torch: ModuleType, case: Case) -> Recipe:
        size = (case.batch or BATCH, case.seq or SEQ, WIDTH)
        return Recipe(
            network=self_attention(torch)(WIDTH, heads),
            draw=lambda: (torch.randn(size), torch.randn(size) + TARGET_MEAN),
            loss=lambda output, target: (output - target).square().sum(2).mean(),
            optimiser=lambda parameters: OPTIMISER.in_torch(torch, parameters),
            updates=False,
        )

    def examples(case: Case, chance: random.Random) -> tuple[Values, Values]:
        size = (case.batch or BATCH, case.seq or SEQ, WIDTH)
        return random_values(chance, size), random_values(chance, size, centre=TARGET_MEAN)

    def network(nn: Any, _: Case) -> Any:
        return layer(nn, "", WIDTH, heads)

    portable = Portable(network, examples, OPTIMISER, "squared-error", updates=False)
    return Workload(
        name=name, title=title, version=version, item="token", batch=BATCH, seq=SEQ, params=1_050_624, flops=_flops,
        build={"torch": build}, portable=portable,
    )  # fmt: skip


def _flops(case: Case) -> float:
    """Backward takes twice as many as forward, but for the gradient of the inputs."""
    first, rest = forward_flops(WIDTH, case.batch or BATCH, case.seq or SEQ)
    return float(first + rest if case.mode == "infer" else 2 * first + 3 * rest)


WORKLOADS = {each.name: each for each in (
    workload("attention", "Attention", heads=8, version=1),
    workload("attention-1head", "Attention with one head", heads=1, version=1),
)}  # fmt: skip
