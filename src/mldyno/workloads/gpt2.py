"""GPT-2 small, 124 million parameters: training, or a prompt and 32 tokens decoded after it.

12 layers, hidden size 768, 12 heads, vocabulary 50,257, 1024 positions, tied head, dropout 0.1 in training.
Train: next-token cross-entropy, AdamW 1e-4. Infer: `prefill` takes the prompt into a cache of keys and
values and finds the next token; `decode` feeds 32 tokens, one by one and each the likeliest. The
state-dict keys are those of GPT2LMHeadModel in transformers, but for its copy of the embedding as the head.

As Radford et al. 2019: learned positions, pre-norm layers, GELU by its tanh formula, a head that is the embedding
itself.
"""

from __future__ import annotations

import array
import math
import random
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.values import Values
from mldyno.workloads import Optimiser, Phase, Portable, Recipe, Workload

DROPOUT, EPSILON, INITIAL_STD = 0.1, 1e-5, 0.02  # INITIAL_STD: standard deviation of fresh weights


@dataclass(frozen=True)
class Shape:
    """The sizes in which one GPT-2 differs from another."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int


class Cache:
    """Keys and values of one layer, with room for `room` tokens; empty at first."""

    def __init__(self, room: int) -> None:
        self.room, self.length = room, 0
        self.stored: tuple[Any, Any] | None = None

    def extend(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Keep those of the next tokens, (batch, heads, tokens, width); gives all that are stored."""
        if self.stored is None:  # only now are batch, type and device known
            batch, heads, _, width = key.shape
            self.stored = (
                key.new_empty(batch, heads, self.room, width),
                value.new_empty(batch, heads, self.room, width),
            )
        keys, values = self.stored
        start, self.length = self.length, self.length + key.shape[2]
        keys[:, :, start : self.length] = key
        values[:, :, start : self.length] = value
        return keys[:, :, : self.length], values[:, :, : self.length]


def torch_network(torch: ModuleType, shape: Shape) -> Any:
    """The network in PyTorch: from token ids (batch, sequence) to logits (batch, sequence, vocabulary)."""
    nn = torch.nn
    width, named = shape.width, nn.ModuleDict

    class Conv1D(nn.Module):  # type: ignore[name-defined,misc]
        """A linear layer whose weight is (inputs, outputs); its name is transformers'."""

        def __init__(self, inputs: int, outputs: int, spread: float = INITIAL_STD) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(inputs, outputs).normal_(std=spread))
            self.bias = nn.Parameter(torch.zeros(outputs))

        def forward(self, x: Any) -> Any:
            return torch.addmm(self.bias, x.flatten(0, 1), self.weight).unflatten(0, x.shape[:2])

    class Layer(nn.Module):  # type: ignore[name-defined,misc]
        """Attention to what came before and a feed-forward part, each with a norm before it and a shortcut."""

        def __init__(self) -> None:
            super().__init__()
            closing = INITIAL_STD / math.sqrt(2 * shape.layers)  # so that the sum over all shortcuts keeps its size
            self.ln_1 = nn.LayerNorm(width, eps=EPSILON)
            self.attn = named({"c_attn": Conv1D(width, 3 * width), "c_proj": Conv1D(width, width, closing)})
            self.ln_2 = nn.LayerNorm(width, eps=EPSILON)
            self.mlp = named({"c_fc": Conv1D(width, 4 * width), "c_proj": Conv1D(4 * width, width, closing)})
            self.dropout = nn.Dropout(DROPOUT)

        def forward(self, x: Any, cache: Cache | None) -> Any:
            x = x + self.dropout(self.attn["c_proj"](self._attend(self.ln_1(x), cache)))
            inner = nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
            return x + self.dropout(self.mlp["c_proj"](inner))

        def _attend(self, x: Any, cache: Cache | None) -> Any:
            parts = self.attn["c_attn"](x).chunk(3, dim=2)
            query, key, value = (part.unflatten(2, (shape.heads, -1)).transpose(1, 2) for part in parts)
            if cache is not None:
                key, value = cache.extend(key, value)
            attended = nn.functional.scaled_dot_product_attention(
                query, key, value,
                dropout_p=DROPOUT if self.dropout.training else 0.0,
                is_causal=query.shape[2] > 1,  # a single token may look at all that is there
            )  # fmt: skip
            return attended.transpose(1, 2).flatten(2)

    class Gpt2(nn.Module):  # type: ignore[name-defined,misc]
        """Embeddings, layers, norm, head."""

        def __init__(self) -> None:
            super().__init__()
            self.transformer = named({
                "wte": nn.Embedding(shape.vocabulary, width),
                "wpe": nn.Embedding(shape.positions, width),
                "h": nn.ModuleList(Layer() for _ in range(shape.layers)),
                "ln_f": nn.LayerNorm(width, eps=EPSILON),
            })  # fmt: skip
            self.dropout = nn.Dropout(DROPOUT)
            for name in ("wte", "wpe"):
                nn.init.normal_(self.transformer[name].weight, std=INITIAL_STD)

        def forward(self, ids: Any, caches: list[Cache] | None = None) -> Any:
            """Logits of every token; with a cache for each layer, of the last one only, (batch, vocabulary).

            Caches take a whole prompt while they are empty, and single tokens from then on.
            """
            part = self.transformer
            start = caches[0].length if caches else 0
            places = torch.arange(start, start + ids.shape[1], device=ids.device)
            x = self.dropout(part["wte"](ids) + part["wpe"](places))
            for place, layer in enumerate(part["h"]):
                x = layer(x, caches[place] if caches else None)
            return nn.functional.linear(part["ln_f"](x if caches is None else x[:, -1]), part["wte"].weight)

    return Gpt2()


