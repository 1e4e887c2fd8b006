"""Batches of changed records are read in every way; of a batch that can't be, the records at fault are named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from tests.fuzz.mutations import HERE, Content, mutated
from tests.fuzz.readers import read_everything

from mldyno.store.codec import BadRecord, decode
from mldyno.store.transfer import foreign_fault

BATCH = 100  # records in one store


@dataclass(frozen=True)
class Batch:
    """Texts that an import takes, and how many it refuses."""

    taken: list[str]
    refused: int


@contextmanager
def as_a_test() -> Iterator[None]:
    """Errors come out as they are, and this machine is called as in the records."""
    before = dict(os.environ)
    os.environ |= {"MLDYNO_DEBUG": "1", "MLDYNO_MACHINE": HERE}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def batch_of(seed: int, originals: list[Content], size: int = BATCH) -> Batch:
    """Changed records of a seed and its successors."""
    taken, refused = [], 0
    for number in range(seed, seed + size):
        text = mutated(number, originals)
        try:
            fault = foreign_fault(decode(text), datetime.now(timezone.utc))
            if fault is not None:
                raise fault
            taken.append(text)
        except BadRecord:
            refused += 1
    return Batch(taken, refused)


def at_fault(texts: Sequence[str], folder: Path) -> tuple[list[str], Exception] | None:
    """The fewest of these records that can't be read, by halves, with the error; None where all can."""
    try:
        read_everything(texts, folder)
        return None
    except Exception as error:
        half = len(texts) // 2
        for some in (texts[:half], texts[half:]) if half else ():
            if culprits := at_fault(some, folder):
                return culprits
        return _fewer(list(texts), folder), error


def _fewer(texts: list[str], folder: Path) -> list[str]:
    """Records that can't be read beside each other, without those that it does not take."""
    for text in list(texts):
        rest = [other for other in texts if other != text]
        if rest:
            try:
                read_everything(rest, folder)
            except Exception:
                texts = rest
    return texts
