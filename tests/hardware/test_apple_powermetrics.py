"""Apple's powermetrics, by what its manual says that it prints."""

from __future__ import annotations

import sys

import pytest

from mldyno.hardware import Surroundings, apple


def test_powermetrics_runs_only_for_root_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(
        "mldyno.system_queries.ask", lambda *words: "CPU Power: 9 mW\nCombined Power (CPU + GPU + ANE): 4210 mW\n"
    )
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert not apple.find_metered_chip(Surroundings()).sensors
    monkeypatch.setenv("MLDYNO_POWERMETRICS", "1")
    (chip,) = apple.find_metered_chip(Surroundings()).sensors
    assert chip.read() == 4.21
    monkeypatch.setattr("os.geteuid", lambda: 501)
    assert [each.reason for each in apple.find_metered_chip(Surroundings()).closed] == ["only root may run it"]
