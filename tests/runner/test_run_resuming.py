"""A run is resumed from the store's own plan only if this machine's secret proves that it made the plan."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mldyno import api, sources
from mldyno.errors import MldynoError, UsageError
from mldyno.plan import Plan
from mldyno.records import Case
from mldyno.runner.events import Listener
from mldyno.store import Query, Store

Mldyno = Callable[..., tuple[int, str, str]]
CUT = Callable[[Plan, int], None]
CATALOGUE = api.make_plan(["mlp"], {"framework": ["fake"], "mode": ["infer"], "batch": [1, 2]}, {"repeats": 1})


@pytest.fixture
def mldyno(capsys: pytest.CaptureFixture[str]) -> Mldyno:
    from mldyno.cli import main

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(words)
        return int(str(end.value.code)), *capsys.readouterr()

    return call


def begun(plan: Plan, store: Store) -> None:
    """A run that another machine has begun."""
    store.begin_run("r1", "2026-01-01T00:00:00Z", "1 0.00", plan.text())
    store.close()


def commands(tmp_path: Path) -> Plan:
    return api.command_plan(["touch", str(tmp_path / "ran")], {"steps": 1})


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_strangers_store_runs_no_command_and_shows_it(
    dry: tuple[str, ...], tmp_path: Path, store: Store, mldyno: Mldyno
) -> None:
    begun(commands(tmp_path), store)
    code, out, err = mldyno("run", "--resume", *dry, "--store", str(store.path))
    shown, runs, error = err.splitlines()
    assert (code, out) == (2, "")
    assert shown == "resumes run r1"
    assert runs == f"  runs the command: touch {tmp_path / 'ran'}"
    assert error == (
        f"mldyno: nothing proves that this machine began run r1 of {store.path}; "
        "allow it with --trust, if you trust what it runs."
    )
    assert not (tmp_path / "ran").exists()
    assert list(store.stream(Query())) == []


def test_with_trust_it_runs_and_can_be_resumed_without_from_then_on(
    tmp_path: Path, store: Store, mldyno: Mldyno
) -> None:
    begun(commands(tmp_path), store)
    code, _, err = mldyno("run", "--resume", "--trust", "--store", str(store.path))
    assert code == 0
    assert f"runs the command: touch {tmp_path / 'ran'}" in err
    assert (tmp_path / "ran").exists()


def test_code_and_models_and_interpreters_are_shown_too(tmp_path: Path, store: Store, mldyno: Mldyno) -> None:
    content = json.loads(CATALOGUE.text())
    content["cases"] = [{**content["cases"][0], "workload": "theirs.py@01234567", "python": "3.11.7+torch2.13.0"}]
    theirs = sources.Source(
        "file", "/theirs/theirs.py", "build", "/theirs", name="theirs.py@01234567", modes=("infer",)
    )
    content["sources"] = [vars(theirs)]
    store.begin_run("r1", "2026-01-01T00:00:00Z", "1 0.00", json.dumps(content))
    code, _, err = mldyno("run", "--resume", "--store", str(store.path))
    assert code == 2
    assert "  runs file /theirs/theirs.py, function build\n" in err
    assert "  runs in Python 3.11.7+torch2.13.0\n" in err
    assert "allow it with --trust" in err
    assert sources.known("theirs.py@01234567") is None


def test_each_program_of_a_strangers_plan_is_one_line(store: Store, mldyno: Mldyno) -> None:
    begun(api.command_plan(["true", "a\n  runs the command: true\nb", "\x1b[2J"], {"steps": 1}), store)
    code, _, err = mldyno("run", "--resume", "--store", str(store.path))
    assert code == 2
    shown, told = err.splitlines()[1:]
    assert shown.startswith("  runs the command: true 'a   runs the command: true b' '")
    assert "allow it with --trust" in told


@pytest.mark.parametrize(
    "change",
    [{"budget": "x"}, {"commands": [[5]]}, {"cases": [{"workload": 5}]}, {"repeats": -1}, {"repeats": 10**9},
     {"data": "theirs"}, {"cases": [{"workload": "mlp", "ranks": 10**6}]}, {"steps": 0.5}],
)  # fmt: skip
def test_a_plan_that_can_not_be_is_told_in_one_line_though_it_is_trusted(
    store: Store, mldyno: Mldyno, change: dict[str, Any]
) -> None:
    store.begin_run("r1", "2026-01-01T00:00:00Z", "1 0.00", json.dumps({**json.loads(CATALOGUE.text()), **change}))
    for more in ((), ("--dry-run",)):
        code, _, err = mldyno("run", "--resume", "--trust", *more, "--store", str(store.path))
        assert code == 1
        assert err.splitlines()[-1].startswith("mldyno: the plan of a run can't be read (")


def test_a_strangers_plan_of_the_catalogue_needs_trust_too(store: Store) -> None:
    begun(CATALOGUE, store)
    with pytest.raises(UsageError, match="allow it with --trust"):
        api.unfinished(store, None)
    assert api.unfinished(store, None, trust=True) == ("r1", CATALOGUE)


def test_what_this_machine_began_is_resumed_and_shown(store: Store, cut_short: CUT) -> None:
    cut_short(CATALOGUE, 1)
    lines: list[str] = []
    assert api.unfinished(store, None, tell=lines.append)[1] == CATALOGUE
    assert lines == [], "nothing runs but the catalogue"
    commands_too = api.command_plan(["true", "--", "true", "again"], {"steps": 1})
    cut_short(commands_too, 1)
    run, plan = api.unfinished(store, None, tell=lines.append)
    assert plan == commands_too
    assert lines == [f"resumes run {run}", "  runs the command: true", "  runs the command: true again"]


def test_a_run_that_another_host_began_is_said_to_be_of_it(store: Store, cut_short: CUT) -> None:
    cut_short(CATALOGUE, 1)
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE runs SET owner = '00000000-1-1'")
    connection.close()
    lines: list[str] = []
    run, _ = api.unfinished(Store(store.path), None, tell=lines.append)
    assert lines == [f"run {run} was begun on another host or in another container; make sure that it has ended there"]


def test_a_file_that_is_gone_or_a_tree_that_was_removed_is_named(store: Store, tmp_path: Path) -> None:
    gone = sources.Source("file", str(tmp_path / "my_model.py"), "build", name="my_model.py@00000000", version="HEAD")
    plan = Plan((Case("my_model.py@00000000", framework="fake"),), sources=(gone,))
    begun(plan, store)
    with pytest.raises(MldynoError, match=r"my_model\.py \(HEAD\) is not where run r1 had it; give the command again"):
        api.unfinished(store, None, trust=True)


def test_a_plan_that_was_put_into_the_store_or_changed_is_not_run(store: Store, cut_short: CUT, tmp_path: Path) -> None:
    cut_short(CATALOGUE, 1)
    for sql in (
        "UPDATE runs SET plan = ?",
        "INSERT INTO runs SELECT 'r0', '2099', owner, finished, ?, proof FROM runs",
    ):
        with sqlite3.connect(store.path) as connection:
            connection.execute(sql, (commands(tmp_path).text(),))
        connection.close()
        with pytest.raises(UsageError, match="nothing proves that this machine began run"):
            api.unfinished(Store(store.path), None)


def test_another_machine_is_not_this_one(store: Store, cut_short: CUT, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_short(CATALOGUE, 1)
    monkeypatch.setenv("MLDYNO_MACHINE_KEY", "ab" * 16)
    with pytest.raises(UsageError, match="allow it with --trust"):
        api.unfinished(store, None)


def test_a_plan_that_the_user_gives_again_needs_no_trust(store: Store, tmp_path: Path) -> None:
    plan = commands(tmp_path)
    begun(plan, store)
    run, found = api.unfinished(store, plan)
    api.run_plan(found, store, Listener(), run)
    assert (tmp_path / "ran").exists()
