"""Models as people write them elsewhere, each in the style of its family, run as `mldyno run` runs them.

`python foreign_models.py torch FOLDER` prints, for each model of a framework, what it is and the records of its cases.
Several frameworks in one process fight for threads, so each has one of its own, as in the product.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from mldyno import plugins, sources
from mldyno.plugins import start_framework
from mldyno.records import Case
from mldyno.worker import checks, peaks
from mldyno.worker.session import open_case
from mldyno.workloads.user_models import describe

HEADS = {
    "torch": "import torch\nfrom dataclasses import dataclass\nfrom torch import nn\n"
    "from torch.nn import functional as F\n",
    "tensorflow": "import keras\nimport tensorflow as tf\nlayers = keras.layers\n",
    "jax": "import jax\nimport jax.numpy as jnp\nimport optax\nimport flax.linen as linen\nfrom flax import nnx\n"
    "from jax.experimental import sparse\n",
    "mlx": "import mlx.core as mx\nimport mlx.nn as nn\n",
}
DECODER = """
class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.mix, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.mix(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))
class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.1))
    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))
@dataclass
class Config:
    vocabulary: int = 32
    length: int = 12
    width: int = 16
    heads: int = 2
    layers: int = 1
"""
SAMPLER = """
class Sampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
    def forward(self, x):
        y = self.layer(x)
"""
GPT = (
    DECODER
    + """
class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.length, config.width)
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.layers))
        self.norm, self.head = nn.LayerNorm(config.width), nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.words.weight
    def forward(self, idx, targets=None):
        x = self.words(idx) + self.places(torch.arange(idx.size(1), device=idx.device))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        LOSS
"""
)
LAST_ONLY = """if targets is None:
            return self.head(x[:, [-1], :]), None
        logits = self.head(x)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)"""
EVERYWHERE = """logits = self.head(x)
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss"""
TEXT = "    x = torch.randint(32, (batch_size, seq_len))\n"
BY_ARGUMENT = "def build(batch_size=4, seq_len=8):\n" + TEXT
MODELS: dict[str, dict[str, str]] = {
    "torch": {
        "nanogpt": GPT.replace("LOSS", LAST_ONLY) + BY_ARGUMENT + "    return GPT(Config()), (x, x.roll(-1, 1))",
        "nanogpt_targets_apart": GPT.replace("LOSS", LAST_ONLY) + BY_ARGUMENT
        + "    return GPT(Config()), x, x.roll(-1, 1)",
        "nanogpt_own_loss": GPT.replace("LOSS", LAST_ONLY) + BY_ARGUMENT
        + "    return GPT(Config()), (x, x.roll(-1, 1)), lambda output: output[1]",
        "mingpt": GPT.replace("LOSS", EVERYWHERE) + BY_ARGUMENT
        + "    model = GPT(Config(layers=2))\n    return model, {'idx': x, 'targets': x.roll(-1, 1)}, "
        "None, None, torch.optim.AdamW(model.parameters(), 1e-3)",
        "gpt_that_needs_targets": GPT.replace("targets=None", "targets").replace("LOSS", EVERYWHERE) + BY_ARGUMENT
        + "    return GPT(Config()), (x, x.roll(-1, 1))",
        "resnet": """
class Bottle(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
                                  nn.ReLU(inplace=True), nn.Conv2d(width, width, 3, padding=1, bias=False),
                                  nn.BatchNorm2d(width))
    def forward(self, x):
        return F.relu(x + self.body(x))
def create_model(classes):
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), Bottle(8), Bottle(8),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes))
def build(batch_size=4):
    return create_model(10), torch.randn(batch_size, 3, 16, 16), torch.randint(10, (batch_size,))""",
        "word_language_lstm": """
class RNNModel(nn.Module):
    def __init__(self, words=32, width=16, layers=2):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(words, width)
        self.rnn, self.decoder = nn.LSTM(width, width, layers, dropout=0.2), nn.Linear(width, words)
    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        return F.log_softmax(self.decoder(self.drop(output)), -1), hidden
def build(batch_size=4, seq_len=6):
    text = torch.randint(32, (seq_len + 1, batch_size))
    hidden = (torch.zeros(2, batch_size, 16), torch.zeros(2, batch_size, 16))
    loss = lambda output, targets: F.nll_loss(output[0].flatten(0, 1), targets.flatten())
    return RNNModel(), (text[:-1], hidden), text[1:], loss""",
        "transformer_with_masks": """
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.words, self.encoder = nn.Embedding(32, 16), nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)
    def forward(self, ids, mask, padding):
        return self.head(self.encoder(self.words(ids), mask=mask, src_key_padding_mask=padding))