def layers(nn: Any, shape: Shape) -> Any:
    """The network in any framework, with the same names."""
    start, width = "transformer.", shape.width
    words = nn.embedding(f"{start}wte", shape.vocabulary, width)
    places = nn.embedding(f"{start}wpe", shape.positions, width)
    dropout = nn.dropout(DROPOUT)
    stack = [_layer(nn, shape, f"{start}h.{number}.") for number in range(shape.layers)]
    norm = nn.layer_norm(f"{start}ln_f", width, EPSILON)

    def forward(ids: Any, caches: Any = None) -> Any:
        """Logits of every token; with a cache for each layer, of the last one only."""
        before = 0 if caches is None else caches[0].length
        x = dropout(words(ids) + places.rows(before, ids.shape[1]))
        for number, each in enumerate(stack):
            x = each(x, None if caches is None else caches[number])
        return words.scores(norm(x if caches is None else x[:, -1]))

    return forward


def _layer(nn: Any, shape: Shape, name: str) -> Any:
    width, dropout = shape.width, nn.dropout(DROPOUT)
    norm1, norm2 = (nn.layer_norm(f"{name}ln_{number}", width, EPSILON) for number in (1, 2))

    def linear(part: str, inputs: int, outputs: int) -> Any:
        return nn.linear(f"{name}{part}", inputs, outputs, inputs_first=True)

    parts, joined = linear("attn.c_attn", width, 3 * width), linear("attn.c_proj", width, width)
    widened, narrowed = linear("mlp.c_fc", width, 4 * width), linear("mlp.c_proj", 4 * width, width)

    def forward(x: Any, cache: Any) -> Any:
        attended = nn.attention(*nn.split(parts(norm1(x)), 3), shape.heads, DROPOUT, causal=True, cache=cache)
        x = x + dropout(joined(attended))
        return x + dropout(narrowed(nn.gelu(widened(norm2(x)), by_tanh=True)))

    return forward


# -- the workload ------------------------------------------------------------------------------------

SHAPE = Shape(layers=12, width=768, heads=12, vocabulary=50_257, positions=1024)
BATCH, SEQ = 4, 512
DECODED = 32
CYCLE, STRIDE = 97, 518  # words of the texts, and how far apart they lie in the vocabulary
OPTIMISER = Optimiser("adamw", 1e-4, decay=0.01)


