"""What a container may use, as the kernel's control groups say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mldyno.hardware import linux


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of groups, of which this process is in /outer/inner."""
    (tmp_path / "groups/outer/inner").mkdir(parents=True)
    (tmp_path / "own").write_text("4:memory:/older\n0::/outer/inner\n")
    monkeypatch.setattr(linux, "CGROUP_ROOT", tmp_path / "groups")
    monkeypatch.setattr(linux, "OWN_CGROUP", tmp_path / "own")
    return tmp_path / "groups"


@pytest.mark.parametrize(
    ("text", "cores"),
    [("150000 100000", 1.5), ("max 100000", None), ("-1 100000", None), ("", None), ("100000 0", None), ("x y", None)],
)
def test_a_quota_is_read_in_cores(text: str, cores: float | None, groups: Path) -> None:
    (groups / "outer/inner/cpu.max").write_text(text + "\n")
    assert linux.cores_allowed() == cores


def test_the_tightest_quota_on_the_way_to_the_root_holds(groups: Path) -> None:
    (groups / "outer/inner/cpu.max").write_text("400000 100000")
    (groups / "outer/cpu.max").write_text("200000 100000")
    assert linux.cores_allowed() == 2.0
    (groups / "cpu").mkdir()
    (groups / "cpu/cpu.cfs_quota_us").write_text("50000")
    (groups / "cpu/cpu.cfs_period_us").write_text("100000")
    assert linux.cores_allowed() == 0.5


def test_memory_is_read_from_the_group_itself(groups: Path) -> None:
    assert (linux.cgroup_number("memory.max"), linux.cgroup_number("memory.stat", "inactive_file")) == (None, None)
    (groups / "outer/inner/memory.max").write_text("1073741824\n")
    (groups / "outer/inner/memory.stat").write_text("anon 7\ninactive_file 4096\nbroken\n")
    assert (linux.cgroup_number("memory.max"), linux.cgroup_number("memory.stat", "inactive_file")) == (1 << 30, 4096)
    assert linux.cgroup_number("memory.stat", "broken") is None
