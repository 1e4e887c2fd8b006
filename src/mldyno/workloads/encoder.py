"""A transformer encoder that classifies sequences.

encoder: Transformer encoder of 6 layers, hidden size 512, that classifies sequences of one length
encoder-ragged: Transformer encoder of 6 layers, hidden size 512, that classifies sequences of many lengths

As Vaswani et al. 2017: embedding of 10,000 words, hidden size 512, times the root of 512, plus sinusoidal
positions; 6 post-norm layers (8 heads, feed-forward part 2048, ReLU); the mean over the words; linear
512-10. Dropout 0.1 in training. Train: Adam 1e-4, cross-entropy. As in the published m4-gpu comparison.
encoder has no mask. In encoder-ragged, sequences have 8 words to as many as there is room for; they are padded
with 0, and padding is masked in attention and in the mean. It counts as tokens, since it is worked through.
"""

from __future__ import annotations

import math
import random
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.values import Values
from mldyno.workloads import Optimiser, Portable, Recipe, Workload, attention, marked_words

VOCABULARY, WIDTH, LAYERS, HEADS, INNER, LABELS = 10_000, 512, 6, 8, 2048, 10
DROPOUT, EPSILON = 0.1, 1e-5
OPTIMISER = Optimiser("adam", 1e-4)
PADDING, MIN_LENGTH = 0, 8  # MIN_LENGTH: words of a padded sequence, where the batch has room for that many
BATCH, SEQ = 32, 50


def workload(name: str, title: str, *, version: int, ragged: bool) -> Workload:
    """The workload of sequences of one length, or of ragged ones."""

    def build(torch: ModuleType, case: Case) -> Recipe:
        batch, seq = case.batch or BATCH, case.seq or SEQ
        fixed, padded = networks(torch)

        def draw() -> tuple[Any, Any]:
            """Words of a sequence are from that tenth of the vocabulary which is its label."""
            tenth = VOCABULARY // LABELS
            labels = torch.randint(LABELS, (batch,))
            ids = torch.randint(1, tenth, (batch, seq)) + tenth * labels[:, None]
            if ragged:
                lengths = torch.randint(min(MIN_LENGTH, seq), seq + 1, (batch, 1))
                ids = ids.masked_fill(torch.arange(seq) >= lengths, PADDING)
            return ids, labels

        return Recipe(
            network=(padded if ragged else fixed)(seq),
            draw=draw,
            loss=torch.nn.functional.cross_entropy,
            optimiser=lambda parameters: OPTIMISER.in_torch(torch, parameters),
        )

    def examples(case: Case, chance: random.Random) -> tuple[Values, Values]:
        return marked_words(chance, case.batch or BATCH, case.seq or SEQ, VOCABULARY, LABELS)

    portable = None if ragged else Portable(layers, examples, OPTIMISER)
    return Workload(
        name=name, title=title, version=version, item="token", batch=BATCH, seq=SEQ, params=24_039_434, flops=_flops,
        build={"torch": build}, portable=portable,
    )  # fmt: skip


def _flops(case: Case) -> float:
    """Two per weight and token, padding included, and two matmuls of attention; backward twice that."""
    batch, seq = case.batch or BATCH, case.seq or SEQ
    layer = sum(attention.forward_flops(WIDTH, batch, seq)) + 4 * batch * seq * WIDTH * INNER
    forward = LAYERS * layer + 2 * batch * WIDTH * LABELS
    return float(forward if case.mode == "infer" else 3 * forward)


