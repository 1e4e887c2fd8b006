"""What the control group of this process may use, on Linux: a container is one. None where it has no limit."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path

from mldyno.system_queries import read

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


@cache
def _folders(root: Path, own: Path) -> list[Path]:
    """The folders of this group and of those that it lies in, the innermost first (version 2)."""
    place = root / read(own).rpartition("::")[2].lstrip("/")
    return [place, *(above for above in place.parents if above.is_relative_to(root))]


def number(name: str) -> int | None:
    """A number in a file of this group, such as memory.max in B."""
    with suppress(ValueError):
        return int(read(_folders(ROOT, OWN)[0] / name))
    return None


def row(name: str, key: str) -> int | None:
    """A number in a file of this group that has rows, such as inactive_file in memory.stat in B."""
    with suppress(ValueError, StopIteration):
        rows = (line.split() for line in read(_folders(ROOT, OWN)[0] / name).splitlines())
        return int(next(words[1] for words in rows if words[:1] == [key] and len(words) > 1))
    return None


def cores() -> float | None:
    """Cores' worth of time that may be used: the tightest limit on the way to the root, of both versions."""
    older = " ".join(read(ROOT / "cpu" / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    limits = [_ratio(read(folder / "cpu.max")) for folder in _folders(ROOT, OWN)]
    return min((limit for limit in [*limits, _ratio(older)] if limit is not None), default=None)


def _ratio(text: str) -> float | None:
    """Cores from a quota and its period, such as `150000 100000`; None for `max`, -1 and anything else."""
    words = text.split()
    if len(words) == 2 and all(word.isascii() and word.isdecimal() for word in words) and int(words[1]):
        return int(words[0]) / int(words[1])
    return None
