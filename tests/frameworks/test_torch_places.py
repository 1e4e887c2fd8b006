"""What lies on another device than the rest is seen; the meta device stands for the other one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mldyno import plugins
from mldyno.frameworks.torch.operations import actual_device, watch_compute
from mldyno.records import Case

CPU = torch.device("cpu")
BATCH = (torch.ones(2, 3), torch.ones(2))


class Layered(torch.nn.Module):  # type: ignore[misc]
    """Two layers and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        self.register_buffer("mean", torch.zeros(3))


def adam(network: Any) -> Any:
    """An optimiser that has made a step."""
    optimiser = torch.optim.Adam(network.parameters())
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    return optimiser


def test_what_lies_on_one_device_is_seen_there_and_step_counters_do_not_matter() -> None:
    network = Layered()
    optimiser = adam(network)
    for state in optimiser.state.values():
        state["step"] = state["step"].to("meta")
    assert actual_device(network, optimiser, BATCH, CPU) == "cpu"
    assert actual_device(network, None, BATCH, None) == "cpu"


def test_every_parameter_and_buffer_counts_not_only_the_first() -> None:
    network = Layered()
    network.last.to("meta")
    assert actual_device(network, None, BATCH, None) == "cpu, parameter last.weight on meta"
    network = Layered()
    network.mean = network.mean.to("meta")
    assert actual_device(network, None, BATCH, None) == "cpu, buffer mean on meta"


def test_inputs_targets_and_what_the_optimiser_keeps_count() -> None:
    network = Layered()
    assert actual_device(network, None, (BATCH[0].to("meta"), BATCH[1]), None) == "cpu, the inputs on meta"
    assert actual_device(network, None, (BATCH[0], BATCH[1].to("meta")), None) == "cpu, the targets on meta"
    optimiser = adam(network)
    state = optimiser.state[network.last.bias]
    state["exp_avg_sq"] = state["exp_avg_sq"].to("meta")
    assert actual_device(network, optimiser, BATCH, None) == "cpu, the optimiser's exp_avg_sq on meta"


def test_the_output_lies_with_the_rest_or_where_it_was_brought_to() -> None:
    network, other = Layered(), torch.device("meta")
    assert actual_device(network, None, BATCH, other) == "cpu, the output on meta"
    assert actual_device(network, None, BATCH, other, other) == "cpu"
    assert actual_device(network, None, BATCH, CPU, other) == "cpu, the output on cpu"


@pytest.mark.parametrize("kind", ["meta", "cpu"])
def test_products_are_seen_where_they_run(kind: str) -> None:
    with watch_compute(torch) as ran:
        torch.ones(2, 2) + 1
        assert ran == set()
        a = torch.ones(2, 2, device=kind, requires_grad=True)
        (a @ a).sum().backward()
    assert ran == {kind}


def test_a_step_that_multiplies_elsewhere_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    framework = plugins.framework("torch")
    framework.start()
    program: Any = framework.open(Case("mlp", mode="infer", batch=2), plugins.workload("mlp").build["torch"])
    program.run(1)
    forward = program.network.forward

    def hidden(inputs: Any) -> Any:
        torch.ones(2, 2, device="meta") @ torch.ones(2, 2, device="meta")
        return forward(inputs)

    monkeypatch.setattr(program.network, "forward", hidden)
    assert program.actual_device() == "cpu"
    program.counts()
    assert program.actual_device() == "cpu, matmuls or gradients on meta"


def test_gradients_are_seen_where_the_optimiser_finds_them() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimiser = torch.optim.SGD([weight], lr=0.1)
    with watch_compute(torch) as devices:
        optimiser.step()
    assert devices == {"cpu"}
    with watch_compute(torch) as devices:
        optimiser.zero_grad()
        optimiser.step()
    assert devices == set()
