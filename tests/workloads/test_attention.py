"""Attention and the encoder made of it compute what torch's own layers compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mldyno import plugins
from mldyno.records import Case
from mldyno.workloads import encoder
from mldyno.workloads.torch_layers import network_in_torch

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


@pytest.mark.parametrize(("name", "heads"), [("attention", 8), ("attention-1head", 1)])
def test_it_agrees_with_multihead_attention_forward_and_backward(name: str, heads: int) -> None:
    torch.manual_seed(1)
    recipe = plugins.workload(name).build["torch"](torch, Case(name, batch=2, seq=6))
    theirs = torch.nn.MultiheadAttention(512, heads, batch_first=True)
    theirs.load_state_dict(recipe.network.state_dict())
    inputs, targets = recipe.draw()
    ours, other = recipe.network(inputs), theirs(inputs, inputs, inputs, need_weights=False)[0]
    torch.testing.assert_close(ours, other, **CLOSE)
    recipe.loss(ours, targets).backward()
    recipe.loss(other, targets).backward()
    for key, parameter in theirs.named_parameters():
        torch.testing.assert_close(recipe.network.get_parameter(key).grad, parameter.grad, rtol=1e-4, atol=1e-4)


def test_its_loss_is_the_squared_error_of_a_token() -> None:
    recipe = plugins.workload("attention").build["torch"](torch, Case("attention", batch=2, seq=3))
    output, target = torch.randn(2, 3, 512), torch.randn(2, 3, 512)
    assert float(recipe.loss(output, target)) == pytest.approx(512 * float(((output - target) ** 2).mean()))


def test_a_training_step_of_attention_has_no_update() -> None:
    assert not plugins.workload("attention").build["torch"](torch, Case("attention", batch=1, seq=2)).updates


def reference(network: Any, ids: Any, words: Any) -> Any:
    """The encoder's logits by torch's own layers, under the same weights."""
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.1, batch_first=True)
    layers = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    layers.load_state_dict(network.layers.state_dict(prefix="layers."))
    places = torch.arange(ids.shape[1])[:, None]
    angles = places / 10_000 ** (torch.arange(0, 512, 2) / 512)
    positions = torch.zeros(ids.shape[1], 512)
    positions[:, 0::2], positions[:, 1::2] = angles.sin(), angles.cos()
    # In train mode without dropout: in eval mode torch takes a fused path of its own.
    for module in layers.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = 0.0
    x = layers.train()(network.embedding(ids) * 512**0.5 + positions, src_key_padding_mask=~words)
    mean = (x * words[:, :, None]).sum(1) / words.sum(1, keepdim=True)
    return network.fc(mean)


@pytest.mark.parametrize("name", ["encoder", "encoder-ragged"])
def test_the_encoder_agrees_with_that_of_torch(name: str) -> None:
    torch.manual_seed(1)
    recipe = plugins.workload(name).build["torch"](torch, Case(name, mode="infer", batch=3, seq=14))
    ids, _ = recipe.draw()
    words = ids != 0
    assert bool(words.all()) == (name == "encoder")
    with torch.no_grad():
        torch.testing.assert_close(recipe.network.eval()(ids), reference(recipe.network, ids, words), **CLOSE)


def test_padding_changes_nothing() -> None:
    torch.manual_seed(1)
    network = network_in_torch(torch, lambda nn: encoder.network(nn, 12, ragged=True)).eval()
    ids = torch.randint(1, 10_000, (2, 9))
    with torch.inference_mode():
        torch.testing.assert_close(network(ids), network(torch.nn.functional.pad(ids, (0, 3))), **CLOSE)


def test_ragged_sequences_have_eight_words_to_as_many_as_there_is_room_for() -> None:
    torch.manual_seed(1)
    with torch.device("meta"):
        recipe = plugins.workload("encoder-ragged").build["torch"](torch, Case("encoder-ragged", batch=2000, seq=20))
    ids, _ = recipe.draw()
    lengths = (ids != 0).sum(1)
    assert sorted(set(lengths.tolist())) == list(range(8, 21))
    assert bool(((ids != 0) == (torch.arange(20) < lengths[:, None])).all())


def test_words_of_a_sequence_tell_its_label() -> None:
    with torch.device("meta"):
        recipe = plugins.workload("encoder").build["torch"](torch, Case("encoder", batch=50, seq=20))
    ids, labels = recipe.draw()
    assert int(ids.min()) > 0
    assert torch.equal(ids // 1000, labels[:, None].expand_as(ids))


def test_positions_are_not_saved_with_the_weights() -> None:
    network = network_in_torch(torch, lambda nn: encoder.network(nn, 5))
    assert network.positions.shape == (5, 512)
    assert "positions" not in network.state_dict()


def test_dropout_can_be_switched_off_for_attention_too() -> None:
    network = network_in_torch(torch, lambda nn: encoder.network(nn, 6)).train()
    ids = torch.randint(1, 10_000, (2, 6))
    assert not torch.equal(network(ids), network(ids))
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.eval()
    assert torch.equal(network(ids), network(ids))
