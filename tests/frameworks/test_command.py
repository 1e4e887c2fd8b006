"""A command of the user's is timed whole, in the same records and comparisons as everything else."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mldyno import api
from mldyno.cli import cli
from mldyno.errors import UsageError
from mldyno.store import Store


def run(store: Store, *words: str, **settings: Any) -> api.Results:
    return api.run_plan(api.command_plan(words, {"budget": 0.5, **settings}), store)


def test_its_first_run_is_apart_and_every_run_is_a_process(store: Store, tmp_path: Path) -> None:
    slow_once = f"test -e {tmp_path}/seen || sleep 0.4; touch {tmp_path}/seen; sleep 0.1"
    (outcome,) = run(store, "sh", "-c", slow_once, steps=6).outcomes
    cold, warm = outcome.figure("first_step"), outcome.figure("step")
    assert cold is not None
    assert warm is not None
    assert cold.value > 0.5
    assert warm.value == pytest.approx(0.1, rel=0.4)
    assert warm.processes == 6


def test_a_command_that_fails_is_a_record_with_its_last_words(store: Store) -> None:
    (record,) = run(store, "sh", "-c", "echo cannot find the model >&2; exit 7").records
    assert (record.status, record.reason) == ("failed", "the command ended with exit code 7: cannot find the model")


def test_a_command_that_is_killed_says_by_what(store: Store) -> None:
    (record,) = run(store, "sh", "-c", "kill -9 $$").records
    assert (record.status, record.reason) == ("failed", "the command was ended by signal 9")


def test_a_command_that_hangs_ends_with_its_time(store: Store) -> None:
    (record,) = run(store, "sleep", "60", timeout=1.0).records
    assert record.status == "timeout"


def test_two_commands_can_be_compared_by_their_words(store: Store) -> None:
    for length in ("0.02", "0.2"):
        run(store, "sleep", length, steps=5)
    (found,) = api.compare("sleep 0.2", "sleep 0.02", store=store)
    assert found.ratio > 3
    assert "faster" in found.verdict


def test_what_helps_two_commands_that_can_not_be_told_apart_is_more_runs(store: Store) -> None:
    for same in ("sleep 0.05", "sleep  0.05"):
        run(store, "sh", "-c", same, steps=2)
    (found,) = api.compare("sh -c 'sleep 0.05'", "sh -c 'sleep  0.05'", store=store)
    assert (found.verdict, found.advice) == ("inconclusive", "more --steps of each would tell")


def test_a_process_that_waits_for_its_command_is_not_called_contended(store: Store) -> None:
    (record,) = run(store, "sleep", "0.8", steps=2).records  # long beside what a start may wait for
    assert "contended" not in [warning.code for warning in record.warnings]


def test_its_peak_memory_is_that_of_its_processes(store: Store) -> None:
    (record,) = run(store, sys.executable, "-c", "x = bytearray(200 << 20)", steps=2).records
    assert record.values("peak_memory", "process")[0] > 200 << 20


def test_a_command_with_slashes_has_an_id_that_a_filter_can_read(store: Store) -> None:
    (record,) = run(store, sys.executable, "-c", "pass", steps=2).records
    assert record.case.id == f"{record.case.workload}/command/cpu"
    assert api.show(shlex.join([sys.executable, "-c", "pass"]), store) == [record]
    assert api.show(record.case.id, store) == [record]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--"], "name the command after --"),
        (["run", "--", "no-such-command-anywhere"], "there is no command 'no-such-command-anywhere' here"),
        (["run", "mlp", "--", "true"], "omit mlp before --"),
        (["run", "--batch", "4", "--", "true"], "omit --batch before --"),
    ],
)
def test_what_makes_no_sense_gets_one_line(words: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, words)
    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)


def test_the_command_line_tells_cold_from_warm() -> None:
    result = CliRunner().invoke(cli, ["run", "--steps", "3", "--", "true"])
    assert result.exit_code == 0
    assert "true/command/cpu: the first run took" in result.output
