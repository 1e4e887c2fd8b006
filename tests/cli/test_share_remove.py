"""`mldyno remove` shows what would go, asks, and does nothing where nobody can be asked."""

from __future__ import annotations

import sys

import pytest
from tests.store.test_sqlite import a_record

from mldyno.cli import main
from mldyno.plan import Plan
from mldyno.records import Case
from mldyno.store import Query, Store

FIRST, SECOND = "20260101T000000-aaaaaa", "20260102T000000-bbbbbb"
PLAN = Plan((Case("mlp", batch=1),)).text()


@pytest.fixture
def stored(store: Store) -> Store:
    """A run of seven records and one of one, both unfinished; their owners are gone."""
    store.append([a_record(batch=batch, run=FIRST) for batch in range(1, 8)] + [a_record(run=SECOND, day=2)])
    for run in (FIRST, SECOND):
        store.begin_run(run, "2026-01-01", "1 0.00", PLAN)
    return store


def ended(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["remove", *words])
    return int(str(end.value.code))


def left(store: Store) -> int:
    return len(list(store.stream(Query(heads=False))))


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A terminal, at which somebody says no."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda text, default: False)
    return monkeypatch


def test_what_would_go_is_shown_and_no_means_no(
    stored: Store, answering: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(a_record(batch=7, run=FIRST).id, SECOND) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 records of 2 runs on 1 machine:",
        f"  run {SECOND} on m: 1",
        f"  run {FIRST} on m: 1",
        "which are:",
        f"  {a_record(run=SECOND, day=2).id[:10]}  mlp/train/torch/cpu/fp32/b8/device: 150 ms a step",
        f"  {a_record(batch=7, run=FIRST).id[:10]}  mlp/train/torch/cpu/fp32/b7/device: 150 ms a step",
        f"run {FIRST} is not finished: `mldyno run --resume` measures again what is removed.",
        f"run {SECOND} is not finished, and can't be resumed any more.",
        "nothing was removed",
    ]
    assert left(stored) == 8


def test_a_long_list_is_cut_short(
    stored: Store, answering: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended(FIRST)
    out = capsys.readouterr().out
    assert "7 records of 1 run on 1 machine:" in out
    assert "the newest of them:" in out
    assert out.count("mlp/") == 5
    assert "\n  and 2 more\n" in out


def test_yes_removes(stored: Store, answering: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answering.setattr("click.confirm", lambda text, default: True)
    assert ended(FIRST) == 0
    assert capsys.readouterr().out.endswith("7 records removed\n")
    assert left(stored) == 1


def test_where_nobody_can_be_asked_nothing_is_removed_without_a_yes(
    stored: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(FIRST) == 2
    shown, error = capsys.readouterr()
    assert error == "mldyno: Not a terminal; nothing removed. Pass --yes to remove without asking.\n"
    assert shown.startswith("7 records of 1 run on 1 machine:\n")
    assert left(stored) == 8
    assert ended(FIRST, "--yes") == 0
    assert capsys.readouterr().out == f"{shown}7 records removed\n", "what was removed is shown by its ids"
    assert left(stored) == 1


@pytest.mark.parametrize(
    ("word", "code", "says"),
    [
        ("abcdef", 1, "nothing stored for 'abcdef'; `mldyno history` lists what there is."),
        ("M1 Mac mini", 1, "'M1 Mac mini' means published figures only, which ship with mldyno and can't be removed."),
        ("toaster", 2, "unknown workload, machine, case or file 'toaster'."),
    ],
)
def test_what_can_not_be_removed_is_told_in_one_line(
    word: str, code: int, says: str, stored: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(word, "--yes") == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"mldyno: {says}")
    assert left(stored) == 8
