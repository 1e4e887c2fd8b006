"""Models of the user's own, seen from inside a process of its own: `python own_models.py jax FOLDER` prints JSON.

Several frameworks in one process fight for threads, and some crash; in the product each has a process of its own too.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mldyno import plugins, sources
from mldyno.frameworks import Unsupported
from mldyno.plugins import start_framework
from mldyno.records import Case
from mldyno.workloads.user_models import describe
from mldyno.workloads.user_models.recipes import NotUnderstood

KERAS = """
import keras
import numpy as np
import tensorflow as tf
layers = keras.layers
x, y = np.random.default_rng(1).normal(size=(8, 6)).astype("float32"), np.arange(8) % 3
"""
JAX = """
import jax
import jax.numpy as jnp
import numpy as np
import optax
x, y = np.random.default_rng(1).normal(size=(8, 6)).astype("float32"), np.arange(8) % 3
params = {"w": 0.3 * np.random.default_rng(2).normal(size=(6, 3)), "b": jnp.zeros(3)}
def apply(params, x): return x @ params["w"] + params["b"]
"""
MLX = """
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
x, y = mx.random.normal((8, 6)), mx.arange(8) % 3
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(6, 3), nn.Linear(6, 3)
    def __call__(self, a, b): return self.left(a) + self.right(b)
"""
HEADS = {"tensorflow": KERAS, "jax": JAX, "mlx": MLX}
MODELS = {
    "tensorflow": {
        "plain": "def build(batch_size=8): return (keras.Sequential([layers.Dense(16, 'relu'), layers.Dropout(0.1), "
        "layers.Dense(3)]), tf.random.normal((batch_size, 6)), tf.range(batch_size) % 3)",
        "tuple": "def build(): a, b = keras.Input((6,)), keras.Input((6,)); "
        "return keras.Model([a, b], layers.Dense(3)(a + b)), (x, x), y",
        "dictionary": """
class Two(keras.Model):
    def __init__(self): super().__init__(); self.dense = layers.Dense(3)
    def call(self, a, b, training=False): return self.dense(a - b)
def build(): return Two(), {'b': x, 'a': x[::-1].copy()}, y""",
        "pair": "def build(): return keras.Sequential([layers.Dense(3)]), (x, y[:, None])",
        "module": """
class Linear(tf.Module):
    def __init__(self): super().__init__(); self.w = tf.Variable(tf.random.normal((6, 3)))
    def __call__(self, x): return x @ self.w
