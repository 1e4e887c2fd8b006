"""Models of the user's own in TensorFlow, JAX and MLX: what their functions may return, and what is made of it."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.separate_process import facts_of
from tests.workloads.user_models.own_models import MODELS

from mldyno import api, sources
from mldyno.runner.describing import describe
from mldyno.workloads.user_models.frameworks import Jax
from mldyno.workloads.user_models.recipes import Parts, accepts, call_with_tree, example, is_model

FRAMEWORKS = ("tensorflow", "jax", "mlx")
SCRIPT = Path(__file__).with_name("own_models.py")
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "measure-your-own-model-in-other-frameworks.md"
pytestmark = pytest.mark.timeout(900)  # the first test of a framework waits for all that its process does
every = [(framework, name) for framework in FRAMEWORKS for name in MODELS[framework]]


class FewItems:
    """An array of three items, of no framework."""

    dtype = "int32"

    def __init__(self, items: list[int]) -> None:
        self.items, self.shape, self.ndim = items, (len(items),), 1

    def __getitem__(self, place: int) -> int:
        return self.items[place]


class OfLists(Jax):
    """Takes items out of anything that has some."""

    def take(self, array: Any, places: list[int]) -> Any:
        return [array[place] for place in places]


def facts(framework: str) -> dict[str, Any]:
    """What a process of its own says of the models of a framework."""
    return facts_of(SCRIPT, framework)


def model(framework: str, name: str) -> dict[str, Any]:
    described: dict[str, Any] = facts(framework)["models"][name]
    return described


@pytest.mark.parametrize(("framework", "name"), every)
def test_a_model_is_known_by_what_its_function_returns(framework: str, name: str) -> None:
    seen = model(framework, name)
    assert (seen["framework"], seen["items"]) == (framework, 8)
    assert seen["modes"] == (["infer"] if name == "function" else ["train", "infer"])
    assert seen["output"] == ("loss" if name == "gives_loss" else "tensor")
    for mode in seen["modes"]:
        assert seen[mode]["device"] == "cpu"
        assert seen[mode]["flaw"] == ""


@pytest.mark.parametrize(("framework", "name"), [pair for pair in every if pair[1] not in ("function", "own_loss")])
def test_training_brings_its_loss_down(framework: str, name: str) -> None:
    first, last = model(framework, name)["train"]["losses"]
    assert math.isfinite(first)
    assert last < first


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_loss_and_an_optimiser_of_their_own_are_used(framework: str) -> None:
    first, last = model(framework, "own_loss")["train"]["losses"]
    assert first == last > 100, "the loss is over 100, and the optimiser's rate 0"


def test_a_compiled_model_of_keras_brings_its_loss_and_its_optimiser() -> None:
    first, last = model("tensorflow", "compiled")["train"]["losses"]
    assert first == 4.0, "the squared error of 0 against 2"
    assert last < 1, "as the usual rate would not bring it down"


@pytest.mark.parametrize(("framework", "name", "params"), [
    ("tensorflow", "plain", 163), ("tensorflow", "function", 18), ("jax", "plain", 21), ("jax", "function", None),
    ("mlx", "tuple", 42), ("mlx", "function", None),
])  # fmt: skip
def test_parameters_are_counted_where_they_can_be_seen(framework: str, name: str, params: int | None) -> None:
    assert model(framework, name)["infer"]["params"] == params


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_batches_may_cross_from_the_host_and_outputs_back(framework: str) -> None:
    for name in ("host", "roundtrip"):
        for mode in ("train", "infer"):
            assert facts(framework)["axes"][f"{name} {mode}"] == ["", None, "cpu"]


@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
@pytest.mark.parametrize("precision", ["bf16", "amp-bf16"])
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_precision_takes_effect_and_agrees_with_fp32(framework: str, precision: str, mode: str) -> None:
    flaw, (error, tolerance), _ = facts(framework)["axes"][f"{precision} {mode}"]
    assert flaw == ""
    assert 0 < error <= tolerance


def test_weights_that_differ_at_each_call_are_compared_all_the_same() -> None:
    for mode in ("train", "infer"):
        _, (error, tolerance), _ = facts("jax")["other axes"]["unseeded"][f"bf16 {mode}"]
        assert 0 < error <= tolerance


@pytest.mark.parametrize("framework", ["tensorflow", "mlx"])
def test_a_compiled_step_agrees_with_a_plain_one(framework: str) -> None:
    for mode in ("train", "infer"):
        flaw, (error, tolerance), _ = facts(framework)["axes"][f"compile {mode}"]
        assert flaw == ""
        assert error <= tolerance


def test_what_a_framework_can_not_cast_is_refused_with_a_reason() -> None:
    assert "Keras models only" in facts("tensorflow")["function axes"]["bf16 infer"]
    assert "create them in the function" in facts("tensorflow")["other axes"]["made_before"]["bf16 train"]
    assert "mlx multiplies in fp32 on the CPU" in facts("mlx")["axes"]["bf16 train"]


@pytest.mark.parametrize(("framework", "name", "words"), [
    ("tensorflow", "alone", "gave a Sequential, where a model and a batch are expected"),
    ("tensorflow", "untrained", "reads no tf.Variable, nothing to train"),
    ("jax", "alone", "gave a function, where a model and a batch are expected"),
    ("jax", "flat", "gave 3 batches"),
    ("jax", "untrained", "a function without its parameters can't be trained"),
    ("mlx", "alone", "gave a Linear, where a model and a batch are expected"),
    ("mlx", "untrained", "is no mlx.nn.Module and can't be trained"),
    ("mlx", "nothing", "gives a str, in which there is no array"),
])  # fmt: skip
def test_what_is_not_understood_gets_one_line_with_an_example(framework: str, name: str, words: str) -> None:
    line = facts(framework)["refused"][name]
    assert words in line
    assert example(framework) in line
    assert "\n" not in line


@pytest.mark.parametrize(("framework", "name", "words"), [
    ("tensorflow", "shapes", "no usual loss of whole targets of shape (4,) for outputs of (8, 3); give one"),
    ("jax", "whole", "int32 among its parameters can't be trained"),
])  # fmt: skip
def test_what_can_not_be_trained_is_said_with_what_to_do(framework: str, name: str, words: str) -> None:
    assert words in facts(framework)["refused"][name]


# -- how a model is called -------------------------------------------------------------------------


def test_a_function_with_its_parameters_is_a_model() -> None:
    assert is_model((len, {"w": 1}))
    assert is_model(len)
    assert not is_model({"w": 1})
    assert not is_model((len, len))


def test_a_mask_is_an_input_unless_the_model_is_of_keras() -> None:
    class OfTorch:
        def forward(self, x: Any, mask: Any) -> None: ...

    class OfKeras:
        def call(self, x: Any, training: bool = False, mask: Any = None, **kwargs: Any) -> None: ...

    assert accepts(OfTorch(), 1, 2)
    assert not accepts(OfKeras(), 1, 2)
    assert accepts(OfKeras(), 1)


def test_inputs_go_one_by_one_or_by_their_names_where_the_function_takes_them_so() -> None:
    def of_two(a: Any, b: Any) -> tuple[Any, Any]:
        return a, b

    def of_one(batch: Any) -> Any:
        return batch

    assert call_with_tree(of_two, (1, 2))((3, 4)) == (3, 4)
    assert call_with_tree(of_two, {"b": 1, "a": 2})({"b": 3, "a": 4}) == (4, 3)
    assert call_with_tree(of_one, (1, 2))((3, 4)) == (3, 4)
    assert call_with_tree(of_one, {"x": 1})({"x": 3}) == {"x": 3}


def test_a_batch_of_another_size_repeats_its_items() -> None:
    array = FewItems([1, 2, 3])
    parts = Parts(len, {"x": array, "whole": 7}, array)
    _, inputs, targets = OfLists(ModuleType("jax")).resized(parts, 3, 5)
    assert (inputs, targets) == ({"x": [1, 2, 3, 1, 2], "whole": 7}, [1, 2, 3, 1, 2])


# -- the page --------------------------------------------------------------------------------------


def examples_of_page() -> dict[str, str]:
    """The Python files on the page, by the name in the line above each."""
    return dict(re.findall(r"`(\w+\.py)`[^\n]*:\n\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL))


MEASURED = {"keras_model.py": "tensorflow", "jax_model.py": "jax", "mlx_model.py": "mlx"}


@pytest.mark.parametrize(("file", "framework"), MEASURED.items())
def test_the_example_of_the_page_is_measured_as_it_is(
    file: str, framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_KNOWN", {})
    path = tmp_path / file
    path.write_text(examples_of_page()[file])
    results = api.run(
        str(path), mode="train", batch=4, steps=5, budget=0.5, repeats=1, store=str(tmp_path / "store.db")
    )
    (record,) = results.records
    assert record.case.framework == framework
    assert record.status in ("ok", "unsteady"), record.reason  # five steps on a busy machine need not settle
    assert record.checks.learned
    assert "not_checked" not in record.facts


def test_every_other_example_of_the_page_is_understood(tmp_path: Path) -> None:
    examples = examples_of_page()
    assert {*examples} > {*MEASURED}
    for file in {*examples} - {*MEASURED}:
        (tmp_path / file).write_text(examples[file])
        assert describe(sources.read(str(tmp_path / file))).framework in FRAMEWORKS
