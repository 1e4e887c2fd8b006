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

import random
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.values import Values
from mldyno.workloads import Optimiser, Portable, Recipe, Workload, marked_words

POSITIONS, TOKEN_TYPES, LABELS = 512, 2, 2
DROPOUT, EPSILON, INITIAL_STD = 0.1, 1e-12, 0.02  # INITIAL_STD: standard deviation of fresh weights
OPTIMISER = Optimiser("adam", 1e-4)


@dataclass(frozen=True)
class Shape:
    """The sizes in which one BERT differs from another."""

    layers: int
    width: int
    heads: int
    inner: int
    """Width of the feed-forward part."""
    vocabulary: int


def workload(name: str, title: str, shape: Shape, *, version: int, batch: int, seq: int, params: int) -> Workload:
    """The workload of a shape, with its default batch and sequence length."""

    def examples(case: Case, chance: random.Random) -> tuple[Values, Values]:
        return marked_words(chance, case.batch or batch, case.seq or seq, shape.vocabulary, LABELS)

    def network(nn: Any, case: Case) -> Any:
        _check_length(case, case.seq or seq)
        return layers(nn, shape)

    return Workload(
        name=name, title=title, version=version, item="token", batch=batch, seq=seq, params=params,
        flops=lambda case: flops(shape, case.mode, case.batch or batch, case.seq or seq),
        build={"torch": lambda torch, case: _torch(torch, case, shape, case.batch or batch, case.seq or seq)},
        portable=Portable(network, examples, OPTIMISER),
    )  # fmt: skip


def flops(shape: Shape, mode: str | None, batch: int, seq: int) -> float:
    """Two per weight and token, and two matmuls of attention; backward twice that."""
    weights = 4 * shape.width**2 + 2 * shape.width * shape.inner
    layer = 2 * batch * seq * (weights + 2 * seq * shape.width)
    head = 2 * batch * (shape.width**2 + shape.width * LABELS)
    forward = shape.layers * layer + head
    return float(forward if mode == "infer" else 3 * forward)


def _torch(torch: ModuleType, case: Case, shape: Shape, batch: int, seq: int) -> Recipe:
    _check_length(case, seq)
    half = shape.vocabulary // 2

    def draw() -> tuple[Any, Any]:
        """Sequences of words from one half of the vocabulary, which is the label; none is padding (0)."""
        labels = torch.randint(LABELS, (batch,))
        return torch.randint(1, half, (batch, seq)) + half * labels[:, None], labels

    return Recipe(
        network=network(torch, shape),
        draw=draw,
        loss=torch.nn.functional.cross_entropy,
        optimiser=lambda parameters: OPTIMISER.in_torch(torch, parameters),
    )


def _check_length(case: Case, seq: int) -> None:
    if seq > POSITIONS:
        raise NotImplementedError(f"{case.workload} knows {POSITIONS} positions; a sequence of {seq} is too long")


