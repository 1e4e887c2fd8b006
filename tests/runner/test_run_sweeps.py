"""A sweep survives: what ran out of memory is not tried again in larger, and every case has an outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mldyno import api
from mldyno.datasets.mnist import DATASET
from mldyno.errors import MldynoError
from mldyno.records import Case
from mldyno.results import Results
from mldyno.runner.run import at_least_as_large
from mldyno.store import Store

FakeRun = Callable[..., Results]


def test_a_batch_that_ran_out_of_memory_skips_larger_ones_of_the_same_kind(
    fake_run: FakeRun, script: Callable[..., None]
) -> None:
    script({"match": "mlp/train/*/b64/*", "fail": "oom"})
    results = fake_run("mlp", batch=[8, 64, 128, 256], mode=["train", "infer"])
    found = {(record.case.mode, record.case.batch): record for record in results.records}
    assert {size: found["train", size].status for size in (8, 64, 128, 256)} == {
        8: "ok", 64: "oom", 128: "oom", 256: "oom",
    }  # fmt: skip
    assert found["train", 256].reason.startswith("not run: mlp/train/fake/cpu/fp32/b64/device ran out of memory before")
    assert "64 GiB" in found["train", 256].reason
    assert {found["infer", size].status for size in (8, 64, 128, 256)} == {"ok"}


def test_what_ran_out_of_memory_is_not_tried_again_in_the_next_round(
    fake_run: FakeRun, script: Callable[..., None]
) -> None:
    script({"match": "*", "fail": "oom"})
    first, second = fake_run("mlp", mode="infer", repeats=2).records
    assert first.reason.startswith("fake")
    assert second.reason.startswith("not run: it ran out of memory before")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"batch": 32}, True),
        ({"seq": 256}, True),
        ({"batch": 8}, False),
        ({"batch": 64, "seq": 64}, False),
        ({"batch": 64, "mode": "infer"}, False),
        ({"batch": 64, "device": "mps"}, False),
    ],
    ids=str,
)
def test_only_cases_of_the_same_kind_and_no_smaller_are_held_back(changes: dict[str, object], expected: bool) -> None:
    ran_out = {"workload": "bert-tiny", "mode": "train", "batch": 16, "seq": 128}
    assert at_least_as_large(Case(**{**ran_out, **changes}), Case(**ran_out)) is expected  # type: ignore[arg-type]


def test_phases_are_timed_apart_and_have_rates(fake_run: FakeRun, script: Callable[..., None]) -> None:
    script({"match": "*", "phases": {"prefill": 0.02, "decode": 0.05}})
    (outcome,) = fake_run("mlp", mode="infer", batch=100).outcomes
    prefill, decode = outcome.figure("throughput:prefill"), outcome.figure("throughput:decode")
    assert prefill is not None
    assert decode is not None
    assert prefill.value == pytest.approx(5000, rel=1e-3)
    assert decode.value == pytest.approx(2000, rel=1e-3)
    assert outcome.phases == ["prefill", "decode"]


@pytest.mark.parametrize("suite", ["apple-silicon-bert", "m4-gpu"])
def test_a_published_suite_can_be_faked_and_all_comes_out_well(suite: str, fake_run: FakeRun) -> None:
    results = fake_run(suite, device="gpu", steps=2)
    assert {record.status for record in results.records} == {"ok"}


def test_real_data_that_can_not_be_had_end_a_run_before_it_begins(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLDYNO_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("MLDYNO_MIRROR", "http://127.0.0.1:9/")
    monkeypatch.setattr("mldyno.datasets.mnist.DATASET", replace(DATASET, mirrors=()))
    with pytest.raises(MldynoError, match="--data synthetic"):
        api.run("mnist-cnn", placement="loader", data="real", store=store)
    assert not store.path.exists()
