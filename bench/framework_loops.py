"""Figure 12: a step as mldyno builds and times it in each framework, over a loop as the framework's people write it.

Each framework has a process of its own: `python -m bench.framework_loops jax` prints its rows as JSON.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from bench.loops import FULL, LEAST, MOST, QUICK, Effort, Ratio, paired_rounds
from bench.results import Chapter, Figure
from bench.work import Work, say

from mldyno import plugins
from mldyno.records import Case
from mldyno.units import show_seconds
from mldyno.worker.client import settings_of
from mldyno.worker.session import open_case

THREADS = 1
FRAMEWORKS = ("tensorflow", "jax", "mlx")
WORKLOADS = ("mlp", "mnist-cnn")
BATCHES = 4
Step = Callable[[Any, Any], Any]


def measure(work: Work) -> Chapter:
    """Each framework in a process of its own."""
    chapter = Chapter("12. A step in each framework, over an idiomatic loop's")
    chapter.notes.append(
        f"{THREADS} thread, fp32, the CPU. Beside the case, which is measured as in a worker, a loop of the framework's"
        " own modules: `keras.Sequential` and a `tf.function`, a jitted function with `optax`, `mlx.nn.Sequential`."
        " Both in one process, in rounds of random order, as in chapter 8."
    )
    for framework in FRAMEWORKS:
        for workload, mode, ratio in rows(framework, work.quick):
            name = f"`{framework}` `{workload}` {mode}"
            say(f"  {name}: {ratio.value:.4f} ± {ratio.half_width:.4f}")
            how = f"{ratio.rounds} rounds of {ratio.steps} steps each"
            chapter.figures.append(Figure(name, ratio.value, "", MOST, how, LEAST, ratio.half_width))
            chapter.notes.append(f"{name}: {show_seconds(ratio.ours)} over {show_seconds(ratio.theirs)} a step.")
    return chapter


def rows(framework: str, quick: bool) -> list[tuple[str, str, Ratio]]:
    """What a process of its own measured."""
    import os

    case = Case("mlp", framework=framework, threads=THREADS)
    command = [sys.executable, "-m", "bench.framework_loops", framework, *(["--quick"] if quick else [])]
    said = subprocess.run(command, env=os.environ | settings_of(case), capture_output=True, text=True, check=True)
    parsed = (json.loads(line) for line in said.stdout.splitlines() if line.startswith("["))
    return [(workload, mode, Ratio(**ratio)) for workload, mode, ratio in parsed]


def main(framework: str, effort: Effort) -> None:
    """Print a row for each workload and mode."""
    for workload, mode in itertools.product(WORKLOADS, ("train", "infer")):
        definition = plugins.workload(workload)
        case = Case(workload, framework=framework, mode=mode, batch=definition.batch, threads=THREADS)  # type: ignore[arg-type]
        opened = open_case(case)
        opened.warm_up(effort.warmup)
        assert definition.portable is not None
        program: Any = opened.program
        drawn = [definition.portable.batch(case, seed) for seed in range(BATCHES)]
        pool = [[program.backend.place(program.framework.array(part, case)) for part in batch] for batch in drawn]
        step, wait = LOOPS[framework](workload, mode)
        batches = itertools.cycle(pool)

        def loop(steps: int, step: Step = step, wait: Any = wait, batches: Any = batches) -> None:
            last = None
            for inputs, targets in itertools.islice(batches, steps):
                last = step(inputs, targets)
            wait(last)

        loop(3)
        print(json.dumps([workload, mode, asdict(paired_rounds(opened, loop, effort))]), flush=True)


# -- as the frameworks' own people write them --------------------------------------------------------


def in_tensorflow(workload: str, mode: str) -> tuple[Step, Any]:
    """A model of Keras and a tf.function."""
    import keras
    import tensorflow as tf

    layers = keras.layers
    networks = {
        "mlp": [*(layers.Dense(512, activation="relu") for _ in range(3)), layers.Dense(2)],
        "mnist-cnn": [
            layers.Conv2D(10, 5), layers.MaxPooling2D(2), layers.ReLU(),
            layers.Conv2D(20, 5), layers.MaxPooling2D(2), layers.ReLU(),
            layers.Flatten(), layers.Dense(50, activation="relu"), layers.Dense(10),
        ],
    }  # fmt: skip
    model = keras.Sequential(networks[workload])
    model.build((None, 1024) if workload == "mlp" else (None, 28, 28, 1))
    if mode == "infer":
        forward = tf.function(lambda inputs: model(inputs, training=False))
        return lambda inputs, targets: forward(inputs), lambda last: None
    optimiser = keras.optimizers.SGD(0.01, 0.0 if workload == "mlp" else 0.5)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function  # type: ignore[untyped-decorator]
    def step(inputs: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(targets, model(inputs, training=True))
        optimiser.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step, lambda last: None


def in_jax(workload: str, mode: str) -> tuple[Step, Any]:
    """Plain functions, jitted, and optax."""
    import jax
    import jax.numpy as jnp
    import optax

    def dense(key: Any, inputs: int, outputs: int) -> dict[str, Any]:
        return {"w": jax.random.normal(key, (inputs, outputs)) * inputs**-0.5, "b": jnp.zeros(outputs)}

    def conv(key: Any, inputs: int, outputs: int) -> dict[str, Any]:
        return {"w": jax.random.normal(key, (5, 5, inputs, outputs)) * 0.1, "b": jnp.zeros(outputs)}

    def pooled(x: Any, layer: Any) -> Any:
        x = jax.lax.conv_general_dilated(x, layer["w"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.lax.reduce_window(x + layer["b"], -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jax.nn.relu(x)

    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    if workload == "mlp":
        sizes = [1024, 512, 512, 512, 2]
        params = [dense(key, *pair) for key, pair in zip(keys, itertools.pairwise(sizes), strict=True)]

        def forward(params: Any, x: Any) -> Any:
            for layer in params[:-1]:
                x = jax.nn.relu(x @ layer["w"] + layer["b"])
            return x @ params[-1]["w"] + params[-1]["b"]
    else:
        params = [conv(keys[0], 1, 10), conv(keys[1], 10, 20), dense(keys[2], 320, 50), dense(keys[3], 50, 10)]

        def forward(params: Any, x: Any) -> Any:
            x = pooled(pooled(x, params[0]), params[1]).reshape(x.shape[0], -1)
            x = jax.nn.relu(x @ params[2]["w"] + params[2]["b"])
            return x @ params[3]["w"] + params[3]["b"]

    if mode == "infer":
        run = jax.jit(forward)
        return lambda inputs, targets: run(params, inputs), jax.block_until_ready
    optimiser = optax.sgd(0.01, None if workload == "mlp" else 0.5)

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(forward(params, x), y).mean()

    def update(params: Any, state: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
        changes, state = optimiser.update(gradients, state, params)
        return optax.apply_updates(params, changes), state, loss

    jitted, held = jax.jit(update, donate_argnums=(0, 1)), [params, optimiser.init(params)]

    def step(inputs: Any, targets: Any) -> Any:
        held[0], held[1], loss = jitted(*held, inputs, targets)
        return loss

    return step, lambda last: jax.block_until_ready((held, last))


def in_mlx(workload: str, mode: str) -> tuple[Step, Any]:
    """mlx.nn and its optimisers, evaluated once a step."""
    import mlx.core as mx
    import mlx.optimizers as optim
    from mlx import nn

    class Flatten(nn.Module):  # type: ignore[misc]
        def __call__(self, x: Any) -> Any:
            return x.reshape(x.shape[0], -1)

    networks = {
        "mlp": lambda: [nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                        nn.Linear(512, 2)],
        "mnist-cnn": lambda: [nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5), nn.MaxPool2d(2),
                              nn.ReLU(), Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10)],
    }  # fmt: skip
    model = nn.Sequential(*networks[workload]())
    mx.eval(model.parameters())
    if mode == "infer":

        def infer(inputs: Any, targets: Any) -> Any:
            output = model(inputs)
            mx.async_eval(output)  # type: ignore[no-untyped-call]
            return output

        return infer, lambda last: mx.synchronize()
    optimiser = optim.SGD(0.01, 0.0 if workload == "mlp" else 0.5)
    find = nn.value_and_grad(model, lambda model, x, y: nn.losses.cross_entropy(model(x), y, reduction="mean"))

    def train(inputs: Any, targets: Any) -> Any:
        loss, gradients = find(model, inputs, targets)
        optimiser.update(model, gradients)
        mx.async_eval(model.parameters(), optimiser.state, loss)  # type: ignore[no-untyped-call]
        return loss

    return train, lambda last: mx.synchronize()


LOOPS = {"tensorflow": in_tensorflow, "jax": in_jax, "mlx": in_mlx}

if __name__ == "__main__":
    main(sys.argv[1], QUICK if "--quick" in sys.argv else FULL)
