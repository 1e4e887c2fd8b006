"""GPT-2: its cache is right, its keys are transformers', and what it generates stays on the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mldyno import plugins
from mldyno.records import Case
from mldyno.workloads import gpt2
from mldyno.workloads.torch_layers import TorchCache, network_in_torch

TINY = gpt2.Shape(layers=2, width=32, heads=4, vocabulary=50, positions=40)


@pytest.fixture
def network() -> Any:
    """A tiny one whose logits depend on all that came before, ready for inference."""
    torch.manual_seed(1)
    network = network_in_torch(torch, lambda nn: gpt2.network(nn, TINY)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return network


def test_decoding_with_the_cache_gives_the_logits_of_a_whole_pass(network: Any) -> None:
    ids = torch.randint(50, (3, 17))
    caches = [TorchCache(17) for _ in range(TINY.layers)]
    with torch.inference_mode():
        whole = network(ids)
        given = [network(ids[:, :6], caches)]
        given += [network(ids[:, place : place + 1], caches) for place in range(6, 17)]
    assert whole.shape == (3, 17, 50)
    torch.testing.assert_close(torch.stack(given, 1), whole[:, 5:], rtol=1e-5, atol=1e-5)


def test_a_token_sees_nothing_that_comes_after_it(network: Any) -> None:
    ids = torch.randint(50, (1, 9))
    other = ids.clone()
    other[0, 5] = (ids[0, 5] + 1) % 50
    with torch.inference_mode():
        before, after = network(ids), network(other)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert all(not torch.allclose(before[:, place], after[:, place]) for place in range(5, 9))


def test_the_cache_is_allocated_once_for_all_tokens() -> None:
    cache = TorchCache(7)
    first, _ = cache.extend(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))
    later, values = cache.extend(2 * torch.ones(1, 2, 1, 4), 3 * torch.ones(1, 2, 1, 4))
    assert first.data_ptr() == later.data_ptr()
    assert later.shape == (1, 2, 4, 4)
    assert later[0, 0, :, 0].tolist() == [1, 1, 1, 2]
    assert values[0, 0, :, 0].tolist() == [1, 1, 1, 3]


def test_its_phases_generate_what_whole_passes_generate(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt2, "SHAPE", TINY)
    recipe = gpt2.PORTABLE.in_torch(torch, Case("gpt2", mode="infer", batch=2, seq=5))
    prompt = torch.randint(50, (2, 5))
    with torch.inference_mode():
        given = None
        for phase in recipe.phases.values():
            given = phase.run(network, prompt, given)
        ids = prompt
        for _ in range(33):
            ids = torch.cat((ids, network(ids)[:, -1].argmax(1, keepdim=True)), 1)
    assert list(recipe.phases) == ["prefill", "decode"]
    assert torch.equal(given, ids[:, 6:])  # the token before them is prefill's


def test_generating_reads_nothing_back_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt2, "SHAPE", TINY)
    with torch.device("meta"):  # a meta tensor has no values: reading one would fail
        recipe = gpt2.PORTABLE.in_torch(torch, Case("gpt2", mode="infer", batch=2, seq=4))
        prompt, _ = recipe.draw()
        given: Any = None
        for phase in recipe.phases.values():
            given = phase.run(recipe.network, prompt, given)
    assert (given.shape, given.device.type) == ((2, 32), "meta")


def test_it_has_the_state_dict_of_transformers_but_for_the_tied_head() -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (50_257, 768), "transformer.wpe.weight": (1024, 768),
        "transformer.ln_f.weight": (768,), "transformer.ln_f.bias": (768,),
    }  # fmt: skip
    linear = {"attn.c_attn": (768, 2304), "attn.c_proj": (768, 768), "mlp.c_fc": (768, 3072), "mlp.c_proj": (3072, 768)}
    for layer in range(12):
        for name, (inputs, outputs) in linear.items():
            shapes[f"transformer.h.{layer}.{name}.weight"] = (inputs, outputs)
            shapes[f"transformer.h.{layer}.{name}.bias"] = (outputs,)
        for name in ("ln_1", "ln_2"):
            shapes |= {f"transformer.h.{layer}.{name}.{kind}": (768,) for kind in ("weight", "bias")}
    with torch.device("meta"):
        state = network_in_torch(torch, lambda nn: gpt2.network(nn, gpt2.SHAPE)).state_dict()
    assert {key: tuple(value.shape) for key, value in state.items()} == shapes


def test_texts_are_a_cycle_and_the_target_is_the_next_token() -> None:
    with torch.device("meta"):
        recipe = gpt2.PORTABLE.in_torch(torch, Case("gpt2", batch=3, seq=200))
    ids, targets = recipe.draw()
    assert torch.equal(ids[:, 1:], targets[:, :-1])
    assert int(ids.max()) < 50_257
    assert torch.equal(ids[:, 97:], ids[:, :-97])
    assert len(set(ids[0].tolist())) == 97


def test_dropout_can_be_switched_off_for_attention_too() -> None:
    network = network_in_torch(torch, lambda nn: gpt2.network(nn, TINY)).train()
    ids = torch.randint(50, (2, 6))
    assert not torch.equal(network(ids), network(ids))
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.eval()
    assert torch.equal(network(ids), network(ids))


@pytest.mark.parametrize(("mode", "longest"), [("train", 1024), ("infer", 992)])
def test_a_sequence_longer_than_its_positions_is_unsupported(mode: Any, longest: int) -> None:
    build = plugins.workload("gpt2").build["torch"]
    with torch.device("meta"):
        build(torch, Case("gpt2", mode=mode, batch=1, seq=longest))
    with pytest.raises(NotImplementedError, match="1024 positions"):
        build(torch, Case("gpt2", mode=mode, batch=1, seq=longest + 1))
