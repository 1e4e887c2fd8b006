"""Workloads in other frameworks than PyTorch: from the same weights, the same numbers; they learn; faults are seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.frameworks.in_own_process import EXPORTED, LEARNING, QUICK
from tests.separate_process import facts_of

from mldyno import plugins
from mldyno.frameworks import TOLERANCE, relative_error
from mldyno.frameworks.layers import Layers
from mldyno.records import Case

ARRAYS = ("jax", "tensorflow", "mlx")
LARGE = ("cnn-224", "encoder", "resnet50", "bert-base", "gpt2")
SCRIPT = Path(__file__).with_name("in_own_process.py")
pytestmark = pytest.mark.timeout(1200)  # the first test of a framework waits for all that its process does


def facts(framework: str) -> dict[str, Any]:
    """What a process of its own says of a framework."""
    return facts_of(SCRIPT, framework)


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("workload", QUICK)
@pytest.mark.parametrize("framework", ARRAYS)
def test_it_computes_what_pytorch_computes(framework: str, workload: str, mode: str) -> None:
    actual, expected = (facts(name)["proofs"][f"{workload} {mode}"] for name in (framework, "torch"))
    assert relative_error(actual, expected) < TOLERANCE["fp32"] / 5
    assert len({*actual}) == len(actual), "each update changed the loss, each output is another"


@pytest.mark.parametrize("framework", EXPORTED)
def test_what_pytorch_exported_computes_the_same(framework: str) -> None:
    for name, actual in facts(framework)["proofs"].items():
        assert relative_error(actual, facts("torch")["proofs"][name]) < 1e-4
    error, tolerance = facts(framework)["off"]
    assert error <= tolerance


def test_numpy_computes_what_pytorch_computes() -> None:
    for name, actual in facts("numpy")["proofs"].items():
        assert relative_error(actual, facts("torch")["proofs"][name]) < 1e-5


@pytest.mark.parametrize(
    ("framework", "reason"),
    [("numpy", "numpy has no layers of all the kinds"), ("mlx", "fp32 on the CPU"),
     *((name, "does not train") for name in EXPORTED)],
)  # fmt: skip
def test_what_it_does_not_have_is_refused_with_a_reason(framework: str, reason: str) -> None:
    assert reason in facts(framework)["refused"]


@pytest.mark.parametrize("framework", [*ARRAYS, "numpy"])
def test_a_training_learns_the_fixed_batch(framework: str) -> None:
    losses = facts(framework)["learned"]
    assert {*losses} == {*(("mlp",) if framework == "numpy" else LEARNING)}
    for first, last in losses.values():
        assert 0 <= last < first


@pytest.mark.parametrize("framework", [*ARRAYS, *EXPORTED])
def test_it_has_the_parameters_of_the_workload_and_runs_in_every_placement(framework: str) -> None:
    assert facts(framework)["params"] == plugins.workload("bert-tiny").params
    assert facts(framework)["placed"] == ["cpu"] * 3


@pytest.mark.parametrize("framework", ARRAYS)
def test_batches_from_disk_are_normalised_and_an_epoch_makes_no_graph_that_was_not_prepared(framework: str) -> None:
    seen = facts(framework)["from_disk"]
    assert seen["phases"] == {"data": 20 * 16, "epoch": 170}
    assert seen["labels"] == [index % 10 for index in range(16)]
    assert seen["pixels"] == pytest.approx((75 / 255 - 0.1) / 0.3)
    prepared, after = seen["traces"]
    assert prepared == after
    assert 0 <= seen["accuracy"] <= 1
    first, last = seen["losses"]
    assert 0 <= last < first


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_a_precision_takes_effect_and_agrees_with_fp32(framework: str) -> None:
    kinds = facts(framework)["precisions"]
    assert len(kinds) == 4
    for flaw, types, error, tolerance in kinds.values():
        assert (flaw, types) == ("", "bfloat16")
        assert 0 < error <= tolerance


def test_one_compiled_by_xla_agrees_with_one_that_is_not() -> None:
    error, tolerance = facts("tensorflow")["compiled"]
    assert error <= tolerance


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_a_step_is_traced_once_and_a_new_shape_is_seen(framework: str) -> None:
    assert facts(framework)["traced"] == [[1], [2]]


@pytest.mark.parametrize("framework", ARRAYS)
def test_text_is_generated_in_two_phases(framework: str) -> None:
    assert facts(framework)["phases"] == {"prefill": 8, "decode": 32}


class Counted(Layers):
    """Layers that are only counted."""

    name = "counted"

    def max_pool(self, *sizes: int) -> Any:
        return None

    def constant(self, rows: Any) -> Any:
        return None

    def relu(self, x: Any) -> Any:
        return None


@pytest.mark.parametrize("workload", QUICK + LARGE)
def test_its_network_has_the_parameters_of_the_one_in_pytorch_by_their_names(workload: str) -> None:
    definition = plugins.workload(workload)
    case = Case(workload, mode="train", batch=2, seq=definition.seq and 8)
    layers = Counted()
    assert definition.portable is not None
    definition.portable.network(layers, case)
    with torch.device("meta"):
        network = definition.build["torch"](torch, case).network
    expected = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    assert {name: parameter.shape for name, parameter in layers.parameters.items()} == expected
