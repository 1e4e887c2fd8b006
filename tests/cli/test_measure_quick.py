"""`mldyno quick` on the fake framework, whose truth is fake: every sentence must be the true one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import mldyno as package
from mldyno.analysis.answers import verdicts
from mldyno.analysis.outcomes import outcomes
from mldyno.plan import expand
from mldyno.runner import probing
from mldyno.runner.probing import Rates
from mldyno.runner.quick import Chosen, choose
from mldyno.store import Query, Store
from mldyno.views.answers import verdict_lines

Mldyno = Callable[..., tuple[int, str, str]]
Script = Callable[..., None]

# The accelerator takes a quarter of the CPU's time in training and half of it in inference; half precision a fifth
# less; a batch of 1 is three times as slow there; copies take a fifth of a step.
TRUTH = (
    {"match": "*/gpu/amp-fp16/*", "step": 0.0008, "issue": 0.0},
    {"match": "*/infer/fake/cpu/*/b1/*", "step": 0.0001},
    {"match": "*/infer/fake/gpu/*/b1/*", "step": 0.0003, "issue": 0.0},
    {"match": "*/infer/fake/gpu/*/roundtrip", "step": 0.00125, "issue": 0.0},
    {"match": "*/gpu/*", "step": 0.001, "issue": 0.0},
    {"match": "*/train/*", "step": 0.004},
    {"match": "*", "step": 0.002},
)


def sentences(out: str) -> list[str]:
    joined = re.sub(r"\n  (?=\S)", " ", out[out.index("\n- ") :])  # the lines of a long one
    return [line.removeprefix("- ") for line in joined.splitlines() if line.startswith("- ")]


def test_with_an_accelerator_each_sentence_is_true(mldyno: Mldyno, script: Script, store: Store) -> None:
    script(*TRUTH)
    code, out, err = mldyno("quick", "--framework", "fake", "--budget", "1s")
    assert code == 0
    assert out.startswith("test bench")
    assert len(out.splitlines()) <= 24
    assert sentences(out) == [
        "This was the fake framework: nothing was computed, and no time is real",
        "Your GPU trains 4.00x (4.00-4.00) faster than your CPU",
        "Your GPU runs models 2.00x (2.00-2.00) faster than your CPU",
        "amp-fp16 is worth it in training on your GPU: 1.25x (1.25-1.25) faster than fp32",
    ]
    assert "score on cpu: training " in out
    assert "score on gpu: training " in out
    assert "mlp/infer/fake/gpu/fp32/b1/device: 300 µs a step" in err
    page = Path(out.strip().splitlines()[-1].removeprefix("report: "))
    assert "4.00x" in page.read_text()
    measured, published = (outcomes(store.select(Query(provenances=(kind,)))) for kind in ("measured", "published"))
    said = verdict_lines(verdicts(measured, published))  # what did not fit on the screen
    assert any("batch 1: your GPU is 3.00x (3.00-3.00) slower" in line for line in said)
    assert any("copying in and back costs 250 µs a step, 20 % (20-20) of it" in line for line in said)


def test_quick_is_a_function_of_python_whose_results_print_the_same_screen(script: Script, store: Store) -> None:
    script(*TRUTH)
    results = package.quick(framework="fake", budget="1s", limit=60, store=store)
    assert results.all_ok
    assert results.plan is not None
    assert (results.plan.suite, results.plan.budget) == ("quick", 1.0)
    lines = str(results).splitlines()
    assert lines[0].startswith("test bench")
    assert "- Your GPU trains 4.00x (4.00-4.00) faster than your CPU" in lines
    assert lines[-1] == results.page
    assert Path(results.page.removeprefix("report: ")).is_file()


CPU_ONLY = Rates(("cpu",), 1.5, {("cpu", "fp32"): 8e10, ("cpu", "amp-bf16"): 1.6e11})
BOTH = Rates(("cpu", "gpu"), 1.5, {**CPU_ONLY.known, ("gpu", "fp32"): 1e13, ("gpu", "amp-fp16"): 4e13})


def chosen(found: Rates, store: Store) -> Chosen:
    axes = {"device": ["all"], "framework": ["torch"]}
    return choose(expand(["quick"], axes, here=lambda framework, python: found.devices), store, found)


def test_on_the_only_device_half_precision_is_measured_where_it_is_fast(store: Store) -> None:
    cases = chosen(CPU_ONLY, store).plan.cases
    halves = [case.workload for case in cases if case.precision == "amp-bf16"]
    assert halves[:2] == ["resnet18", "encoder"]
    assert not any(case.precision == "amp-fp16" or case.batch == 1 for case in cases)


def test_a_half_precision_in_name_only_is_measured_once_and_that_is_said(store: Store) -> None:
    found = Rates(("cpu",), 1.5, {("cpu", "fp32"): 8e10, ("cpu", "amp-bf16"): 1e9})
    picked = chosen(found, store)
    assert [case.workload for case in picked.plan.cases if case.precision != "fp32"] == ["mlp"]
    assert picked.notes[0] == (
        "matmuls in amp-bf16 take 80 times as long as in fp32 on cpu: only mlp is measured in it"
    )


def test_beside_an_accelerator_the_cpu_gets_no_half_precision_but_small_batches(store: Store) -> None:
    cases = chosen(BOTH, store).plan.cases
    assert {case.device for case in cases if case.precision != "fp32"} == {"gpu"}
    assert {case.device for case in cases if case.batch == 1} == {"cpu", "gpu"}
    assert {case.workload for case in cases} >= {"mlp", "resnet18", "encoder", "bert-base"}
    assert {case.device for case in cases if case.placement == "roundtrip"} == {"gpu"}


@pytest.mark.parametrize("found", [CPU_ONLY, BOTH, Rates(("cpu",), 6.0, {("cpu", "fp32"): 8e9})])
def test_what_is_chosen_is_foreseen_to_fit_into_the_limit(found: Rates, store: Store) -> None:
    picked = chosen(found, store)
    assert picked.plan.limit is not None
    assert 40 < sum(one.least for one in picked.forecasts) <= picked.plan.limit
    assert [one.case for one in picked.forecasts] == list(picked.plan.cases)


def test_on_a_slow_machine_what_takes_too_long_is_left_out_and_named(store: Store) -> None:
    picked = chosen(Rates(("cpu",), 6.0, {("cpu", "fp32"): 8e9}, {("cpu", "amp-bf16"): "not here"}), store)
    assert "mlp" in {case.workload for case in picked.plan.cases}
    assert "bert-base/infer/torch/cpu/fp32/b16/s128/host" in picked.notes[-1]
    assert picked.notes[0] == "no half precision works on cpu: not here"


def test_where_nothing_fits_the_shortest_case_is_measured_all_the_same(store: Store) -> None:
    crawling = Rates(("cpu",), 60.0, {("cpu", "fp32"): 8e6}, {("cpu", "amp-bf16"): "not here"})
    picked = chosen(crawling, store)
    (case,) = picked.plan.cases
    assert case.workload == "mnist-cnn"
    assert case.id not in picked.notes[-1]
    assert picked.notes[-1].startswith("left out, since it would take too long here: ")


def test_devices_and_rates_come_from_one_process() -> None:
    rates_here = probing.probe_rates("fake")
    assert rates_here.devices == ("cpu", "gpu")
    assert (rates_here.half("cpu"), rates_here.half("gpu")) == ("amp-bf16", "amp-fp16")
    assert rates_here.gain("gpu", "amp-fp16") == pytest.approx(1.0, rel=0.01)
