"""The contract of every workload: it builds, counts right, learns, and is a file with a title."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from mldyno import plugins
from mldyno.records import Case
from mldyno.workloads import Recipe, Workload, bert, gpt2

# Batch and sequence length that are quick to compute; the operations are counted for these and for larger ones.
SMALL: dict[str, tuple[int, int | None]] = {
    "bert-base": (2, 8), "bert-large": (1, 8), "gpt2": (2, 8), "encoder": (2, 12), "encoder-ragged": (2, 12),
    "cnn-224": (2, None), "resnet18": (2, None), "resnet18-cifar": (2, None), "resnet50": (2, None),
    "matmul": (16, None), "copy": (2, None),
}  # fmt: skip
# Steps after which it must have learned: few where batch norm over two images is wild.
CHECK_STEPS = {"resnet50": 2}
FEW_LAYERS, FEW_WORDS = 2, 1000  # of a transformer that learns: the whole ones take seconds to fill with numbers
BATCH_DIMENSION = {"lstm": 1}  # else 0
DECODED = {("gpt2", "infer"): 32}  # tokens of a sequence beyond those given
NAMES = plugins.names("workloads")
IN_TORCH = [name for name in NAMES if "torch" in plugins.workload(name).build]
# venv-ppo reads from its device, and its step does not start from the batch drawn: it has a test file of its own.
STEPS_ALONE = ("venv-ppo",)
MODES = [(name, mode) for name in IN_TORCH if name not in STEPS_ALONE for mode in plugins.workload(name).modes]


def small(name: str, mode: str, larger: int = 0) -> Case:
    """A small case of the workload, or one with another batch and length."""
    workload = plugins.workload(name)
    batch, seq = SMALL.get(name, (4, 8 if workload.seq else None))
    return Case(name, version=workload.version, mode=mode, batch=batch + larger, seq=seq and seq + 2 * larger)  # type: ignore[arg-type]


def built(name: str, case: Case) -> tuple[Workload, Recipe]:
    workload = plugins.workload(name)
    torch.manual_seed(1)
    return workload, workload.build["torch"](torch, case)


def shallow(name: str, monkeypatch: pytest.MonkeyPatch) -> Workload:
    """The workload; of a large transformer only some layers, with fewer words or narrower."""
    shape = {"bert-base": bert.BASE, "bert-large": bert.LARGE}.get(name)
    if shape is not None:
        shape = replace(shape, layers=FEW_LAYERS, vocabulary=FEW_WORDS)
        return bert.workload(name, name, shape, version=1, batch=2, seq=8, params=0)
    monkeypatch.setattr(gpt2, "SHAPE", replace(gpt2.SHAPE, layers=FEW_LAYERS, width=192, heads=3))
    return plugins.workload(name)


def step(recipe: Recipe, mode: str, inputs: Any, targets: Any) -> None:
    """A step without the optimiser's."""
    recipe.network.train(mode == "train")
    if recipe.phases:
        given = None
        for phase in recipe.phases.values():
            given = phase.run(recipe.network, inputs, given)
        return
    output = recipe.network(inputs)
    if mode == "train":
        recipe.loss(output, targets).backward()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_named_as_its_file_and_says_what_it_is(name: str) -> None:
    workload = plugins.workload(name)
    assert workload.name == name
    assert len(plugins.about("workloads", name)[0]) > 10


@pytest.mark.parametrize("name", IN_TORCH)
def test_it_has_the_parameters_that_it_states(name: str) -> None:
    with torch.device("meta"):
        workload, recipe = built(name, small(name, plugins.workload(name).modes[0]))
    assert sum(parameter.numel() for parameter in recipe.network.parameters()) == workload.params


@pytest.mark.parametrize("name", IN_TORCH)
def test_its_network_shows_on_which_device_it_lies(name: str) -> None:
    with torch.device("meta"):
        _, recipe = built(name, small(name, plugins.workload(name).modes[0]))
    assert {tensor.device.type for tensor in (*recipe.network.parameters(), *recipe.network.buffers())} == {"meta"}


