"""The client hears the user while it waits for a worker."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType

import pytest

from mldyno.client import worker_process
from mldyno.client.worker_process import WATCH_EVERY_S, WorkerProcess
from mldyno.messages import ProbeFrameworks
from mldyno.runner.events import Interrupted


def test_a_signal_that_outlasts_the_wait_for_an_answer_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's SimpleQueue waits for ever after a signal within which its time was over."""
    (tmp_path / "silent.py").write_text("import sys, time; sys.stdin.readline(); time.sleep(3600)")
    monkeypatch.setattr(worker_process, "SCRIPT", str(tmp_path / "silent.py"))
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
                worker.ask(ProbeFrameworks(("fake",)), 3600.0)
    finally:
        later.join()
        signal.signal(signal.SIGUSR1, before)
