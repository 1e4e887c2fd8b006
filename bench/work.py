"""Where a benchmark works and how much it does: a full run, or a quick one that only shows that it works."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench import histories
from mldyno.records import Record


@dataclass(frozen=True)
class Work:
    """A folder that is removed afterwards, and the sizes of what is measured."""

    folder: Path
    quick: bool
    bert_store: Path | None = None
    """A store that holds a run of apple-silicon-bert already."""

    @cached_property
    def start_repeats(self) -> int:
        """How often a command is started."""
        return 3 if self.quick else 25

    @cached_property
    def case_repeats(self) -> int:
        """How often a case is run."""
        return 1 if self.quick else 7

    @cached_property
    def budget(self) -> float:
        """Time in s that the watched parent measures."""
        return 1.0 if self.quick else 10.0

    @cached_property
    def parent_repeats(self) -> int:
        """How often the parent is watched."""
        return 1 if self.quick else 3

    @cached_property
    def imported(self) -> int:
        """Records that are imported."""
        return 2_000 if self.quick else 100_000

    @cached_property
    def stored(self) -> tuple[int, int]:
        """Records in the small and in the large store."""
        return (1_000, 5_000) if self.quick else (1_000, 1_000_000)

    @cached_property
    def read_repeats(self) -> int:
        """How often each store is read."""
        return 1 if self.quick else 5

    @cached_property
    def exported(self) -> tuple[int, ...]:
        """Records in the stores that are exported, fewest first."""
        return (1_000, 2_000, 5_000) if self.quick else (1_000, 10_000, 100_000, 1_000_000)

    @cached_property
    def template(self) -> Record:
        """What the made-up records are made from."""
        return histories.template(self.folder)

    def store(self, count: int) -> Path:
        """A store with so many records."""
        path = self.folder / f"history-{count}.sqlite"
        if not path.exists():
            say(f"  making a store of {count:,} records")
        return histories.make_store(self.template, count, path)


def say(text: str) -> None:
    """A line of progress, with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
