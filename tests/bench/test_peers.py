"""The bench beside the peers: its page says what its rounds say, and its adapters time a step right."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.peers import __main__ as peers
from bench.peers import bare, environments, optimum, pyperf_runner, report, rounds, steps, tools, torch_timer
from bench.peers.figures import goals, rows
from bench.peers.ours import Ours
from bench.peers.rounds import Turn
from bench.peers.tools import Answer

HERE = report.Circumstances(("machine: made up",))


def made_up(times: dict[str, list[float]], walls: dict[str, float], warnings: tuple[str, ...] = ()) -> list[Turn]:
    """Rounds in which the bare loop always takes 1 ms, and each tool says what is given."""
    return [
        Turn(number, name, "mlp", Answer(seconds, warnings, walls[name]), Answer(1e-3, (), 4.0))
        for name, found in times.items()
        for number, seconds in enumerate(found, start=1)
    ]


def verdicts(turns: list[Turn]) -> list[bool]:
    ours, *peers = rows(turns)
    return [goal.met for goal in goals(ours, peers)]


def test_goals_are_met_by_one_who_is_near_even_and_quick() -> None:
    times = {"mldyno": [1.0e-3, 1.002e-3, 1.004e-3], "pyperf": [1.0e-3, 1.1e-3, 1.05e-3]}
    turns = made_up(times, {"mldyno": 5.0, "pyperf": 70.0})
    assert verdicts(turns) == [True, True, True]
    text = report.page(turns, HERE, "a test")
    assert "Yes: 3 of 3 goals are met." in text
    assert "**missed**" not in text


def test_goals_are_missed_by_one_who_is_far_uneven_and_slow() -> None:
    times = {"mldyno": [1.1e-3, 1.2e-3, 1.3e-3], "pyperf": [1.0e-3, 1.1e-3, 1.05e-3]}
    turns = made_up(times, {"mldyno": 80.0, "pyperf": 70.0}, ("target-not-reached: no",))
    assert verdicts(turns) == [False, False, False]
    text = report.page(turns, HERE, "a test")
    assert "No: 0 of 3 goals are met." in text
    assert text.count("**missed**") == 3
    assert "misses by 19.0 percentage points" in text
    assert "reached its own target in 0 of 3" in text
    assert "not the machine's" in text


def test_some_goals_met_is_said_as_in_part_and_the_best_peer_is_the_evenest() -> None:
    times = {"mldyno": [1.0e-3, 1.01e-3], "pyperf": [1.0e-3, 1.5e-3], "torch blocked_autorange": [1.0e-3, 1.03e-3]}
    turns = made_up(times, {"mldyno": 5.0, "pyperf": 70.0, "torch blocked_autorange": 2.0})
    assert verdicts(turns) == [True, True, False]
    text = report.page(turns, HERE, "a test")
    assert "In part: 2 of 3 goals are met." in text
    assert "torch blocked_autorange after 2.0 s" in text


def test_one_round_is_too_few_to_judge() -> None:
    turns = made_up({"mldyno": [1e-3], "pyperf": [1e-3]}, {"mldyno": 5.0, "pyperf": 70.0})
    text = report.page(turns, HERE, "a test")
    assert "This can't be said" in text
    assert "goals are met" not in text


def test_a_round_without_an_answer_is_counted_and_not_averaged() -> None:
    turns = made_up({"mldyno": [1e-3, 1.001e-3], "pyperf": [1e-3, 1.1e-3]}, {"mldyno": 5.0, "pyperf": 70.0})
    turns.append(Turn(3, "mldyno", "mlp", Answer(None, ("unsteady: it moved",), 20.0), Answer(1e-3)))
    turns.append(Turn(0, "mldyno", "mlp", Answer(2e-3, ("contention: yes",), 20.0), Answer(2e-3), noisy=True))
    ours = rows(turns)[0]
    assert (len(ours.answers.seconds), ours.warned) == (2, 1)
    assert ours.missed == pytest.approx(2.0, rel=0.01)
    assert "| 2 of 3 | 1 of 3 | 1 of 1 |" in report.page(turns, HERE, "a test")


def test_turns_can_be_written_and_read_back(tmp_path: Path) -> None:
    turns = made_up({"mldyno": [1e-3], "pyperf": [2e-3]}, {"mldyno": 5.0, "pyperf": 70.0}, ("a", "b"))
    for turn in turns:
        rounds.write(turn, tmp_path / "rounds.jsonl")
    assert rounds.read(tmp_path / "rounds.jsonl") == turns


class FakeClock:
    """Time that passes only in steps of 2 ms."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def step(self) -> None:
        self.now += 2e-3


