"""Workloads of the user's own: what their functions may give, and what becomes of code that gives something else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mldyno import plugins, sources
from mldyno.axes import Case
from mldyno.frameworks.torch.program import TorchProgram
from mldyno.plugins import start_framework
from mldyno.sources import Source
from mldyno.workloads.user_models import code, describe
from mldyno.workloads.user_models.recipes import NotUnderstood

FIVE_LINES = """
import torch
def build(batch_size=6):
    model = torch.nn.Linear(4, 3)
    return model, torch.randn(batch_size, 4), torch.randint(3, (batch_size,))
"""
HEAD = "import torch\nfrom torch import nn, randn, randint\n"
SEVERAL_INPUTS = """
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
    def forward(self, a, b):
        return self.layer(a + b)
"""
LABELLED = """
class Labelled(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)
    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.head(self.embedding(input_ids))
        loss = None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}
"""
UNDERSTOOD = {
    "inputs only": ("def build(): return nn.Linear(4, 3), randn(6, 4)", ("infer",), "sample", 6),
    "inputs and targets": ("def build(): return nn.Linear(4, 3), randn(6, 4), randint(3, (6,))",
                           ("train", "infer"), "sample", 6),
    "a pair, as a loader gives it": ("def build(): return nn.Linear(4, 3), (randn(6, 4), randint(3, (6,)))",
                                     ("train", "infer"), "sample", 6),
    "targets that are numbers": ("def build(): return nn.Linear(4, 3), randn(6, 4), randn(6, 3)",
                                 ("train", "infer"), "sample", 6),
    "several inputs": (SEVERAL_INPUTS + "def build(): return Two(), (randn(6, 4), randn(6, 4)), randint(3, (6,))",
                       ("train", "infer"), "sample", 6),
    "inputs by name": (SEVERAL_INPUTS + "def build(): return Two(), {'a': randn(6, 4), 'b': randn(6, 4)}",
                       ("infer",), "sample", 6),
    "images": ("def build(): return nn.Conv2d(3, 2, 3), randn(2, 3, 8, 8)", ("infer",), "image", 2),
    "a loss of its own among named outputs": (
        LABELLED + "def build():\n    ids = randint(50, (2, 5))\n"
        "    return Labelled(), {'input_ids': ids, 'attention_mask': None, 'labels': ids}",
        ("train", "infer"), "token", 10),
    "a loss and an optimiser": (
        "def build():\n    model = nn.Linear(4, 3)\n    return (model, randn(6, 4), randint(3, (6,)),"
        " nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1))", ("train", "infer"), "sample", 6),
    "an optimiser made of groups": (
        "def build():\n    model = nn.Linear(4, 3)\n    groups = [{'params': [model.weight], 'lr': 0.2}, "
        "{'params': [model.bias]}]\n    return (model, randn(6, 4), randint(3, (6,)), "
        "nn.functional.cross_entropy, torch.optim.SGD(groups, 0.1))", ("train", "infer"), "sample", 6),
    "half precision of its own": ("def build(): return nn.Linear(4, 3).bfloat16(), randn(6, 4).bfloat16()",
                                  ("infer",), "sample", 6),
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test loads code as a fresh process does."""
    modules, path = dict(sys.modules), list(sys.path)
    monkeypatch.setattr(code, "_LOADED", {})
    yield
    for name in {*sys.modules} - {*modules}:
        if name in ("model", "other", "layers"):
            del sys.modules[name]
    sys.path[:] = path


def written(folder: Path, text: str, name: str = "model.py") -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return str(folder / name)


def known(path: str) -> Source:
    """The source as a run knows it."""
    source = describe(sources.read(path), start_framework)
    sources.register(source)
    return source


def program_of(source: Source, **axes: Any) -> TorchProgram:
    case = Case(source.name, batch=source.batch, **axes)
    start_framework("torch")
    return TorchProgram(plugins.framework("torch"), case, plugins.workload(source.name).build["torch"], None)


def test_five_lines_are_enough(tmp_path: Path) -> None:
    source = known(written(tmp_path, FIVE_LINES))
    assert (source.framework, source.batch, source.seq, source.modes) == ("torch", 6, None, ("train", "infer"))
    program = program_of(replace(source, batch=9))
    program.run(2)
    assert program.fixed[0].shape == (9, 4)
    assert plugins.workload(source.name).items(program.case) == 9


