"""Programs of users, written into a folder and run as they would run them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from mldyno.records import Record
from mldyno.store import Query, Store

SOURCE = Path(__file__).parent.parent.parent / "src"
STEPS = """
    import mldyno

    def step():
        sum(range(20_000))
"""


def written(folder: Path, body: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(STEPS) + textwrap.dedent(body))
    return path


def ran(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env=environment(**settings), timeout=200
    )


def environment(**settings: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, **settings}


def stored(store: Store) -> list[Record]:
    return store.select(Query(heads=False, provenances=("measured",)))
