"""Pushing and pulling: what a place lacks goes there, and what is new there comes here.

Rules: everything may be ended at any moment and repeated; a number is noted as read only when all records up to it are
stored here. What comes is a stranger's, and read as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from mldyno import keys, submission
from mldyno.errors import MldynoError
from mldyno.printable import printable, shortened
from mldyno.records import Record
from mldyno.store import Query, Store, transfer
from mldyno.store.codec import BadRecord, decode, with_origin
from mldyno.team import Item, Place, Withheld

IDS_AT_ONCE = 1000
BATCH, BATCH_B = 200, 2 << 20  # records, and the length of their texts, that are pushed at once
MOST_REASONS = 20  # that are kept
Progress = Callable[[int, int], None]  # hears how many records are done, of how many


@dataclass
class Moved:
    """What a push or a pull came to."""

    total: int = 0  # records that were meant
    new: int = 0
    known: int = 0
    fake: int = 0  # left out
    refused: int = 0
    reasons: list[str] = field(default_factory=list)  # of the first of these

    def refuse(self, reason: str) -> None:
        self.refused += 1
        if len(self.reasons) < MOST_REASONS:
            self.reasons.append(reason)


def push(place: Place, store: Store, queries: Sequence[Query], private: bool, progress: Progress) -> Moved:
    """Push the records that queries mean and the place lacks; one that the place refuses holds up no other."""
    place.identity()
    moved, own = Moved(), keys.own_key()
    ids = list(dict.fromkeys(id_ for query in queries for id_ in store.ids(query)))
    moved.total = len(ids)
    for start in range(0, len(ids), IDS_AT_ONCE):
        some = ids[start : start + IDS_AT_ONCE]
        # a private copy has another id, which is known when it is made
        lacking = set(some) if private else place.missing(some)
        moved.known += len(some) - len(lacking)
        done = start + len(some) - len(lacking)
        progress(done, len(ids))
        wanted = [id_ for id_ in some if id_ in lacking]
        for batch in _batches(_read(store, wanted, private, moved)):
            if private:
                lacking = place.missing([record.id for record in batch])
                moved.known += len(batch) - len(lacking)
            _push_batch(place, [record for record in batch if record.id in lacking], own, moved)
            done += len(batch)
            progress(min(done, start + len(some)), len(ids))
    progress(len(ids), len(ids))
    return moved


def _read(store: Store, ids: list[str], private: bool, moved: Moved) -> Iterator[Record]:
    for start in range(0, len(ids), BATCH):
        some = tuple(ids[start : start + BATCH])
        for record in store.written(Query(ids=some, heads=False)) if some else ():
            if submission.fake(record):
                moved.fake += 1
            else:
                yield transfer.private_copy(record) if private else record


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        if batch and (len(batch) == BATCH or size + len(record.text) > BATCH_B):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record.text)
    if batch:
        yield batch


def _push_batch(place: Place, records: list[Record], own: str | None, moved: Moved) -> None:
    """Push a batch; where some of it are refused, the others again."""
    mine = [record.id for record in records if own is not None and record.machine.key == own]
    proof = transfer.signature(mine) if mine else ""
    signed = set(mine)
    items = [Item(record.id, record.text, proof if record.id in signed else "") for record in records]
    items.sort(key=lambda item: not item.proof)  # a signature comes before what it is of
    while items:
        try:
            moved.new += place.add(items)
            return
        except Withheld as error:
            faulty = dict(reversed(error.faults))
            left = [item for item in items if item.id not in faulty]
            if len(left) == len(items):
                raise
            for item in items:
                if item.id in faulty:
                    moved.refuse(faulty[item.id])
            items = left


def pull(place: Place, store: Store, again: bool, progress: Progress) -> Moved:
    """Take the records that are new in a place, or all of them `again`.

    What can't be read is left out, and looked at again by the next pull: a newer mldyno may be able to read it.
    """
    identity, moved = place.identity(), Moved()
    after = 0 if again else store.pulled(identity)
    label, held_at = label_of(place.name), None
    while (page := place.page(after)).items:
        records = []
        for item in page.items:
            record = _taken(item, label, moved)
            if record is not None:
                records.append(record)
            elif held_at is None:
                held_at = item.number - 1
        moved.total += len(page.items)
        new = store.append(records) if records else 0
        moved.new += new
        moved.known += len(records) - new
        if page.items[-1].number <= after:
            raise MldynoError(f"{place.name}: its numbers do not rise; nothing more was taken")
        after = page.items[-1].number
        store.note_pulled(identity, after if held_at is None else held_at)
        progress(moved.total, moved.total + page.left)
    return moved


def _taken(item: Item, label: str, moved: Moved) -> Record | None:
    """Return a record that was pulled, checked as one of an imported file; None where it is refused."""
    try:
        record = decode(item.text)
        fault = transfer.foreign_fault(record, datetime.now(timezone.utc))
        if fault is None:
            return with_origin(record, label, transfer.signed_by(item.proof, record))
    except BadRecord as error:
        fault = error
    moved.refuse(shortened(printable(f"number {item.number}: {fault}"), 300))
    return None


def label_of(name: str) -> str:
    """Return where pulled records came from, as it is stored with them: the host, and the database if there is one."""
    place = name.partition("://")[2].rpartition("@")[2]
    return shortened(printable(place.strip("/")), 200) or "a team"