def test_the_bare_loop_and_the_timers_of_torch_time_a_known_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils import benchmark

    clock = FakeClock()
    monkeypatch.setattr(benchmark, "Timer", partial(benchmark.Timer, timer=clock))
    timed = {way: torch_timer.measure(clock.step, way)[0] for way in torch_timer.WAYS}
    monkeypatch.setattr(time, "perf_counter", clock)
    timed["bare"] = bare.loop(clock.step, 0.05, 0.2)
    assert timed == pytest.approx(dict.fromkeys((*torch_timer.WAYS, "bare"), 2e-3))


@pytest.mark.parametrize("name", steps.WORKLOADS)
def test_a_step_is_that_of_the_workload(name: str) -> None:
    import torch

    threads = torch.get_num_threads()
    try:
        output = steps.build(name)()
    finally:
        torch.set_num_threads(threads)
    assert isinstance(output, torch.Tensor)
    assert output.shape == (steps.WORKLOADS[name][1], 2)


def test_a_tool_is_asked_in_a_process_of_its_own(tmp_path: Path) -> None:
    answer = tools.ask(bare.Bare(), Path(sys.executable).parent, "mlp", tmp_path, quick=True)
    assert answer.seconds is not None
    assert 0 < answer.seconds < answer.wall


def test_a_tool_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)bare loop gave no answer.*KeyError"):
        tools.ask(bare.Bare(), Path(sys.executable).parent, "none", tmp_path)


def test_our_answer_is_the_headline_of_all_processes_and_what_it_warns_of(fake_run: Any, script: Any) -> None:
    script({"step": 0.002})
    records = fake_run("mlp", mode="infer", repeats=3).records
    answer = Ours().read("".join(f"{record.text}\n" for record in records))
    assert answer.seconds == pytest.approx(0.002, rel=0.05)
    assert answer.uncontended == pytest.approx(0.002, rel=0.05)
    script({"fail": "oom"})
    assert Ours().read(fake_run("mlp", mode="infer").records[0].text).seconds is None


def test_what_pyperf_warns_of_is_read_from_what_it_prints() -> None:
    output = '.\nWARNING: the benchmark result may be unstable\n* the maximum\n{"seconds": 1.0, "warnings": []}\n'
    assert pyperf_runner.Pyperf().read(output) == Answer(1.0, ("the benchmark result may be unstable",))


def test_every_tool_has_an_environment_and_a_command_without_a_path_of_this_machine() -> None:
    for tool in (*rounds.TOOLS, *rounds.REFERENCES.values()):
        assert tool.environment in {"mldyno", *environments.REQUIREMENTS}
        for step in tool.steps:
            call = tool.call(step, Path("FOLDER"), False)
            assert not any(word.startswith(os.sep) for word in call.words)
    assert optimum.Optimum("inline").steps == ("bert",)


def test_a_full_run_writes_the_page_and_can_write_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "ask", lambda *_, **__: Answer(1e-3, (), 2.0))
    monkeypatch.setattr(environments, "ready", lambda names: None)
    monkeypatch.setattr(environments, "versions", lambda name: {"torch": "2"})
    for name in ("PAGE", "KEPT", "KEPT_WHERE", "STORE"):
        monkeypatch.setattr(peers, name, tmp_path / name)
    monkeypatch.setattr(sys, "argv", ["peers"])
    peers.main()
    text = (tmp_path / "PAGE").read_text(encoding="utf-8")
    assert "10 rounds. In each" in text
    assert "| 10 of 10 | 0 of 10 | 0 of 1 | 1.000 |" in text
    monkeypatch.setattr(sys, "argv", ["peers", "--again"])
    peers.main()
    assert (tmp_path / "PAGE").read_text(encoding="utf-8") == text


def test_every_round_has_every_tool_once_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(tool: tools.Tool, *_: object, **__: object) -> Answer:
        asked.append(tool.name)
        return Answer(1e-3)

    monkeypatch.setattr(rounds, "ask", ask)
    first, second = ([(turn.tool, turn.step) for turn in rounds.turns(number, rounds.TOOLS)] for number in (1, 2))
    assert sorted(first) == sorted(second) == sorted((tool.name, step) for tool in rounds.TOOLS for step in tool.steps)
    assert first != second
    assert len(asked) == 2 * (len(first) + len(second))
