"""optimum-benchmark: its inference scenario on a saved BERT with random weights.

It times models of transformers, diffusers and timm, so there is no MLP with it. Its BERT is that of
transformers; so it is held against a bare loop of that same model, with the same inputs.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers import bare
from bench.peers.tools import ROOT, Answer, Call, module, read_answer, say_answer

MODEL = ROOT / ".peers" / "models" / "bert-tiny"
BATCH, SEQ = 8, 64
TASK = "text-classification"
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "LOG_TO_FILE": "0", "LOG_LEVEL": "WARNING"}


@dataclass(frozen=True)
class Optimum:
    """One of its launchers: in the same process, or in a process of its own."""

    launcher: str
    environment: str = "optimum"
    steps: tuple[str, ...] = ("bert",)
    reference: str = "transformers"

    @property
    def name(self) -> str:
        """As the page calls it."""
        return f"optimum {self.launcher}"

    @property
    def settings(self) -> str:
        """Threads and sizes; the rest is its default."""
        return f"{self.launcher} launcher, inference scenario with its defaults (10 s), both thread options 1; `p50`"

    def call(self, step: str, folder: Path, quick: bool) -> Call:
        """This file, in the environment of optimum-benchmark."""
        return Call(module("optimum", self.launcher, *(("quick",) if quick else ())), OFFLINE)

    def read(self, output: str) -> Answer:
        """As printed."""
        return read_answer(output)


@dataclass(frozen=True)
class BareTransformers:
    """The bare loop of the model that optimum-benchmark times."""

    name: str = "bare loop of transformers' BERT"
    environment: str = "optimum"
    steps: tuple[str, ...] = ("bert",)
    reference: str = "transformers"
    settings: str = "as the bare loop, around `BertForSequenceClassification` with optimum-benchmark's own inputs"

    def call(self, step: str, folder: Path, quick: bool) -> Call:
        """This file too."""
        return Call(module("optimum", "bare", *(("quick",) if quick else ())), OFFLINE)

    def read(self, output: str) -> Answer:
        """As printed."""
        return read_answer(output)


def save_model(folder: Path = MODEL) -> None:
    """A BERT of the same shape as bert-tiny, with random weights, as transformers saves it."""
    from transformers import BertConfig, BertForSequenceClassification

    from mldyno.workloads.bert import TINY as SHAPE

    config = BertConfig(
        vocab_size=SHAPE.vocabulary, hidden_size=SHAPE.width, num_hidden_layers=SHAPE.layers,
        num_attention_heads=SHAPE.heads, intermediate_size=SHAPE.inner, num_labels=2,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)


def backend(**options: Any) -> Any:
    """The configuration of its PyTorch backend for the saved model."""
    from optimum_benchmark import PyTorchConfig  # type: ignore[import-not-found]

    # Two options, since 0.6.0 hands each to the other's function: see docs/audit.md.
    threads = {"inter_op_num_threads": 1, "intra_op_num_threads": 1}
    chosen = {"model": str(MODEL), "task": TASK, "library": "transformers", "device": "cpu", **threads, **options}
    return PyTorchConfig(**chosen)


def measure(launcher: str, quick: bool) -> float:
    """The p50 in s that its report gives for one forward pass."""
    from optimum_benchmark import Benchmark, BenchmarkConfig, InferenceConfig, InlineConfig, ProcessConfig

    shapes = {"batch_size": BATCH, "sequence_length": SEQ}
    scenario = InferenceConfig(input_shapes=shapes, **({"duration": 1} if quick else {}))
    kind = {"inline": InlineConfig, "process": ProcessConfig}[launcher]
    report = Benchmark.launch(
        BenchmarkConfig(name="peers", launcher=kind(), scenario=scenario, backend=backend(), log_report=False)
    )
    return float(report.forward.latency.p50)


def build() -> Any:
    """The step that optimum-benchmark times: its own backend's model and its own inputs."""
    import torch
    from optimum_benchmark.backends.pytorch.backend import PyTorchBackend  # type: ignore[import-not-found]
    from optimum_benchmark.generators.input_generator import InputGenerator  # type: ignore[import-not-found]

    made = PyTorchBackend(backend())
    made.load()
    shapes = {"batch_size": BATCH, "sequence_length": SEQ}
    inputs = InputGenerator(task=TASK, model_shapes=made.model_shapes, model_type="bert", input_shapes=shapes)()
    network = made.pretrained_model

    def step() -> object:
        with torch.inference_mode():
            return network(**inputs)

    return step


if __name__ == "__main__":
    what, quickly = sys.argv[1], "quick" in sys.argv
    if what == "save":
        save_model()
    elif what == "bare":
        say_answer(bare.loop(build(), *((bare.QUICK, bare.QUICK) if quickly else ())))
    else:
        say_answer(measure(what, quickly))
