"""What would be read, or expanded, without end is refused in one line that says why, before it costs anything."""

from __future__ import annotations

import base64
import gzip
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from mldyno import cli
from mldyno.store.transfer import END, TAG

DEADLINE_S = 20  # after which a command is held to hang, on however busy a machine
CASES = '[[cases]]\nworkload = "mlp"\n'
Refusal = Callable[..., str]


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Refusal]:
    """Runs a command in this process, in the test's folder, that must be refused: the one line that it says."""

    def too_late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"the command still runs after {DEADLINE_S} s")

    def call(*words: str, code: int) -> str:
        assert cli._run(words) == code
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "something went wrong inside" not in err
        return err

    monkeypatch.chdir(tmp_path)
    usual = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(DEADLINE_S)
    yield call
    signal.alarm(0)
    signal.signal(signal.SIGALRM, usual)
    assert not (tmp_path / "records.sqlite").exists()


def test_suites_that_each_include_the_next_one_twice_are_counted(refusal: Refusal) -> None:
    for number in range(18):
        Path(f"s{number}.toml").write_text(f'include = ["s{number + 1}.toml", "s{number + 1}.toml"]\n')
    Path("s18.toml").write_text(CASES)
    assert "has over 1,000 files, tables and values in all" in refusal("run", "s0.toml", code=2)


def test_suites_that_include_each_other_in_a_long_chain_are_too_deep(refusal: Refusal) -> None:
    for number in range(3000):
        Path(f"s{number}.toml").write_text(f'include = ["s{number + 1}.toml"]\n')
    assert "is included over 20 deep" in refusal("run", "s0.toml", code=2)


@pytest.mark.parametrize("text", [CASES * 600, CASES + f"batch = {list(range(1, 1002))}\n"], ids=["tables", "values"])
def test_a_suite_of_too_many_parts_is_refused(refusal: Refusal, text: str) -> None:
    Path("own.toml").write_text(text)
    assert "has over 1,000 files, tables and values" in refusal("run", "own.toml", code=2)


NUMBERS = ",".join(map(str, range(1, 1001)))


@pytest.mark.parametrize("command", [("run", "mlp"), ("run", "own.toml"), ("run", *["mlp"] * 2, "own.toml")])
def test_four_million_cases_are_counted_before_they_are_made(refusal: Refusal, command: tuple[str, ...]) -> None:
    Path("own.toml").write_text(CASES)
    line = refusal(*command, "--batch", NUMBERS, "--threads", NUMBERS, "--compile", "yes,no", code=2)
    assert "4,000,000 cases are over 10,000; the lists of all axes multiply: shorten some" in line


def test_cases_of_many_targets_are_counted_together(refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mldyno.plan.MOST_CASES", 100)
    numbers = ",".join(map(str, range(1, 41)))
    assert "160 cases are over 100;" in refusal("run", "mlp", "resnet18", "--batch", numbers, code=2)


def test_a_suite_whose_lists_multiply_is_counted_before_its_excludes_are_tried(refusal: Refusal) -> None:
    values = list(range(1, 301))
    Path("own.toml").write_text(f"{CASES}batch = {values}\nthreads = {values}\n[[exclude]]\nbatch = 7\n")
    assert "180,000 cases are over 10,000" in refusal("run", "own.toml", "--batch", "8", code=2)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("table", "--store", "pipe"), "store pipe: this is a pipe or a device; name a regular file"),
        (("run", "mlp", "--framework", "fake", "--store", "pipe"), "store pipe: this is a pipe or a device"),
        (("table", "--store", "/dev/zero"), "store /dev/zero: this is a pipe or a device"),
        (("import", "pipe"), "pipe: this is a pipe or a device; name a regular file, or - for standard input"),
        (("import", "/dev/zero"), "/dev/zero: this is a pipe or a device; name a regular file"),
        (("run", "pipe.toml"), "pipe.toml: this is a pipe or a device; name a regular file"),
        (("run", "including.toml"), "pipe.toml: this is a pipe or a device"),
        (("run", "zero.toml"), "zero.toml: this is a pipe or a device"),
        (("run", "long.toml"), "long.toml: a file of over 1 MiB is not a suite"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_pipe_or_a_device_is_not_waited_for(refusal: Refusal, command: tuple[str, ...], words: str) -> None:
    os.mkfifo("pipe")
    os.mkfifo("pipe.toml")
    os.symlink("/dev/zero", "zero.toml")
    Path("including.toml").write_text('include = ["pipe.toml"]\n')
    Path("long.toml").touch()
    os.truncate("long.toml", 10 << 30)
    assert words in refusal(*command, code=1)


def test_a_line_without_end_on_standard_input_is_no_figure(refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/zero", encoding="utf-8") as zeros:
        monkeypatch.setattr("sys.stdin", zeros)
        assert "-: line 1: it is over 2,000,000 characters long: not a figure" in refusal("import", "-", code=1)


def test_a_small_page_of_packed_empty_lines_is_given_up_at_once(refusal: Refusal) -> None:
    packed = base64.b64encode(gzip.compress(b"\n" * 60_000_000)).decode()
    Path("page.html").write_text(f"<!doctype html>{TAG}{packed}{END}")
    assert Path("page.html").stat().st_size < 100_000
    assert "line 101: over 100 empty lines: not a file of records" in refusal("import", "page.html", code=1)
