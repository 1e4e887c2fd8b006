"""GPT-2 small, 124 million parameters: training, or a prompt and 32 tokens decoded after it.

12 layers, hidden size 768, 12 heads, vocabulary 50,257, 1024 positions, tied head, dropout 0.1 in training.
Train: next-token cross-entropy, AdamW 1e-4. Infer: `prefill` takes the prompt into a cache of keys and
values and finds the next token; `decode` feeds 32 tokens, one by one and each the likeliest. The
state-dict keys are those of GPT2LMHeadModel in transformers, but for its copy of the embedding as the head.
"""

from __future__ import annotations

import array
import random
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.values import Values
from mldyno.workloads import Optimiser, Phase, Portable, Recipe, Workload, _gpt2

SHAPE = _gpt2.Shape(layers=12, width=768, heads=12, vocabulary=50_257, positions=1024)
BATCH, SEQ = 4, 512
DECODED = 32
CYCLE, STRIDE = 97, 518  # words of the texts, and how far apart they lie in the vocabulary
OPTIMISER = Optimiser("adamw", 1e-4, decay=0.01)


def torch(torch: ModuleType, case: Case) -> Recipe:
    """The recipe for PyTorch."""
    batch, seq = case.batch or BATCH, case.seq or SEQ
    _check_length(case)

    def draw() -> tuple[Any, Any]:
        """Texts that go round one cycle of words, each from a place of its own; the targets are one word ahead."""
        places = torch.randint(CYCLE, (batch, 1)) + torch.arange(seq + 1)
        ids = places % CYCLE * STRIDE
        return ids[:, :-1], ids[:, 1:]

    def loss(logits: Any, targets: Any) -> Any:
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def decode(network: Any, _: Any, given: tuple[Any, list[_gpt2.Cache]]) -> Any:
        """The tokens that follow, (batch, 32); they stay on the device."""
        token, caches = given
        tokens = []
        for _ in range(DECODED):
            token = network(token, caches).argmax(1, keepdim=True)
            tokens.append(token)
        return torch.cat(tokens, 1)

    generation = {"prefill": Phase(prefill, batch * seq), "decode": Phase(decode, batch * DECODED)}
    return Recipe(
        network=_gpt2.network(torch, SHAPE),
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
    return _gpt2.layers(nn, SHAPE)


def examples(case: Case, chance: random.Random) -> tuple[Values, Values]:
    """As in PyTorch: texts that go round one cycle of words, and the same one word ahead."""
    batch, seq = case.batch or BATCH, case.seq or SEQ
    starts = [chance.randrange(CYCLE) for _ in range(batch)]

    def texts(ahead: int) -> Values:
        words = [(start + place + ahead) % CYCLE * STRIDE for start in starts for place in range(seq)]
        return Values((batch, seq), array.array("i", words))

    return texts(0), texts(1)


def prefill(network: Any, ids: Any, _: Any) -> tuple[Any, list[_gpt2.Cache]]:
    """The token after the prompt, (batch, 1), and the prompt's keys and values with room for what is decoded."""
    caches = [_gpt2.Cache(ids.shape[1] + DECODED) for _ in range(SHAPE.layers)]
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
    """Operations of all layers for so many tokens of one sequence, each of which looks at `context`."""
    return SHAPE.layers * 2 * tokens * (12 * SHAPE.width**2 + 2 * context * SHAPE.width)


WORKLOAD = Workload(
    name="gpt2", title="GPT-2", version=1, item="token", batch=BATCH, seq=SEQ, params=124_439_808, flops=flops,
    count=count, build={"torch": torch}, portable=Portable(network, examples, OPTIMISER, decoded=DECODED),
)  # fmt: skip