@pytest.mark.parametrize("given", UNDERSTOOD)
def test_what_a_function_may_give(given: str, tmp_path: Path) -> None:
    text, modes, item, items = UNDERSTOOD[given]
    source = known(written(tmp_path, HEAD + text))
    assert (source.modes, source.item, source.items) == (modes, item, items)
    for mode in modes:
        for precision in ("fp32", "bf16"):
            program = program_of(source, mode=mode, precision=precision, placement="roundtrip")
            program.run(3)
            first = program.first_losses()
            if first is not None:
                for _ in range(4):
                    program.check_step()
                assert (program.losses() or {})["loss"] < first["loss"]
            error, tolerance = program.error_vs_reference() or (0.0, 1.0)
            assert error <= tolerance
            assert program.precision_flaw() == ""
            assert program.actual_device() == "cpu"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_a_batch_and_is_not_rolled(tmp_path: Path) -> None:
    text = "def build(): return nn.Linear(3, 2), torch.nested.nested_tensor([randn(2, 3), randn(4, 3)])"
    source = known(written(tmp_path, HEAD + text))
    assert (source.modes, source.item, source.items) == (("infer",), "sample", 2)
    recipe = plugins.workload(source.name).build["torch"](torch, Case(source.name, mode="infer"))
    assert recipe.notes["same_batch"] == "a nested tensor"
    assert recipe.draw()[0].is_nested


def test_numbers_that_all_items_share_stay_as_they_are(tmp_path: Path) -> None:
    text = SEVERAL_INPUTS + "def build(): return Two(), (torch.arange(24.0).reshape(6, 4), torch.tensor(2.0))"
    source = known(written(tmp_path, HEAD + text))
    recipe = plugins.workload(source.name).build["torch"](torch, Case(source.name, mode="infer"))
    rows, shared = recipe.draw()[0]
    assert sorted(rows[:, 0].tolist()) == [0, 4, 8, 12, 16, 20]
    assert shared == 2
    assert "same_batch" not in recipe.notes


DATASET = """
import torch
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return torch.full((4,), float(index)), index % 3
def build():
    return torch.nn.Linear(4, 3), {}
"""


