"""Functions that read what is stored: comparisons, tables, records, machines."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from mldyno import plugins
from mldyno.analysis import comparisons as comparing
from mldyno.analysis.outcomes import Outcome, known_value, missing, outcomes
from mldyno.axes import FAKE, axis_named
from mldyno.errors import MldynoError, UsageError, unknown
from mldyno.records import Record
from mldyno.results import Comparisons, FleetNodes, ResultTable
from mldyno.store import Query, Store, selection
from mldyno.store.selection import AnyStore, Tell, opened, select, select_each, silent
from mldyno.units import PERIODS, count, parse_since

MOST_RUNS_SEARCHED = 20  # for a real one, and for one that confirms that a node is slow


def compare(
    a: str, b: str | None = None, by: str | None = None, anyway: bool = False, store: AnyStore = None,
    since: str | None = None, tell: Tell = silent, value: str = "step",
) -> Comparisons:  # fmt: skip
    """Compare A with B, or the cases of A along an axis; all that is stored, or what was measured since a time."""
    if b is None:
        return _compare_along(a, by, opened(store), since, tell, value)
    moment = _moment(since)
    sides = select_each((a, b), opened(store), moment, tell)
    left, right = selection.of_two(*sides)
    pinned, pinned_too = (pinned for _, pinned in sides)
    names = {*pinned, *pinned_too}
    allowed = {name for name in names if pinned.get(name) != pinned_too.get(name)}
    allowed |= {axis_named(by, ("machine",))} if by else set()
    if "machine" in allowed or "file" in allowed:
        allowed |= {"machine", "framework version"}
        here, there = ({record.case.device for record in side} for side in (left, right))
        allowed |= set() if here & there else {"device"}
    if anyway:
        allowed |= {name for x in outcomes(left) for y in outcomes(right) for name in comparing.differences(x, y)}
    one_free = "id" in names  # two records that are named by their ids may differ in any one axis
    if _one_published(left) != _one_published(right):
        text, theirs = (b, left) if _one_published(left) else (a, right)
        if not comparing.compared(comparing.pairs(outcomes(left), outcomes(right), allowed, one_free)[0]):
            from mldyno.analysis.league import nothing_shared

            raise MldynoError(nothing_shared(text, outcomes(theirs), plugins.names("workloads")))
    pairs = comparing.match(_with_time(left, a, moment), _with_time(right, b, moment), allowed, one_free)
    return _compared(pairs, tell, value)


def _moment(since: str | None) -> str:
    """Return the time that a user typed, as records write it; empty without one."""
    return "" if since is None else parse_since(since, time.time())


def _compare_along(text: str, by: str | None, store: Store, since: str | None, tell: Tell, value: str) -> Comparisons:
    """Compare the cases that a word means along an axis, with their answers; along `run` the oldest is the base."""
    from mldyno.analysis.answers import answers

    axis, moment = axis_named(by or "device", ("machine", "run")), _moment(since)
    of_runs = axis == "run"
    records = selection.runs_of(text, store, moment, tell) if of_runs else select(text, store, moment, tell)[0]
    timed = _with_time(records, text, moment)
    pairs = comparing.along(timed, axis)
    if axis == "workload":
        every = [outcome for outcome in outcomes(selection.runs_of(text, store, moment)) if outcome.status == "ok"]
        pairs = comparing.between_workloads(timed, every)
    comparisons = _compared(pairs, tell, value)
    comparisons.answers = answers(outcomes(records), axis).about(value)
    return comparisons


def _compared(pairs: comparing.Pairs, tell: Tell, value: str) -> Comparisons:
    """Compare pairs; report those that can't be compared, and raise if none can."""
    if value not in comparing.MEASURED:
        raise unknown("value", value, list(comparing.MEASURED))
    comparisons, reasons = Comparisons(comparing.compared(pairs, value)), comparing.not_comparable(pairs)
    if value == "energy" and pairs and not comparisons and not reasons:
        raise MldynoError("no two of these have an energy of the same scope; measure it with `mldyno run --energy`.")
    if reasons and not comparisons:
        raise MldynoError(reasons[0])
    for line in reasons:
        tell(line)
    return comparisons


def in_several_runs(text: str, store: AnyStore = None, since: str | None = None) -> bool:
    """Return whether there are runs to compare, along `run`."""
    known = outcomes(selection.runs_of(text, opened(store), _moment(since)))
    return bool(comparing.along([outcome for outcome in known if outcome.status == "ok"], "run"))


def _one_published(records: list[Record]) -> bool:
    """Return whether all records are figures of the same published machine."""
    names = {record.machine.name for record in records}
    return len(names) == 1 and all(record.provenance == "published" for record in records)


def _with_time(records: list[Record], text: str, since: str) -> list[Outcome]:
    known = outcomes(records)
    if not known:
        raise selection.nothing_for([text], since)
    timed = [outcome for outcome in known if outcome.status == "ok"]
    if not timed:
        status, reason = known[0].status, known[0].reason
        raise MldynoError(f"'{text}' has no time to compare: {status}{reason and f' ({reason})'}; measure it again.")
    return timed


