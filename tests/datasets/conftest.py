"""Fixtures: mirrors on this machine, and the tiny set in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.datasets.mirrors import Manner, Mirror, honest

SCRIPT = Path(__file__).with_name("tiny_set.py")


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Mirror]]:
    """Starts mirrors: mirror() is an honest one, mirror(manner) behaves otherwise."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("MLDYNO_MIRROR", raising=False)
    started: list[Mirror] = []

    def start(manner: Manner = honest) -> Mirror:
        started.append(Mirror(manner))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture
def in_process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the tiny set's script: in_process(FOLDER, WANTED, *MIRRORS, limit=KIB, NAME=VALUE)."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: object, limit: int | None = None, **settings: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(SCRIPT), *map(str, words)]
        if limit is not None:
            command = ["bash", "-c", f'ulimit -f {limit}; exec "$@"', "bash", *command]
        started.append(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **settings}
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
