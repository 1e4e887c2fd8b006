"""The benches of the product's own speed run, a quick run leaves the results alone, and the page says what is kept."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench.results import Chapter, Circumstances, Figure, Measured, keep, page, read
from bench.work import Work

from bench import bench_self, bert_suite, loops, memory, models, tracking, watching
from mldyno import plugins
from mldyno.worker.session import open_case
from mldyno.workloads import bert, gpt2

ROOT = Path(__file__).parents[2]
THEN = Circumstances("2026-01-31", "0123456", 0.5, "a machine", "a system", "versions")
NOW = replace(THEN, date="2026-02-01", commit="fedcba9", versions="newer versions")


def test_a_quick_run_shows_its_figures_and_writes_nothing() -> None:
    files = (bench_self.RESULTS, bench_self.DATA)
    before = [file.read_bytes() for file in files]
    command = [sys.executable, str(ROOT / "bench" / "bench_self.py"), "--quick", "--only", "4"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "| records a second over a bare loop |" in shown
    assert [file.read_bytes() for file in files] == before


def test_our_networks_are_measured_beside_those_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(bert.BASE, layers=2, vocabulary=1000)  # of the same width: what takes long is the optimiser
    workload = bert.workload("bert-base", "BERT-base", small, version=1, batch=1, seq=8, params=0)
    monkeypatch.setattr(bert, "BASE", small)
    monkeypatch.setitem(bert.WORKLOADS, "bert-base", workload)
    chapter = models.measure(Work(tmp_path, quick=True))
    assert [figure.name for figure in chapter.figures] == ["`bert-base` train"]


def test_steps_loops_memory_and_the_suite_are_measured(tmp_path: Path) -> None:
    work = Work(tmp_path, quick=True)
    figures = {
        figure.name: figure for chapter in (loops, memory, bert_suite) for figure in chapter.measure(work).figures
    }
    assert {"`mlp` train", "`mnist-linear` train", "train, batch 16, sequence 128, cpu"} <= set(figures)
    assert figures["`mlp` train"].target == "0.99 to 1.01"


def test_the_cost_of_tracking_is_measured_and_its_loader_held_against_a_known_delay(tmp_path: Path) -> None:
    chapter = tracking.measure(Work(tmp_path, quick=True))
    assert [figure.name for figure in chapter.figures] == [
        "cost of `track`", "what a step costs in itself", "intervals that hold 200 µs a batch",
    ]  # fmt: skip
    assert chapter.figures[0].target == "at most 0.5 %"


def test_the_time_left_of_a_run_is_held_against_what_it_was(tmp_path: Path) -> None:
    chapter = watching.measure(Work(tmp_path, quick=True))
    assert [figure.name for figure in chapter.figures[:2]] == ["whole time", "at 0% of the run"]
    assert chapter.figures[0].met
    assert "really left in brackets: 0 s: " in chapter.notes[1]


# -- what is kept --------------------------------------------------------------------------------


def test_the_page_says_what_is_kept() -> None:
    chapters = read(bench_self.DATA)
    assert set(chapters) <= set(bench_self.FIGURES)
    assert bench_self.RESULTS.read_text(encoding="utf-8") == page(chapters)


def test_a_chapter_measured_anew_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    data, shown = tmp_path / "results.json", tmp_path / "RESULTS.md"
    old = {n: Measured(Chapter(f"{n}. Old", [Figure("a", 1.0, "s", 2.0, "so")], ["note"]), THEN) for n in (2, 10, 1)}
    for number, measured in old.items():
        keep(number, measured, data, shown)
    new = Measured(Chapter("2. New", [Figure("b", 3.0, "", None, "thus", least=4.0, half_width=0.25)]), NOW)
    keep(2, new, data, shown)
    assert read(data) == {1: old[1], 2: new, 10: old[10]}
    text = shown.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## 1. Old", "## 2. New", "## 10. Old"]
    assert "| b | 3 ± 0.25 | at least 4 | **no** | thus |" in text
    assert "2 of 3 targets are met." in text
    assert "- machine: a machine\n" in text
    assert "- versions (1, 10): versions\n- versions (2): newer versions\n" in text
    assert "## 2. New\n\nMeasured on 2026-02-01 at commit fedcba9; load" in text
    assert text.count("Measured on 2026-01-31 at commit 0123456; load") == 2


@pytest.mark.parametrize(("value", "met"), [(0.989, False), (0.99, True), (1.01, True), (1.011, False)])
def test_a_figure_between_two_bounds_is_held_against_both(value: float, met: bool) -> None:
    figure = Figure("a", value, "", 1.01, "so", least=0.99, half_width=0.5)
    assert figure.met is met
    assert figure.target == "0.99 to 1.01"


def test_a_figure_without_a_target_is_not_met_or_missed() -> None:
    figure = Figure("a", 2.0, "×", None, "so")
    assert (figure.met, figure.target, figure.shown) == (None, "", "2 ×")


# -- what is measured ----------------------------------------------------------------------------


def test_every_workload_with_a_torch_version_is_held_against_a_loop_in_every_mode() -> None:
    catalogue = [plugins.workload(name) for name in plugins.names("workloads")]
    expected = {(workload.name, mode) for workload in catalogue if "torch" in workload.build for mode in workload.modes}
    assert {(case.workload, case.mode) for case in loops.cases(tuple(loops.SIZES))} == expected


@pytest.mark.parametrize("name", ["copy", "mlp"])
def test_a_loop_by_hand_does_as_many_steps_as_it_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import nn

    called: list[Any] = []
    inner = nn.Module.__call__

    def watched(module: Any, *given: Any) -> Any:
        called.append(module)
        return inner(module, *given)

    case = replace(next(loops.cases((name,))), threads=None)
    loop = loops.by_hand(open_case(case).program)
    monkeypatch.setattr(nn.Module, "__call__", watched)
    loop(3)
    assert len([module for module in called if module is called[0]]) == 3


def test_tokens_decoded_with_transformers_are_those_that_it_generates_itself() -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=50, n_positions=64, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=None
    )
    network, ids = GPT2LMHeadModel(config).eval(), torch.randint(1, 50, (2, 4))
    with torch.inference_mode():
        ours = models._generated(network, ids)
        theirs = network.generate(ids, do_sample=False, max_new_tokens=gpt2.DECODED + 1, pad_token_id=0)
    assert torch.equal(ours, theirs[:, ids.shape[1] + 1 :])


def test_the_suite_is_held_against_100_steps_of_each_case(
    fake_run: Callable[..., Any], script: Callable[..., None], tmp_path: Path
) -> None:
    script({"match": "*/infer/*", "step": 0.5}, {"match": "*/b256/s512/*", "fail": "oom"}, {"match": "*", "step": 2.0})
    fake_run(bert_suite.SUITE, device="cpu")
    fake_run("mlp")
    chapter = bert_suite.measure(Work(tmp_path, quick=False, bert_store=tmp_path / "records.sqlite"))
    records = bert_suite.newest_run(tmp_path / "records.sqlite")
    assert len(chapter.figures) == 11 + 1  # train b256 s512 ran out of memory
    walls = [float(record.facts["wall_time"] or 0) for record in records if record.status == "ok"]
    assert chapter.figures[-1].value == pytest.approx(sum(walls) / (6 * 50 + 5 * 200))
    assert chapter.figures[-1].name == "all 11 that came out ok, of 12"
    assert chapter.figures[0].value == pytest.approx(walls[0] / 200)
    assert "train, batch 256, sequence 512, cpu: oom" in chapter.notes[0]


def test_the_steps_of_a_record_are_those_of_all_its_phases(fake_run: Callable[..., Any]) -> None:
    (record,) = fake_run("mlp", mode="train", steps=7).records
    early = [series for series in record.series if series.metric == "step_time" and series.stage != "steady"]
    assert memory.trained(record) == 7 + sum(series.block * len(series.values) for series in early)
    assert {series.stage for series in early} == {"first", "warmup"}