def networks(torch: ModuleType) -> tuple[Any, Any]:
    """Two classes in PyTorch, for sequences of one length and for padded ones: from token ids to logits."""
    nn = torch.nn
    SelfAttention = attention.self_attention(torch)

    class Layer(nn.Module):  # type: ignore[name-defined,misc]
        """Attention and a feed-forward part, each with a shortcut and a norm after it."""

        def __init__(self) -> None:
            super().__init__()
            self.self_attn = SelfAttention(WIDTH, HEADS, DROPOUT)
            self.linear1 = nn.Linear(WIDTH, INNER)
            self.linear2 = nn.Linear(INNER, WIDTH)
            self.norm1 = nn.LayerNorm(WIDTH)
            self.norm2 = nn.LayerNorm(WIDTH)
            self.dropout = nn.Dropout(DROPOUT)

        def forward(self, x: Any, mask: Any) -> Any:
            x = self.norm1(x + self.dropout(self.self_attn(x, mask)))
            inner = self.dropout(torch.relu(self.linear1(x)))
            return self.norm2(x + self.dropout(self.linear2(inner)))

    class Encoder(nn.Module):  # type: ignore[name-defined,misc]
        """Embedding, positions, layers, mean, classifier, for sequences of up to `seq` words."""

        def __init__(self, seq: int) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, WIDTH)
            self.register_buffer("positions", _positions(torch, seq), persistent=False)
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
            self.dropout = nn.Dropout(DROPOUT)
            self.fc = nn.Linear(WIDTH, LABELS)

        def forward(self, ids: Any) -> Any:
            return self.fc(self.encoded(ids).mean(1))

        def encoded(self, ids: Any, mask: Any = None) -> Any:
            """What the last layer gives for each word."""
            x = self.dropout(self.embedding(ids) * math.sqrt(WIDTH) + self.positions[: ids.shape[1]])
            for layer in self.layers:
                x = layer(x, mask)
            return x

    class PaddedEncoder(Encoder):
        """Nothing looks at padding, and the mean omits it."""

        def forward(self, ids: Any) -> Any:
            words = ids != PADDING
            x = self.encoded(ids, words[:, None, None, :]) * words[:, :, None]
            return self.fc(x.sum(1) / words.sum(1, keepdim=True))

    return Encoder, PaddedEncoder


def _positions(torch: ModuleType, seq: int) -> Any:
    """Sines and cosines of each place, alternating, (seq, width), with periods from 2 pi to 10,000 times that."""
    rates = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10_000.0) / WIDTH))
    angles = torch.arange(seq)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), 2).flatten(1)


def layers(nn: Any, case: Case) -> Any:
    """The network in any framework, for sequences of one length, with the same names."""
    seq = case.seq or SEQ
    rates = [math.exp(-math.log(10_000.0) / WIDTH * pair) for pair in range(0, WIDTH, 2)]
    positions = nn.constant(
        [[wave(place * rate) for rate in rates for wave in (math.sin, math.cos)] for place in range(seq)]
    )
    embedding, dropout = nn.embedding("embedding", VOCABULARY, WIDTH), nn.dropout(DROPOUT)
    stack = [_layer(nn, f"layers.{number}.") for number in range(LAYERS)]
    head = nn.linear("fc", WIDTH, LABELS)

    def forward(ids: Any) -> Any:
        x = dropout(embedding(ids) * math.sqrt(WIDTH) + positions())
        for each in stack:
            x = each(x)
        return head(nn.mean(x, (1,)))

    return forward


def _layer(nn: Any, name: str) -> Any:
    attend = attention.layer(nn, f"{name}self_attn.", WIDTH, HEADS, DROPOUT)
    widened, narrowed = nn.linear(f"{name}linear1", WIDTH, INNER), nn.linear(f"{name}linear2", INNER, WIDTH)
    norm1, norm2 = (nn.layer_norm(f"{name}norm{number}", WIDTH, EPSILON) for number in (1, 2))
    dropout = nn.dropout(DROPOUT)

    def forward(x: Any) -> Any:
        x = norm1(x + dropout(attend(x)))
        return norm2(x + dropout(narrowed(dropout(nn.relu(widened(x))))))

    return forward


WORKLOADS = {each.name: each for each in (
    workload("encoder", "Transformer encoder", version=1, ragged=False),
    workload("encoder-ragged", "Transformer encoder, ragged", version=1, ragged=True),
)}  # fmt: skip
