"""The page of `make selfcheck`, from made-up measures: what is met and missed is said as it is."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.analysis.test_estimates_usual import processes

from mldyno.selftest.measures import Measure, SeriesKind
from mldyno.selftest.on_processes import judged

SCRIPT = Path(__file__).parents[2] / "bench" / "selfcheck.py"


@pytest.fixture
def selfcheck() -> ModuleType:
    spec = importlib.util.spec_from_file_location("selfcheck", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def check(selfcheck: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, list[int]]]:
    """Runs the check on made-up measures: its exit code, its page, and which measures were taken."""
    taken: list[int] = []

    def run(*words: str, missed: int | None = None) -> tuple[int, str, list[int]]:
        def made_up(effort: object, framework: str, ids: tuple[int, ...], progress: object) -> Iterator[Measure]:
            for number in ids:
                taken.append(number)
                cells = (SeriesKind("phi 0.8", 0.951, 0.94, True, 2000),) if number in selfcheck.ON_SERIES else ()
                yield Measure(
                    number, f"measure {number}", 0.02, 0.04, "<= 5 %", number != missed, 200, "share", cells=cells
                )

        monkeypatch.setattr(selfcheck, "run", made_up)
        monkeypatch.setattr(selfcheck, "real_time", lambda: made_up(None, "torch", (15, 16), None))
        monkeypatch.setattr(selfcheck, "of_processes", lambda minutes, at: list(made_up(None, "torch", (13, 14), None)))
        monkeypatch.setattr(selfcheck, "changing_load", lambda processes: nullcontext())
        monkeypatch.setattr(selfcheck, "loaded", lambda processes: nullcontext())
        places = ("--out", tmp_path / "page.md", "--kept", tmp_path / "kept.json", "--folder", tmp_path / "folder")
        monkeypatch.setattr(sys, "argv", ["selfcheck", *map(str, places), *words])
        taken.clear()
        return selfcheck.main(), (tmp_path / "page.md").read_text(encoding="utf-8"), list(taken)

    return run


@pytest.mark.parametrize("missed", [None, 3])
def test_the_page_counts_what_is_met_idle_and_under_load(missed: int | None, check: Any, tmp_path: Path) -> None:
    code, text, _ = check(missed=missed)
    assert code == (0 if missed is None else 3)
    met = 16 if missed is None else 15
    assert f"Idle: {met} of 16 targets met. Under load: {met - 6} of 10." in text
    assert ("**missed**" in text) == (missed is not None)
    assert text.count("| phi 0.8 | 95 % |") == 4
    assert "not measured yet" not in text
    assert not (tmp_path / "folder").exists()


def test_what_was_measured_is_kept_and_only_what_is_named_is_measured_anew(check: Any) -> None:
    _, text, taken = check("--part", "idle")
    assert taken == [1, 2, 3, 4, 6, 7, 8, 11, 15, 16]
    assert "not measured yet: processes, busy, changing, simulated" in text
    _, text, taken = check()
    assert set(taken) == {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
    assert "not measured yet" not in text
    assert check("--part", "processes")[2] == [13, 14]
    assert check()[2] == []


def test_many_short_processes_know_more_than_three(selfcheck: Any) -> None:
    measure = selfcheck.width(14, list(judged(processes(3, count=60))))
    assert measure.value < 0.6
    assert measure.n == 6
