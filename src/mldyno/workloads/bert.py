"""BERT with a classifier of 2 labels.

bert-tiny: BERT of 2 layers, hidden size 128, with a classifier: attention in small kernels
bert-base: BERT-base (cased) with a classifier of 2 labels, 108 million parameters
bert-large: BERT-large (cased) with a classifier of 2 labels, 334 million parameters

As Devlin et al. 2018: learned positions, post-norm layers, exact GELU, dropout 0.1, a pooler on the
first token. The state-dict keys are those of BertForSequenceClassification in transformers, so that
its weights load. Train: Adam 1e-4, cross-entropy. bert-base and bert-large are in the published
apple-silicon-bert comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mldyno.records import Case
from mldyno.workloads import Batch, Optimiser, Portable, Workload

POSITIONS, TOKEN_TYPES, LABELS = 512, 2, 2
DROPOUT, EPSILON, INITIAL_STD = 0.1, 1e-12, 0.02  # INITIAL_STD: standard deviation of fresh weights
OPTIMISER = Optimiser("adam", 1e-4)


@dataclass(frozen=True)
class Shape:
    """The sizes of a BERT."""

    layers: int
    width: int
    heads: int
    inner: int  # width of the feed-forward part
    vocabulary: int


def workload(name: str, title: str, shape: Shape, *, version: int, batch: int, seq: int, params: int) -> Workload:
    """Return the workload of a shape, with its default batch and sequence length."""

    def examples(case: Case, draws: Any) -> Batch:
        marked: Batch = draws.marked_words(case.batch or batch, case.seq or seq, shape.vocabulary, LABELS)
        return marked

    def layers(nn: Any, case: Case) -> Any:
        if (case.seq or seq) > POSITIONS:
            raise NotImplementedError(
                f"{case.workload} knows {POSITIONS} positions; a sequence of {case.seq} is too long"
            )
        return network(nn, shape)

    portable = Portable(layers, examples, OPTIMISER)
    return Workload(
        name=name, title=title, version=version, item="token", batch=batch, seq=seq, params=params,
        flops=lambda case: flops(shape, case.mode, case.batch or batch, case.seq or seq),
        build={"torch": portable.in_torch}, portable=portable,
    )  # fmt: skip


def flops(shape: Shape, mode: str | None, batch: int, seq: int) -> float:
    """Count two per weight and token, and two matmuls of attention; backward twice that."""
    weights = 4 * shape.width**2 + 2 * shape.width * shape.inner
    layer = 2 * batch * seq * (weights + 2 * seq * shape.width)
    head = 2 * batch * (shape.width**2 + shape.width * LABELS)
    forward = shape.layers * layer + head
    return float(forward if mode == "infer" else 3 * forward)


def network(nn: Any, shape: Shape) -> Any:
    """Make the network: from token ids (batch, sequence) to logits (batch, labels)."""
    width, start = shape.width, "bert.embeddings."
    words = nn.embedding(f"{start}word_embeddings", shape.vocabulary, width, padding=0)
    positions = nn.embedding(f"{start}position_embeddings", POSITIONS, width)
    types = nn.embedding(f"{start}token_type_embeddings", TOKEN_TYPES, width)
    norm, dropout = nn.layer_norm(f"{start}LayerNorm", width, EPSILON), nn.dropout(DROPOUT)
    blocks = nn.stack("bert.encoder.layer", shape.layers, lambda name: _block(nn, shape, name))
    pooler, head = nn.linear("bert.pooler.dense", width, width), nn.linear("classifier", width, LABELS)
    nn.initialise("normal_", std=INITIAL_STD)
    nn.initialise("zeros_", "bias", dimensions=1)

    def forward(ids: Any) -> Any:
        places = nn.positions(ids)
        x = words(ids) + types.first(ids)
        x = dropout(norm(x + positions.rows(places)))
        for block in blocks:
            x = block(x)
        return head(dropout(nn.tanh(pooler(x[:, 0]))))

    return forward


def _block(nn: Any, shape: Shape, name: str) -> Any:
    """Make attention and a feed-forward part, each with a shortcut and a norm after it."""
    width, dropout = shape.width, nn.dropout(DROPOUT)
    parts = [nn.linear(f"{name}attention.self.{part}", width, width) for part in ("query", "key", "value")]

    def closing(part: str, inputs: int) -> Any:
        dense = nn.linear(f"{name}{part}.dense", inputs, width)
        norm = nn.layer_norm(f"{name}{part}.LayerNorm", width, EPSILON)
        return lambda x, shortcut: norm(shortcut + dropout(dense(x)))

    attended, widened = closing("attention.output", width), nn.linear(f"{name}intermediate.dense", width, shape.inner)
    output = closing("output", shape.inner)

    def forward(x: Any) -> Any:
        x = attended(nn.attention((part(x) for part in parts), shape.heads, DROPOUT), x)
        return output(nn.gelu(widened(x)), x)

    return forward


TINY = Shape(layers=2, width=128, heads=2, inner=512, vocabulary=30_522)
BASE = Shape(layers=12, width=768, heads=12, inner=3072, vocabulary=28_996)
LARGE = Shape(layers=24, width=1024, heads=16, inner=4096, vocabulary=28_996)
WORKLOADS = {each.name: each for each in (
    workload("bert-tiny", "BERT-tiny", TINY, version=1, batch=8, seq=64, params=4_386_178),
    workload("bert-base", "BERT-base", BASE, version=1, batch=16, seq=128, params=108_311_810),
    workload("bert-large", "BERT-large", LARGE, version=1, batch=16, seq=128, params=333_581_314),
)}  # fmt: skip
