"""Fixtures that every test may use: a store of its own, and runs of the rehearsal framework."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mldyno import api
from mldyno.store import Store


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the user's store or settings."""
    for name in ("MLDYNO_FAKE", "MLDYNO_MEMORY_LIMIT", "MLDYNO_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLDYNO_STORE", str(tmp_path / "records.sqlite"))
    monkeypatch.setenv("MLDYNO_MACHINE", "test bench")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "records.sqlite")


Script = Callable[..., None]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Scripts the rehearsal framework: script({"match": "*", "step": 0.002}, ...)."""

    def set_rules(*rules: dict[str, Any]) -> None:
        monkeypatch.setenv("MLDYNO_FAKE", json.dumps(rules))

    return set_rules


@pytest.fixture
def rehearse(store: Store) -> Callable[..., api.Results]:
    """Runs workloads on the rehearsal framework into the test's store, in one round if nothing else is asked for."""

    def run(*targets: str, **options: Any) -> api.Results:
        options.setdefault("repeats", 1)
        return api.run(*(targets or ("mlp",)), framework="fake", store=store, **options)

    return run
