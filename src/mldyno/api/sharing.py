"""Verbs that bring records in and out: exports, submissions, imports, removals, reports and sites."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from mldyno import machine as machines
from mldyno.analysis.outcomes import outcomes
from mldyno.analysis.scores import figure_of, scores
from mldyno.axes import Case
from mldyno.errors import MldynoError, UsageError
from mldyno.records import Record
from mldyno.selection import Tell, nothing_to_remove, opened, pinned_by, select, stored
from mldyno.store import Query, Store, transfer
from mldyno.store.codec import came_from, decode_stored
from mldyno.store.private import private_copy, private_text
from mldyno.units import count


def export(
    path: str,
    form: str,
    text: str | None = None,
    store: Store | str | None = None,
    private: bool = False,
    tell: Tell | None = None,
) -> int:
    """Write stored records to a file, without command lines and paths if `private`; gives how many."""
    opened_store = opened(store)
    query = Query(pinned_by(text, opened_store) if text else {}, heads=False)
    if tell is not None:
        _tell_sharing(tell, opened_store.counts(query), private)
    newest = opened_store.select(replace(query, heads=True)) if form == "csv" else []
    figures = [figure_of(score).text for score in scores(outcomes(newest))]
    texts = chain(opened_store.texts(query), figures)
    return transfer.write(map(private_text, texts) if private else texts, path, form) - len(figures)


def _tell_sharing(tell: Tell, counts: Mapping[tuple[Case, str], int], private: bool) -> None:
    """Say what is about to be shared, where there is something."""
    from mldyno.views.sentences import sharing

    if counts:
        tell(sharing(counts, private))


def submit(
    path: str | None = None, what: str | None = None, store: Store | str | None = None, tell: Tell | None = None
) -> tuple[str, int]:
    """Write the newest records of this machine for a shared collection, as private copies; gives file and count.

    Those of the cases that make the score come first. Fake ones are left out.
    """
    from mldyno import submission

    opened_store = opened(store)
    own = opened_store.name_of(machines.describe())
    pinned = pinned_by(what, opened_store) if what else {}
    if pinned.get("machine", own) != own:
        raise UsageError(f"'{what}' is another machine; what it measured is to be submitted there.")
    texts = opened_store.texts(Query({**pinned, "machine": own}, provenances=("measured",)))
    records = [record for record in map(decode_stored, texts) if not record.interrupted]
    real = submission.score_first([private_copy(record) for record in records if not submission.fake(record)])
    if not real:
        known = f"only {count(len(records), 'fake record')}" if records else "nothing"
        named = f" for '{what}'" if what else ""
        raise MldynoError(f"{known} of this machine{named} to submit; measure it with `mldyno quick`.")
    for fault in submission.faults(real):
        raise MldynoError(f"{fault}; or leave it out with a filter, such as mlp/train. Nothing was written.")
    if tell is not None:
        _tell_sharing(tell, Counter((record.case, record.machine.name) for record in real), private=True)
        if len(real) < len(records):
            tell(f"left out: {count(len(records) - len(real), 'fake record')}")
    stem = transfer.file_stem(real[0].machine.name, *(record.id for record in real))
    place = path or f"{stem}.jsonl"
    return place, transfer.write((record.text for record in real), place, "jsonl")


def check_submissions(paths: Sequence[str]) -> tuple[int, list[str]]:
    """How many records files for a shared collection hold, and what speaks against taking them, a line each."""
    from mldyno import submission

    total, lines = 0, []
    for path in paths:
        records, faults = transfer.examined(path)
        total += len(records)
        lines += [*faults, *(f"{path}: {fault}" for fault in submission.faults(records))]
    return total, lines


def import_(paths: Sequence[str], store: Store | str | None = None) -> tuple[int, int]:
    """Take the records of files into the store, all or none; gives how many were new and how many there were.

    They count as imported, whatever machine they name; but what this machine could not save of a run comes back to it.
    """
    opened_store = opened(store)
    here = machines.describe()
    begun = {run for run, _, _ in opened_store.unfinished_runs()}
    total = 0

    def records() -> Iterator[Record]:
        nonlocal total
        for path in paths:
            file = transfer.file_name(path)
            for record in transfer.read(path):
                total += 1
                machine = record.machine
                rescued = record.run.id in begun and (machine.name, machine.key) == (here.name, here.key)
                yield record if rescued else came_from(record, file)

    return opened_store.append(records()), total


@dataclass(frozen=True)
class Removal:
    """What would be removed from the store."""

    records: list[Record]
    resumable: list[str]
    """Unfinished runs that keep some records: what is removed of them is measured again when they are resumed."""
    dropped: list[str]
    """Unfinished runs that keep none, and can't be resumed any more."""