def network(torch: ModuleType, shape: Shape) -> Any:
    """The network in PyTorch: from token ids (batch, sequence) to logits (batch, labels)."""
    nn = torch.nn
    width, named = shape.width, nn.ModuleDict

    class Embeddings(nn.Module):  # type: ignore[name-defined,misc]
        """Words, positions and token types, added and normalised."""

        def __init__(self) -> None:
            super().__init__()
            self.word_embeddings = nn.Embedding(shape.vocabulary, width, padding_idx=0)
            self.position_embeddings = nn.Embedding(POSITIONS, width)
            self.token_type_embeddings = nn.Embedding(TOKEN_TYPES, width)
            self.LayerNorm = nn.LayerNorm(width, eps=EPSILON)
            self.dropout = nn.Dropout(DROPOUT)

        def forward(self, ids: Any) -> Any:
            places = torch.arange(ids.shape[1], device=ids.device)
            x = self.word_embeddings(ids) + self.token_type_embeddings(torch.zeros_like(ids))
            return self.dropout(self.LayerNorm(x + self.position_embeddings(places)))

    class Layer(nn.Module):  # type: ignore[name-defined,misc]
        """Attention and a feed-forward part, each with a shortcut and a norm after it."""

        def __init__(self) -> None:
            super().__init__()
            parts = {name: nn.Linear(width, width) for name in ("query", "key", "value")}
            self.attention = named({"self": named(parts), "output": self._output(width)})
            self.intermediate = named({"dense": nn.Linear(width, shape.inner)})
            self.output = self._output(shape.inner)
            self.dropout = nn.Dropout(DROPOUT)

        @staticmethod
        def _output(inputs: int) -> Any:
            return named({"dense": nn.Linear(inputs, width), "LayerNorm": nn.LayerNorm(width, eps=EPSILON)})

        def forward(self, x: Any) -> Any:
            x = self._close(self.attention["output"], self._attend(x), x)
            inner = nn.functional.gelu(self.intermediate["dense"](x))
            return self._close(self.output, inner, x)

        def _close(self, part: Any, x: Any, shortcut: Any) -> Any:
            return part["LayerNorm"](shortcut + self.dropout(part["dense"](x)))

        def _attend(self, x: Any) -> Any:
            query, key, value = (
                linear(x).unflatten(2, (shape.heads, -1)).transpose(1, 2) for linear in self.attention["self"].values()
            )
            dropped = DROPOUT if self.dropout.training else 0.0  # as the module: who switches it off means both
            attended = nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=dropped)
            return attended.transpose(1, 2).flatten(2)

    class Bert(nn.Module):  # type: ignore[name-defined,misc]
        """Embeddings, layers, pooler, classifier."""

        def __init__(self) -> None:
            super().__init__()
            layers = nn.ModuleList(Layer() for _ in range(shape.layers))
            pooler = named({"dense": nn.Linear(width, width)})
            self.bert = named({"embeddings": Embeddings(), "encoder": named({"layer": layers}), "pooler": pooler})
            self.dropout = nn.Dropout(DROPOUT)
            self.classifier = nn.Linear(width, LABELS)
            self.apply(_start)

        def forward(self, ids: Any) -> Any:
            x = self.bert["embeddings"](ids)
            for layer in self.bert["encoder"]["layer"]:
                x = layer(x)
            pooled = torch.tanh(self.bert["pooler"]["dense"](x[:, 0]))
            return self.classifier(self.dropout(pooled))

    def _start(module: Any) -> None:
        """BERT's own first weights: normal, biases and padding zero."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=INITIAL_STD)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            with torch.no_grad():
                module.weight[module.padding_idx].zero_()

    return Bert()


def layers(nn: Any, shape: Shape) -> Any:
    """The network in any framework, with the same names."""
    width, start = shape.width, "bert.embeddings."
    words = nn.embedding(f"{start}word_embeddings", shape.vocabulary, width)
    places = nn.embedding(f"{start}position_embeddings", POSITIONS, width)
    types = nn.embedding(f"{start}token_type_embeddings", TOKEN_TYPES, width)
    norm, dropout = nn.layer_norm(f"{start}LayerNorm", width, EPSILON), nn.dropout(DROPOUT)
    stack = [_layer(nn, shape, f"bert.encoder.layer.{number}.") for number in range(shape.layers)]
    pooler, head = nn.linear("bert.pooler.dense", width, width), nn.linear("classifier", width, LABELS)

    def forward(ids: Any) -> Any:
        x = words(ids) + types.rows(0, 1) + places.rows(0, ids.shape[1])
        x = dropout(norm(x))
        for each in stack:
            x = each(x)
        return head(dropout(nn.tanh(pooler(x[:, 0]))))

    return forward


def _layer(nn: Any, shape: Shape, name: str) -> Any:
    width, dropout = shape.width, nn.dropout(DROPOUT)
    parts = [nn.linear(f"{name}attention.self.{part}", width, width) for part in ("query", "key", "value")]

    def closing(part: str, inputs: int) -> Any:
        dense = nn.linear(f"{name}{part}.dense", inputs, width)
        norm = nn.layer_norm(f"{name}{part}.LayerNorm", width, EPSILON)
        return lambda x, shortcut: norm(shortcut + dropout(dense(x)))

    attended, widened = closing("attention.output", width), nn.linear(f"{name}intermediate.dense", width, shape.inner)
    output = closing("output", shape.inner)

    def forward(x: Any) -> Any:
        x = attended(nn.attention(*(part(x) for part in parts), shape.heads, DROPOUT), x)
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
