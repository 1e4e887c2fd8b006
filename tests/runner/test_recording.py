"""What is written can be read: names are made to fit, and what can't stand in a record is left out, not the record."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mldyno import api
from mldyno import machine as machines
from mldyno.plan import Plan, for_command
from mldyno.records import Case, Device, Fact, Machine, Record, Run, Series, Software, Warning_
from mldyno.runner import recording
from mldyno.runner.recording import Observed, record_of
from mldyno.store import Query, Store
from mldyno.store.codec import BadRecord, decode
from mldyno.timing.stopping import Stopping

LONG = "echo " + "x" * 400


def recorded(*series: Series, machine: Machine | None = None, **facts: Fact) -> Record:
    """The record of a case that a worker has said this of."""
    observed = Observed(Case("mlp", batch=8), Run("r"), Stopping(target=0.02, budget=1.0), facts=dict(facts))
    observed.software = Software(python="3.11", framework="fake")
    observed.take_turn([Series("step_time", "s", (0.01,) * 20)])
    observed.series += series
    return record_of(observed, machine or Machine("m"), 1.0, "ok", "")


def test_a_fact_a_series_or_a_devices_fact_that_can_not_be_is_left_out_with_a_warning() -> None:
    device = Device("cuda:0", "fake", facts={"clock": "fast", "driver": "535"})
    memory = Series("peak_memory", "B", (-1.0,), stage="process")
    record = recorded(memory, machine=Machine("m", devices=(device,)), graphs="abc", recompiles=1.5, first_step=0.5)
    assert record.status == "ok"
    assert record.values("step_time") == [0.01] * 20
    assert record.values("peak_memory", "process") == []
    assert record.fact("first_step") == 0.5
    assert record.facts.keys() & {"graphs", "recompiles"} == set()
    assert record.machine.devices[0].facts == {"driver": "535"}
    (warning,) = [warning for warning in record.warnings if warning.code == "left-out"]
    for words in ("peak_memory is out of range", "fact clock of cuda:0 must be a number", "fact graphs must be",
                  "fact recompiles must be"):  # fmt: skip
        assert words in warning.message
    assert decode(record.text) == record


def test_a_reason_of_any_length_and_characters_is_kept_as_far_as_it_can_be_read() -> None:
    observed = Observed(Case("mlp"), Run("r"), Stopping(target=0.02, budget=1.0))
    record = record_of(observed, Machine("m"), 1.0, "oom", "\x1b[31mno\nmemory " + "x" * 20_000)
    assert record.status == "oom"
    assert record.reason.startswith("�[31mno memory xxx")
    assert len(record.reason) == 10_000


def test_no_secret_stands_in_a_reason_a_warning_or_a_setting() -> None:
    observed = Observed(Case("mlp", framework="fake"), Run("r"), Stopping())
    observed.software = Software(threads=1, env={"WANDB_API_KEY": "https://me:hunter2x@host"})
    said = "ConnectionError: https://hunter2x@host/model refused; the password is hunter2x"
    noted = [Warning_("energy-lost", said, "look")]
    record = record_of(observed, Machine("m"), 1.0, "failed", said, noted)
    assert "hunter2x" not in record.text
    assert record.reason == "ConnectionError: https://MASKED@host/model refused; the password is MASKED"
    assert record.warnings[0].message == record.reason


def test_a_record_is_decoded_once_before_it_is_stored(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []

    def counted(text: str) -> Record:
        decoded.append(text)
        return decode(text)

    monkeypatch.setattr(recording, "decode", counted)
    (record,) = api.run_plan(api.command_plan(["true"], {"steps": 2}), store).records
    assert record.fact("process_spread") is not None, "which is known only when the rest of the record is"
    assert decoded == [record.text]


def test_a_function_that_is_timed_here_keeps_the_same_settings_as_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KMP_BLOCKTIME", "0")
    monkeypatch.setenv("NOT_RECORDED", "0")
    env = api.measure(lambda: None, budget=0.01).record.software.env
    assert env["KMP_BLOCKTIME"] == "0"
    assert "NOT_RECORDED" not in env


def test_a_record_that_can_not_be_read_is_not_written() -> None:
    with pytest.raises(BadRecord, match="names must be printable text"):
        recorded(machine=Machine("two\nlines"))


@pytest.mark.parametrize("raw", [b"x" * 1000, b"two\nlines", b"not UTF-8: \xff", b"\x1b[31mred", "東京".encode()])
def test_any_name_of_a_machine_makes_records_that_can_be_read(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLDYNO_MACHINE", os.fsdecode(raw))
    named = machines.describe()
    assert decode(recorded(machine=named).text).machine.name == named.name


def test_names_are_made_to_fit_visibly_and_two_long_ones_stay_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLDYNO_MACHINE", "my\nbox\udcff")
    assert machines.describe().name == "my box�"
    first, second = (for_command([LONG, end]).cases[0].workload for end in ("a", "b"))
    assert first != second
    assert len(first) == 300
    assert "x… " in first
    assert for_command(["python3", "-c", "a\nb"]).cases[0].workload == "python3 -c 'a b'"
    assert for_command(["true"]).cases[0].workload == "true"


@pytest.mark.parametrize("name", ["f" * 1000, "two\nlines \udcff"])
def test_a_function_of_any_name_makes_a_record_that_can_be_read(name: str) -> None:
    record = api.measure(lambda: None, name=name, budget=0.01).record
    assert decode(record.text) == record


def test_a_long_command_of_several_lines_is_measured_and_its_record_travels(store: Store, tmp_path: Path) -> None:
    plan: Plan = api.command_plan(["sh", "-c", f"true\n: {LONG}"], {"steps": 2})
    results = api.run_plan(plan, store)
    assert [record.status for record in results.records] == ["ok"]
    assert api.export(str(tmp_path / "out.jsonl"), "jsonl", store=store) == 1
    assert api.import_([str(tmp_path / "out.jsonl")], Store(tmp_path / "there.sqlite")) == (1, 1)
    assert api.show(results.records[0].case.id, store) == list(store.stream(Query(heads=False)))


def test_every_record_says_what_its_processes_were_allowed_also_one_that_failed() -> None:
    observed = Observed(Case("mlp"), Run("r"), Stopping())
    for record in (recorded(), record_of(observed, Machine("m"), 1.0, "failed", "no")):
        assert record.fact("niceness") == os.getpriority(os.PRIO_PROCESS, 0)
        assert record.fact("cores_present") == os.cpu_count()
        assert 1 <= record.fact("cores_allowed") <= record.fact("cores_present")


def test_limits_of_a_container_are_facts_of_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "cores_allowed", lambda: 1.5)
    monkeypatch.setattr("mldyno.hardware.linux.memory_allowed", lambda: (2 << 30, 1 << 30))
    record = recorded()
    assert (record.fact("cpu_quota"), record.fact("memory_limit")) == (1.5, 2 << 30)
    monkeypatch.setattr(machines, "cores_allowed", lambda: None)
    assert "cpu_quota" not in recorded().facts
