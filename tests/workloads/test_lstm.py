"""The LSTM is torch's, and only its last time step is asked for."""

from __future__ import annotations

import torch

from mldyno import plugins
from mldyno.records import Case


def test_its_logits_are_the_last_outputs_of_torchs_lstm() -> None:
    torch.manual_seed(1)
    recipe = plugins.workload("lstm").build["torch"](torch, Case("lstm", batch=2, seq=5))
    inputs, labels = recipe.draw()
    assert inputs.shape == (5, 2, 1024)
    assert labels.shape == (2,)
    theirs = torch.nn.LSTM(1024, 512, num_layers=4)
    theirs.load_state_dict(recipe.network.state_dict())
    with torch.no_grad():
        assert torch.equal(recipe.network(inputs), theirs(inputs)[0][-1])


def test_its_operations_by_hand() -> None:
    # On a real device torch's counter sees no products of a fused LSTM; the contract counts it on the meta device.
    tokens = 2 * 5
    from_inputs = [2 * tokens * 4 * 512 * width for width in (1024, 512, 512, 512)]
    from_state = 4 * [2 * tokens * 4 * 512 * 512]
    forward = sum(from_inputs) + sum(from_state)
    no_gradient = from_inputs[0] + 4 * (2 * 2 * 4 * 512 * 512)  # the inputs', and that of each layer's first state
    flops = plugins.workload("lstm").flops
    assert flops(Case("lstm", mode="infer", batch=2, seq=5)) == forward == 188_743_680
    assert flops(Case("lstm", mode="train", batch=2, seq=5)) == 3 * forward - no_gradient == 507_510_784
