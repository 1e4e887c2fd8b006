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


def test_a_quota_of_version_1_holds_in_a_group_within_others(groups: Path) -> None:
    (groups.parent / "own").write_text("3:cpu,cpuacct:/outer/inner\n")
    (groups / "cpu/outer/inner").mkdir(parents=True)
    (groups / "cpu/outer/cpu.cfs_quota_us").write_text("150000")
    (groups / "cpu/outer/cpu.cfs_period_us").write_text("100000")
    (groups / "cpu/outer/inner/cpu.cfs_quota_us").write_text("-1")
    (groups / "cpu/outer/inner/cpu.cfs_period_us").write_text("100000")
    assert linux.cores_allowed() == 1.5


def limited(group: Path, most: int, used: int, older: bool = False) -> None:
    """Give a group a limit and a use in B, of which 4,096 B can be freed."""
    names = (
        ("limit_in_bytes", "usage_in_bytes", "total_inactive_file") if older else ("max", "current", "inactive_file")
    )
    group.mkdir(parents=True, exist_ok=True)
    (group / f"memory.{names[0]}").write_text(f"{most}\n")
    (group / f"memory.{names[1]}").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 7\nactive_file 5\n{names[2]} 4096\nbroken\n")


def test_memory_without_a_limit_is_unlimited(groups: Path) -> None:
    assert linux.memory_allowed() == (None, None)
    (groups / "outer/inner/memory.max").write_text("max\n")
    assert linux.memory_allowed() == (None, None)
    (groups / "outer/inner/memory.max").write_text("1073741824\n")
    assert linux.memory_allowed() == (1 << 30, None), "what is used is unknown"


def test_the_tightest_limit_on_the_way_to_the_root_holds(groups: Path) -> None:
    limited(groups / "outer/inner", most=8 << 30, used=1 << 30)
    assert linux.memory_allowed() == (8 << 30, (7 << 30) + 4096)
    limited(groups / "outer", most=16 << 30, used=15 << 30)
    assert linux.memory_allowed() == (8 << 30, (1 << 30) + 4096), "the one around it is nearly full"


def test_limits_of_control_groups_of_version_1_hold(groups: Path) -> None:
    limited(groups / "memory", most=9223372036854771712, used=1 << 30, older=True)
    limited(groups / "memory/older", most=2 << 30, used=1 << 30, older=True)
    assert linux.memory_allowed() == (2 << 30, (1 << 30) + 4096)