def build(batch_size=4, seq_len=6):
    mask = nn.Transformer.generate_square_subsequent_mask(seq_len)
    padding = torch.zeros(batch_size, seq_len)
    padding[:, -1] = float("-inf")
    ids = torch.randint(32, (batch_size, seq_len))
    return Tagger(), (ids, mask, padding), ids % 5""",
        "vae": """
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.mean, self.spread = nn.Linear(64, 32), nn.Linear(32, 8), nn.Linear(32, 8)
        self.decoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())
    def forward(self, x):
        hidden = F.relu(self.encoder(x))
        mean, spread = self.mean(hidden), self.spread(hidden)
        return self.decoder(mean + DRAWN * torch.exp(0.5 * spread)), mean, spread
def loss(output, x):
    image, mean, spread = output
    return F.binary_cross_entropy(image, x, reduction='sum') - 0.5 * (1 + spread - mean ** 2 - spread.exp()).sum()
def build(batch_size=8):
    x = torch.rand(batch_size, 64)
    return VAE(), x, x, loss""".replace("DRAWN", "4 * torch.rand_like(mean)"),
        "gcn_sparse": """
class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 8), nn.Linear(8, 4)
    def forward(self, x, adj):
        return F.log_softmax(torch.spmm(adj, self.second(F.relu(torch.spmm(adj, self.first(x))))), 1)
def graph():
    dense = torch.eye(20) + (torch.rand(20, 20) < 0.2)
    return dense / dense.sum(1, keepdim=True)
def build():
    return GCN(), (torch.randn(20, 12), graph().to_sparse()), torch.randint(4, (20,)), F.nll_loss""",
        "graph_object": """
class Graph:
    def __init__(self, x, edge_index):
        self.x, self.edge_index = x, edge_index
    def to(self, device):
        return Graph(self.x.to(device), self.edge_index.to(device))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 8), nn.Linear(8, 4)
    def forward(self, data):
        source, target = data.edge_index
        hidden = F.relu(self.first(data.x))
        return self.second(hidden.index_add(0, target, hidden[source]))
def build():
    return Net(), Graph(torch.randn(20, 12), torch.randint(20, (2, 50))), torch.randint(4, (20,))""",
        "model_output": """
from transformers.utils import ModelOutput
@dataclass
class ClassifierOutput(ModelOutput):
    loss: torch.Tensor = None
    logits: torch.Tensor = None
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings, self.classifier = nn.Embedding(32, 16), nn.Linear(16, 3)
    def forward(self, input_ids=None, attention_mask=None, labels=None):
        hidden = self.embeddings(input_ids) * attention_mask[..., None]
        logits = self.classifier(hidden.mean(1))
        return ClassifierOutput(loss=None if labels is None else F.cross_entropy(logits, labels), logits=logits)
def build(batch_size=4, seq_len=8):
    ids = torch.randint(32, (batch_size, seq_len))
    return Classifier(), {'input_ids': ids, 'attention_mask': torch.ones_like(ids), 'labels': ids[:, 0] % 3}""",
        "plain_dataclass_output": """
@dataclass
class Out:
    scores: torch.Tensor
    parts: dict
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
    def forward(self, x, y=None):
        scores = self.layer(x)
        return Out(scores, {} if y is None else {'objective': F.cross_entropy(scores, y), 'seen': torch.tensor(1.0)})
def build(batch_size=4):
    return Model(), (torch.randn(batch_size, 8), torch.randint(3, (batch_size,)))""",
        "dict_batch": """
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.numbers, self.head = nn.Embedding(32, 8), nn.Linear(5, 8), nn.Linear(8, 1)
    def forward(self, ids, numbers, scale=1.0):
        return scale * self.head(self.words(ids).mean(1) + self.numbers(numbers))
def build(batch_size=4):
    inputs = {'ids': torch.randint(32, (batch_size, 6)), 'numbers': torch.randn(batch_size, 5), 'scale': 0.5}
    return Mixed(), inputs, torch.randn(batch_size, 1)""",
        "integers_only": """
class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.things = nn.Embedding(50, 8), nn.Embedding(50, 8)
        self.head = nn.Linear(8, 1)
    def forward(self, user, thing):
        return self.head(self.users(user) * self.things(thing))
