"""A training end to end, as a process: its data set is fetched if need be, each epoch ends with an evaluation."""

from __future__ import annotations

import sys

from mldyno.datasets import prepare
from mldyno.messages import TrainEndToEnd
from mldyno.worker.session import open_case


def train(wish: TrainEndToEnd) -> int:
    """Train a case for so many epochs; gives the exit code, 1 where nothing was learned."""
    data = wish.data
    prepare(data.name, data.source, data.folder, lambda what, done, total: None)
    program = open_case(wish.case, data).program
    first = program.losses()
    for _ in range(wish.epochs):
        program.run_phase("epoch")
    last = program.losses()
    if not first or not last or not all(0 <= last[name] < value for name, value in first.items()):
        sys.stderr.write(f"nothing was learned: {first} at the start, {last} at the end\n")
        return 1
    return 0
