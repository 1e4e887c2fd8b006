"""The client hears the user while it waits for a worker."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType

import pytest

from mldyno.messages import ProbeFrameworks
from mldyno.records import Case
from mldyno.runner.events import Interrupted
from mldyno.worker import client
from mldyno.worker.client import WATCH_EVERY_S, Ended, WorkerProcess


def test_a_signal_that_outlasts_the_wait_for_an_answer_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's SimpleQueue waits for ever after a signal within which its time was over."""
    (tmp_path / "silent.py").write_text("import sys, time; sys.stdin.readline(); time.sleep(3600)")
    monkeypatch.setattr(client, "SCRIPT", str(tmp_path / "silent.py"))
    heard = []

    def note(number: int, frame: FrameType | None) -> None:
        time.sleep(2 * WATCH_EVERY_S)
        heard.append(number)

    def check() -> None:
        if heard:
            raise Interrupted("ended by a signal")

    before = signal.signal(signal.SIGUSR1, note)
    later = threading.Timer(2.5 * WATCH_EVERY_S, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        with WorkerProcess(check) as worker:
            later.start()
            with pytest.raises(Interrupted):
                worker.request(ProbeFrameworks(("fake",)), 3600.0)
    finally:
        later.join()
        signal.signal(signal.SIGUSR1, before)


TALKS = """
import json, sys
for line in sys.stdin:
    sys.stderr.write("noise " * 20000 + "%s more noise")
    sys.stderr.flush()
    answer = {"is": "frameworks_probed", "number": json.loads(line)["number"], "python": "3", "frameworks": {}}
    print(json.dumps(answer), flush=True)
"""


@pytest.mark.parametrize(("words", "status"), [
    ("Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)", "oom"),
    ("Error: command buffer exited with error status.", "wrong"),
])  # fmt: skip
def test_work_that_metal_dropped_is_known_by_what_it_says_on_standard_error(
    words: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "talks.py").write_text(TALKS % words)
    monkeypatch.setattr(client, "SCRIPT", str(tmp_path / "talks.py"))

    def ask_on(worker: WorkerProcess) -> None:
        for _ in range(200):  # its words and its answers take different ways
            worker.request(ProbeFrameworks(()), 60.0)
            time.sleep(0.02)

    with WorkerProcess() as worker, pytest.raises(Ended, match="Metal dropped work") as ended:
        ask_on(worker)
    assert ended.value.status == status


def test_accelerate_is_told_its_threads_before_the_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("mlp", threads=2)
    assert "VECLIB_MAXIMUM_THREADS" not in client.settings_of(case)
    monkeypatch.setattr("sys.platform", "darwin")
    assert client.settings_of(case) == {"VECLIB_MAXIMUM_THREADS": "2"}
    assert client.settings_of(Case("mlp")) == {}


class Spinning:
    """A tree of processes of which some thread spins on for so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks, self.spent = looks, 1.0

    def cpu_time(self) -> float:
        self.looks -= 1
        self.spent += 0.03 if self.looks >= 0 else 0.0
        return self.spent


@pytest.mark.parametrize("looks", [0, 4])
def test_a_worker_is_waited_for_until_its_threads_sleep(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr("mldyno.worker.client.time.sleep", naps.append)
    worker = WorkerProcess()
    worker._tree = Spinning(looks)  # type: ignore[assignment]
    worker.wait_until_idle()
    assert len(naps) == max(1, looks)


def test_a_worker_that_can_not_be_killed_is_not_waited_for_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stuck.py").write_text("import time; time.sleep(3600)")
    monkeypatch.setattr(client, "SCRIPT", str(tmp_path / "stuck.py"))
    monkeypatch.setattr(client, "LONGEST_DEATH_S", 0.01)
    monkeypatch.setattr(client, "PIPE_CLOSES_S", 0.01)
    worker = WorkerProcess()
    worker.start()
    process, tree, threads = worker._process, worker._tree, worker._threads
    assert process is not None
    assert tree is not None
    with monkeypatch.context() as stuck_in_a_driver:
        stuck_in_a_driver.setattr(tree, "kill", lambda: None)
        worker.kill()
    assert not worker.running
    assert process.poll() is None
    tree.kill()
    process.wait()
    for thread in threads:
        thread.join()
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


def test_the_last_words_are_the_last_printable_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "talks.py").write_text(
        "import sys; sys.exit('\\n'.join(f'line {n}\\x1b' for n in range(100)) + 'x' * 999)"
    )
    monkeypatch.setattr(client, "SCRIPT", str(tmp_path / "talks.py"))
    with WorkerProcess() as worker, pytest.raises(Ended):
        worker.request(ProbeFrameworks(("fake",)), 20.0)
    words = worker.last_words()
    assert len(words) == client.LAST_WORDS
    assert words[0] == "line 60\ufffd"
    assert len(words[-1]) == 300
