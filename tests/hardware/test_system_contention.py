"""Whose CPU time is whose, from a /proc that is made up."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest

from mldyno.hardware import system

OWN, LAUNCHER = 500, 400
PROCESSES = {  # parent, group, ticks: this one, its loader, another rank, that one's loader, a stranger
    "500": (LAUNCHER, 500, 100), "501": (500, 500, 10), "600": (LAUNCHER, 600, 40), "601": (600, 600, 4),
    "9": (1, 9, 7),
}  # fmt: skip


@pytest.mark.parametrize(("beside_siblings", "ticks"), [(False, 1000 - 110), (True, 1000 - 110 - 44)])
def test_ranks_that_one_launcher_started_are_no_others_to_each_other(
    beside_siblings: bool, ticks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(path: str, *how: Any) -> io.BytesIO:
        if path == "/proc/stat":
            return io.BytesIO(b"cpu  900 0 100 5000 0 0 0 0 0 0\n")
        parent, group, used = PROCESSES[path.split("/")[2]]
        return io.BytesIO(f"1 (a ) b) S {parent} {group} 0 0 0 0 0 0 0 0 {used} 0 0 0".encode())

    monkeypatch.setattr(system, "open", opened, raising=False)
    monkeypatch.setattr(os, "listdir", lambda folder: [*PROCESSES, "self", "stat"])
    monkeypatch.setattr(os, "getpgrp", lambda: OWN)
    monkeypatch.setattr(os, "getppid", lambda: LAUNCHER)
    assert system.cpu_of_others(beside_siblings) == ticks / os.sysconf("SC_CLK_TCK")