def build(batch_size=4):
    pair = torch.randint(50, (batch_size,)), torch.randint(50, (batch_size,))
    return Recommender(), pair, torch.rand(batch_size, 1)""",
        "two_losses": """
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
    def forward(self, x):
        y = self.layer(x)
        return y, (y ** 2).mean(), y.abs().mean()
def build():
    return Two(), torch.randn(4, 8)""",
        "sampler": SAMPLER + """\
        torch.rand(1 if y.dtype == torch.float32 else 2)  # as where another kernel draws other numbers
        return 1 + y + 4 * torch.rand_like(y)
def build(batch_size=4):
    return Sampler(), torch.randn(batch_size, 8)""",
        "wrong_sampler": SAMPLER + """\
        return (100 if y.dtype == torch.bfloat16 else 1) * (1 + y + torch.rand_like(y))
def build(batch_size=4):
    return Sampler(), torch.randn(batch_size, 8), torch.randn(batch_size, 8)""",
    },
    "tensorflow": {
        "keras_convnet": """
def build(batch_size=4):
    model = keras.Sequential([keras.Input((12, 12, 1)), layers.Conv2D(8, 3, activation='relu'), layers.MaxPooling2D(2),
                              layers.Flatten(), layers.Dropout(0.5), layers.Dense(10, activation='softmax')])
    model.compile(loss='categorical_crossentropy', optimizer='adam', metrics=['accuracy'])
    return model, tf.random.uniform((batch_size, 12, 12, 1)), tf.one_hot(tf.range(batch_size) % 10, 10)""",
        "keras_vae": """
class Sampling(layers.Layer):
    def call(self, inputs):
        mean, spread = inputs
        return mean + tf.exp(0.5 * spread) * tf.random.normal(tf.shape(mean), dtype=mean.dtype)
def build(batch_size=8):
    x = keras.Input((16,))
    hidden = layers.Dense(16, 'relu')(x)
    z = Sampling()([layers.Dense(4)(hidden), layers.Dense(4)(hidden)])
    data = tf.random.uniform((batch_size, 16))
    return keras.Model(x, layers.Dense(16)(z)), data, data""",
        "sparse_inputs": """
class Linear(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.random.normal((12, 3)))
    def __call__(self, x, adj):
        return tf.sparse.sparse_dense_matmul(adj, x @ self.w)
def build():
    return Linear(), (tf.random.normal((10, 12)), tf.sparse.from_dense(tf.eye(10))), tf.range(10) % 3""",
        "ragged_inputs": """
