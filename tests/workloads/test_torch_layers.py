"""Networks of layers are modules of PyTorch: they compile, they are sharded by blocks, and copies are refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from mldyno.workloads import bert, encoder, gpt2, resnet
from mldyno.workloads.torch_layers import TorchDraws, TorchLayers, network_in_torch

BERT = bert.Shape(layers=2, width=8, heads=2, inner=16, vocabulary=40)
GPT2 = gpt2.Shape(layers=2, width=8, heads=2, vocabulary=40, positions=20)
RESNET = resnet.Shape(block=resnet.BOTTLENECK, counts=(1, 1, 1, 1), classes=3, shrinks=True)
DESCRIBED: dict[str, Any] = {
    "bert": lambda nn: bert.network(nn, BERT),
    "gpt2": lambda nn: gpt2.network(nn, GPT2),
    "encoder": lambda nn: encoder.network(nn, 6),
    "encoder-ragged": lambda nn: encoder.network(nn, 6, ragged=True),
    "resnet": lambda nn: resnet.network(nn, RESNET),
}


def inputs_of(name: str) -> Any:
    return torch.randn(2, 3, 32, 32) if name == "resnet" else torch.randint(1, 40, (2, 6))


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_network_compiles_into_one_graph_with_the_same_outputs(name: str) -> None:
    torch.manual_seed(1)
    network, inputs = network_in_torch(torch, DESCRIBED[name]).eval(), inputs_of(name)
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(network, backend=backend)(inputs)
        assert torch.equal(compiled, network(inputs))
    assert len(graphs) == 1


@pytest.mark.parametrize(("name", "count"), [("bert", 2), ("gpt2", 2), ("encoder", 6), ("resnet", 0)])
def test_the_blocks_of_a_transformer_are_modules_that_are_called_so_that_each_can_be_sharded(
    name: str, count: int
) -> None:
    network, called = network_in_torch(torch, DESCRIBED[name]), []
    blocks = [block for each in network.modules() if isinstance(each, torch.nn.ModuleList) for block in each]
    for block in blocks:
        block.register_forward_hook(lambda block, given, output: called.append(block))
    network(inputs_of(name))
    assert called == blocks
    assert len(blocks) == count


def test_a_copy_is_refused_since_it_would_run_the_layers_of_the_original() -> None:
    with pytest.raises(TypeError, match="build the network anew"):
        copy.deepcopy(network_in_torch(torch, DESCRIBED["bert"]))


def test_the_row_of_the_padding_is_zero_and_is_not_trained() -> None:
    network = network_in_torch(torch, DESCRIBED["bert"])
    words = network.get_submodule("bert.embeddings.word_embeddings").weight
    assert not words[0].any()
    assert words[1:].any(dim=1).all()
    network(torch.zeros(2, 6, dtype=torch.long)).sum().backward()
    assert not words.grad.any()


def test_first_weights_are_drawn_again_only_where_a_description_says_so() -> None:
    layers = TorchLayers(torch)
    first, second = layers.linear("a.first", 3, 4), layers.linear("second", 3, 4)
    before = second.weight.clone()
    layers.initialise("constant_", "first.weight", val=7.0)
    layers.initialise("zeros_", "first.bias", dimensions=1)
    assert first.weight.eq(7).all()
    assert not first.bias.any()
    assert torch.equal(second.weight, before)


def test_batches_come_from_the_random_numbers_of_pytorch() -> None:
    draws = TorchDraws(torch)
    torch.manual_seed(1)
    numbers, labels = draws.numbers((2, 3), 1.0), draws.labels((4,), 10)
    torch.manual_seed(1)
    assert torch.equal(numbers, torch.randn(2, 3) + 1)
    assert torch.equal(labels, torch.randint(10, (4,)))
