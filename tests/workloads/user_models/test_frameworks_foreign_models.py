"""Models of families that people bring along, written anew: each runs in its modes, and is checked as it should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.separate_process import facts_of
from tests.workloads.user_models.foreign_models import CAST, HEADS, MODELS

from mldyno import cli

SCRIPT = Path(__file__).with_name("foreign_models.py")
pytestmark = pytest.mark.timeout(900)  # the first test of a framework waits for all that its process does
every = [(framework, name) for framework in MODELS for name in MODELS[framework]]
INFERENCE_ONLY = ("two_losses", "sampler")
TOKENS = ("nanogpt", "nanogpt_targets_apart", "nanogpt_own_loss", "mingpt", "gpt_that_needs_targets", "model_output",
          "word_language_lstm", "transformer_with_masks", "dict_batch", "nnx_with_loss", "gpt_with_loss")  # fmt: skip
IMAGES = ("resnet", "keras_convnet", "linen")


def facts(framework: str) -> dict[str, Any]:
    """What a process of its own says of the models of a framework."""
    return facts_of(SCRIPT, framework)


def case(framework: str, name: str, words: str) -> dict[str, Any]:
    """What became of a case."""
    seen: dict[str, Any] = facts(framework)[name]["cases"][words]
    return seen


@pytest.mark.parametrize(("framework", "name"), [pair for pair in every if pair[1] != "wrong_sampler"])
def test_a_foreign_model_runs_in_its_modes_and_learns(framework: str, name: str) -> None:
    seen = facts(framework)[name]
    assert seen["framework"] == framework
    assert seen["modes"] == (["infer"] if name in INFERENCE_ONLY else ["train", "infer"])
    item = "token" if name in TOKENS else "image" if name in IMAGES else "sample"
    for words, of_case in seen["cases"].items():
        assert (of_case["status"], of_case["reason"]) == ("ok", ""), words
        assert of_case["item"] == item
        assert of_case["learned"] is (True if words.startswith("train") else None)


@pytest.mark.parametrize(("framework", "name"), [
    (framework, name) for framework in CAST for name in CAST[framework] if "sampler" not in name])  # fmt: skip
def test_a_foreign_model_agrees_with_fp32(framework: str, name: str) -> None:
    for mode in ("train", "infer"):
        assert case(framework, name, f"{mode} bf16")["agrees"] is True


@pytest.mark.parametrize(("framework", "name", "left_out"), [
    ("torch", "nanogpt", "targets"), ("torch", "nanogpt_targets_apart", "targets"), ("torch", "mingpt", "targets"),
    ("torch", "nanogpt_own_loss", "targets"), ("torch", "model_output", "labels"),
    ("torch", "plain_dataclass_output", "y"), ("jax", "nnx_with_loss", "targets"), ("mlx", "gpt_with_loss", "targets"),
])  # fmt: skip
def test_inference_goes_without_the_targets_that_only_the_loss_needs(framework: str, name: str, left_out: str) -> None:
    assert case(framework, name, "infer fp32")["inference_without"] == left_out
    assert case(framework, name, "train fp32")["inference_without"] is None


def test_inference_that_can_not_go_without_targets_is_said_to_compute_the_loss() -> None:
    seen = case("torch", "gpt_that_needs_targets", "infer fp32")
    assert (seen["loss_in_inference"], seen["inference_without"]) == (True, None)


@pytest.mark.parametrize(("framework", "name", "part"), [
    ("torch", "gcn_sparse", "a sparse tensor"), ("torch", "graph_object", "a Graph"),
    ("torch", "word_language_lstm", "tensors of 2 and 6 items"), ("tensorflow", "sparse_inputs", "a SparseTensor"),
    ("tensorflow", "ragged_inputs", "a RaggedTensor"), ("jax", "sparse_gcn", "a BCOO"), ("torch", "dict_batch", None),
])  # fmt: skip
def test_a_batch_is_rolled_as_a_whole_or_not_at_all(framework: str, name: str, part: str | None) -> None:
    assert case(framework, name, "infer fp32")["same_batch"] == part


def test_a_model_that_draws_is_not_wrong_and_one_that_is_wrong_is() -> None:
    seen = case("torch", "sampler", "infer bf16")
    assert (seen["draws_random"], seen["agrees"]) == (True, None)
    assert seen["not_checked"] == "agreement with the CPU"
    for mode in ("train", "infer"):
        assert case("torch", "wrong_sampler", f"{mode} fp32")["status"] == "ok"
        wrong = case("torch", "wrong_sampler", f"{mode} bf16")
        assert wrong["status"] == "wrong"
        assert "results differ from fp32 on the CPU" in wrong["reason"]


def test_training_that_is_impossible_is_refused_with_the_reason_and_what_to_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def mldyno(*words: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as end:
            cli.main(words)
        return end.value.code or 0, capsys.readouterr().err

    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(HEADS["torch"] + MODELS["torch"]["two_losses"])
    code, err = mldyno("run", "mine.py", "--mode", "train")
    why = "build() returned no targets or loss, and 2 outputs of the model could be the loss (output[1], output[2])"
    what = "say which it is: return model, inputs, lambda output: output[1]"
    assert (code, err) == (2, f"mldyno: mine.py can only be measured in inference: {why}; {what}.\n")
    code, err = mldyno("run", "mine.py", "--dry-run")
    assert (code, err) == (0, f"mine.py is measured in inference only: {why}; {what}\n")
