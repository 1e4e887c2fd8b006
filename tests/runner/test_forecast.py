"""A dry run says what each case will take, and which can't fit, and runs nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import CliRunner

from mldyno import api, machine
from mldyno.cli import cli
from mldyno.records import seal
from mldyno.runner.forecast import forecast
from mldyno.runner.remote_case import SHORTEST_TIMEOUT_S
from mldyno.runner.run import TIMEOUT_FACTOR, usual_timeouts
from mldyno.store import Store

Script = Callable[..., None]


def preview(*words: str) -> str:
    result = CliRunner().invoke(cli, ["run", "mlp", "--framework", "fake", "--dry-run", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_it_shows_time_and_memory_and_what_can_not_fit(script: Script) -> None:
    script({"match": "*/b64/*", "memory": 1 << 50}, {"match": "*", "memory": 3 << 20})
    said = preview("--mode", "infer", "--batch", "8,64")
    assert re.search(r"3.00 MiB +estimated", said)
    assert "won't fit" in said.splitlines()[-2]
    assert "without 1 case that can't fit. Nothing was run." in said


def test_what_was_measured_before_is_known(script: Script, store: Store) -> None:
    api.run("mlp", mode="infer", framework="fake", device="gpu", repeats=1, store=store)
    said = preview("--mode", "infer", "--device", "gpu")
    assert "as last time" in said
    assert "125 KiB" in said  # the peak on the device, not what is foreseen


def test_what_ran_out_of_memory_last_time_is_said(script: Script, store: Store) -> None:
    script({"match": "*", "fail": "oom"})
    api.run("mlp", mode="infer", framework="fake", repeats=1, store=store)
    assert "ran out of memory last time" in preview("--mode", "infer")


def test_it_comes_as_json_too(script: Script) -> None:
    script({"match": "*", "memory": 1 << 50})
    found = json.loads(preview("--mode", "infer", "--json"))
    assert [(one["memory"], one["fits"], one["note"]) for one in found["cases"]] == [(1 << 50, False, "won't fit")]
    assert found["seconds"] == 0


def test_the_memory_of_a_real_case_is_foreseen_about_right(store: Store) -> None:
    plan = api.make_plan(["bert-tiny"], {"mode": ["train"], "batch": ["64"], "seq": ["128"]}, {"repeats": 1})
    (expected,) = api.dry_run(plan, store)
    (record,) = api.run("bert-tiny", mode="train", batch=64, seq=128, repeats=1, steps=2, store=store).records
    assert record.status == "ok"
    assert expected.memory == pytest.approx(record.values("peak_memory", "process")[0], rel=0.35)
    assert expected.memory is not None
    assert expected.fits is (expected.memory < (machine.available_memory() or 0))


def test_a_timeout_follows_from_what_a_case_is_estimated_to_take_where_the_user_names_none(store: Store) -> None:
    plan = api.make_plan(["mlp", "cifar10-cnn-process"], {"mode": ["train"]}, {"repeats": 2})
    assert plan.timeout is None
    short, end_to_end = forecast(plan, store)
    timeouts = usual_timeouts(plan, [short, end_to_end])
    assert timeouts[short.case.id] == SHORTEST_TIMEOUT_S
    assert timeouts[end_to_end.case.id] == TIMEOUT_FACTOR * end_to_end.seconds / 2 > SHORTEST_TIMEOUT_S


def test_what_was_too_slow_last_time_gets_more_time_now(store: Store) -> None:
    record = api.run("mlp", mode="infer", framework="fake", repeats=1, store=store).records[0]
    slow = replace(record, run=replace(record.run, id="slow"), facts={**record.facts, "wall_time": 900.0})
    store.append([seal(slow)])
    plan = api.make_plan(["mlp"], {"framework": "fake", "mode": ["infer"]}, {"repeats": 1})
    assert usual_timeouts(plan, forecast(plan, store)) == {record.case.id: pytest.approx(4500, rel=0.1)}
