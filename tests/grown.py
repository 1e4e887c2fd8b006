"""A copy of the product to which a test adds an entry, and its command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"


@dataclass(frozen=True)
class Grown:
    """A copy of the product in a folder of its own."""

    folder: Path

    def add(self, file: str, entry: str, before: str) -> None:
        """Put an entry into a file, before a line of it."""
        path = self.folder / "mldyno" / file
        text = path.read_text()
        assert text.count(before) == 1
        path.write_text(text.replace(before, f"{entry}{before}"))

    def run(self, *words: str, expect: int = 0) -> str:
        """What the copy's command line prints."""
        return self._python("-m", "mldyno", *words, expect=expect)

    def evaluate(self, code: str) -> str:
        """What a piece of code prints that uses the copy."""
        return self._python("-c", code)

    def _python(self, *words: str, expect: int = 0) -> str:
        env = {**os.environ, "PYTHONPATH": str(self.folder), "COLUMNS": "200"}
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=env,
                              cwd=self.folder)  # fmt: skip
        assert done.returncode == expect, done.stderr
        return done.stdout


def copied(folder: Path) -> Grown:
    """A copy of today's product."""
    shutil.copytree(SOURCE / "mldyno", folder / "mldyno", ignore=shutil.ignore_patterns("__pycache__"))
    return Grown(folder)
