"""Functions that take records in and out: exports, submissions, imports, removals, reports and sites."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from mldyno import keys
from mldyno import machine as machines
from mldyno.analysis import grouped
from mldyno.analysis.fleet import Group
from mldyno.analysis.outcomes import outcomes
from mldyno.analysis.scores import figure_of, scores
from mldyno.api.reading import fleet_show
from mldyno.axes import Case
from mldyno.errors import MldynoError, StoreError, UsageError
from mldyno.files import file_stem
from mldyno.printable import quoted
from mldyno.records import Record
from mldyno.store import Query, Store, selection, transfer
from mldyno.store.codec import with_origin
from mldyno.store.query import latest
from mldyno.store.selection import AnyStore, Tell, opened, silent
from mldyno.temporary import atomic_folder
from mldyno.units import count

MOST_NAMED = 5  # machines, before the rest is only counted


def export(
    path: str, form: str, text: str | None = None, store: AnyStore = None, private: bool = False, tell: Tell = silent
) -> int:
    """Write stored records to a file, without command lines and paths if `private`; return their number."""
    opened_store = opened(store)
    query = Query(selection.pinned_by(text, opened_store) if text is not None else {}, heads=False, until=latest())
    selection.tell_future(replace(query, until=""), opened_store, tell)
    _tell_sharing(tell, opened_store.counts(query), private)
    newest = opened_store.select(replace(query, heads=True)) if form == "csv" else []
    figures = [figure_of(score) for score in scores(outcomes(newest))]
    texts = opened_store.texts(query)
    if form == "csv" or private:  # then records are decoded, which damage may prevent
        records = chain(opened_store.written(query), figures)
        texts = (record.text for record in (map(transfer.private_copy, records) if private else records))
    return transfer.write(texts, path, form) - len(figures)


def _tell_sharing(tell: Tell, counts: Mapping[tuple[Case, str], int], private: bool) -> None:
    """Report what is going to be shared, if anything."""
    from mldyno.views.records import sharing

    if counts:
        tell(sharing(counts, private))


def submit(
    path: str | None = None, what: str | None = None, store: AnyStore = None, tell: Tell = silent
) -> tuple[str, int]:
    """Write the newest records of this machine for a shared collection, as private copies; return file and count.

    This machine's key signs them. Cases of the score come first. Simulated records are left out.
    """
    from mldyno import submission

    opened_store = opened(store)
    here = machines.describe()
    own = opened_store.name_of(here)
    pinned = selection.pinned_by(what, opened_store) if what is not None else {}
    if pinned.get("machine", own) != own:
        raise UsageError(f"'{what}' is another machine; what it measured is to be submitted there.")
    query = Query({**pinned, "machine": own}, provenances=("measured",))
    selection.tell_future(query, opened_store, tell)
    records = [record for record in opened_store.written(query) if not record.interrupted]
    keys.check_secret({record.machine.key for record in records if record.machine.key})
    genuine = [record for record in records if not submission.fake(record)]
    real = submission.score_first([submission.signed_copy(record, here.key) for record in genuine])
    if not real:
        known = f"only {count(len(records), 'fake record')}" if records else "nothing"
        named = f" for '{what}'" if what else ""
        raise MldynoError(f"{known} of this machine{named} to submit; measure it with `mldyno quick`.")
    signature = transfer.signature([record.id for record in real])
    for fault in submission.faults([real])[0]:
        raise MldynoError(f"{fault}; or leave it out with a filter, such as mlp/train. Nothing was written.")
    _tell_sharing(tell, Counter((record.case, record.machine.name) for record in real), private=True)
    if len(real) < len(records):
        tell(f"left out: {count(len(records) - len(real), 'fake record')}")
    place = path or f"{file_stem(real[0].machine.name, *(record.id for record in real))}.jsonl"
    return place, transfer.write([signature, *(record.text for record in real)], place, "jsonl") - 1


def check_submissions(paths: Sequence[str]) -> tuple[int, list[str]]:
    """Check files for a shared collection; return their number of records, and a line for each fault."""
    from mldyno import submission

    examined = [transfer.examined(path) for path in paths]
    judged = submission.faults([records for records, _ in examined])
    lines = [line for path, (_, faults), more in zip(paths, examined, judged, strict=True)
             for line in (*faults, *(f"{path}: {fault}" for fault in more))]  # fmt: skip
    return sum(len(records) for records, _ in examined), lines


def import_(paths: Sequence[str], store: AnyStore = None, tell: Tell = silent) -> tuple[int, int]:
    """Add the records of files to the store, all or none; return how many were new, and how many there were.

    They count as imported, whatever machine they name. Only records that this machine rescued from a store that it
    could not write, as its secret proves, count as measured again.
    """
    opened_store = opened(store)
    here = machines.describe()
    begun = {run for run, *_ in opened_store.unfinished_runs()}
    total = unproven = 0

    def records() -> Iterator[Record]:
        nonlocal total, unproven
        for path in paths:
            file = transfer.file_name(path)
            for record in transfer.read(path, tell=tell):
                total += 1
                if record.proof == "own":
                    yield record
                    continue
                unproven += record.run.id in begun and record.machine.name == here.name
                yield with_origin(record, file, record.proof)

    new = opened_store.append(records())
    if unproven:
        tell(f"{count(unproven, 'record')} of an unfinished run: no secret of this machine proves that it wrote them, "
             "so they count as imported")  # fmt: skip
    return new, total


@dataclass(frozen=True)
class Removal:
    """The records to remove from the store."""

    records: list[Record]
    resumable: list[str]
    """Unfinished runs that keep some records; removed ones are measured again when these runs are resumed."""
    dropped: list[str]  # unfinished runs that keep no records, and can't be resumed any more


def remove(
    *words: str, store: AnyStore = None, confirm: Callable[[Removal], bool] = lambda removal: True, tell: Tell = silent
) -> int:
    """Remove the stored records that words mean: ids, runs, machines, files, filters; return their number.

    `confirm` gets the records first; if it returns False, nothing is removed. Published figures can't be removed. The
    file shrinks; if it can't, `tell` gets the reason.
    """
    from mldyno.runner.run import busy

    opened_store = opened(store)
    records: dict[str, Record] = {}
    for word in words:
        meant = selection.stored(word, opened_store)
        if not meant:
            pinned = selection.meant_by(word, opened_store)
            if not {"file", "id"} & pinned.keys() and opened_store.select(Query(pinned)):
                ships = "which ship with mldyno and can't be removed"
                raise MldynoError(f"'{word}' means published figures only, {ships}.")
            raise MldynoError(f"nothing stored for '{word}'; `mldyno history` lists what there is.")
        records |= {record.id: record for record in meant}
    unfinished = {run for run, *_ in opened_store.unfinished_runs()} & {each.run.id for each in records.values()}
    left = {run for run in unfinished
            if any(each.id not in records for each in opened_store.stream(Query({"run": run})))}  # fmt: skip
    removal = Removal(list(records.values()), sorted(left), sorted(unfinished - left))
    if not confirm(removal):
        return 0
    removed = opened_store.remove(records, busy)
    try:
        opened_store.shrink(busy)
    except StoreError as error:
        tell(f"the records are removed, but the file keeps its size: {error}")
    return removed


def report(
    path: str | None = None, what: str | None = None, form: str = "html", store: AnyStore = None,
    private: bool = False, tell: Tell = silent,
) -> list[str]:  # fmt: skip
    """Write the report of what a word means, or of everything: a page, or a folder of pictures; return their paths."""
    from mldyno.views.report import page, pictures

    records = _reported(what, store, private, tell)
    fleet = _fleet_of(records, opened(store))
    if form == "html":
        return [page.write_page(records, path or "report.html", fleet=fleet)]
    return pictures.write_pictures(records, path or f"report-{form}", form, fleet)


def _fleet_of(records: Sequence[Record], store: Store) -> list[Group]:
    """Return what is known of the nodes of the newest run on several machines among these records, if there is one."""
    from mldyno.analysis.fleet import FEWEST_NODES, groups

    runs = grouped(outcomes(records), lambda outcome: outcome.records[0].run.id)
    several = {run: group for run, group in runs.items() if len({each.machine for each in group}) >= FEWEST_NODES}
    newest = max(several, default=None)
    if newest is None:
        return []
    return list(fleet_show(newest, store).groups if newest in store.runs_of_machines(2) else groups(several[newest]))


def card(path: str, what: str | None = None, store: AnyStore = None, private: bool = False, tell: Tell = silent) -> str:
    """Write one picture to post, PNG: the machine, its results, and the command to repeat them."""
    from mldyno.views.report.pictures import write_card

    return write_card(_reported(what, store, private, tell), path)


def site(
    folder: str, what: str | None = None, store: AnyStore = None, private: bool = False, tell: Tell = silent,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> str:  # fmt: skip
    """Write a static site of what a word means, or of everything, published machines too; return its first page."""
    from mldyno.views.site.collection import stems
    from mldyno.views.site.pages import MARK, TITLE, write_site

    with atomic_folder(folder, MARK, TITLE) as part:
        chosen = _chosen(what, store, tell)
        records = [record for record in chosen if not record.fact("fake_time")]
        if not any(record.alone and not record.interrupted for record in records):
            raise MldynoError(f"nothing real is recorded for '{what}'; `mldyno history` lists what there is.")
        own = [record for record in records if record.provenance != "published"]
        _tell_sharing(tell, Counter((record.case, record.shown_machine) for record in own), private)
        if len(records) < len(chosen):
            tell(f"left out: {count(len(chosen) - len(records), 'fake record')}, of which no time is real")
        copies = list(map(transfer.private_copy, records)) if private else records
        write_site(copies, stems(records), part, progress)
    return os.path.join(folder, "index.html")


def _chosen(what: str | None, store: AnyStore, tell: Tell) -> list[Record]:
    """Return the newest records that a word means, or all; those of a file as if it were imported."""
    records, pinned = selection.select(what, opened(store), tell=tell)
    if "file" not in pinned:
        return records
    return [with_origin(record, transfer.file_name(pinned["file"])) for record in records]  # no command of the reader's


def _reported(what: str | None, store: AnyStore, private: bool, tell: Tell) -> list[Record]:
    """Return the records that a report is about: measured or imported ones."""
    from mldyno.views.report.subject import subject_of_records

    records = _chosen(what, store, tell)
    measured = [record for record in records if record.provenance != "published"]
    if not outcomes(measured):
        if what is None:
            raise MldynoError("nothing was measured yet; `mldyno quick` is a good beginning.")
        status = "only published figures" if records else "nothing recorded"
        how = "measure it with `mldyno run`, and see what there is with `mldyno history`"
        raise MldynoError(f"{status} for '{what}'; {how}.")
    _tell_sharing(tell, Counter((record.case, record.shown_machine) for record in measured), private)
    name, *more = subject_of_records(measured).machines if tell is not silent else [""]
    if more:
        rest = f" and {len(more) - MOST_NAMED:,} more" if len(more) > MOST_NAMED else ""
        compared = f"{', '.join(more[:MOST_NAMED])}{rest}"
        tell(f"about {name}, compared with {compared}; `mldyno report {quoted(more[0])}` is about that one")
    return list(map(transfer.private_copy, measured)) if private else measured
