"""Pipes to real processes: none of them is waited for, none survives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import psutil
import pytest

from mldyno.fleet.pipes import READ_B, Heard, Pipes
from mldyno.fleet.wire import BEAT, LONGEST_LINE_B


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes(10)
    yield made
    made.end()


def heard(pipes: Pipes, enough: Callable[[list[Heard]], bool]) -> list[Heard]:
    """Wait until what is heard is enough."""
    so_far: list[Heard] = []
    while not enough(so_far):
        so_far += pipes.wait(5.0)
    return so_far


def ended(count: int) -> Callable[[list[Heard]], bool]:
    return lambda so_far: sum(each.line is None for each in so_far) == count


def test_lines_of_all_processes_are_heard_in_their_order_and_their_ends_with_the_last_errors(pipes: Pipes) -> None:
    for name in ("a", "b"):
        pipes.open(
            name, ["sh", "-c", f"echo {name}1; echo {name}2; printf 'first\\n{name}: no route\\n\\n' >&2; exit 3"]
        )
    all_heard = heard(pipes, ended(2))
    for name in ("a", "b"):
        own = [each for each in all_heard if each.host == name]
        assert [each.line for each in own] == [f"{name}1".encode(), f"{name}2".encode(), None]
        assert own[-1].last == f"first\n{name}: no route"


def test_a_line_reaches_the_process_and_the_end_of_its_input_too(pipes: Pipes) -> None:
    pipes.open("a", ["cat"])
    pipes.send("a", b"x" * 1_000_000 + b"\n")  # more than a pipe holds
    (line,) = heard(pipes, bool)
    assert line.line == b"x" * 1_000_000
    pipes.close("a")
    assert heard(pipes, ended(1))[-1].line is None


def test_a_process_that_reads_nothing_blocks_nothing_and_beats_are_not_piled_up(pipes: Pipes) -> None:
    pipes.open("a", ["sleep", "60"])
    pipes.send("a", b"y" * 1_000_000 + b"\n")
    for _ in range(1000):
        pipes.send("a", BEAT)
    assert len(pipes._pipes["a"].out) <= 1_000_001


def test_a_process_that_is_killed_takes_its_children_with_it(pipes: Pipes) -> None:
    pipes.open("a", ["sh", "-c", "sleep 60 & echo $!; wait"])
    (line,) = heard(pipes, bool)
    child = psutil.Process(int(line.line or b""))
    pipes.kill("a")
    child.wait(30)
    assert not psutil.pid_exists(child.pid) or child.status() == psutil.STATUS_ZOMBIE


def test_each_process_has_a_session_of_its_own(pipes: Pipes) -> None:
    """Ctrl-C in the terminal reaches this process only."""
    pipes.open("a", ["sh", "-c", "echo $$; read -r line"])
    (line,) = heard(pipes, bool)
    assert os.getsid(int(line.line or b"")) == int(line.line or b"") != os.getsid(0)


def test_a_flood_without_a_line_s_end_is_passed_on_in_parts_of_a_bounded_length(pipes: Pipes) -> None:
    pipes.open("a", ["head", "-c", f"{3 * LONGEST_LINE_B}", "/dev/zero"])
    parts = [len(each.line) for each in heard(pipes, ended(1)) if each.line is not None]
    assert parts
    assert max(parts) <= LONGEST_LINE_B + READ_B


def test_a_program_that_is_not_there_is_an_error_at_once(pipes: Pipes) -> None:
    with pytest.raises(FileNotFoundError):
        pipes.open("a", ["/nowhere/ssh"])
    assert pipes.wait(0.0) == []


def test_nothing_is_left_at_the_end(left_behind: Callable[[], set[psutil.Process]]) -> None:
    pipes = Pipes(3)
    for name in "abc":
        pipes.open(name, ["sh", "-c", "trap '' TERM INT HUP; sleep 60"])
    pipes.end()
    assert not left_behind()
