"""Compare what the workloads compute in PyTorch with an earlier revision, and what a step costs.

    python bench/same_networks.py REVISION [--time] [WORKLOAD ...]

For each workload and mode: the same state-dict keys, first weights, random stream and batches from a seed, the same
operators in the same order (forward and backward, dropout on), bit for bit the same outputs and gradients, and the same
graphs from torch.compile. With `--time`, steps of both revisions in two processes that take turns: the ratio of their
times, with an interval. Only an idle machine gives an interval below 1 %.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mldyno import plugins
from mldyno.records import Case

HERE = Path(__file__).resolve()
BATCH, SEQ = 2, 16  # of the compared passes
BLOCKS, WARM_UP_BLOCKS, BLOCK_S = 60, 5, 0.5
NOT_COMPARED = ("bert-large", "matmul", "copy", "venv-ppo")  # as bert-base; and what has no network of layers


def main(revision: str, *words: str) -> None:
    """Compare the working tree with a revision."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", revision, "src"], capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        old, new = (Child(root) for root in (f"{folder}/src", str(HERE.parent.parent / "src")))
        names = [word for word in words if not word.startswith("-")] or old.ask("names")
        for name in names:
            for mode in old.ask("modes", name):
                differing = [
                    what for what, value in old.ask("facts", name, mode).items()
                    if new.facts(name, mode)[what] != value
                ]  # fmt: skip
                ratio = f"  {timed(old, new, name, mode)}" if "--time" in words else ""
                print(
                    f"{name}/{mode}: {'differs in ' + ', '.join(differing) if differing else 'the same'}{ratio}",
                    flush=True,
                )


class Child:
    """A process with one version of the workloads."""

    def __init__(self, root: str) -> None:
        command = [sys.executable, str(HERE), "child"]
        self.process = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": root}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.known: dict[tuple[str, str], Any] = {}

    def ask(self, *words: Any) -> Any:
        """Return the answer to an order."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(words), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline() or "null")

    def facts(self, name: str, mode: str) -> Any:
        """Return the facts of a workload, which are found once."""
        if (name, mode) not in self.known:
            self.known[name, mode] = self.ask("facts", name, mode)
        return self.known[name, mode]


def timed(old: Child, new: Child, name: str, mode: str) -> str:
    """Return the ratio of step times, the median of pairs of blocks, with the interval of its quartiles' error."""
    steps = max(1, round(BLOCK_S / old.ask("prepare", name, mode)))
    new.ask("prepare", name, mode)
    ratios = []
    for block in range(WARM_UP_BLOCKS + BLOCKS):
        pair = (old, new) if block % 2 else (new, old)
        times = {child: child.ask("steps", steps) for child in pair}
        if block >= WARM_UP_BLOCKS:
            ratios.append(times[new] / times[old])
    spread = 1.57 * (statistics.quantiles(ratios, n=4)[2] - statistics.quantiles(ratios, n=4)[0]) / len(ratios) ** 0.5
    return f"time x {statistics.median(ratios):.4f} ±{spread:.4f}"


# -- the child -------------------------------------------------------------------------------------


PREPARED: list[Callable[[], None]] = []


class Trace(TorchDispatchMode):  # type: ignore[misc]
    """Note each operator with its arguments, tensors as their shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def shown(value: Any) -> str:
            if torch.is_tensor(value):
                return f"{value.dtype}{tuple(value.shape)}{value.stride()}"
            return f"[{', '.join(map(shown, value))}]" if isinstance(value, list | tuple) else repr(value)

        named = {name: shown(value) for name, value in (kwargs or {}).items() if name != "generator"}
        call = f"{operator} {shown(args)} {named}"
        self.calls.append(re.sub(r"at 0x[0-9a-f]+", "", call))
        return operator(*args, **(kwargs or {}))


def built(name: str, mode: str, default: bool) -> Any:
    """Return the recipe of a workload, of small sizes or of the default ones."""
    workload = plugins.workload(name)
    sizes = {"batch": workload.batch, "seq": workload.seq} if default else {"batch": BATCH, "seq": workload.seq and SEQ}
    case = Case(name, mode=mode, **sizes)  # type: ignore[arg-type]
    torch.manual_seed(1)
    recipe = workload.build["torch"](torch, case)
    recipe.network.train(mode == "train")
    return recipe


def passed(recipe: Any, network: Any, mode: str, batch: Any) -> list[Any]:
    """Return the output, and in training the loss and all gradients."""
    inputs, targets = batch
    if mode == "infer":
        with torch.no_grad():
            given = None
            for phase in recipe.phases.values():
                given = phase.run(network, inputs, given)
            return [given if recipe.phases else network(inputs)]
    output = network(inputs)
    loss = recipe.loss(output, targets)
    loss.backward()
    gradients = [parameter.grad for parameter in recipe.network.parameters()]
    if recipe.updates:
        optimiser = recipe.optimiser(recipe.network.parameters())
        optimiser.step()
    return [output, loss, *gradients]


def digest(*tensors: Any) -> str:
    """Return a hash of tensors, to the last bit."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        sha.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy())
    return sha.hexdigest()


