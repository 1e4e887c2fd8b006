"""The BERT that every `bert-` workload shares is the well-known one."""

from __future__ import annotations

import pytest
import torch

from mldyno import plugins
from mldyno.records import Case
from mldyno.workloads import bert
from mldyno.workloads.torch_layers import network_in_torch

TINY = bert.Shape(layers=1, width=8, heads=2, inner=16, vocabulary=40)
LINEAR = ("weight", "bias")


def test_it_has_the_state_dict_of_transformers() -> None:
    inside, layer = "bert.embeddings.", "bert.encoder.layer.0."
    keys = {f"{inside}{name}_embeddings.weight" for name in ("word", "position", "token_type")}
    parts = [
        f"{inside}LayerNorm", f"{layer}attention.self.query", f"{layer}attention.self.key",
        f"{layer}attention.self.value", f"{layer}attention.output.dense", f"{layer}attention.output.LayerNorm",
        f"{layer}intermediate.dense", f"{layer}output.dense", f"{layer}output.LayerNorm", "bert.pooler.dense",
        "classifier",
    ]  # fmt: skip
    keys |= {f"{part}.{kind}" for part in parts for kind in LINEAR}
    assert set(network_in_torch(torch, lambda nn: bert.network(nn, TINY)).state_dict()) == keys


def test_words_of_a_sequence_tell_its_label_and_none_is_padding() -> None:
    workload = plugins.workload("bert-tiny")
    ids, labels = workload.build["torch"](torch, Case("bert-tiny", mode="train")).draw()
    assert ids.shape == (workload.batch, workload.seq)
    assert int(ids.min()) > 0
    assert int(ids.max()) < 30_522
    assert torch.equal((ids > 30_522 // 2).long(), labels[:, None].expand_as(ids))


def test_dropout_can_be_switched_off_for_attention_too() -> None:
    network = network_in_torch(torch, lambda nn: bert.network(nn, TINY)).train()
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.eval()
    ids = torch.randint(1, 40, (2, 6))
    assert torch.equal(network(ids), network(ids))


def test_a_sequence_longer_than_its_positions_is_unsupported() -> None:
    with pytest.raises(NotImplementedError, match="512 positions"):
        plugins.workload("bert-tiny").build["torch"](torch, Case("bert-tiny", mode="infer", batch=1, seq=513))