def table(
    target: str | Sequence[str] | None = None, rows: Sequence[str] = ("workload", "mode", "batch", "seq"),
    cols: Sequence[str] = ("machine", "device"), value: str | None = None, store: AnyStore = None,
    by: str | None = None, since: str | None = None, per: str | None = None, tell: Tell = silent,
) -> ResultTable:  # fmt: skip
    """Lay out the newest outcomes of targets, such as exported files, on axes.

    The default value is the time of a step; with `by`, the speed-up along that axis; with `per` (s, min, h, day), the
    throughput over that time. Scores have their own rows and columns.
    """
    from mldyno.views.claims import nothing_along

    moment = _moment(since)
    targets = [target] if isinstance(target, str) else list(target or ())
    if by is not None and value not in (None, "speedup"):
        raise UsageError(f"--by is the axis along which a speed-up is taken; omit --value {value}.")
    value = value or ("speedup" if by else "throughput" if per else "step")
    records = selection.of_several(select_each(targets or [None], opened(store), moment, tell))
    value = known_value(value, {series.metric for record in records for series in record.series})
    cases = outcomes(records)
    if per is not None and per not in PERIODS:
        raise unknown("time", per, PERIODS)
    if per is not None and value.partition(":")[0] != "throughput":
        raise UsageError(f"--per is the time over which a throughput is counted, and {value} is none; omit --per.")
    laid = ResultTable.laid(cases, rows, cols, value, by, warnings_too=True)
    laid.per = per or laid.per
    if not cases:
        raise selection.nothing_for(targets, moment)
    if by and not comparing.along([case for case in cases if case.status == "ok"], axis_named(by, ("machine",))):
        raise MldynoError(nothing_along(by))
    if value == "score" and not laid.cells:
        raise MldynoError("no device has a time of every case of the score yet; measure them with: mldyno quick")
    if not laid.cells:
        raise missing(value)
    return laid


def show(text: str, store: AnyStore = None, tell: Tell = silent) -> list[Record]:
    """Return the newest records of a case, or the record with an id; only ids select those of paired comparisons."""
    records, pinned = select(text, opened(store), tell=tell)
    if "id" not in pinned:
        records = [record for record in records if record.alone]
    if not records:
        raise MldynoError(f"nothing recorded for '{text}'; `mldyno history` lists what there is.")
    return records


def history(
    text: str | None = None, most: int = 20, store: AnyStore = None, since: str | None = None, tell: Tell = silent
) -> list[Record]:
    """Return the newest records, newest first."""
    opened_store = opened(store)
    pinned = {} if text is None else selection.pinned_by(text, opened_store)
    query = Query(pinned, heads=False, since=_moment(since))
    return selection.without_simulated(query, lambda query: opened_store.history(query, most), tell)


def machines(store: AnyStore = None, tell: Tell = silent) -> list[dict[str, Any]]:
    """Return the machines of the store and the published ones, with what was published of each and any doubts.

    A machine of the store that has only simulated records is omitted, unless there is no other.
    """
    from mldyno.store.figures import Publication
    from mldyno.store.figures import machines as published

    opened_store, shipped = opened(store), published()

    def with_records(simulated: bool) -> set[str]:
        return {name for _, name in opened_store.counts(Query(heads=False, simulated=simulated))} & {*names}

    names, imported_files = opened_store.machines(), opened_store.imported_files()
    stored, measured = with_records(simulated=True), with_records(simulated=False)
    hidden = stored - {*measured, *shipped} if measured else set()
    if hidden:
        tell(f"machines with simulated records only (framework {FAKE}) are hidden")
    rows = []
    for name in (name for name in names if name not in hidden):
        files, publication = imported_files.get(name, []), shipped.get(name, Publication())
        imported = f", imported from {', '.join(files)}" if files else ""
        about = [f"in your store{imported}"] if name in stored else []
        if publication.figures:
            about.append(f"published in {', '.join(publication.sources)}: {count(publication.figures, 'figure')}")
        marks = [{"mark": mark, "reason": reason, "figures": len(cases), "cases": cases}
                 for (mark, reason), cases in publication.marked.items()]  # fmt: skip
        about += [f"{count(len(cases), 'figure')} {mark}: {why}" for (mark, why), cases in publication.marked.items()]
        rows.append({"name": name, "about": "; ".join(about), "stored": name in stored, "imported_from": files,
                     "sources": publication.sources, "figures": publication.figures, "marks": marks})  # fmt: skip
    return rows


def fleet_show(run: str | None = None, store: AnyStore = None) -> FleetNodes:
    """Return which nodes of a run on several machines are slow: of the newest one, unless a run is named.

    Other runs of the same cases on these nodes, the nearest first, are the second measurement that confirms it.
    """
    from mldyno.analysis.fleet import groups

    here = opened(store)
    runs = here.runs_of_machines(2)
    if not runs:
        raise MldynoError("no run has several machines yet; measure some with: mldyno run quick --on HOSTS")
    if run is not None and run not in runs:
        raise MldynoError(f"'{run}' is no run on several machines; the newest one is {runs[0]}.")

    @cache
    def of_run(each: str) -> list[Outcome]:
        return outcomes(here.select(Query({"run": each}, provenances=("measured", "imported"))))

    real = (each for each in runs[:MOST_RUNS_SEARCHED] if not of_run(each)[0].case.simulated)
    shown = run or next(real, runs[0])
    others = sorted(
        (each for each in runs if each != shown), key=lambda each: abs(runs.index(each) - runs.index(shown))
    )
    judged = groups(of_run(shown), map(of_run, others[:MOST_RUNS_SEARCHED]))
    return FleetNodes(shown, judged, _again(here.text_of_run(shown), of_run(shown)))


def _again(text: str, measured: Sequence[Outcome]) -> str:
    """Return the command that measures the cases of a run once more, on the same hosts."""
    from mldyno.analysis.rerun import command_for

    hosts = "HOSTS"
    with suppress(ValueError, AttributeError):  # of another run, or an older version
        hosts = str(json.loads(text).get("on") or hosts)
    command = command_for([outcome.case for outcome in measured], elsewhere=True) or "mldyno run TARGETS"
    return f"{command} --on {shlex.quote(hosts)}"
