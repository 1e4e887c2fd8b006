"""Results in a real Jupyter kernel: what cells show of them, and the notebooks of the docs, executed anew."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "first-look.ipynb"
RUN = 'import mldyno\nr = mldyno.run("mlp", framework="fake", mode="infer", batch=[16, 64])'
QUICK = """
import torch
from mldyno.runner import in_notebook
in_notebook.MEASURED_S = 0.05
in_notebook.PRECISIONS = {"cpu": ("fp32", "bf16")}
torch.compile = lambda model: model
torch.set_num_threads(1)
"""
CHECK = """
import mldyno
model = torch.nn.Linear(8, 3)
checked = mldyno.check(model, torch.randn(4, 8), torch.randint(3, (4,)), modes=["infer"], devices=["cpu"])
"""
COMPLETED = """
from IPython.core.completer import provisionalcompleter
with provisionalcompleter():
    print(*(each.text.removeprefix(".") for each in get_ipython().Completer.completions("mldyno.", 7)))
"""


class Kernel:
    """A kernel in which cells run; one that raises fails its test."""

    def __init__(self) -> None:
        self.notebook: Any = nbformat.v4.new_notebook()
        self.client = NotebookClient(
            self.notebook, timeout=240, iopub_timeout=60, kernel_name="python3", coalesce_streams=True
        )

    def outputs(self, code: str) -> list[Any]:
        """What a cell shows."""
        cell = nbformat.v4.new_code_cell(code)
        self.notebook.cells.append(cell)
        self.client.execute_cell(cell, len(self.notebook.cells) - 1)
        return list(cell.outputs)

    def printed(self, code: str) -> str:
        """What a cell prints, if it does nothing else."""
        (output,) = self.outputs(code)
        assert output.output_type == "stream"
        return str(output.text)

    def shown(self, code: str) -> Any:
        """What the last line of a cell shows itself as, by kind."""
        (output,) = self.outputs(code)
        assert output.output_type == "execute_result"
        return output.data


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    started, store = Kernel(), tmp_path_factory.mktemp("kernel") / "records.sqlite"
    others = {name: value for name, value in os.environ.items() if name != "MLDYNO_PLAIN"}  # which `--plain` sets
    with started.client.setup_kernel(env=others | {"MLDYNO_STORE": str(store)}):
        yield started


def test_results_and_tables_are_printed_as_text(kernel: Kernel) -> None:
    kernel.outputs(RUN)
    for printed, work in (("print(r)", ["mlp", "infer"]), ("print(r.table())", [])):
        assert [line.split() for line in kernel.printed(printed).splitlines() if "µs" in line] == [
            [*work, "16", "160", "µs", "±0.01", "%"], [*work, "64", "640", "µs", "±0.01", "%"]]  # fmt: skip


def test_a_table_of_published_figures_is_printed_as_text(kernel: Kernel) -> None:
    text = kernel.printed('import mldyno\nprint(mldyno.table("mlp/infer/torch/device", cols=["device"]))')
    assert text.startswith("time of one step\n\n workload   mode    batch")
    assert "[1] suspect" in text


def test_results_show_themselves_as_a_table_with_charts(kernel: Kernel) -> None:
    kernel.outputs(RUN)
    data = kernel.shown("r")
    assert "<caption>time of one step</caption>" in data["text/html"]
    assert "<svg" in data["text/html"]
    assert "160 µs" in data["text/plain"]
    assert "<table>" in kernel.shown("r.table()")["text/html"]
    compared = kernel.shown('r.compare("batch")')
    assert "batch 64 and batch 16 are equivalent per item" in compared["text/plain"]
    assert kernel.shown('r.compare("batch")[0]')["text/plain"] == compared["text/plain"]
    picture = kernel.shown("r.charts[0]")
    assert picture["image/svg+xml"].startswith("<svg")
    assert "Speed of each case" in picture["text/plain"]


def test_a_check_of_a_model_shows_and_prints_itself(kernel: Kernel) -> None:
    kernel.outputs(QUICK + CHECK)
    data = kernel.shown("checked")
    assert "<table>" in data["text/html"]
    assert "largest batch in inference" in data["text/plain"]
    assert "largest batch in inference" in kernel.printed("print(checked)")


@pytest.mark.parametrize("by_jedi", [True, False])
def test_completion_offers_what_is_public_and_nothing_else(by_jedi: bool, kernel: Kernel) -> None:
    kernel.outputs("import mldyno.results, mldyno.views.tables")
    names = kernel.printed(f"get_ipython().Completer.use_jedi = {by_jedi}\n{COMPLETED}")
    public = "check compare crossover max_batch measure quick report run table track"
    assert names.split() == public.split()


# -- the example -----------------------------------------------------------------------------------


def shape(output: Any) -> tuple[Any, ...]:
    """What an output is made of, without its numbers and what depends on them."""
    data = output.get("data", {})
    heads = re.findall(r"<(?:caption|th)[^>]*>([^<]*)", data.get("text/html", ""))
    rows = data.get("text/html", "").count("<tr>")
    printed_heads = [line for line in output.get("text", "").splitlines() if "step" in line or line.startswith("|")]
    return output.output_type, sorted(data), heads, rows, [re.sub(r"[\d.,]+", "0", line) for line in printed_heads][:2]


def executed(notebook: Any) -> list[tuple[Any, Any]]:
    """Run a copy of a notebook on the simulated framework; return its code cells, each with the one that ran."""
    anew = copy.deepcopy(notebook)
    for cell in anew.cells:
        cell.source = cell.source.replace('framework="torch"', 'framework="fake"').replace("budget=2", "budget=0.1")
    anew.cells.insert(0, nbformat.v4.new_code_cell(QUICK))
    NotebookClient(anew, timeout=240, iopub_timeout=60, kernel_name="python3").execute(env=dict(os.environ))
    return [(old, new) for old, new in zip(notebook.cells, anew.cells[1:], strict=True) if old.cell_type == "code"]


def test_the_example_runs_and_shows_what_the_shipped_one_does() -> None:
    shipped: Any = nbformat.read(EXAMPLE, as_version=4)
    cells = executed(shipped)
    if any(old.outputs and not new.outputs for old, new in cells):  # nbclient can lose an output of a busy kernel
        cells = executed(shipped)
    everything = [output for _, new in cells for output in new.outputs]
    assert not [output for output in everything if output.output_type in ("error", "display_data")]
    assert not [output.text for output in everything if output.get("name") == "stderr"]
    for old, new in cells:
        if "mldyno.check" in old.source:  # which finds other ways here, quicker ones
            assert [set(output.data) for output in old.outputs] == [set(output.data) for output in new.outputs]
        else:
            assert [shape(output) for output in old.outputs] == [shape(output) for output in new.outputs], old.source
    kinds = {kind for old, _ in cells for output in old.outputs for kind in output.get("data", {})}
    assert kinds == {"text/plain", "text/html", "image/svg+xml"}


def test_the_shipped_example_says_nothing_of_where_it_was_made() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|tmp|work|Users)/", text)
    assert "execution" not in nbformat.read(EXAMPLE, as_version=4).cells[1].metadata
