"""`mldyno submit`: a file for a shared collection, and the check that files have to pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests import submitted

from mldyno.store import Store

Mldyno = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def filled(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with one record of this machine, and a folder of one's own."""
    monkeypatch.chdir(tmp_path)
    store.append([submitted.good()])


def test_it_says_what_it_shares_the_file_and_the_next_step(mldyno: Mldyno) -> None:
    code, out, err = mldyno("submit")
    file = out.partition(" ")[0]
    assert (code, out) == (0, f"{file} (1 record)\n")
    assert Path(file).exists()
    assert err.startswith(
        "shares 1 record of 1 machine: its name, processor, versions; command lines and paths are left"
    )
    assert "next: add this file to a collection" in err


def test_files_that_are_well_pass(mldyno: Mldyno) -> None:
    mldyno("submit", "--out", "mine.jsonl")
    assert mldyno("submit", "--check", "mine.jsonl", "mine.jsonl") == (0, "", "2 files, 2 records: all is well\n")


def test_each_fault_is_a_line_and_the_exit_code_is_1(mldyno: Mldyno) -> None:
    mldyno("submit", "--out", "mine.jsonl")
    Path("bad.jsonl").write_text("{}\nno\n")
    code, out, err = mldyno("submit", "--check", "mine.jsonl", "bad.jsonl", "missing.jsonl")
    assert code == 1
    assert [line.partition(" ")[0] for line in out.splitlines()] == ["bad.jsonl:", "bad.jsonl:", "missing.jsonl:"]
    assert err == "3 files, 1 record: 3 faults\n"


def test_standard_output_gets_the_records_and_nothing_else(mldyno: Mldyno) -> None:
    code, out, err = mldyno("submit", "mlp", "--out", "-")
    assert code == 0
    assert [line.partition(":")[0] for line in out.splitlines()] == ['{"proves"', '{"case"']
    assert "next" not in err


@pytest.mark.parametrize(
    "words", [("mlp", "resnet18"), ("--check",), ("--check", "x", "--out", "y"), ("no-such-thing",)]
)
def test_words_that_make_no_sense_are_told_in_one_line(mldyno: Mldyno, words: tuple[str, ...]) -> None:
    code, out, err = mldyno("submit", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
