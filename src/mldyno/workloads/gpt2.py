"""GPT-2 small, 124 million parameters: training, or a prompt and 32 tokens decoded after it.

12 layers, hidden size 768, 12 heads, vocabulary 50,257, 1024 positions, tied head, dropout 0.1 in training.
Train: next-token cross-entropy, AdamW 1e-4. Infer: `prefill` takes the prompt into a cache of keys and
values and finds the next token; `decode` feeds 32 tokens, one by one and each the likeliest. The
state-dict keys are those of GPT2LMHeadModel in transformers, but for its copy of the embedding as the head.

As Radford et al. 2019: learned positions, pre-norm layers, GELU by its tanh formula, a head that is the embedding
itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mldyno.records import Case
from mldyno.workloads import Batch, Optimiser, Portable, Workload

DROPOUT, EPSILON, INITIAL_STD = 0.1, 1e-5, 0.02  # INITIAL_STD: standard deviation of fresh weights


@dataclass(frozen=True)
class Shape:
    """The sizes of a GPT-2."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int


def network(nn: Any, shape: Shape) -> Any:
    """Make the network: from token ids (batch, sequence) to logits (batch, sequence, vocabulary)."""
    start, width = "transformer.", shape.width
    words = nn.embedding(f"{start}wte", shape.vocabulary, width)
    positions = nn.embedding(f"{start}wpe", shape.positions, width)
    dropout = nn.dropout(DROPOUT)
    blocks = nn.stack(f"{start}h", shape.layers, lambda name: _block(nn, shape, name))
    norm = nn.layer_norm(f"{start}ln_f", width, EPSILON)
    for name in ("wte.weight", "wpe.weight"):
        nn.initialise("normal_", name, std=INITIAL_STD)

    def forward(ids: Any, caches: Any = None) -> Any:
        """Return the logits of every token; with a cache for each layer, of the last one only, (batch, vocabulary).

        Caches take a whole prompt while they are empty, and single tokens from then on.
        """
        places = nn.positions(ids, 0 if caches is None else caches[0].length)
        x = dropout(words(ids) + positions.rows(places))
        for number, block in enumerate(blocks):
            x = block(x, None if caches is None else caches[number])
        return words.scores(norm(x if caches is None else x[:, -1]))

    return forward


def _block(nn: Any, shape: Shape, name: str) -> Any:
    """Make attention to what came before and a feed-forward part, each with a norm before it and a shortcut."""
    width, dropout = shape.width, nn.dropout(DROPOUT)
    closing_std = INITIAL_STD / math.sqrt(2 * shape.layers)  # so that the sum over all shortcuts keeps its size

    def linear(part: str, inputs: int, outputs: int, std: float = INITIAL_STD) -> Any:
        made = nn.linear(f"{name}{part}", inputs, outputs, inputs_first=True)
        nn.initialise("normal_", f"{name}{part}.weight", std=std)
        return made

    norm1 = nn.layer_norm(f"{name}ln_1", width, EPSILON)
    parts, joined = linear("attn.c_attn", width, 3 * width), linear("attn.c_proj", width, width, closing_std)
    norm2 = nn.layer_norm(f"{name}ln_2", width, EPSILON)
    widened, narrowed = linear("mlp.c_fc", width, 4 * width), linear("mlp.c_proj", 4 * width, width, closing_std)

    def forward(x: Any, cache: Any) -> Any:
        attended = nn.attention(nn.split(parts(norm1(x)), 3), shape.heads, DROPOUT, causal=True, cache=cache)
        x = x + dropout(joined(attended))
        return x + dropout(narrowed(nn.gelu(widened(norm2(x)), by_tanh=True)))

    return forward


# -- the workload ------------------------------------------------------------------------------------

SHAPE = Shape(layers=12, width=768, heads=12, vocabulary=50_257, positions=1024)
BATCH, SEQ = 4, 512
DECODED = 32
CYCLE, STRIDE = 97, 518  # words of the texts, and how far apart they lie in the vocabulary
OPTIMISER = Optimiser("adamw", 1e-4, decay=0.01)


def layers(nn: Any, case: Case) -> Any:
    """Make the network; raise where a sequence is too long for it."""
    seq = case.seq or SEQ
    needed = seq + DECODED if case.mode == "infer" else seq
    if needed > SHAPE.positions:
        raise NotImplementedError(f"{case.workload} knows {SHAPE.positions} positions; a sequence needs {needed}")
    return network(nn, SHAPE)


def examples(case: Case, draws: Any) -> Batch:
    """Draw texts that go round one cycle of words, and the same one word ahead."""
    texts: Batch = draws.cyclic_words(case.batch or BATCH, case.seq or SEQ, CYCLE, STRIDE)
    return texts


def count(case: Case) -> int:
    """Return the tokens of a step: of the texts, and in inference those decoded too."""
    return (case.batch or BATCH) * ((case.seq or SEQ) + (DECODED if case.mode == "infer" else 0))


def flops(case: Case) -> float:
    """Count two per weight and token, and two matmuls of attention, the masked half included; backward twice that."""
    batch, seq = case.batch or BATCH, case.seq or SEQ
    if case.mode != "infer":
        return 3.0 * batch * (_layers(seq, seq) + seq * HEAD)
    prompt = _layers(seq, seq) + HEAD
    decoded = sum(_layers(1, seq + place) + HEAD for place in range(1, DECODED + 1))
    return float(batch * (prompt + decoded))


HEAD = 2 * SHAPE.width * SHAPE.vocabulary  # operations for one token's logits


def _layers(tokens: int, context: int) -> int:
    """Return the operations of all layers for some tokens of one sequence, each of which looks at `context`."""
    return SHAPE.layers * 2 * tokens * (12 * SHAPE.width**2 + 2 * context * SHAPE.width)


PORTABLE = Portable(layers, examples, OPTIMISER, decoded=DECODED)
WORKLOAD = Workload(
    name="gpt2", title="GPT-2", version=1, item="token", batch=BATCH, seq=SEQ, params=124_439_808, flops=flops,
    count=count, build={"torch": PORTABLE.in_torch}, portable=PORTABLE,
)  # fmt: skip
