"""A user's command is timed end to end, in the same records and comparisons as everything else."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli.conftest import MOST_TRIES

from mldyno import api
from mldyno.cli import cli
from mldyno.errors import NOT_ALL_OK, MldynoError, UsageError
from mldyno.frameworks import command
from mldyno.frameworks.fake import CLOCK
from mldyno.plan import Plan, name_of
from mldyno.records import Case, Machine, Series, seal
from mldyno.results import Results
from mldyno.runner.warnings import Evidence, of_measurement
from mldyno.store import Query, Store
from mldyno.worker.session import measure_rounds, open_case


def run(store: Store, *words: str, **settings: Any) -> Results:
    return api.run_plan(api.command_plan(words, {"budget": 0.5, **settings}), store)


def timed(store: Store, words: str, *seconds: float) -> None:
    """A record of that command whose runs took exactly so long."""
    (record,) = run(Store(store.path.with_name("real.sqlite")), *shlex.split(words), steps=2).records
    others = tuple(series for series in record.series if (series.metric, series.stage) != ("step_time", "steady"))
    exact = Series("step_time", "s", seconds)
    facts = {**record.facts, "steps": len(seconds)}
    store.append([seal(replace(record, status="ok", reason="", series=(*others, exact), facts=facts))])


def test_its_first_run_is_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = iter([0.5])  # the first finds nothing cached

    def call(words: list[str], **streams: Any) -> int:
        CLOCK.work(next(lengths, 0.1), 0.0)
        return 0

    monkeypatch.setattr(subprocess, "call", call)
    monkeypatch.setattr(command.FRAMEWORK, "clock", CLOCK)
    case = open_case(Case("slow once", framework="command"), None, ["slow-once"])
    ready = case.warm_up(0.5)
    assert ready.facts["first_step"] == pytest.approx(0.5, abs=1e-6)
    (steady,) = case.turn(0.0, 6).series
    assert list(steady.values) == pytest.approx([0.1] * 6, abs=1e-6)


def test_every_run_is_a_process(store: Store, tmp_path: Path) -> None:
    (outcome,) = run(store, "sh", "-c", f"echo $$ >> {tmp_path}/processes; sleep 0.01", steps=6).outcomes
    warm = outcome.figure("step")
    assert warm is not None
    assert warm.processes == 6
    processes = (tmp_path / "processes").read_text().split()
    assert len(processes) == len(set(processes)) >= 7  # the first run is one more


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
    timed(store, "sleep 0", *[0.020, 0.021, 0.019, 0.020, 0.020])
    timed(store, "sleep 0.0", *[0.200, 0.201, 0.199, 0.200, 0.200])
    (comparison,) = api.compare("sleep 0.0", "sleep 0", store=store)
    assert comparison.ratio == pytest.approx(10, rel=0.02)
    assert "faster" in comparison.verdict


def test_what_helps_two_commands_that_can_not_be_told_apart_is_a_run_of_both(store: Store) -> None:
    timed(store, "sh -c 'sleep 0'", 0.050, 0.054)
    timed(store, "sh -c 'sleep  0'", 0.051, 0.053)
    (comparison,) = api.compare("sh -c 'sleep 0'", "sh -c 'sleep  0'", store=store)
    assert comparison.verdict == "inconclusive"
    assert comparison.advice == "measure both in one run, so that they are paired"


def test_two_commands_take_turns_and_are_compared_round_by_round(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def call(words: list[str], **streams: Any) -> int:
        called.append(words[0])
        CLOCK.work({"slow": 0.2, "fast": 0.1}[words[0]], 0.0)
        return 0

    monkeypatch.setattr(subprocess, "call", call)
    monkeypatch.setattr(command.FRAMEWORK, "clock", CLOCK)
    cases = [open_case(Case(name, framework="command"), None, [name]) for name in ("slow", "fast")]
    for case in cases:
        case.warm_up(0.0)
    assert called == ["slow", "slow", "fast", "fast"], "what the runs alone have cached need not be warmed up again"
    called.clear()
    slow, fast = (series.values for series in measure_rounds(cases, 0.0, 12, 0.5).series)
    rounds = [tuple(called[place : place + 2]) for place in range(0, len(called), 2)]
    assert len(rounds) == 12
    assert set(rounds) == {("slow", "fast"), ("fast", "slow")}, "in a new order each time"
    assert [a / b for a, b in zip(slow, fast, strict=True)] == pytest.approx([2.0] * 12, rel=1e-3)


TWO = ("sh", "-c", "sleep 0.06", "--", "sh", "-c", "sleep 0.12")  # so long that no warm-up is judged


def logged(log: Path, name: str, seconds: float = 0.0) -> tuple[str, ...]:
    """Return a command that writes its name into a file each time that it runs."""
    return ("sh", "-c", f"sleep {seconds}; echo {name} >> {log}")


def test_commands_take_turns_from_their_first_run_on_and_nothing_is_run_beside_that(
    store: Store, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    words = (*logged(log, "a", 1.01), "--", *logged(log, "b", 1.02))
    results = run(store, *words, steps=3)
    runs = log.read_text().split()
    assert sorted(runs[:2]) == ["a", "b"], "the first runs, which find nothing cached"
    assert all(sorted(runs[place : place + 2]) == ["a", "b"] for place in range(2, 8, 2)), "then round by round"
    assert len(runs) == 8
    for alone, paired in zip(results.everything[:2], results.everything[2:], strict=True):
        assert alone.values("step_time") == paired.values("step_time", "paired"), "its time comes from the same runs"
        assert alone.fact("first_step") is not None
        assert alone.fact("steps") == 3


def test_long_commands_have_the_budget_that_was_given_and_no_more(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run(store, *logged(log, "a", 1.01), "--", *logged(log, "b", 1.01), budget=1.5)
    assert log.read_text().split().count("a") == 3, "a first run, and two rounds of a second each"


def test_a_command_that_fails_in_a_later_round_ends_and_the_others_go_on_without_it(
    store: Store, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    breaks = ("sh", "-c", f"echo b >> {log}; test $(grep -c b {log}) -lt 4")
    results = run(store, *logged(log, "a", 0.06), "--", *breaks, "--", *logged(log, "c", 0.12), steps=5)
    assert [record.case.workload for record in results.records if record.status != "ok"] == [name_of(breaks)]
    assert sorted(record.status for record in results.records) == ["failed", "ok", "ok"]
    (comparison,) = results.compare()
    assert comparison.how.startswith("paired, 5 rounds")


def test_a_machine_whose_threads_wait_for_a_core_makes_a_command_contended(store: Store) -> None:
    (record,) = run(store, "true", steps=2).records
    for waited, contended in ((0.05, False), (0.2, True)):
        series = [
            Series("window_time", "s", (1.0,), stage="window"),
            Series("cpu_pressure", "s", (waited,), stage="window"),
        ]
        warnings = of_measurement(Evidence(record.case, series, dict(record.facts), Machine("m", cores=4), None))
        assert ("contended" in [warning.code for warning in warnings]) is contended


def test_two_commands_of_one_run_are_paired_and_each_has_its_own_record(store: Store) -> None:
    results = run(store, *TWO, steps=2)
    assert [record.run.pairing for record in results.everything] == ["alone", "alone", "interleaved", "interleaved"]
    first, second = (record for record in results.everything if not record.alone)
    assert first.run.group == second.run.group
    rounds = len(first.values("step_time", "paired"))
    assert rounds == len(second.values("step_time", "paired")) >= 2
    for found in (results.compare(), api.compare("sh -c 'sleep 0.06'", "sh -c 'sleep 0.12'", store=store)):
        assert [(each.base.case.workload, each.how.partition(";")[0]) for each in found] == [
            ("sh -c 'sleep 0.06'", f"paired, {rounds} rounds")
        ]


def test_the_command_line_ends_with_which_of_two_commands_is_faster() -> None:
    for _ in range(MOST_TRIES):
        result = CliRunner().invoke(cli, ["run", "--steps", "2", "--budget", "0.5s", "--", *TWO])
        assert result.exit_code == 0
        assert "2 cases head-to-head, run by run: sh -c 'sleep 0.06', " in result.output
        last = result.output.splitlines()[-1]
        if not last.startswith("no clear difference"):  # as on a machine that is too busy to tell
            break
    assert re.match(r"sh -c 'sleep 0.12' \w+ .*x .*slower than sh -c 'sleep 0.06'.* \[paired, \d+ rounds", last)


def test_a_command_that_fails_leaves_the_other_its_time(store: Store) -> None:
    words = ["run", "--steps", "2", "--budget", "0.5s", "--", "false", "--", "sleep", "0.06"]
    result = CliRunner().invoke(cli, words, standalone_mode=False)
    assert result.return_value == NOT_ALL_OK
    assert "false: failed: the command ended with exit code 1" in result.output
    assert result.output.splitlines()[-1].startswith("nothing to compare along workload: ")
    assert {record.case.workload: record.status for record in store.stream(Query())} == {
        "false": "failed", "sleep 0.06": "ok",
    }  # fmt: skip


def test_two_commands_that_were_cut_short_go_on_where_they_were(
    store: Store, cut_short: Callable[[Plan, int], None]
) -> None:
    plan = api.command_plan(TWO, {"steps": 2, "budget": 0.5})
    cut_short(plan, 1)
    run_id, begun = api.unfinished(store, None)
    assert begun == plan
    results = api.run_plan(begun, store, resume=run_id)
    assert len(results.records) == 2
    assert len(results.everything) == 4


def test_the_secrets_of_both_commands_reach_them_and_no_record(store: Store) -> None:
    other = (*SECRET[:2], f"{SECRET[2]} && true", *SECRET[3:])
    results = run(store, *SECRET, "--", *other, steps=2)
    assert {record.status for record in results.records} <= {"ok", "unsteady"}
    assert [record.facts["command"] for record in results.records] == [
        shlex.join([*words[:-1], "MASKED"]) for words in (SECRET, other)
    ]
    store.close()
    assert b"hunter2x" not in store.path.read_bytes()


def test_a_process_that_waits_for_its_command_is_not_called_contended(store: Store) -> None:
    """Whatever share of its own few moments it waited for a core: those of the command are not seen."""
    (record,) = run(store, "true", steps=2).records
    waited = {"window_time": 0.8, "cpu_time": 0.001, "run_delay": 0.5}
    series = [Series(name, "s", (value,), stage="window") for name, value in waited.items()]
    quiet = Machine("m", cores=4)
    warnings = of_measurement(Evidence(record.case, series, dict(record.facts), quiet, None))
    assert "contended" not in [warning.code for warning in warnings]
    own = {name: value for name, value in record.facts.items() if name != "end_to_end"}
    warnings = of_measurement(Evidence(record.case, series, own, quiet, None))
    assert "contended" in [warning.code for warning in warnings]


def test_its_peak_memory_is_that_of_its_processes(store: Store) -> None:
    (record,) = run(store, sys.executable, "-c", "x = bytearray(200 << 20)", steps=2).records
    assert record.values("peak_memory", "process")[0] > 200 << 20


def test_a_command_with_slashes_has_an_id_that_a_filter_can_read(store: Store) -> None:
    (record,) = run(store, sys.executable, "-c", "pass", steps=2).records
    assert record.case.id == f"{record.case.workload}/command/cpu"
    assert api.show(shlex.join([sys.executable, "-c", "pass"]), store) == [record]
    assert api.show(record.case.id, store) == [record]


SECRET = ("sh", "-c", 'test "$2" = "hunter$((1 + 1))x"', "sh", "--token", "hunter2x")


def test_a_secret_reaches_the_command_and_no_record(store: Store) -> None:
    (record,) = run(store, *SECRET, steps=2).records
    assert record.status in ("ok", "unsteady"), "it ends with 0 only where the secret has reached it"
    assert record.facts["command"] == shlex.join([*SECRET[:-1], "MASKED"])
    store.close()
    assert b"hunter2x" not in store.path.read_bytes()
    assert api.show(shlex.join(SECRET), store) == [record], "it is found by its words as they were typed"


def test_what_a_command_says_last_is_kept_without_its_secrets(store: Store) -> None:
    (record,) = run(store, "sh", "-c", "echo login with password=hunter2x failed >&2; exit 7").records
    assert record.reason == "the command ended with exit code 7: login with password=MASKED failed"


def test_a_run_whose_secrets_were_not_kept_is_resumed_with_its_words(store: Store) -> None:
    plan = api.command_plan(SECRET, {"steps": 2})
    store.begin_run("r1", "2026-01-01T00:00:00Z", "1 0.00", plan.text())
    with pytest.raises(MldynoError, match="its secrets were not kept; give the command again: mldyno run --resume -- "):
        api.unfinished(store, None)
    assert api.unfinished(store, plan) == ("r1", plan)
    plain = api.command_plan(["true"], {"steps": 2})
    store.begin_run("r2", "2026-01-02T00:00:00Z", "1 0.00", plain.text())
    assert api.unfinished(store, None, trust=True) == ("r2", plain)
    both = api.command_plan([*SECRET, "--", "true"], {"steps": 2})
    store.begin_run("r3", "2026-01-03T00:00:00Z", "1 0.00", both.text())
    with pytest.raises(MldynoError, match=r"mldyno run --resume -- sh -c .* MASKED -- true"):
        api.unfinished(store, None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--"], "name the command after --"),
        (["run", "--", "no-such-command-anywhere"], "there is no command 'no-such-command-anywhere' here"),
        (["run", "mlp", "--", "true"], "omit mlp before --"),
        (["run", "--batch", "4", "--", "true"], "omit --batch before --"),
        (["run", "--by", "device", "--", "true"], "omit --by before --"),
        (["run", "--", "true", "--"], "name the command after --"),
        (["run", "--", "true", "--", "no-such-command"], "goes into sh -c"),
        (["run", "--", "true", "--", "true"], "a command is given twice"),
        (["run", "--", "true", "--token", "hunter2x", "--", "true", "--token", "hunter3x"], "differ only in secrets"),
    ],
)
def test_what_makes_no_sense_gets_one_line(words: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, words)
    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)


def test_the_command_line_tells_cold_from_warm() -> None:
    result = CliRunner().invoke(cli, ["run", "--steps", "3", "--", "true"])
    assert result.exit_code == 0
    assert "true: first run: " in result.output


def test_a_command_whose_steps_are_done_waits_for_a_slower_one(store: Store) -> None:
    quick, slow = run(store, "true", "--", "sleep", "0.15", steps=4).outcomes
    assert {outcome.status for outcome in (quick, slow)} <= {"ok", "unsteady"}
    assert all(outcome.records[0].fact("steps") == 4 for outcome in (quick, slow))
