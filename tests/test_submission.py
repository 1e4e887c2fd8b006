"""What may go into a shared collection: judged anew from raw samples, by the rules of measuring and importing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests import submitted
from tests.conftest import OWN_KEY, OWN_SECRET
from tests.submitted import HERE
from tests.views.report import made_records
from tests.views.site import made_machines

from mldyno import api, keys, submission
from mldyno.errors import MldynoError, UsageError
from mldyno.records import Case, Machine, Record, Series, seal
from mldyno.store import Store, transfer
from mldyno.store.codec import decode

MLP = Case("mlp", mode="infer", batch=128)
FORMER = "ab" * 16  # a key from before it was a secret
RATE = 268_697_600 / 0.01  # FLOP/s, of a step of 10 ms


def a_record(case: Case = MLP, step: float = 0.01, **facts: Any) -> Record:
    return submitted.good(case, step, **facts)


def faults_of(*records: Record) -> list[str]:
    signed = [replace(record, proof="signed") for record in records]
    return [fault.partition("): ")[2] for fault in submission.faults([signed])[0]]


def test_a_record_as_it_was_measured_has_no_fault() -> None:
    oom = made_records.record(MLP, None, HERE)
    assert faults_of(a_record(peak_flops=1.2 * RATE), oom, made_records.met(MLP, 0.01, 1, HERE)) == []


def test_a_rate_above_its_peak_by_more_than_the_tolerance_is_a_fault() -> None:
    assert faults_of(a_record(peak_flops=0.97 * RATE)) == []
    faults = faults_of(a_record(peak_flops=0.9 * RATE))
    assert len(faults) == 1
    assert faults[0].endswith("GFLOP/s are more than the 24.18 that its device reaches in matmuls; measure it again")


def test_in_half_precision_it_is_a_fault_only_above_the_peak_in_fp32_too() -> None:
    half = a_record(replace(MLP, precision="bf16"), peak_flops=1e10)
    assert faults_of(half) == []  # which is not known
    assert faults_of(half, a_record(peak_flops=2e11)) == []
    assert faults_of(half, a_record(replace(MLP, device="cuda:0"), step=1.0, peak_flops=1e10)) == []
    assert len(faults_of(half, a_record(step=1.0, peak_flops=2e10))) == 1


def test_without_samples_there_is_no_time_to_work_out() -> None:
    cut = seal(replace(a_record(), series=(Series("peak_memory", "B", (1e6,), stage="process"),)))
    assert faults_of(cut) == ["no time of a step can be worked out from its samples; leave it out"]


def test_fake_times_figures_and_records_of_no_machine_are_faults() -> None:
    assert "its times are fake" in faults_of(a_record(fake_time=True))[0]
    assert "it is imported, not measured" in faults_of(seal(replace(a_record(), provenance="imported")))[0]
    for machine in (Machine("bench"), replace(HERE, name=" ")):
        assert "it says nothing of its machine" in faults_of(seal(replace(a_record(), machine=machine)))[0]


def later(record: Record) -> str:
    when = (datetime.now(timezone.utc) + timedelta(days=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return seal(replace(record, created=when)).text


def changed(record: Record) -> str:
    content = json.loads(record.text)
    content["series"][2]["values"][0] /= 2
    return json.dumps(content)


@pytest.mark.parametrize(
    ("spoilt", "fault"),
    [
        (changed, "line 3: its id is not the hash of its content"),
        (later, "was created at"),
        (lambda record: seal(replace(record, provenance="published")).text, "calls itself published"),
        (lambda record: record.text.replace('"schema":3', '"schema":4'), "line 3: schema 4 is newer than this mldyno"),
        (lambda record: "{}", "line 3: this is JSON, but no record of mldyno"),
        (lambda record: seal(replace(record, facts={**record.facts, "peak_flops": 1e9})).text, "GFLOP/s are more than"),
    ],
)
def test_every_fault_of_a_file_is_told_in_a_line(spoilt: Callable[[Record], str], fault: str, tmp_path: Path) -> None:
    path = tmp_path / "theirs.jsonl"
    path.write_text(submitted.lines_of([a_record()], spoilt(a_record(peak_flops=1.2e11)), "no JSON", a_record().text))
    total, lines = api.check_submissions([str(path)])
    assert len(lines) == 2
    assert total in (2, 3)
    assert any(line.startswith(f"{path}: ") and fault in line for line in lines)
    assert any("line 4: not JSON" in line for line in lines)


def test_a_file_of_nothing_but_faults_is_given_up_after_a_hundred(tmp_path: Path) -> None:
    path = tmp_path / "theirs.jsonl"
    path.write_text("{}\n" * 10_000)
    _, lines = api.check_submissions([str(path)])
    assert len(lines) == transfer.MOST_FAULTS + 1
    assert "what follows was not looked at" in lines[-1]


@pytest.fixture
def own(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with records of this machine, of others, and fake ones."""
    monkeypatch.chdir(tmp_path)
    folder, secret = tmp_path / "data", keys.of_seed(OWN_SECRET)
    folder.mkdir()
    (folder / "machine-secret").write_text(f"{secret.private.hex()} {secret.public.hex()}\n")
    (folder / "machine-key").write_text(FORMER)
    monkeypatch.setattr(keys, "data_folder", lambda: folder)
    monkeypatch.delenv("MLDYNO_MACHINE_KEY")
    here = replace(HERE, key=FORMER)  # as an earlier version wrote it
    other_case = replace(MLP, batch=7)
    store.append(
        [
            submitted.good(other_case, 0.01, here),
            submitted.good(MLP, 0.01, here, note="in /home/ada"),
            made_records.record(replace(MLP, mode="train"), 0.01, here, fake_time=True),
            submitted.good(Case("/bin/sleep 1", framework="command", mode=None, batch=None), 1.0, here),
            *made_machines.records(1),
        ]
    )
    return store


