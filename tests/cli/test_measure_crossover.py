"""`mldyno crossover` on the fake framework, whose devices cross at a known size; and what runs say at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mldyno import api
from mldyno.plan import Plan
from mldyno.store import Query, Store

Mldyno = Callable[..., tuple[int, str, str]]
Script = Callable[..., None]

# Issuing a step takes the accelerator 5e-5 s, an item takes the CPU 1e-5 s in inference: they are equal at 5.
SWEEP = ("crossover", "mlp", "--framework", "fake", "--device", "cpu,gpu", "--mode", "infer", "--repeats", "1")
FEW = (*SWEEP, "--from", "2", "--to", "16")
TRUTH = 5.0


def test_the_known_crossover_is_found_kept_and_can_be_asked_for_again(mldyno: Mldyno, store: Store) -> None:
    code, out, err = mldyno(*FEW, "--json")
    assert code == 0
    document = json.loads(out)
    (found,) = document["answers"]["crossovers"]
    (crossing,) = found["crossings"]
    assert crossing["size"] == pytest.approx(TRUTH, rel=0.01)
    assert crossing["low"] <= crossing["size"] <= crossing["high"]
    assert (crossing["below"], crossing["above"], crossing["faster_above"]) == (4, 8, "gpu")
    assert (found["axis"], found["over"], found["verdict"]) == ("device", "batch", "crosses")
    assert "mlp/infer/fake/gpu/fp32/b16/device" in err
    records = list(store.stream(Query(heads=False)))
    assert {record.run.id for record in records} == {document["run"]}
    assert sorted({record.case.batch for record in records}) == [2, 4, 8, 16]  # type: ignore[type-var]
    again = json.loads(mldyno("compare", "mlp/infer", "--by", "device", "--json")[1])["answers"]
    assert again == document["answers"]
    told = mldyno("compare", "mlp/infer", "--by", "device")[1].splitlines()[-1]
    assert told.startswith("- MLP, inference, fake: gpu beats cpu from batch 5.0")
    assert mldyno(*FEW, "--dry-run")[1].count("as last time") == 8


def test_sizes_that_do_not_fit_end_a_side_and_are_said(mldyno: Mldyno, script: Script) -> None:
    script({"match": "*/gpu/*/b8/*", "fail": "oom"})
    code, out, _ = mldyno(*FEW)
    assert code == 3
    assert "gpu beats cpu at no batch from 2 to 4" in out
    assert "; gpu ran out of memory from batch 8 on [" in out
    assert "batch" in out.splitlines()[2]
    assert "trust: 6 of 8 cases succeeded, 6 steady" in out


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([{"match": "*/gpu/*", "step": 1e-2, "issue": 0.0}], "gpu beats cpu at no batch from 2 to 8"),
        ([{"match": "*/gpu/*", "step": 1e-5, "issue": 0.0}], "gpu beats cpu at every batch from 2 to 8"),
        ([{"match": "*", "step": 1e-3, "issue": 0.0}], "gpu and cpu are equivalent (within 2.0 %) at every batch"),
        (
            [{"match": "*/cpu/*", "step": 1e-3}, {"match": "*/b4/*", "step": 5e-4, "issue": 0.0},
             {"match": "*", "step": 2e-3, "issue": 0.0}],
            "it crosses 2 times: gpu beats cpu from batch 2.8",
        ),
    ],
    ids=["never", "always", "equivalent", "twice"],
)  # fmt: skip
def test_whatever_shape_the_ratio_has_is_told(
    rules: list[dict[str, Any]], words: str, mldyno: Mldyno, script: Script
) -> None:
    script(*rules)
    code, out, _ = mldyno(*SWEEP, "--from", "2", "--to", "8")
    assert code == 0
    assert f"- MLP, inference, fake: {words}" in out


def test_two_precisions_cross_over_the_length_too(mldyno: Mldyno, script: Script) -> None:
    script(
        {"match": "*/fp32/*/s16/*", "step": 1e-3, "noise": 0.02},
        {"match": "*/fp32/*/s64/*", "step": 4e-3, "noise": 0.02},
        {"match": "*", "step": 2e-3, "noise": 0.02},
    )
    words = ("--precision", "fp32,bf16", "--over", "seq-len", "--from", "16", "--to", "64")
    code, out, _ = mldyno("crossover", "bert-tiny", "--framework", "fake", "--mode", "infer", "--repeats", "1", *words)
    assert code == 0
    assert "bf16 beats fp32 from seq" in out
    assert "the time of a step grows with seq to the power of" in out, "all answers that the axes allow are there"


def test_a_sweep_that_was_cut_short_goes_on(
    mldyno: Mldyno, store: Store, cut_short: Callable[[Plan, int], None]
) -> None:
    axes: dict[str, Any] = {"framework": "fake", "device": ["cpu", "gpu"], "mode": "infer"}
    plan = api.crossover_plan("mlp", "batch", 2, 8, repeats=1, **axes)
    cut_short(plan, 3)
    code, out, err = mldyno(*SWEEP, "--from", "2", "--to", "8", "--resume")
    assert code == 0
    assert err.count(" a step") == 4, "two of six were there"
    assert "gpu beats cpu from batch 5.0" in out
    assert mldyno(*SWEEP, "--from", "2", "--to", "8", "--resume")[0] == 1
    (found,) = api.crossover("mlp", smallest=4, largest=8, repeats=1, store=store, **axes)
    assert found.crossings[0].value == pytest.approx(TRUTH, rel=0.01)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("mlp", "--device", "cpu"), "crossover compares two settings: give one option two values, such as --device "),
        (("mlp", "--device", "gpu", "--precision", "fp32"), "give one option two values, such as --device cpu,gpu."),
        (("mlp", "--placement", "device,host,roundtrip"), "placement has 3 values: device, host, roundtrip."),
        (("mlp", "--placement", "device,host", "--precision", "fp32,bf16"), "precision and placement have several"),
        (("bert-tiny", "--seq", "32,64"), "seq has several values"),
        (("mlp", "--device", "cpu,gpu", "--over", "seq"), "mlp has no sequence, its size is the batch"),
        (("mlp", "--device", "cpu,gpu", "--over", "bach"), "unknown axis 'bach'. Did you mean 'batch'?"),
        (("mlp", "--device", "cpu,gpu", "--over", "threads"), "a sweep goes over batch or seq, not over threads"),
        (("mlp", "--device", "cpu,gpu", "--from", "64", "--to", "8"), "--from 64 is not less than --to 8; a sweep"),
        (("mlp", "--device", "cpu,gpu", "--from", "128"), "--to 128 (the batch of mlp, since no --to is given)"),
        (("mlp", "--device", "cpu,gpu", "--to", "many"), "invalid batch 'many'; write a whole number such as 16."),
        (("mlp", "--device", "cpu,gpu", "--from", "0"), "invalid batch '0'"),
        (("mlp", "--device", "cpu,gpu", "--per-doubling", "0"), "--per-doubling"),
        (("mlp", "--device", "cpu,gpu", "--batch", "8,16"), "write --from and --to instead of --batch."),
        (("mpl", "--device", "cpu,gpu"), "unknown workload 'mpl'. Did you mean 'mlp'?"),
        (("m1-chips", "--device", "cpu,gpu"), "unknown workload 'm1-chips'."),
        (("mlp", "--precision", "fp32,fp23"), "unknown precision 'fp23'. Did you mean 'fp32'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_makes_no_sweep_is_refused_in_one_line(
    words: tuple[str, ...], line: str, mldyno: Mldyno, store: Store
) -> None:
    code, out, err = mldyno("crossover", *words, "--framework", "fake")
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1
    assert not store.path.exists()


def test_without_two_values_it_is_between_the_devices_that_are_here(mldyno: Mldyno) -> None:
    code, out, _ = mldyno("crossover", "mlp", "--framework", "fake", "--mode", "infer", "--repeats", "1", "--to", "16")
    assert code == 0
    assert "gpu beats cpu from batch 5.0" in out
    assert (
        "/gpu/" not in mldyno("crossover", "mlp", "--framework", "fake", "--placement", "device,host", "--dry-run")[1]
    )


def test_on_a_machine_with_one_device_a_line_says_what_it_needs(mldyno: Mldyno, store: Store) -> None:
    code, out, err = mldyno("crossover", "mlp", "--framework", "numpy")
    assert (code, out) == (1, "")
    assert err == (
        "mldyno: crossover compares two devices, and numpy sees only cpu here; give another option two values, "
        "such as --precision fp32,bf16. `mldyno doctor` says what it finds.\n"
    )
    assert not store.path.exists()


def test_without_the_framework_it_says_that_and_nothing_of_devices(
    mldyno: Mldyno, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mldyno.plugins.installed", lambda name: name != "torch")
    code, out, err = mldyno("crossover", "resnet18")
    assert (code, out) == (1, "")
    assert err == "mldyno: torch is not installed for this Python; pip install 'mldyno[torch]'.\n"


# -- what a run says at its end ------------------------------------------------------------------

RUN = ("run", "--framework", "fake", "--mode", "infer", "--repeats", "1")


def test_a_run_with_several_placements_says_what_the_copy_costs(mldyno: Mldyno, script: Script) -> None:
    script({"match": "*/device", "step": 3e-3}, {"match": "*/host", "step": 4e-3}, {"match": "*", "step": 6e-3})
    code, out, _ = mldyno(*RUN, "mlp", "--placement", "device,host,roundtrip")
    assert code == 0
    said = out.split("\nwhat this says:\n")[1].splitlines()
    assert "- MLP, inference, batch 128, fake on cpu: copying in costs 1.00 ms a step, 25 % (25-25) of it [" in said[0]
    assert "copying in and back costs 3.00 ms a step, 50 % (50-50) of it" in said[1]
    assert "copying back costs 2.00 ms a step, 33 % (33-33) of it" in said[2]


def test_a_run_with_several_precisions_says_which_is_worth_it(mldyno: Mldyno, script: Script) -> None:
    script(
        {"match": "*/fp32/*", "step": 3e-3},
        {"match": "*/bf16/*", "step": 2e-3, "error": 8e-3},
        {"match": "*", "fail": "unsupported"},
    )
    words = ("mlp", "--precision", "fp32,bf16,tf32", "--device", "gpu")
    code, out, _ = mldyno(*RUN, *words)
    assert code == 3
    assert "bf16 is worth it: 1.50x (1.50-1.50) faster than fp32; its results are 0.80 % off [paired" in out
    assert "tf32 is unsupported: fake: this device can't do that" in out
    assert mldyno("compare", "mlp/fake", "--by", "precision")[1].count("bf16 is worth it") == 1


def test_a_run_over_lengths_says_how_time_grows(mldyno: Mldyno, script: Script) -> None:
    script(*({"match": f"*/s{length}/*", "step": 1e-7 * length**2} for length in (64, 128, 256)))
    code, out, _ = mldyno(*RUN, "bert-tiny", "--seq", "64,128,256")
    assert code == 0
    assert "the time of a step grows with seq to the power of 2.00 (" in out
    assert "between the two longest 2.00 (" in out
    (found,) = json.loads(mldyno("compare", "bert-tiny", "--by", "seq", "--json")[1])["answers"]["scalings"]
    assert found["fit"]["exponent"] == pytest.approx(2.0, abs=0.01)


def test_a_run_of_one_case_says_nothing_more(mldyno: Mldyno) -> None:
    assert "what this says" not in mldyno(*RUN, "mlp")[1]
