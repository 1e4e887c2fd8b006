"""Builds the site of a server, in a process of its own: judges what is pending, takes it into a store, writes pages.

What to do comes by standard input, as JSON: a password must not be among the arguments of a process.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

import click

from mldyno import submission
from mldyno.errors import MldynoError
from mldyno.records import Record
from mldyno.store import Query, Store, transfer
from mldyno.store.codec import BadRecord, decode, decode_stored, with_origin
from mldyno.team import Item
from mldyno.team.table import File, Table

MOST_COMPARED = 5_000  # records, the newest, with which what is pending is compared
LABEL = "team"  # what the records of a site came from


def table_at(store: str) -> Table:
    """Open the tables at a path, or at the URL of a database."""
    if store.partition("://")[0].lower() in ("postgresql", "postgres"):
        from mldyno.team.postgres import Database

        return Database(store, make=True)
    return File(store)


def judge(table: Table) -> int:
    """Compare what is pending with the other records of its machines and cases; return how many are refused.

    What a database holds that no server has taken is checked here as a request is.
    """
    refused = 0
    while (page := table.page(table.judged())).items:
        reasons: dict[str, str] = {}
        pending = _decoded(page.items, reasons)
        for record, fault in submission.judged([pending], vouched=True)[0]:
            reasons.setdefault(record.id, fault)
        good = [record for record in pending if record.id not in reasons]
        keys = {record.machine.key or "" for record in good}
        known = table.alike(keys, {record.case.id for record in good}, page.items[0].number - 1, MOST_COMPARED)
        earlier = [_of(item, decode_stored(item.text)) for item in known]
        for record, fault in submission.compared([*earlier, *good]):
            reasons.setdefault(record.id, fault)
        table.judge(page.items[-1].number, reasons.items())
        refused += len(reasons)
    return refused


def _decoded(items: Sequence[Item], reasons: dict[str, str]) -> list[Record]:
    """Return the records of items; why one can't be read, or is not what it says, goes to `reasons`."""
    records = []
    now = datetime.now(timezone.utc)
    for item in items:
        try:
            record = decode(item.text)
            fault = transfer.foreign_fault(record, now)
            if fault is None and record.id != item.id:
                fault = BadRecord("it is another record than its row says")
            if fault is not None:
                raise fault
        except BadRecord as error:
            reasons[item.id] = str(error)
            continue
        records.append(_of(item, record))
    return records


def _of(item: Item, record: Record) -> Record:
    return with_origin(record, LABEL, transfer.signed_by(item.proof, record))


def gather(table: Table, store: Store) -> None:
    """Take into the store of a site what is judged, and remove what was withdrawn."""
    identity, judged = table.identity(), table.judged()
    after = store.pulled(identity)
    while (page := table.page_of(after, judged)).items:
        store.append(_decoded(page.items, {}))
        after = page.items[-1].number
        store.note_pulled(identity, after)
    if gone := table.gone(store.ids(Query(heads=False))):
        store.remove(gone, lambda owner: False)


def prepare(source: str, store: Path, tell: Callable[[str], None]) -> None:
    """Judge what is pending, and gather what is judged."""
    table = table_at(source)
    try:
        if refused := judge(table):
            tell(f"{refused} records refused; `mldyno pushed` lists them")
        gathered = Store(store)
        gather(table, gathered)
        gathered.close()
    finally:
        table.close()


def main() -> None:
    """Do what standard input says; then this process becomes the one that writes the site."""
    asked = json.loads(sys.stdin.read())
    os.nice(10)  # whoever pushes and reads comes first
    store, folder = Path(asked["store"]), asked["folder"]
    store.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(f"{store}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(lock, True)
    fcntl.flock(lock, fcntl.LOCK_EX)  # the builder of a server that was killed may still be at work
    try:
        prepare(asked["source"], store, lambda line: click.echo(line, err=True))
    except MldynoError as error:
        sys.exit(str(error))
    words = ["-m", "mldyno", "report", "--site", folder, "--store", str(store), "--private"]
    os.execv(sys.executable, [sys.executable, *words])


if __name__ == "__main__":
    main()
