"""RAPL, from a tree as a kernel shows it: what each domain sees, and what is closed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.hardware.simulated import PACKAGE, RAPL, tree

from mldyno.hardware import Surroundings, linux


def test_domains_of_rapl_say_what_they_see_and_none_is_there_twice(tmp_path: Path) -> None:
    sensors = linux.find_rapl(Surroundings(tree(tmp_path, RAPL))).sensors
    assert [(each.name, each.scope) for each in sensors] == [
        ("package-0", "package"), ("core", "cores"), ("dram", "memory"), ("psys", "system"),
    ]  # fmt: skip
    assert sensors[0].read() == pytest.approx(123.456789)
    assert sensors[0].largest == pytest.approx(262_143.32885)
    assert sensors[3].largest is None


def test_a_counter_that_only_root_may_read_is_named_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path, RAPL, (PACKAGE,))
    monkeypatch.setattr("os.access", lambda path, mode: path.stat().st_mode & 0o444 != 0)  # root may read everything
    closed = linux.find_rapl(Surroundings(root)).closed
    assert [each.name for each in closed] == ["package-0"]
    assert "udev" in closed[0].cure
    assert "CVE-2020-8694" in closed[0].price
