"""Loops of these tests run in the process of all tests, in which others may have started a framework."""

from __future__ import annotations

import sys

import pytest

from mldyno.hardware import system


@pytest.fixture(autouse=True)
def no_device_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop waits for the devices of all frameworks that its process has loaded: these are none of its own."""
    for name in ("mlx.core", "jax", "tensorflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture(autouse=True)
def no_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop on a virtual clock is not slowed by what else the machine does."""
    monkeypatch.setattr(system, "COUNTERS", {})