@pytest.mark.parametrize("given", ["Rows()", "torch.utils.data.DataLoader(Rows(), batch_size=10)"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_set_of_the_users_own_is_what_a_loader_reads(given: str, workers: int, tmp_path: Path) -> None:
    source = known(written(tmp_path, DATASET.format(given)))
    batch = 10 if "10" in given else 32
    assert (source.dataset, source.batch, source.modes) == (True, batch, ("train", "infer"))
    assert plugins.workload(source.name).loads
    program = program_of(source, placement="loader", mode="infer", loader_workers=workers)
    inputs, targets = next(program.batches)
    assert inputs[:, 0].tolist() == [float(index) for index in range(batch)]
    assert targets.tolist() == [index % 3 for index in range(batch)]
    program.run(2)
    assert set(program.phases) == {"data"}
    program.end()
    assert program_of(source).fixed[0].shape == (batch, 4)


def test_a_size_without_a_default_has_a_usual_one(tmp_path: Path) -> None:
    source = known(written(tmp_path, FIVE_LINES.replace("batch_size=6", "batch_size")))
    assert (source.batch, source.items) == (32, 32)


def test_the_users_own_optimiser_is_used_with_its_groups(tmp_path: Path) -> None:
    program = program_of(known(written(tmp_path, HEAD + UNDERSTOOD["an optimiser made of groups"][0])))
    assert [group["lr"] for group in program.backend.optimiser.param_groups] == [0.2, 0.1]
    assert program.backend.optimiser.param_groups[0]["params"][0] is program.network.weight


def test_a_batch_is_turned_so_that_no_two_steps_find_the_same(tmp_path: Path) -> None:
    program = program_of(known(written(tmp_path, FIVE_LINES)))
    batches = [next(program.batches) for _ in range(4)]
    first = {float(inputs[0, 0]) for inputs, _ in batches}
    assert len(first) > 1
    rows = {tuple(inputs[:, 0].sort().values.tolist()) for inputs, _ in batches}
    assert len(rows) == 1


def test_operations_are_counted_where_no_catalogue_knows_them(tmp_path: Path) -> None:
    source = known(written(tmp_path, FIVE_LINES))
    assert program_of(source, mode="infer").flops() == 2 * 6 * 4 * 3
    assert program_of(source).flops() == 2 * (2 * 6 * 4 * 3)


def test_two_versions_in_one_process_have_their_own_modules(tmp_path: Path) -> None:
    model = "import layers\ndef build(): return layers.net(), layers.torch.randn(2, 4)"
    layers = "import torch\ndef net(): return torch.nn.Linear(4, {})"
    paths = [written(tmp_path / name, model) for name in ("old", "new")]
    for name, outputs in (("old", 3), ("new", 5)):
        written(tmp_path / name, layers.format(outputs), "layers.py")
    old, new = map(known, paths)
    assert old.name != new.name
    assert sources.family(old.name) == sources.family(new.name) == "model.py"
    assert [program_of(source, mode="infer").network.out_features for source in (old, new, old)] == [3, 5, 3]


def test_two_files_of_one_folder_side_by_side_are_each_known_by_their_own_code(tmp_path: Path) -> None:
    written(tmp_path, "A = 1", "layers.py")
    paths = [written(tmp_path, text, name) for text, name in (
        (FIVE_LINES, "model.py"), ("import layers\n" + FIVE_LINES, "other.py"))]  # fmt: skip
    old, new = map(known, paths)
    for source in (old, new, old):
        program_of(source).run(1)


def test_one_and_the_same_model_each_time_is_refused(tmp_path: Path) -> None:
    text = "import torch\nmodel = torch.nn.Linear(4, 3)\ndef build(): return model, torch.randn(2, 4)"
    source = known(written(tmp_path, text))
    kept = program_of(source, mode="infer")
    with pytest.raises(NotUnderstood, match="gives one and the same model each time; make it within the function"):
        program_of(source, mode="infer")
    assert kept.network is not None


def test_a_version_is_the_file_and_what_it_imports_from_its_folder(tmp_path: Path) -> None:
    path = written(tmp_path, "import layers\n" + FIVE_LINES)
    written(tmp_path, "A = 1", "layers.py")
    written(tmp_path, "B = 1", "other.py")
    first = code.digest_of(_loaded(path))
    written(tmp_path, "B = 2", "other.py")
    assert code.digest_of(sources.read(path)) == first
    written(tmp_path, "A = 2", "layers.py")
    assert code.digest_of(sources.read(path)) != first


def _loaded(path: str) -> Source:
    source = sources.read(path)
    code.function_of(source)
    return source


def test_code_that_was_changed_since_the_run_began_is_not_measured(tmp_path: Path) -> None:
    source = known(written(tmp_path, FIVE_LINES))
    written(tmp_path, FIVE_LINES + "# changed")
    with pytest.raises(NotUnderstood, match=r"model\.py was changed since the run began; run it again"):
        program_of(source)


@pytest.mark.parametrize("lines", [
    "torch.backends.fp32_precision = 'tf32'; torch.backends.cudnn.conv.fp32_precision = 'tf32'",
    "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "torch.backends.cuda.matmul.allow_tf32 = True; torch.backends.cudnn.allow_tf32 = True",
    "torch.set_float32_matmul_precision('medium'); torch.backends.cudnn.rnn.fp32_precision = 'tf32'",
])  # fmt: skip
def test_a_model_that_lowers_the_precision_of_fp32_by_old_settings_or_new_ones_runs_in_fp32(
    lines: str, tmp_path: Path
) -> None:
    plugins.framework("torch").start()
    source = known(written(tmp_path, FIVE_LINES.replace("    model =", f"    {lines}\n    model =")))
    program = program_of(source)
    assert program.facts["restored_settings"] == "matmul precision"
    assert program.effective_precision() == "fp32"
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("highest", False)


def test_settings_of_the_whole_process_are_set_back_and_named(tmp_path: Path) -> None:
    text = FIVE_LINES.replace(
        "    model =", "    torch.set_default_dtype(torch.float64); torch.set_num_threads(1)\n    model ="
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        source = known(written(tmp_path, text))
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(2)
        program = program_of(source)
        assert (torch.get_default_dtype(), torch.get_num_threads()) == (torch.float32, 2)
        assert program.facts["restored_settings"] == "default dtype, threads"
        assert {parameter.dtype for parameter in program.network.parameters()} == {torch.float32}
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(threads)


NOT_UNDERSTOOD = {
    "numbers": ("def build(): return [1, 2, 3]", "model.py gave a list, where a model and a batch are expected"),
    "numbers as a batch": ("import torch\ndef build(): return torch.nn.Linear(1, 1), [1, 2]",
                           "model.py gave no batch of tensors behind the model; for example: def build"),
    "a word as a loss": ("import torch\ndef build(): return torch.nn.Linear(1, 1), torch.ones(2, 1), 'adam'",
                         "model.py gave a str where a loss or an optimiser is expected"),
    "an error": ("def build():\n    return 1 / 0", "model.py, line 2: ZeroDivisionError: division by zero"),
    "an error when loaded": ("import torch\nraise ValueError('no')", "model.py, line 2: ValueError: no"),
    "no Python": ("def build(:", "model.py, line 1: SyntaxError"),
    "an exit": ("import sys\ndef build(): sys.exit(7)", r"model.py called exit\(7\) instead of giving a model"),
    "a missing package": ("import no_such_package", "model.py, line 1: No module named 'no_such_package'; install it"),
    "no function": ("def other(): pass", r"model.py has no function build \(it has other\); add one: def build"),
    "no module": ("import torch\ndef build(): return (lambda x: x), torch.ones(2)", "no torch.nn.Module"),
    "a model that fails": ("import torch\ndef build(): return torch.nn.Linear(3, 1), torch.ones(2, 4)",
                           "model.py: RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
}  # fmt: skip


@pytest.mark.parametrize("what", NOT_UNDERSTOOD)
def test_what_is_not_understood_gets_one_line(what: str, tmp_path: Path) -> None:
    text, said = NOT_UNDERSTOOD[what]
    with pytest.raises(NotUnderstood, match=said) as error:
        describe(sources.read(written(tmp_path, text)), start_framework)
    assert "\n" not in str(error.value)
