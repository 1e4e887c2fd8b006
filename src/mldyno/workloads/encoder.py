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
from typing import Any

from mldyno.records import Case
from mldyno.workloads import Batch, Optimiser, Portable, Workload, attention

VOCABULARY, WIDTH, LAYERS, HEADS, INNER, LABELS = 10_000, 512, 6, 8, 2048, 10
DROPOUT, EPSILON = 0.1, 1e-5
OPTIMISER = Optimiser("adam", 1e-4)
PADDING, MIN_LENGTH = 0, 8  # MIN_LENGTH: words of a padded sequence, where the batch has room for that many
BATCH, SEQ = 32, 50


def workload(name: str, title: str, *, version: int, ragged: bool) -> Workload:
    """Return the workload of sequences of one length, or of ragged ones, which is for PyTorch only."""

    def examples(case: Case, draws: Any) -> Batch:
        batch, seq = case.batch or BATCH, case.seq or SEQ
        ids, labels = draws.marked_words(batch, seq, VOCABULARY, LABELS)
        if ragged:
            lengths = draws.torch.randint(min(MIN_LENGTH, seq), seq + 1, (batch, 1))
            ids = ids.masked_fill(draws.torch.arange(seq) >= lengths, PADDING)
        return ids, labels

    portable = Portable(lambda nn, case: network(nn, case.seq or SEQ, ragged), examples, OPTIMISER)
    return Workload(
        name=name, title=title, version=version, item="token", batch=BATCH, seq=SEQ, params=24_039_434, flops=_flops,
        build={"torch": portable.in_torch}, portable=None if ragged else portable,
    )  # fmt: skip


def _flops(case: Case) -> float:
    """Count two per weight and token, padding included, and two matmuls of attention; backward twice that."""
    batch, seq = case.batch or BATCH, case.seq or SEQ
    layer = sum(attention.forward_flops(WIDTH, batch, seq)) + 4 * batch * seq * WIDTH * INNER
    forward = LAYERS * layer + 2 * batch * WIDTH * LABELS
    return float(forward if case.mode == "infer" else 3 * forward)


def network(nn: Any, seq: int, ragged: bool = False) -> Any:
    """Make the network for sequences of up to `seq` words: from token ids to logits.

    If they are ragged, nothing looks at padding, and the mean omits it.
    """
    embedding, positions = nn.embedding("embedding", VOCABULARY, WIDTH), nn.sinusoids("positions", seq, WIDTH)
    blocks, dropout = nn.stack("layers", LAYERS, lambda name: _block(nn, name)), nn.dropout(DROPOUT)
    head = nn.linear("fc", WIDTH, LABELS)

    def encoded(ids: Any, **mask: Any) -> Any:
        x = dropout(embedding(ids) * math.sqrt(WIDTH) + positions(ids))
        for block in blocks:
            x = block(x, **mask)
        return x

    def forward(ids: Any) -> Any:
        return head(nn.mean(encoded(ids), (1,)))

    def forward_ragged(ids: Any) -> Any:
        words = ids != PADDING
        x = encoded(ids, mask=words[:, None, None, :]) * words[:, :, None]
        return head(x.sum(1) / words.sum(1, keepdim=True))

    return forward_ragged if ragged else forward


def _block(nn: Any, name: str) -> Any:
    """Make attention and a feed-forward part, each with a shortcut and a norm after it."""
    attend = attention.layer(nn, f"{name}self_attn.", WIDTH, HEADS, DROPOUT)
    widened, narrowed = nn.linear(f"{name}linear1", WIDTH, INNER), nn.linear(f"{name}linear2", INNER, WIDTH)
    norm1, norm2 = (nn.layer_norm(f"{name}norm{number}", WIDTH, EPSILON) for number in (1, 2))
    dropout = nn.dropout(DROPOUT)

    def forward(x: Any, **mask: Any) -> Any:
        x = norm1(x + dropout(attend(x, **mask)))
        return norm2(x + dropout(narrowed(dropout(nn.relu(widened(x))))))

    return forward


WORKLOADS = {each.name: each for each in (
    workload("encoder", "Transformer encoder", version=1, ragged=False),
    workload("encoder-ragged", "Transformer encoder, ragged", version=1, ragged=True),
)}  # fmt: skip
