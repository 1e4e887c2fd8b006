"""The worker in a real process: any interpreter, private channel, sleeps between turns, dies with its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from mldyno.worker import start

FAKE = {"workload": "mlp", "framework": "fake", "batch": 8}
REST_DEADLINE_S = END_DEADLINE_S = 60.0  # on however busy a machine


class Talk:
    """A worker, spoken to by hand."""

    def __init__(self, *python: str) -> None:
        self.process = subprocess.Popen(
            [*(python or (sys.executable,)), start.__file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip

    def ask(self, **command: Any) -> dict[str, Any]:
        into, out = self.process.stdin, self.process.stdout
        assert into is not None
        assert out is not None
        into.write(json.dumps(command) + "\n")
        into.flush()
        while True:
            answer: dict[str, Any] = json.loads(out.readline())
            if answer["is"] != "progress":
                return answer


@pytest.fixture
def talk() -> Iterator[Talk]:
    worker = Talk()
    yield worker
    worker.process.kill()
    worker.process.wait()
    for pipe in (worker.process.stdin, worker.process.stdout):
        assert isinstance(pipe, IO) or pipe is not None
        pipe.close()


def test_a_case_is_opened_measured_in_turns_and_closed(talk: Talk) -> None:
    ready = talk.ask(do="open_case", key=1, case=FAKE, warmup=1.0)
    assert ready["is"] == "case_opened"
    assert ready["facts"]["warmup_steady"] is True
    blocks = talk.ask(do="measure_turn", key=1, seconds=0.1, steps=None)
    assert sum(sum(one["values"]) * one["block"] for one in blocks["series"]) == pytest.approx(0.1, rel=0.15)
    closed = talk.ask(do="close_case", key=1)
    assert closed["checks"]["learned"] is True


def test_a_number_of_steps_is_run_exactly(talk: Talk) -> None:
    talk.ask(do="open_case", key=1, case=FAKE, warmup=1.0)
    series = talk.ask(do="measure_turn", key=1, seconds=9.0, steps=103)["series"]
    steps = [one for one in series if one["metric"] == "step_time"]
    assert sum(one["block"] * len(one["values"]) for one in steps) == 103


def test_two_cases_take_turns_in_one_worker(talk: Talk) -> None:
    talk.ask(do="open_case", key=1, case=FAKE, warmup=1.0)
    talk.ask(do="open_case", key=2, case={**FAKE, "device": "gpu"}, warmup=1.0)
    slow = talk.ask(do="measure_turn", key=1, seconds=0.01, steps=None)["series"][0]["values"][0]
    fast = talk.ask(do="measure_turn", key=2, seconds=0.01, steps=None)["series"][0]["values"][0]
    assert slow > 3 * fast


def test_rounds_give_one_block_of_every_case_each(talk: Talk) -> None:
    for key, device in ((1, "cpu"), (2, "gpu"), (3, "cpu")):
        talk.ask(do="open_case", key=key, case={**FAKE, "device": device}, warmup=1.0)
    series = talk.ask(do="measure_rounds", keys=[1, 2, 3], seconds=0.0, fewest=30, seed=0.5)["series"]
    assert [len(one["values"]) for one in series] == [30, 30, 30]
    assert {one["stage"] for one in series} == {"paired"}
    assert series[0]["values"] == pytest.approx(series[2]["values"])
    assert series[0]["values"][0] > 3 * series[1]["values"][0]


def test_a_reference_kernel_stands_among_the_steps(talk: Talk) -> None:
    talk.ask(do="open_case", key=1, case=FAKE, warmup=1.0)
    steps, sticks = talk.ask(do="measure_turn", key=1, seconds=0.5, steps=None)["series"]
    assert (steps["metric"], sticks["metric"]) == ("step_time", "reference_time")
    assert sticks["values"] == pytest.approx([2e-5] * len(sticks["values"]), rel=0.01)
    in_steps, in_sticks = (sum(one["values"]) * one["block"] for one in (steps, sticks))
    assert in_sticks < 0.25 * in_steps


def test_an_error_is_an_answer_and_the_worker_goes_on(talk: Talk) -> None:
    failed = talk.ask(do="open_case", key=1, case={**FAKE, "device": "xpu"}, warmup=1.0)
    assert (failed["is"], failed["status"]) == ("failed", "unsupported")
    assert talk.ask(do="open_case", key=2, case=FAKE, warmup=1.0)["is"] == "case_opened"


def test_it_runs_in_an_interpreter_that_has_no_packages_at_all() -> None:
    worker = Talk(sys.executable, "-I", "-S")
    try:
        assert worker.ask(do="open_case", key=1, case=FAKE, warmup=1.0)["is"] == "case_opened"
        missing = worker.ask(do="open_case", key=2, case={**FAKE, "framework": "torch"}, warmup=1.0)
        assert missing["status"] == "failed"
        assert "pip install" in missing["reason"]
    finally:
        worker.process.kill()
        worker.process.communicate()


def test_nothing_beside_the_package_becomes_importable(tmp_path: Path) -> None:
    code = (
        f"import sys, runpy; sys.argv = [{start.__file__!r}]; "
        f"m = runpy.run_path({start.__file__!r}); m['_own_package'](); "
        "import mldyno.records; print([p for p in sys.path if 'mldyno' in p]); "
        "print([k for k in sys.modules if k in ('click', 'msgspec', 'rich', 'numpy')])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


TORCH = {"workload": "mlp", "mode": "infer", "batch": 8, "threads": 2}


@pytest.mark.parametrize("case", [FAKE, TORCH], ids=["fake", "torch with a pool of threads"])
def test_a_waiting_worker_takes_no_cpu(case: dict[str, Any], talk: Talk) -> None:
    talk.ask(do="open_case", key=1, case=case, warmup=1.0)
    talk.ask(do="measure_turn", key=1, seconds=0.2, steps=None)
    process, ends = psutil.Process(talk.process.pid), time.monotonic() + REST_DEADLINE_S
    while True:
        before = sum(process.cpu_times()[:2])
        time.sleep(1.0)
        if sum(process.cpu_times()[:2]) - before <= 0.01:  # one tick of the system's count
            break
        assert time.monotonic() < ends, "it never comes to rest"


def test_it_ends_when_its_parent_is_gone(talk: Talk) -> None:
    talk.ask(do="open_case", key=1, case=FAKE, warmup=1.0)
    assert talk.process.stdin is not None
    talk.process.stdin.close()
    assert talk.process.wait(timeout=END_DEADLINE_S) in (1, -signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="the system's own way to die with a parent is Linux's")
def test_it_is_killed_with_a_parent_that_is_killed_even_while_it_is_busy() -> None:
    line = json.dumps({"do": "open_case", "key": 1, "case": FAKE, "warmup": 1.0}).encode() + b"\n"
    code = (
        "import subprocess, sys, time; "
        f"p = subprocess.Popen([sys.executable, {start.__file__!r}], stdin=subprocess.PIPE, start_new_session=True); "
        f"p.stdin.write({line!r}); "
        "p.stdin.flush(); print(p.pid, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "MLDYNO_FAKE": '[{"fail": "hang"}]'}
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    time.sleep(0.5)
    assert worker.is_running()
    parent.kill()
    parent.communicate()
    assert worker.wait(timeout=END_DEADLINE_S) is not None or not worker.is_running()


def test_a_loader_worker_that_is_not_forked_has_this_very_mldyno_too(tmp_path: Path) -> None:
    script = f"import runpy, sys; runpy.run_path({start.__file__!r}, run_name='__mp_main__'); import mldyno.axes; "
    script += "print(sys.modules['mldyno'].__file__)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).parent == Path(start.__file__).parent.parent
