"""The page of `make selfcheck`, from made-up measures: what is met and missed is said as it is."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mldyno.selftest.measures import Measure, SeriesKind

SCRIPT = Path(__file__).parents[2] / "bench" / "selfcheck.py"


@pytest.fixture
def selfcheck() -> ModuleType:
    spec = importlib.util.spec_from_file_location("selfcheck", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("missed", [None, 3])
def test_the_page_counts_what_is_met_idle_and_under_load(
    missed: int | None, selfcheck: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[int] = []

    def made_up(effort: object, framework: str, ids: tuple[int, ...], progress: object) -> Iterator[Measure]:
        for number in ids:
            cells = (SeriesKind("phi 0.8", 0.951, 0.94, True, 2000),) if number in selfcheck.ON_SERIES else ()
            yield Measure(
                number, f"measure {number}", 0.02, 0.04, "<= 5 %", number != missed, 200, "share", cells=cells
            )

    class Load:
        def __init__(self, processes: int) -> None:
            loads.append(processes)

        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...

    page = tmp_path / "page.md"
    monkeypatch.setattr(selfcheck, "run", made_up)
    monkeypatch.setattr(selfcheck, "real_time", lambda: made_up(None, "torch", (15, 16), None))
    monkeypatch.setattr(selfcheck, "of_processes", lambda minutes, at: list(made_up(None, "torch", (13, 14), None)))
    monkeypatch.setattr(selfcheck, "changing_load", Load)
    monkeypatch.setattr(selfcheck, "loaded", Load)
    monkeypatch.setattr(sys, "argv", ["selfcheck", "--out", str(page), "--folder", str(tmp_path / "kept")])
    assert selfcheck.main() == (0 if missed is None else 3)
    text = page.read_text(encoding="utf-8")
    met = 16 if missed is None else 15
    assert f"Idle: {met} of 16 targets met. Under load: {met - 6} of 10." in text
    assert ("**missed**" in text) == (missed is not None)
    assert text.count("| phi 0.8 | 95 % |") == 4
    assert len(loads) == 2
    assert not (tmp_path / "kept").exists()


def test_a_part_that_was_measured_is_not_measured_again(selfcheck: Any, tmp_path: Path) -> None:
    taken: list[int] = []

    def take() -> Iterator[Measure]:
        taken.append(1)
        yield Measure(1, "measure 1", 0.02, 0.04, "<= 5 %", True, 200)

    first, again = (selfcheck.kept(tmp_path / "idle.pickle", take) for _ in range(2))
    assert first == again
    assert taken == [1]