def test_the_newest_records_of_this_machine_are_written_as_private_copies_the_score_set_first(own: Store) -> None:
    lines: list[str] = []
    path, count = api.submit(store=own, tell=lines.append)
    proof, *lines_of_file = Path(path).read_text().splitlines()
    records = [decode(line) for line in lines_of_file]
    assert json.loads(proof)["proves"] == [record.id for record in records]
    assert {record.machine.key for record in records} == {OWN_KEY}, "not the one of before, which was no secret"
    assert count == len(records) == 3
    assert path.startswith("test-bench-")
    assert path.endswith(".jsonl")
    assert {record.machine.name for record in records} == {"test bench"}
    assert [record.case.batch for record in records][:2] == [128, 7]
    assert "sleep" not in Path(path).read_text()
    assert "/home/ada" not in Path(path).read_text()
    assert lines[0].startswith("shares 3 records of 1 machine")
    assert lines[1:] == ["left out: 1 fake record"]
    assert api.check_submissions([path]) == (3, [])
    assert api.submit(store=own)[0] == path


def test_a_key_that_earlier_versions_wrote_into_records_signs_nothing(
    own: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLDYNO_MACHINE_KEY", FORMER)
    with pytest.raises(MldynoError, match=r"MLDYNO_MACHINE_KEY is in records of an earlier mldyno.*data/machine-key"):
        api.submit(store=own)
    assert list(Path().glob("*.jsonl")) == []
    monkeypatch.delenv("MLDYNO_MACHINE_KEY")
    assert api.submit(store=own)[1] == 3


def test_a_word_narrows_what_is_submitted(own: Store) -> None:
    assert api.submit("less.jsonl", "batch=7", own) == ("less.jsonl", 1)
    with pytest.raises(UsageError, match="is another machine"):
        api.submit(what="Example Xeon", store=own)
    with pytest.raises(MldynoError, match="only 1 fake record of this machine for 'mlp/train' to submit"):
        api.submit(what="mlp/train", store=own)
    with pytest.raises(MldynoError, match="nothing of this machine for 'resnet50' to submit"):
        api.submit(what="resnet50", store=own)
    assert sorted(path.name for path in Path().glob("*.jsonl")) == ["less.jsonl"]


def test_a_record_that_no_collection_would_take_is_not_written(own: Store) -> None:
    own.append([submitted.good(MLP, 0.001, HERE, 1, peak_flops=1e11)])
    with pytest.raises(MldynoError, match=r"GFLOP/s are more than .* Nothing was written\."):
        api.submit(store=own)
    assert list(Path().glob("*.jsonl")) == []
