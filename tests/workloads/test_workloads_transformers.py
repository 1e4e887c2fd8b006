"""BERT and GPT-2 compute what transformers computes: same weights, same outputs, loss and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mldyno import plugins
from mldyno.records import Case
from mldyno.workloads import bert, gpt2
from mldyno.workloads.torch_layers import network_in_torch

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}  # logits and losses are of the order of 1
CLOSER: dict[str, Any] = {"rtol": 1e-5, "atol": 2e-6}  # gradients reach 0.005 to 0.5
BERT = bert.Shape(layers=2, width=768, heads=12, inner=3072, vocabulary=28_996)
GPT2 = gpt2.Shape(layers=2, width=768, heads=12, vocabulary=50_257, positions=1024)


def their_bert(shape: bert.Shape) -> Any:
    """BertForSequenceClassification without dropout, with weights of which none is zero or one."""
    from transformers import BertConfig, BertForSequenceClassification  # takes long: only where these tests run

    config = BertConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.width, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, intermediate_size=shape.inner, num_labels=2,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return shaken(BertForSequenceClassification(config))


def their_gpt2(shape: gpt2.Shape) -> Any:
    """GPT2LMHeadModel without dropout, with weights of which none is zero or one."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=shape.vocabulary, n_positions=shape.positions, n_embd=shape.width, n_layer=shape.layers,
        n_head=shape.heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=None,
    )  # fmt: skip
    return shaken(GPT2LMHeadModel(config))


def shaken(network: Any, spread: float = 0.02) -> Any:
    """The network with noise of so large a standard deviation in every weight."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(spread * torch.randn_like(parameter))
    return network


def load(ours: Any, theirs: Any) -> None:
    """Load their weights, all of them, but for the head of GPT-2, which is its embedding."""
    state = theirs.state_dict()
    head = state.pop("lm_head.weight", None)
    assert head is None or head.data_ptr() == state["transformer.wte.weight"].data_ptr()
    ours.load_state_dict(state, strict=True)


def without_dropout(network: Any) -> Any:
    for module in network.train().modules():
        if isinstance(module, torch.nn.Dropout):
            module.eval()
    return network


def assert_same_gradients(ours: Any, theirs: Any) -> None:
    mine, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    assert mine.keys() == other.keys()
    for key, parameter in mine.items():
        assert key.endswith("bias") or float(other[key].grad.abs().max()) > 1e-3  # a bias of keys has none
        torch.testing.assert_close(parameter.grad, other[key].grad, **CLOSER)


def test_bert_agrees_in_inference_and_in_training() -> None:
    torch.manual_seed(1)
    ours, theirs = network_in_torch(torch, lambda nn: bert.network(nn, BERT)), their_bert(BERT)
    load(ours, theirs)
    ids, labels = torch.randint(1, BERT.vocabulary, (3, 12)), torch.tensor([0, 1, 1])
    with torch.inference_mode():
        torch.testing.assert_close(ours.eval()(ids), theirs.eval()(ids).logits, **CLOSE)
    with torch.device("meta"):
        recipe = bert.WORKLOADS["bert-base"].build["torch"](torch, Case("bert-base"))
    loss = recipe.loss(without_dropout(ours)(ids), labels)
    expected = theirs.train()(ids, labels=labels).loss
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected, **CLOSE)
    assert_same_gradients(ours, theirs)


def test_gpt2_agrees_in_inference_and_in_training() -> None:
    torch.manual_seed(1)
    ours, theirs = network_in_torch(torch, lambda nn: gpt2.network(nn, GPT2)), their_gpt2(GPT2)
    load(ours, theirs)
    ids = torch.randint(GPT2.vocabulary, (2, 9))
    with torch.inference_mode():
        torch.testing.assert_close(ours.eval()(ids), theirs.eval()(ids).logits, **CLOSE)
    with torch.device("meta"):
        recipe = gpt2.PORTABLE.in_torch(torch, Case("gpt2"))
    loss = recipe.loss(without_dropout(ours)(ids)[:, :-1], ids[:, 1:])
    expected = theirs.train()(ids, labels=ids).loss
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected, **CLOSE)
    assert_same_gradients(ours, theirs)


def test_gpt2_generates_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    shape = gpt2.Shape(layers=2, width=64, heads=4, vocabulary=200, positions=64)
    monkeypatch.setattr(gpt2, "SHAPE", shape)
    recipe = gpt2.PORTABLE.in_torch(torch, Case("gpt2", mode="infer", batch=3, seq=6))
    theirs = shaken(their_gpt2(shape), spread=0.3).eval()
    load(recipe.network, theirs)
    prompt = torch.randint(shape.vocabulary, (3, 6))
    given: Any = None
    with torch.inference_mode():
        for phase in recipe.phases.values():
            given = phase.run(recipe.network.eval(), prompt, given)
        end_to_end = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=33, do_sample=False)
    assert end_to_end.shape == (3, 6 + 33)
    assert torch.equal(given, end_to_end[:, 7:])  # the first after the prompt is prefill's
    assert len(set(given.flatten().tolist())) > 10


@pytest.mark.parametrize("name", ["bert-base", "gpt2"])
def test_the_whole_network_agrees_in_inference(name: str) -> None:
    torch.manual_seed(1)
    recipe = plugins.workload(name).build["torch"](torch, Case(name, mode="infer", batch=2, seq=8))
    theirs = their_gpt2(gpt2.SHAPE) if name == "gpt2" else their_bert(bert.BASE)
    load(recipe.network, theirs)
    ids, _ = recipe.draw()
    with torch.inference_mode():
        torch.testing.assert_close(recipe.network.eval()(ids), theirs.eval()(ids).logits, **CLOSE)