def remove(
    *words: str, store: Store | str | None = None, confirm: Callable[[Removal], bool] = lambda removal: True
) -> int:
    """Remove the stored records that words mean: ids, runs, machines, files, filters; gives how many.

    `confirm` sees first what would go; if it says no, nothing does. Published figures can't be removed.
    """
    from mldyno.runner.run import busy

    opened_store = opened(store)
    records: dict[str, Record] = {}
    for word in words:
        meant = stored(word, opened_store)
        if not meant:
            raise nothing_to_remove(word, opened_store)
        records |= {record.id: record for record in meant}
    unfinished = {run for run, _, _ in opened_store.unfinished_runs()} & {each.run.id for each in records.values()}
    left = {run for run in unfinished
            if any(each.id not in records for each in opened_store.stream(Query({"run": run})))}  # fmt: skip
    removal = Removal(list(records.values()), sorted(left), sorted(unfinished - left))
    return opened_store.remove(records, busy) if confirm(removal) else 0


def report(
    path: str | None = None,
    what: str | None = None,
    form: str = "html",
    store: Store | str | None = None,
    private: bool = False,
    tell: Tell | None = None,
) -> list[str]:
    """Write the report of what a word means (everything, if none is given): a page, or a folder of pictures.

    Without command lines and paths if `private`. Gives the paths of what was written.
    """
    from mldyno.reporting import write_page, write_pictures

    records = _reported(what, store, private, tell)
    if form == "html":
        return [write_page(records, path or "report.html")]
    return write_pictures(records, path or f"report-{form}", form)


def card(
    path: str,
    what: str | None = None,
    store: Store | str | None = None,
    private: bool = False,
    tell: Tell | None = None,
) -> str:
    """Write one picture to post, PNG: the machine, what was found, and the command to do it again."""
    from mldyno.reporting import write_card

    return write_card(_reported(what, store, private, tell), path)


def site(
    folder: str,
    what: str | None = None,
    store: Store | str | None = None,
    private: bool = False,
    tell: Tell | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> str:
    """Write a static site of what a word means, or of everything, published machines too; gives its first page."""
    from mldyno.reporting import write_site
    from mldyno.views.site.collection import stems
    from mldyno.views.site.pages import MARK, belongs

    with transfer.atomic_folder(folder, MARK, belongs) as part:
        chosen = _chosen(what, store, tell)
        records = [record for record in chosen if not record.fact("fake_time")]
        if not any(record.alone and not record.interrupted for record in records):
            raise MldynoError(f"nothing real is recorded for '{what}'; `mldyno history` lists what there is.")
        files = stems(records)
        own = [record for record in records if record.provenance != "published"]
        if tell is not None:
            _tell_sharing(tell, Counter((record.case, record.shown_machine) for record in own), private)
            if len(records) < len(chosen):
                tell(f"left out: {count(len(chosen) - len(records), 'fake record')}, of which no time is real")
        write_site([private_copy(record) if private else record for record in records], files, part, progress)
    return os.path.join(folder, "index.html")


def _chosen(what: str | None, store: Store | str | None, tell: Tell | None) -> list[Record]:
    """The newest records that a word means, or all; of a file, as they would be if it was imported."""
    records, pinned = select(what or None, opened(store), tell=tell)
    if "file" not in pinned:
        return records
    return [came_from(record, transfer.file_name(pinned["file"])) for record in records]  # no command of the reader's


def _reported(what: str | None, store: Store | str | None, private: bool, tell: Tell | None) -> list[Record]:
    """The records that a report is about: those that were measured, or imported."""
    records = _chosen(what, store, tell)
    measured = [record for record in records if record.provenance != "published"]
    if not outcomes(measured):
        if what is None:
            raise MldynoError("nothing was measured yet; `mldyno quick` is a good beginning.")
        status = "only published figures" if records else "nothing recorded"
        raise MldynoError(
            f"{status} for '{what}'; measure it with `mldyno run`, and see what there is with `mldyno history`."
        )
    if tell is not None:
        _tell_sharing(tell, Counter((record.case, record.shown_machine) for record in measured), private)
    return [private_copy(record) for record in measured] if private else measured