def facts(name: str, mode: str) -> dict[str, Any]:
    """Return all that must be the same."""
    recipe = built(name, mode, False)
    state = recipe.network.state_dict()
    found: dict[str, Any] = {
        "state-dict keys": list(state), "first weights": digest(*state.values()),
        "random stream after them": digest(torch.get_rng_state()),
        "parameters": {name: tuple(each.shape) for name, each in recipe.network.named_parameters()},
    }  # fmt: skip
    batch = recipe.draw()
    found["batches"] = digest(*batch, *recipe.draw())
    found["strides"] = [part.stride() for part in batch]
    found["blocks for FSDP"] = [
        len(module) for module in recipe.network.modules() if isinstance(module, torch.nn.ModuleList)
    ]
    trace = Trace()
    with trace:
        results = passed(recipe, recipe.network, mode, batch)
    found["operators"] = hashlib.sha256("\n".join(trace.calls).encode()).hexdigest()
    if folder := os.environ.get("TRACES"):
        Path(folder, f"{name}-{mode}-{os.getpid()}.txt").write_text("\n".join(trace.calls))
    found["outputs and gradients"] = digest(*results)
    found["random stream after a pass"] = digest(torch.get_rng_state())
    found["weights after an update"] = digest(*recipe.network.state_dict().values())
    if not recipe.phases:
        found["compiled graphs"] = compiled(name, mode)
    return found


def compiled(name: str, mode: str) -> Any:
    """Return how many graphs torch.compile makes, and what they compute."""
    recipe = built(name, mode, False)
    batch = recipe.draw()
    torch._dynamo.reset()
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op.startswith("call")])
        return graph

    torch.manual_seed(2)
    result = passed(recipe, torch.compile(recipe.network, backend=backend), mode, batch)
    return [len(graphs), digest(*result)]


def prepare(name: str, mode: str) -> float:
    """Make a step of the default sizes; return its time in s, of few."""
    recipe = built(name, mode, True)
    batch, network = recipe.draw(), recipe.network
    optimiser = recipe.optimiser(network.parameters()) if mode == "train" else None

    def one() -> None:
        if optimiser is None:
            passed(recipe, network, mode, batch)
            return
        recipe.loss(network(batch[0]), batch[1]).backward()
        if recipe.updates:
            optimiser.step()
        optimiser.zero_grad()

    PREPARED[:] = [one]
    one()
    return steps(3)


def steps(count: int) -> float:
    """Return the time in s of a step, of that many."""
    begin = time.perf_counter()
    for _ in range(count):
        PREPARED[0]()
    return (time.perf_counter() - begin) / count


ORDERS: dict[str, Any] = {
    "names": lambda: [
        name for name in plugins.built_in("workloads")
        if name not in NOT_COMPARED and "torch" in plugins.workload(name).build
    ],
    "modes": lambda name: list(plugins.workload(name).modes),
    "facts": facts, "prepare": prepare, "steps": steps,
}  # fmt: skip


def child() -> None:
    """Answer orders from standard input."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        order, *words = json.loads(line)
        print(json.dumps(ORDERS[order](*words)), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        child()
    else:
        main(*sys.argv[1:])