def build(): return Linear(), tf.constant(x), tf.constant(y), keras.losses.sparse_categorical_crossentropy""",
        "function": "w = tf.Variable(tf.ones((6, 3)))\n@tf.function\ndef f(x): return x @ w\n"
        "def build(): return f, tf.constant(x)",
        "function_trained": "w = tf.Variable(tf.random.normal((6, 3)))\ndef f(x): return x @ w\n"
        "def build(): return f, tf.constant(x), tf.constant(y)",
        "own_loss": "def loss(output, targets): return 100 + tf.square(output[:, 0] - tf.cast(targets, tf.float32))\n"
        "def build(): return keras.Sequential([layers.Dense(3)]), x, y, loss, keras.optimizers.SGD(0.0)",
        "compiled": "def build():\n    m = keras.Sequential([layers.Dense(1, kernel_initializer='zeros')])\n"
        "    m.compile(loss='mse', optimizer=keras.optimizers.SGD(0.05))\n"
        "    return m, x, 2 * np.ones((8, 1), 'float32')",
        "made_before": "m = keras.Sequential([layers.Dense(3)])\ndef build(): return m, x, y",
        "gives_loss": "class M(keras.Model):\n    def __init__(self): super().__init__(); self.d = layers.Dense(1)\n"
        "    def call(self, x): return tf.reduce_mean(self.d(x) ** 2)\ndef build(): return M(), x",
    },
    "jax": {
        "plain": "def build(batch_size=8): return (apply, params), jnp.ones((batch_size, 6)), "
        "jnp.zeros(batch_size, int)",
        "tuple": "def build(): return (lambda p, a, b: apply(p, a - b), params), (x, x[::-1].copy()), y",
        "dictionary": "def build(): return (lambda p, a, b: apply(p, a - b), params), {'b': x, 'a': x[::-1].copy()}, y",
        "pair": "def build(): return (apply, params), (x, y)",
        "function": "@jax.jit\ndef f(x): return jnp.tanh(x)\ndef build(): return f, jnp.asarray(x)",
        "own_loss": "def loss(output, targets): return 100 + (output[:, 0] - targets) ** 2\n"
        "def build(): return (apply, params), x, y, loss, optax.sgd(0.0)",
        "gives_loss": "def loss(params, batch): return (apply(params, batch['x']) ** 2).mean()\n"
        "def build(): return (loss, params), {'x': x, 'y': y}",
        "unseeded": "def build(): w = np.random.default_rng().normal(size=(6, 3)); "
        "return (lambda w, x: x @ w, w), np.random.default_rng().normal(size=(8, 6)), y",
        "recipe": "from mldyno.workloads import Recipe\ndef build(): return Recipe((apply, params), lambda: (x, y), "
        "optax.softmax_cross_entropy_with_integer_labels, lambda params: optax.sgd(0.1))",
        "of_optax": "def build(): return (apply, params), x, y, optax.softmax_cross_entropy_with_integer_labels",
    },
    "mlx": {
        "plain": "def build(batch_size=8): return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), "
        "nn.Linear(16, 3)), mx.random.normal((batch_size, 6)), mx.arange(batch_size) % 3",
        "tuple": "def build(): return Two(), (x, -x), y",
        "dictionary": "def build(): return Two(), {'b': x, 'a': -x}, y",
        "pair": "def build(): return nn.Linear(6, 3), (x, y)",
        "function": "def build(): return mx.tanh, x",
        "own_loss": "def loss(output, targets): return 100 + (output[:, 0] - targets) ** 2\n"
        "def build(): return nn.Linear(6, 3), x, y, loss, optim.SGD(0.0)",
        "gives_loss": "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.d = nn.Linear(6, 1)\n    def __call__(self, x): return (self.d(x) ** 2).mean()\n"
        "def build(): return M(), x",
        "normed": "def build(): return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm(16), nn.Linear(16, 3)), x, y",
    },
}
BAD = {
    "tensorflow": {"alone": "def build(): return keras.Sequential([layers.Dense(3)])",
                   "untrained": "def build(): return tf.tanh, tf.constant(x), tf.constant(y)",
                   "shapes": "def build(): return keras.Sequential([layers.Dense(3)]), x, y[:4]"},
    "jax": {"alone": "def build(): return apply", "flat": "def build(): return apply, params, x, y",
            "untrained": "def build(): return jnp.tanh, jnp.asarray(x), y",
            "whole": "def build(): return (apply, {**params, 'n': jnp.arange(3)}), x, y"},
    "mlx": {"alone": "def build(): return nn.Linear(6, 3)", "untrained": "def build(): return mx.tanh, x, y",
            "nothing": "def build(): return (lambda x: 'hello'), x"},
}  # fmt: skip


def described(framework: str, folder: Path, name: str, text: str) -> sources.Source:
    path = folder / name / f"{name}.py"
    path.parent.mkdir(parents=True)
    path.write_text(HEADS[framework] + text)
    source = describe(sources.read(str(path)), start_framework)
    sources.register(source)
    return source


def opened(source: sources.Source, mode: str, **axes: Any) -> Any:
    its, workload = plugins.framework(source.framework), plugins.workload(source.name)
    case = Case(source.name, framework=source.framework, mode=mode, batch=source.batch, **axes)  # type: ignore[arg-type]
    return its.open(case, its.version_of(workload))


def after(program: Any, steps: int) -> Any:
    program.run(steps)
    program.synchronize()
    return program


def looked_at(source: sources.Source) -> dict[str, Any]:
    """What it is; its loss in the first step and after some more; where it lies, and what it multiplied."""
    seen = {key: value for key, value in asdict(source).items() if key in ("framework", "output", "modes", "items")}
    for mode in source.modes:
        program = after(opened(source, mode), 2)
        seen[mode] = {"params": program.params, "device": program.actual_device(), "flaw": program.precision_flaw(),
                      "facts": dict(program.facts)}  # fmt: skip
        if mode == "train":
            first = program.first_losses()["loss"]
            later = [program.losses()["loss"] for _ in range(12)]  # each is a step too; dropout makes them jump
            seen[mode]["losses"] = [first, min(later)]
    return seen


def on_axes(source: sources.Source) -> dict[str, Any]:
    """Flaw and error against the reference of other cases of a model, or why there are none."""
    axes: dict[str, dict[str, str | bool]] = {
        "bf16": {"precision": "bf16"}, "amp-bf16": {"precision": "amp-bf16"}, "compile": {"compile": True},
        "roundtrip": {"placement": "roundtrip"}, "host": {"placement": "host"},
    }  # fmt: skip
    seen: dict[str, Any] = {}
    for name, axis in axes.items():
        for mode in source.modes:
            try:
                program = after(opened(source, mode, **axis), 3)
                seen[f"{name} {mode}"] = [
                    program.precision_flaw(),
                    program.error_vs_reference(),
                    program.actual_device(),
                ]
            except Unsupported as error:
                seen[f"{name} {mode}"] = str(error)
    return seen


def refused(framework: str, folder: Path, name: str, text: str) -> str:
    try:
        described(framework, folder, name, text)
    except NotUnderstood as error:
        return str(error)
    return ""


def main(framework: str, folder: Path) -> dict[str, Any]:
    described_sources = {name: described(framework, folder, name, text) for name, text in MODELS[framework].items()}
    return {
        "models": {name: looked_at(source) for name, source in described_sources.items()},
        "axes": on_axes(described_sources["plain"]),
        "function axes": on_axes(described_sources["function"]),
        "other axes": {
            name: on_axes(described_sources[name]) for name in ("unseeded", "made_before") if name in described_sources
        },
        "refused": {name: refused(framework, folder, name, text) for name, text in BAD[framework].items()},
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