def torch(torch: ModuleType, case: Case) -> Recipe:
    """The recipe for PyTorch."""
    batch, seq = case.batch or BATCH, case.seq or SEQ
    _check_length(case)

    def draw() -> tuple[Any, Any]:
        """Texts that go round one cycle of words, each from a random place; the targets are one word ahead."""
        places = torch.randint(CYCLE, (batch, 1)) + torch.arange(seq + 1)
        ids = places % CYCLE * STRIDE
        return ids[:, :-1], ids[:, 1:]

    def loss(logits: Any, targets: Any) -> Any:
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def decode(network: Any, _: Any, given: tuple[Any, list[Cache]]) -> Any:
        """The tokens that follow, (batch, 32); they stay on the device."""
        token, caches = given
        tokens = []
        for _ in range(DECODED):
            token = network(token, caches).argmax(1, keepdim=True)
            tokens.append(token)
        return torch.cat(tokens, 1)

    generation = {"prefill": Phase(prefill, batch * seq), "decode": Phase(decode, batch * DECODED)}
    return Recipe(
        network=torch_network(torch, SHAPE),
        draw=draw,
        loss=loss,
        optimiser=lambda parameters: OPTIMISER.in_torch(torch, parameters),
        phases=generation if case.mode == "infer" else {},
    )


def _check_length(case: Case) -> None:
    seq = case.seq or SEQ
    needed = seq + DECODED if case.mode == "infer" else seq
    if needed > SHAPE.positions:
        raise NotImplementedError(f"{case.workload} knows {SHAPE.positions} positions; a sequence needs {needed}")


def network(nn: Any, case: Case) -> Any:
    """The network in any framework."""
    _check_length(case)
    return layers(nn, SHAPE)


def examples(case: Case, chance: random.Random) -> tuple[Values, Values]:
    """As in PyTorch: texts that go round one cycle of words, and the same one word ahead."""
    batch, seq = case.batch or BATCH, case.seq or SEQ
    starts = [chance.randrange(CYCLE) for _ in range(batch)]

    def texts(ahead: int) -> Values:
        words = [(start + place + ahead) % CYCLE * STRIDE for start in starts for place in range(seq)]
        return Values((batch, seq), array.array("i", words))

    return texts(0), texts(1)


def prefill(network: Any, ids: Any, _: Any) -> tuple[Any, list[Cache]]:
    """The token after the prompt, (batch, 1), and the prompt's keys and values with room for what is decoded."""
    caches = [Cache(ids.shape[1] + DECODED) for _ in range(SHAPE.layers)]
    return network(ids, caches).argmax(1, keepdim=True), caches


def count(case: Case) -> int:
    """Tokens of a step: of the texts, and in inference those decoded too."""
    return (case.batch or BATCH) * ((case.seq or SEQ) + (DECODED if case.mode == "infer" else 0))


def flops(case: Case) -> float:
    """Two per weight and token, and two matmuls of attention, the masked half included; backward twice that."""
    batch, seq = case.batch or BATCH, case.seq or SEQ
    if case.mode != "infer":
        return 3.0 * batch * (_layers(seq, seq) + seq * HEAD)
    prompt = _layers(seq, seq) + HEAD
    decoded = sum(_layers(1, seq + place) + HEAD for place in range(1, DECODED + 1))
    return float(batch * (prompt + decoded))


HEAD = 2 * SHAPE.width * SHAPE.vocabulary  # operations for one token's logits


def _layers(tokens: int, context: int) -> int:
    """Operations of all layers for that many tokens of one sequence, each of which looks at `context`."""
    return SHAPE.layers * 2 * tokens * (12 * SHAPE.width**2 + 2 * context * SHAPE.width)


WORKLOAD = Workload(
    name="gpt2", title="GPT-2", version=1, item="token", batch=BATCH, seq=SEQ, params=124_439_808, flops=flops,
    count=count, build={"torch": torch}, portable=Portable(network, examples, OPTIMISER, decoded=DECODED),
)  # fmt: skip
