"""Where the system does not kill a worker with its parent, a process that passes the commands on does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mldyno.worker import start

# A parent, and a worker that answers once, and then never releases the interpreter's lock.
WORKER = """
import ctypes, os, sys
from mldyno.worker import start

start.sys.platform = "darwin"
commands = start.guarded(os.dup(0))
os.write(1, b"heard " + os.read(commands, 100))
if sys.argv[1] == "hang":
    ctypes.PyDLL(None).sleep(600)
"""
PARENT = """
import subprocess, sys

worker = subprocess.Popen([sys.executable, "-c", sys.argv[1], "hang"], stdin=subprocess.PIPE, start_new_session=True)
worker.stdin.write(b"a command")
worker.stdin.flush()
print(worker.pid, flush=True)
worker.wait()
"""


def test_a_worker_that_hangs_in_c_ends_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, WORKER], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    words = parent.stdout.readline() + os.read(parent.stdout.fileno(), 100).decode()
    assert "heard a command" in words
    worker = psutil.Process(int(words.split()[0]))
    both = [worker, *worker.children()]
    assert len(both) == 2
    parent.kill()
    parent.wait()
    assert psutil.wait_procs(both, timeout=30)[1] == []
    parent.stdout.close()


def test_a_worker_that_ends_closes_its_answers_at_once() -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, "end"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(b"a command")
    worker.stdin.flush()
    assert worker.stdout.read() == b"heard a command"
    assert worker.wait() == 0
    worker.stdin.close()
    worker.stdout.close()


def test_linux_needs_no_such_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it forks"))
    assert start.guarded(7) == 7