class Bag(tf.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = tf.Variable(tf.random.normal((20, 8))), tf.Variable(tf.random.normal((8, 3)))
    def __call__(self, ids):
        return tf.reduce_mean(tf.gather(self.words, ids), axis=1) @ self.head
def build():
    return Bag(), tf.ragged.constant([[1, 2, 3], [4], [5, 6]]), tf.range(3)""",
    },
    "jax": {
        "linen": """
class CNN(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.avg_pool(linen.relu(linen.Conv(8, (3, 3))(x)), (2, 2), (2, 2))
        return linen.Dense(10)(x.reshape((x.shape[0], -1)))
def build(batch_size=4):
    model, x = CNN(), jax.random.normal(jax.random.key(1), (batch_size, 8, 8, 1))
    return (model.apply, model.init(jax.random.key(0), x)), x, jnp.arange(batch_size) % 10""",
        "nnx": """
class MLP(nnx.Module):
    def __init__(self, rngs):
        self.first, self.norm = nnx.Linear(12, 16, rngs=rngs), nnx.BatchNorm(16, rngs=rngs)
        self.drop, self.second = nnx.Dropout(0.1, rngs=rngs), nnx.Linear(16, 3, rngs=rngs)
    def __call__(self, x):
        return self.second(self.drop(nnx.relu(self.norm(self.first(x)))))
def build(batch_size=8):
    model = MLP(nnx.Rngs(0))
    return (model, jax.random.normal(jax.random.key(1), (batch_size, 12)), jnp.arange(batch_size) % 3,
            optax.softmax_cross_entropy_with_integer_labels, nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param))""",
        "nnx_with_loss": """
class LM(nnx.Module):
    def __init__(self, rngs):
        self.words, self.head = nnx.Embed(32, 16, rngs=rngs), nnx.Linear(16, 32, rngs=rngs)
    def __call__(self, ids, targets=None):
        logits = self.head(self.words(ids))
        if targets is None:
            return logits[:, -1:], None
        return logits, optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()
def build(batch_size=4, seq_len=8):
    ids = jax.random.randint(jax.random.key(1), (batch_size, seq_len), 0, 32)
    return LM(nnx.Rngs(0)), (ids, jnp.roll(ids, -1, 1))""",
        "sparse_gcn": """
def apply(params, x, adj):
    return adj @ (jax.nn.relu(adj @ (x @ params['first'])) @ params['second'])
def build():
    params = {'first': 0.3 * jax.random.normal(jax.random.key(0), (12, 8)),
              'second': 0.3 * jax.random.normal(jax.random.key(1), (8, 3))}
    adj = sparse.BCOO.fromdense(jnp.eye(10) + jnp.eye(10, k=1))
    return (apply, params), (jax.random.normal(jax.random.key(2), (10, 12)), adj), jnp.arange(10) % 3""",
    },
    "mlx": {
        "resnet": """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.bn1, self.bn2 = nn.BatchNorm(width), nn.BatchNorm(width)
    def __call__(self, x):
        return nn.relu(x + self.bn2(self.conv2(nn.relu(self.bn1(self.conv1(x))))))
class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks, self.linear = nn.Conv2d(3, 8, 3, padding=1), [Block(8), Block(8)], nn.Linear(8, 10)
    def __call__(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.linear(mx.mean(x, axis=[1, 2]))
def build(batch_size=4):
    return ResNet(), mx.random.normal((batch_size, 8, 8, 3)), mx.arange(batch_size) % 10""",
        "gpt_with_loss": """
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(32, 16), nn.Linear(16, 32)
    def __call__(self, ids, targets=None):
        logits = self.head(self.words(ids))
        if targets is None:
            return logits[:, -1:], None
        return logits, nn.losses.cross_entropy(logits, targets, reduction='mean')
def build(batch_size=4, seq_len=8):
    ids = mx.random.randint(0, 32, (batch_size, seq_len))
    return LM(), ids, mx.roll(ids, -1, 1)""",
    },
}  # fmt: skip
CAST = {
    "torch": ("nanogpt", "vae", "gcn_sparse", "word_language_lstm", "model_output", "sampler", "wrong_sampler"),
    "tensorflow": ("keras_vae",), "jax": ("nnx", "sparse_gcn"), "mlx": (),
}  # fmt: skip
"""Models that are run in bf16 too, and compared with fp32."""
SHOWN = (
    "same_batch",
    "inference_without",
    "loss_in_inference",
    "draws_random",
    "not_checked",
    "items_per_step",
    "item",
)


def outcome(case: Case) -> dict[str, Any]:
    """What becomes of a case in a worker: status, reason, checks and facts."""
    try:
        session = open_case(case)
        session.warm_up(0.05)
        session.turn(0.05, 2)
        closed = session.close()
    except Exception as error:
        status, reason = checks.failure(case.framework, error)
        return {"status": status, "reason": reason}
    known = {fact: closed.facts.get(fact) for fact in SHOWN}
    return {"status": "ok", "reason": "", "learned": closed.checks.learned, "agrees": closed.checks.agrees, **known}


def measured(framework: str, folder: Path, name: str) -> dict[str, Any]:
    """What a model is, and what becomes of its cases."""
    path = folder / f"{name}.py"
    path.write_text(HEADS[framework] + MODELS[framework][name])
    source = describe(sources.read(str(path)), start_framework)
    sources.register(source)
    assert plugins.workload(source.name).modes == source.modes
    plain = Case(source.name, framework=framework, batch=source.batch, seq=source.seq)
    precisions = ("fp32", "bf16") if name in CAST[framework] else ("fp32",)
    cases = [replace(plain, mode=mode, precision=precision) for mode in source.modes for precision in precisions]  # type: ignore[arg-type]
    return {"modes": source.modes, "framework": source.framework, "untrained": source.untrained,
            "cases": {f"{case.mode} {case.precision}": outcome(case) for case in cases}}  # fmt: skip


def main(framework: str, folder: Path) -> dict[str, Any]:
    peaks.exceeded = lambda *_: (1e15, False)  # which take long, and are tested elsewhere
    peaks.copy_rate = lambda *_: 1e12
    plugins.framework(framework).start()
    if framework == "torch":
        plugins.framework(framework).limit_threads(1)
    return {name: measured(framework, folder, name) for name in MODELS[framework]}


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
