"""Cases have readable ids, records have the id of their content, old schemas are upgraded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mldyno import records
from mldyno.axes import AXES, AXIS, axis_named
from mldyno.errors import MldynoError, UsageError
from mldyno.records import SCHEMA, Case, Machine, Record, Run, content_id, content_of, seal, upgrade


def a_record(**changes: Any) -> Record:
    plain = Record(
        SCHEMA, "", "2026-01-01T00:00:00Z", "measured", Run("r"), Case("mlp", batch=8), "ok", "", Machine("m")
    )
    return seal(replace(plain, **changes))


def test_a_case_has_the_readable_id_of_the_design() -> None:
    case = Case("bert-base", device="mps", batch=16, seq=128, placement="host")
    assert case.id == "bert-base/train/torch/mps/fp32/b16/s128/host"


def test_an_id_names_what_is_not_the_default() -> None:
    case = Case("mlp", version=2, batch=8, ranks=4, compile=True, threads=2)
    assert case.id == "mlp@2/train/torch/cpu/fp32/b8/device/r4/compile/t2"


def test_every_axis_shows_in_the_id_so_that_two_cases_never_share_one() -> None:
    base = Case("mlp", batch=8)
    others = [("workload", "x"), ("framework", "fake"), ("device", "mps"), ("mode", "infer"), ("precision", "bf16")]
    others += [("batch", 9), ("seq", 3), ("placement", "host"), ("ranks", 2), ("compile", True), ("threads", 3)]  # type: ignore[list-item]
    others += [("layout", "channels-last"), ("allocator", "steady"), ("scaling", "strong"), ("parallel", "fsdp")]
    others += [("nodes", 2), ("python", "3.11.7+jax0.9")]  # type: ignore[list-item]
    others += [("loader_workers", 2), ("prefetch", 4), ("pin_memory", True)]  # type: ignore[list-item]
    assert {name for name, _ in others} == {axis.name for axis in AXES}
    ids = {replace(base, **{name: value}).id for name, value in others}  # type: ignore[arg-type]
    assert len(ids | {base.id}) == len(others) + 1


def test_the_id_of_a_record_is_the_hash_of_its_content() -> None:
    record = a_record()
    assert record.id == content_id(content_of(record))
    assert a_record().id == record.id
    assert a_record(reason="other").id != record.id


def test_the_hash_of_a_known_record_never_changes() -> None:
    assert content_id({"schema": 1, "values": [0.1, 1e-05, 3.0], "name": "µ"}) == "9a1994790944985fa76d2be524e2ed0e"


@pytest.mark.parametrize(("word", "axis"), [("batch-size", "batch"), ("sequence_length", "seq"), ("device", "device")])
def test_axes_answer_to_the_words_people_use(word: str, axis: str) -> None:
    assert axis_named(word) == axis


def test_modes_are_understood_in_long_and_cuda_means_the_first() -> None:
    assert AXIS["mode"].parse("training") == "train"
    assert AXIS["device"].parse("cuda") == "cuda:0"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cuda:1", "cuda:1"),
        ("cuda:00", "cuda:0"),
        ("mps:0", "mps"),
        ("xpu:0", "xpu"),
        ("xpu:3", "xpu:3"),
        ("cpu:0", "cpu"),
    ],
)
def test_a_device_has_one_name_however_it_is_typed(text: str, name: str) -> None:
    assert AXIS["device"].parse(text) == name


@pytest.mark.parametrize(
    ("axis", "text"),
    [
        ("mode", "sleep"),
        ("device", "tpu"),
        ("device", "cuda:x"),
        ("device", "cuda:"),
        ("device", "cuda:-1"),
        ("device", "cuda:٣"),
        ("device", f"cuda:{'9' * 5000}"),
        ("batch", "0"),
        ("batch", "-1"),
        ("batch", "1.5"),
        ("precision", "fp8"),
    ],
)
def test_a_value_that_an_axis_does_not_have_is_refused(axis: str, text: str) -> None:
    with pytest.raises(UsageError):
        AXIS[axis].parse(text)


def test_an_old_schema_is_upgraded_step_by_step_and_a_newer_one_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(records.UPGRADES, -1, lambda content: {**content, "schema": 0, "steps": 1})
    monkeypatch.setitem(
        records.UPGRADES, 0, lambda content: {**content, "schema": SCHEMA, "steps": content["steps"] + 1}
    )
    assert upgrade({"schema": -1}) == {"schema": SCHEMA, "steps": 2}
    with pytest.raises(MldynoError, match="newer than this mldyno"):
        upgrade({"schema": SCHEMA + 1})
    with pytest.raises(MldynoError, match="whole number"):
        upgrade({"schema": True})