@pytest.mark.parametrize("larger", [0, 3])
@pytest.mark.parametrize(("name", "mode"), MODES)
def test_its_stated_operations_are_those_that_torch_counts(
    name: str, mode: str, larger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    monkeypatch.setattr(gpt2, "DECODED", 3)  # 32 tokens take half a minute without a device
    monkeypatch.setitem(vars(gpt2.PORTABLE), "decoded", 3)
    case = small(name, mode, larger)
    with torch.device("meta"):
        workload, recipe = built(name, case)
        inputs, targets = recipe.draw()
        with FlopCounterMode(display=False) as counter:
            step(recipe, mode, inputs, targets)
    assert counter.get_total_flops() == workload.flops(case)


@pytest.mark.parametrize("name", [name for name, mode in MODES if mode == "train"])
def test_it_learns_a_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    recipe = shallow(name, monkeypatch).build["torch"](torch, small(name, "train"))
    inputs, targets = recipe.draw()
    optimiser = recipe.optimiser(recipe.network.parameters())

    def loss() -> Any:
        return recipe.loss(recipe.network.train()(inputs), targets)

    losses = []
    for _ in range(CHECK_STEPS.get(name, 6)):
        value = loss()
        losses.append(float(value.detach()))
        value.backward()
        optimiser.step()
        optimiser.zero_grad()
    with torch.no_grad():
        losses.append(float(loss()))
    assert all(0 <= value < float("inf") for value in losses)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_its_inputs_are_random_and_of_the_size_asked_for(name: str, mode: str) -> None:
    case = small(name, mode, larger=3)
    with torch.device("meta"):  # the network is not asked for
        _, recipe = built(name, case)
    torch.manual_seed(1)
    (first, _), (second, _) = recipe.draw(), recipe.draw()
    dimension = BATCH_DIMENSION.get(name, 0)
    assert first.shape[dimension] == case.batch
    assert case.seq is None or first.shape[1 - dimension] == case.seq
    assert not torch.equal(first, second)
    assert float(first.double().abs().sum()) > 0


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_its_items_are_those_of_a_step(name: str, mode: str) -> None:
    case = small(name, mode, larger=3)
    assert case.batch is not None
    with torch.device("meta"):
        workload, recipe = built(name, case)
    each = {"token": (case.seq or 0) + DECODED.get((name, mode), 0), "B": 2**20}.get(workload.item, 1)
    assert workload.items(case) == case.batch * each
    assert not recipe.phases or sum(phase.items for phase in recipe.phases.values()) == workload.items(case)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in IN_TORCH])
def test_a_whole_run_is_that_of_a_workload_with_a_data_set(name: str) -> None:
    workload = plugins.workload(name)
    assert workload.frameworks == ("command",)
    assert workload.end_to_end is not None
    trained = plugins.workload(workload.end_to_end.workload)
    assert (workload.data, workload.params, workload.batch) == (trained.data, trained.params, trained.batch)
    assert workload.placement == "loader"
    assert workload.items(Case(name)) == 1


def test_operations_of_mlp_by_hand() -> None:
    first, second, third, last = 2 * 1024 * 512, 2 * 512 * 512, 2 * 512 * 512, 2 * 512 * 2
    forward = 5 * (first + second + third + last)
    weights = forward
    inputs = 5 * (second + third + last)
    flops = plugins.workload("mlp").flops
    assert flops(Case("mlp", mode="infer", batch=5)) == forward == 10_496_000
    assert flops(Case("mlp", mode="train", batch=5)) == forward + weights + inputs == 26_245_120


@pytest.mark.parametrize("name", ["attention", "attention-1head"])
def test_operations_of_attention_by_hand(name: str) -> None:
    tokens = 3 * 7
    projection = 2 * tokens * 512 * (3 * 512)
    scores = 2 * tokens * 7 * 512  # each query with the 7 keys of its sequence
    values = 2 * tokens * 7 * 512  # the mean of 7 values for each query
    joining = 2 * tokens * 512 * 512
    forward = projection + scores + values + joining
    backward = projection + 2 * (scores + values + joining)  # nobody asks for the gradient of the inputs
    flops = plugins.workload(name).flops
    assert flops(Case(name, mode="infer", batch=3, seq=7)) == forward == 44_341_248
    assert flops(Case(name, mode="train", batch=3, seq=7)) == forward + backward == 99_993_600
