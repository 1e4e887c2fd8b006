"""One function per verb: what the command line calls, and what a notebook gets as `mldyno.run` and so on.

import mldyno
results = mldyno.run("mlp", device="cpu", placement=["device", "roundtrip"])
results.compare(by="placement")
"""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from typing import Any

from mldyno import machine as machines
from mldyno import plan as plans
from mldyno import plugins, rendezvous, sources
from mldyno.analysis import comparisons as comparing
from mldyno.analysis import published as placing
from mldyno.analysis import tables as laying
from mldyno.analysis.answers import Answers as Answers
from mldyno.analysis.answers import Verdicts, answers
from mldyno.analysis.answers import verdicts as judge
from mldyno.analysis.crossover import Crossover
from mldyno.analysis.league import Division, league
from mldyno.analysis.outcomes import Outcome, known_value, outcomes
from mldyno.analysis.scores import figure_of, scores
from mldyno.analysis.symptoms import Checkup
from mldyno.axes import AXIS, Case, axis_named
from mldyno.client import joining
from mldyno.errors import MldynoError, UsageError, unknown
from mldyno.messages import FrameworksProbed
from mldyno.plan import Plan
from mldyno.records import Machine, Record
from mldyno.results import Comparisons, Measurement, ModelCheck, ResultTable
from mldyno.results import Results as Results
from mldyno.runner.describing import describe, earlier
from mldyno.runner.events import Listener
from mldyno.runner.forecast import Forecast as Forecast
from mldyno.runner.forecast import forecast as forecast
from mldyno.runner.max_batch import SHORTEST_TIMEOUT_S, largest
from mldyno.runner.max_batch import Attempt as Attempt
from mldyno.runner.max_batch import Search as Search
from mldyno.runner.probing import frameworks_seen, with_vendors
from mldyno.runner.quick import Chosen as Chosen
from mldyno.runner.quick import choose
from mldyno.runner.rates import look
from mldyno.selection import (
    Tell,
    nothing_for,
    nothing_to_remove,
    of_several,
    of_two,
    pinned_by,
    runs_of,
    select,
    select_each,
    stored,
    without_rehearsals,
)
from mldyno.selection import opened as opened
from mldyno.selftest.measures import Measure
from mldyno.sources import Source
from mldyno.store import Query, Store, transfer
from mldyno.store.codec import came_from, decode_stored
from mldyno.store.private import private_copy, private_text
from mldyno.suites import reader
from mldyno.tracking import tracker
from mldyno.tracking.items import Items
from mldyno.tracking.tracker import Tracker as Tracker
from mldyno.units import PERIODS, count, parse_duration, parse_fraction, parse_since

Axes = Mapping[str, Sequence[Any] | Any]


# -- running -------------------------------------------------------------------------------------


def make_plan(
    targets: Sequence[str],
    axes: Axes,
    settings: Mapping[str, Any] | None = None,
    against: str | None = None,
    trust: bool = False,
    weights: bool = False,
    download: bool = False,
) -> Plan:
    """The plan for targets on axes; `gpu` and `all` become the devices that are here.

    Targets may be of the user's own, which a worker looks at first. `against` is an older version of one, which is
    measured beside it; `trust` lets a suite name code; `weights` and `download` are for models of Hugging Face.
    """
    words, listed, given = list(targets), _listed(axes), dict(settings or {})
    look_at = partial(_look_at, axes=listed, timeout=given.get("timeout"))
    for word in words:
        if sources.is_target(word):
            look_at(word, sources.read(word, weights, download))
        elif reader.is_suite(word):
            for own, file in reader.own_targets(reader.read(word)).items():
                if sources.runs_code(own) and own not in words and not trust:
                    raise UsageError(f"suite {file} runs the code of {own}; allow it with --trust, if you trust both.")
                look_at(own, sources.read(own, weights, download))
    if against is not None:
        words, given = _held_against(words, against, given, look_at)
    return plans.expand(words, listed, given, cache(_device_names))


def _look_at(word: str, source: Source, axes: Mapping[str, Sequence[str]], timeout: float | None) -> Source:
    """What a target of the user's own is, as a worker finds it; from now on it is known by the user's word."""
    python = next(iter(axes.get("python", ())), None)
    described = describe(source, python and AXIS["python"].parse(python), timeout)
    sources.register(described, word)
    return described


def _held_against(
    words: list[str], against: str, settings: dict[str, Any], look_at: Callable[[str, Source], Source]
) -> tuple[list[str], dict[str, Any]]:
    """Targets and settings that measure the one target beside an older version of it, which comes first."""
    own = sources.known(words[0]) if len(words) == 1 else None
    if own is None:
        raise UsageError("--against is for one file of yours: mldyno run my_model.py --against HEAD~1.")
    if settings.get("by") not in (None, "workload"):
        raise UsageError("--against compares two versions of a file; omit --by.")
    older = look_at(against, earlier(own, against))
    if older.name == own.name:
        raise MldynoError(f"{own.title} is the same at {against}, with all that it imports; nothing to compare.")
    return [against, *words], {**settings, "by": "workload"}


def crossover_plan(
    workload: str,
    axes: Axes,
    over: str = "batch",
    smallest: int | str | None = None,
    largest: int | str | None = None,
    per_doubling: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan that compares two values of one axis over sizes, so many for each doubling."""
    if sources.is_target(workload):
        _look_at(workload, sources.read(workload), _listed(axes), (settings or {}).get("timeout"))
    ends = (None if smallest is None else str(smallest), None if largest is None else str(largest))
    return plans.sweep(workload, _listed(axes), over, ends, per_doubling, settings, cache(_device_names))


def _listed(axes: Axes) -> dict[str, list[str]]:
    """The axes by their names, each with a list of what a user would type; those without a value are left out."""
    given = {axis_named(name): values for name, values in axes.items() if values is not None}
    return {name: [str(value) for value in (values if isinstance(values, list | tuple) else [values])]
            for name, values in given.items()}  # fmt: skip


def probe(frameworks: Sequence[str]) -> FrameworksProbed:
    """What each framework is and sees here, found out in a process of its own, with what vendors say of its devices."""
    return with_vendors(frameworks_seen(frameworks), machines.Vendors())


def _device_names(framework: str, python: str | None = None) -> list[str]:
    """The devices that a framework can use here, in an interpreter of its own; for names nobody else need be asked."""
    plugins.check("frameworks", framework)
    if python is None and not plugins.installed(framework):
        return ["cpu"]  # the case says itself what is missing, and those of other frameworks are measured
    facts = frameworks_seen([framework], python=python).frameworks[framework]
    if facts.error:
        raise MldynoError(f"{framework}: {facts.error}.")
    return [device.name for device in facts.devices]


def run(
    *targets: str,
    store: Store | str | None = None,
    listener: Listener | None = None,
    steps: int | None = None,
    budget: float | str | None = None,
    target: float | str | None = None,
    repeats: int | None = None,
    timeout: float | str | None = None,
    limit: float | str | None = None,
    data: str | None = None,
    by: str | None = None,
    energy: bool | None = None,
    no_check: str | Sequence[str] = (),
    against: str | None = None,
    trust: bool = False,
    weights: bool = False,
    download: bool = False,
    **axes: Any,
) -> Results:
    """Measure workloads, suites or files of your own; axes are keywords with a value or a list: device=["cpu", "mps"].

    Times are in s, or in words as on the command line: budget="3s", target="5%".
    """
    times = {"budget": budget, "timeout": timeout, "limit": limit}
    settings: dict[str, Any] = {
        name: parse_duration(time) if isinstance(time, str) else time for name, time in times.items()
    }
    settings["target"] = parse_fraction(target) if isinstance(target, str) else target
    settings |= {"steps": steps, "repeats": repeats, "data": data, "by": axis_named(by) if by else None}
    settings |= {"energy": energy, "unchecked": (no_check,) if isinstance(no_check, str) else tuple(no_check)}
    return run_plan(make_plan(targets, axes, settings, against, trust, weights, download), opened(store), listener)


def crossover(
    workload: str,
    over: str = "batch",
    smallest: int | None = None,
    largest: int | None = None,
    per_doubling: int = 1,
    settings: Mapping[str, Any] | None = None,
    store: Store | str | None = None,
    **axes: Any,
) -> list[Crossover]:
    """From which size on one of two beats the other, in each mode; one axis has two values: device=["cpu", "mps"]."""
    plan = crossover_plan(workload, axes, over, smallest, largest, per_doubling, settings)
    return list(run_plan(plan, opened(store)).answers.crossovers)


def command_plan(words: Sequence[str], settings: Mapping[str, Any] | None = None) -> Plan:
    """The plan that times your command as a whole; or several with `--` between them, which take turns then."""
    import shutil

    commands = plans.parted(words)
    for command in commands:
        if not command:
            raise UsageError("name the command after --, for example: mldyno run -- python train.py")
        if shutil.which(command[0]) is None:
            quoted = "" if len(commands) == 1 else "; a command that has a -- itself goes into sh -c '...'"
            raise UsageError(
                f"there is no command '{command[0]}' here; name one that your shell finds, or its path{quoted}."
            )
    return plans.for_command(words, settings)


def run_plan(
    plan: Plan,
    store: Store,
    listener: Listener | None = None,
    resume: str | None = None,
    forecasts: Sequence[Forecast] | None = None,
) -> Results:
    """Run a plan, or what is missing of the run to resume; `forecasts` say how long a case may take."""
    from mldyno.runner.run import Runner, new_run_id

    runner = Runner(plan, store, resume or new_run_id(), forecasts)
    runner.execute(listener or Listener())
    if not resume:
        return Results(runner.run, runner.records, runner.left_out)
    whole = store.select(Query({"run": runner.run, "imported_from": ""}, provenances=("measured",)))
    return Results(runner.run, [record for record in whole if not record.interrupted], runner.left_out)


def host(plan: Plan, address: str | None) -> str:
    """Let others join the plan's cases at this machine's address: gives the line to type there.

    Empty where all ranks are on this machine.
    """
    spread = {(case.ranks, case.nodes, case.threads) for case in plan.cases if case.nodes > 1}
    if not spread:
        if address is not None:
            raise UsageError("a rendezvous is where several machines meet; say how many with --nodes.")
        return ""
    if len(spread) > 1:
        raise UsageError("the others join with one number of ranks, nodes and threads; give one of each.")
    ((ranks, nodes, threads),) = spread
    meeting = rendezvous.read(address or rendezvous.USUAL)
    joining.meet(meeting)
    more = f" --threads {threads}" if threads else ""
    return f"mldyno join {meeting.address} --token {meeting.token} --ranks {ranks} --nodes {nodes}{more}"


def join(
    address: str, token: str, ranks: int, nodes: int, threads: int | None, wait: float, tell: Callable[[str], None]
) -> int:
    """Take part in what another machine measures, until nothing begins there for `wait` s; gives how many jobs."""
    import sys

    if ranks % nodes:
        raise UsageError(f"{ranks} ranks can't be spread over {nodes} nodes evenly.")
    case = Case("", ranks=ranks, nodes=nodes, threads=threads)
    return joining.join(rendezvous.read(address, token), case, wait, sys.executable, tell)


def unfinished(store: Store, plan: Plan | None) -> tuple[str, Plan]:
    """The newest run that did not end, of this plan if one is given, and is not being run now."""
    from mldyno.runner.run import busy

    waiting = False
    for run_id, owner, text in store.unfinished_runs():
        begun = plans.from_text(text)
        if plan is not None and not begun.same_as(plan):
            continue
        if busy(owner):
            waiting = True
        elif plan is None and begun.masked:
            words = " -- ".join(map(shlex.join, begun.commands))
            raise MldynoError(f"its secrets were not kept; give the command again: mldyno run --resume -- {words}")
        else:
            for source in begun.sources if plan is None else ():
                sources.register(source)
            return run_id, plan or begun
    if waiting:
        raise MldynoError("that run is still going on in another process; nothing to resume.")
    raise MldynoError("no unfinished run to resume" + (" with these cases" if plan else "") + "; omit --resume.")


def dry_run(plan: Plan, store: Store, tell: Callable[[int, int], None] = lambda done, total: None) -> list[Forecast]:
    """The expected time and memory of each case, for a dry run: what is not known from before is looked into."""
    plans.check_present(plan.cases, cache(_device_names))
    return forecast(plan, store, tell)


def max_batch(
    workload: str,
    modes: Sequence[str] | None = None,
    most: int | None = None,
    timeout: float | None = None,
    tell: Callable[[str, Attempt], None] = lambda mode, attempt: None,
    **axes: Any,
) -> dict[str, Search]:
    """The largest batch that fits, for each mode asked for, with all that was tried; `axes` take one value each."""
    if not sources.is_target(workload):
        plugins.check("workloads", workload)
    plan = make_plan([workload], {**axes, "mode": modes}, {"timeout": timeout})
    cases = {str(case.mode): case for case in plan.cases}
    if len(cases) < len(plan.cases):
        raise UsageError("max-batch takes one value for each axis but mode.")
    longest = plan.timeout or SHORTEST_TIMEOUT_S
    return {mode: largest(case, longest, most, partial(tell, mode)) for mode, case in cases.items()}


# -- reading -------------------------------------------------------------------------------------


def this_machine() -> Machine:
    """The facts of this machine."""
    return machines.describe()


def compare(
    a: str,
    b: str | None = None,
    by: str | None = None,
    anyway: bool = False,
    store: Store | str | None = None,
    since: str | None = None,
    tell: Tell | None = None,
    value: str = "step",
) -> Comparisons:
    """A against B, or the cases of A head-to-head along an axis; of all that is stored, or what was made since then."""
    if b is None:
        return compare_along(a, by, store, since, tell, value)[0]
    moment = _moment(since)
    sides = select_each((a, b), opened(store), moment, tell)
    left, right = of_two(*sides)
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
    one_free = "id" in names  # two records named one by one may differ in whatever one thing they do
    if _one_published(left) != _one_published(right):
        text, theirs = (b, left) if _one_published(left) else (a, right)
        if not comparing.compared(comparing.pairs(outcomes(left), outcomes(right), allowed, one_free)[0]):
            raise MldynoError(placing.nothing_shared(text, outcomes(theirs), plugins.names("workloads")))
    pairs = comparing.match(_with_time(left, a, moment), _with_time(right, b, moment), allowed, one_free)
    return _compared(pairs, tell, value)


def _moment(since: str | None) -> str:
    """The moment that a user means by a word, as records write it; empty where there is none."""
    return "" if since is None else parse_since(since, time.time())


def compare_along(
    text: str,
    by: str | None = None,
    store: Store | str | None = None,
    since: str | None = None,
    tell: Tell | None = None,
    value: str = "step",
) -> tuple[Comparisons, Answers]:
    """The cases that a word means, head-to-head along an axis (device, if none is named), and what they say.

    Along `run`, each case that this machine has measured in several: the oldest is the base.
    """
    axis, moment = axis_named(by or "device", ("machine", "run")), _moment(since)
    of_runs = axis == "run"
    records = runs_of(text, opened(store), moment, tell) if of_runs else select(text, opened(store), moment, tell)[0]
    comparisons = _compared(comparing.along(_with_time(records, text, moment), axis), tell, value)
    return comparisons, answers(outcomes(records), axis).about(value)


def _compared(pairs: comparing.Pairs, tell: Tell | None, value: str) -> Comparisons:
    """The comparisons of pairs; what is not compared is told, and refused where nothing else is there."""
    if value not in comparing.MEASURED:
        raise unknown("value", value, list(comparing.MEASURED))
    comparisons, doubts = Comparisons(comparing.compared(pairs, value)), comparing.doubts(pairs)
    if value == "energy" and pairs and not comparisons and not doubts:
        raise MldynoError("no two of these have an energy of the same scope; measure it with `mldyno run --energy`.")
    if doubts and not comparisons:
        raise MldynoError(doubts[0])
    if tell is not None:
        for line in doubts:
            tell(line)
    return comparisons


def in_several_runs(text: str, store: Store | str | None = None, since: str | None = None) -> bool:
    """Whether there is something to compare along `run`."""
    known = outcomes(runs_of(text, opened(store), _moment(since)))
    return bool(comparing.along([outcome for outcome in known if outcome.status == "ok"], "run"))


def _one_published(records: list[Record]) -> bool:
    """Whether these are the figures of one published machine."""
    names = {record.machine.name for record in records}
    return len(names) == 1 and all(record.provenance == "published" for record in records)


def _with_time(records: list[Record], text: str, since: str) -> list[Outcome]:
    known = outcomes(records)
    if not known:
        raise nothing_for([text], since)
    timed = [outcome for outcome in known if outcome.status == "ok"]
    if not timed:
        status, reason = known[0].status, known[0].reason
        raise MldynoError(f"'{text}' has no time to compare: {status}{reason and f' ({reason})'}; measure it again.")
    return timed


def table(
    target: str | Sequence[str] | None = None,
    rows: Sequence[str] = ("workload", "mode", "batch", "seq"),
    cols: Sequence[str] = ("machine", "device"),
    value: str | None = None,
    store: Store | str | None = None,
    by: str | None = None,
    since: str | None = None,
    per: str | None = None,
    tell: Tell | None = None,
) -> ResultTable:
    """The newest outcomes of one target or several, such as exported files, laid out on axes.

    The time of a step, if nothing else is asked for; with `by`, the speed-up along that axis; with `per` (s, min, h,
    day), the throughput over that time. Scores have rows and columns of their own.
    """
    from mldyno.views.sentences import nothing_along

    moment = _moment(since)
    targets = [target] if isinstance(target, str) else list(target or ())
    if by is not None and value not in (None, "speedup"):
        raise UsageError(f"--by is the axis along which a speed-up is taken; omit --value {value}.")
    value = value or ("speedup" if by else "throughput" if per else "step")
    records = of_several(select_each(targets or [None], opened(store), moment, tell))
    value = known_value(value, {series.metric for record in records for series in record.series})
    cases = outcomes(records)
    if per is not None:
        _check_period(per, value)
    laid = ResultTable.laid(cases, rows, cols, value, by, warnings_too=True)
    laid.per = per or laid.per
    if not cases:
        raise nothing_for(targets, moment)
    if by and not comparing.along([case for case in cases if case.status == "ok"], axis_named(by, ("machine",))):
        raise MldynoError(nothing_along(by))
    if value == "score" and not laid.cells:
        raise MldynoError("no device has a time of every case of the score yet; measure them with: mldyno quick")
    return laid


def _check_period(per: str, value: str) -> None:
    """Raise unless a value can be counted over that time."""
    if per not in PERIODS:
        raise unknown("time", per, PERIODS)
    if value.partition(":")[0] != "throughput":
        raise UsageError(f"--per is the time over which a throughput is counted, and {value} is none; omit --per.")


def show(text: str, store: Store | str | None = None, tell: Tell | None = None) -> list[Record]:
    """The newest records of a case, or the one with an id; paired comparisons are shown by their ids only."""
    records, pinned = select(text, opened(store), tell=tell)
    if "id" not in pinned:
        records = [record for record in records if record.alone]
    if not records:
        raise MldynoError(f"nothing recorded for '{text}'; `mldyno history` lists what there is.")
    return records


def history(
    text: str | None = None,
    most: int = 20,
    store: Store | str | None = None,
    since: str | None = None,
    tell: Tell | None = None,
) -> list[Record]:
    """The newest records, newest first."""
    opened_store = opened(store)
    query = Query(pinned_by(text, opened_store) if text else {}, heads=False, since=_moment(since))
    return without_rehearsals(query, lambda query: opened_store.history(query, most), tell)


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


def verdicts(results: Results, store: Store) -> Verdicts:
    """What a run says of this machine as a whole, beside published figures of the same work."""
    return judge(results.outcomes, _published(store))


def other_machines(results: Results, store: Store) -> list[Record]:
    """The newest records of all machines but the one that a run was on, published ones among them."""
    here = {outcome.machine for outcome in results.outcomes}
    return [record for record in store.select(Query()) if record.shown_machine not in here]


def standings(results: Results, others: Sequence[Record]) -> list[Division]:
    """A run among other machines, in each work that it shares with any of them."""
    return league(results.outcomes, outcomes(others))


def _published(store: Store) -> list[Outcome]:
    return outcomes(store.select(Query(provenances=("published",))))


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


def placed(results: Results, store: Store) -> laying.Table | None:
    """A suite's run among the published figures of the same work; None where there are none, or no suite was run."""
    if all(record.run.suite is None for record in results.records):
        return None
    return placing.place(results.outcomes, _published(store))


def selftest(
    quick: bool = False,
    framework: str = "torch",
    progress: Callable[[str, float], None] | None = None,
    device: str = "cpu",
    export: str | None = None,
) -> Iterator[Measure]:
    """The product's own errors, measured on this machine one after the other; `progress` hears what is left in s.

    On a device other than the CPU, its contract instead. `export` is a file that gets the result when it is complete.
    """
    from mldyno.selftest import result_file
    from mldyno.selftest import table as selftest_table

    if plugins.framework(framework).clock is not None:
        raise UsageError(f"{framework} computes nothing; the self-test times real steps: --framework torch")
    if export is not None:
        result_file.check_place(export)
    name = _device_meant(framework, device)
    ids = selftest_table.ON_ANY_MACHINE if name == "cpu" else selftest_table.ON_A_DEVICE
    effort = selftest_table.QUICK if quick else selftest_table.FULL
    measures = selftest_table.run(effort, framework, ids, progress or (lambda part, left: None), name)
    return measures if export is None else _exported(measures, export, name, framework, quick)


def _device_meant(framework: str, word: str) -> str:
    """The one device that a word means; raises where it is not here. Nothing is asked for the CPU."""
    if word == "all":
        raise UsageError("the self-test takes one device at a time, for example: --device gpu")
    name = str(AXIS["device"].parse(word))
    if name == "cpu":
        return name
    names = _device_names(framework)
    if name == plans.GPU and name not in names:
        name = next((other for other in names if other != "cpu"), name)
    if name not in names:
        raise plans.absent(name, framework, names)
    return name


def _exported(measures: Iterator[Measure], path: str, device: str, framework: str, quick: bool) -> Iterator[Measure]:
    """The measures; after the last of them the file is written."""
    from mldyno.selftest import result_file

    began = time.monotonic()
    ended: list[Measure] = []
    for measure in measures:
        ended.append(measure)
        yield measure
    probed = probe([framework])
    facts = probed.frameworks[framework]
    machine = machines.describe(facts.devices)
    software = {"python": probed.python, "versions": facts.versions or None, "threads": facts.threads}
    spent = time.monotonic() - began
    result_file.write(path, result_file.document(ended, device, framework, quick, spent, machine, software))


def doctor(
    quick: bool = False, noise: float | None = None, framework: str | None = None, store: str | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Checkup:  # fmt: skip
    """All that a check-up sees, so many s of it for noise (60, none if quick); `findings(it)` says what it means."""
    from mldyno.doctor import checkup

    wanted = checkup.wanted(quick, noise, framework, store)
    return checkup.check_up(wanted, progress or (lambda part, left: None))


def quick_plan(
    settings: Mapping[str, Any] | None = None, framework: str = "torch", store: Store | str | None = None
) -> Chosen:
    """The plan of `mldyno quick`: of its suite what tells something on this machine, and fits into its time.

    Where other programs take cores, a setting of threads is tried first; whoever runs the plan may use it.
    """
    import time

    from mldyno.doctor.settings import sleeping_pays

    plugins.check("frameworks", framework)
    began, rates, setting = time.monotonic(), look(framework), None
    if plugins.framework(framework).clock is None:
        setting = sleeping_pays(framework, rates.threads, machines.describe().cores)
    axes = {"device": ["all"], "framework": [framework]}
    whole = plans.expand(["quick"], axes, settings, lambda name, python: rates.devices)
    left = None if whole.limit is None else max(1.0, whole.limit - (time.monotonic() - began))
    return replace(choose(replace(whole, limit=left), opened(store), rates), setting=setting)


def measure(
    step: Callable[[], Any],
    sync: Callable[[], Any] | None = None,
    name: str | None = None,
    target: float = 0.02,
    budget: float = 10.0,
) -> Measurement:
    """Time any function, in this process, as a case is timed; `sync` waits for the device it works on.

    It stops when the time of a step is known to `target`, or after `budget` s; nothing is stored.
    """
    from mldyno.runner.in_process import timed

    return Measurement(timed(step, sync, name or str(getattr(step, "__name__", "step")), target, budget))


def check(
    model: Any,
    batch: Any,
    targets: Any = None,
    loss: Any = None,
    optimiser: Any = None,
    modes: Sequence[str] | None = None,
    devices: Sequence[str] | None = None,
    no_check: str | Sequence[str] = (),
    limit: float = 60.0,
) -> ModelCheck:
    """What devices, precisions and the compiler bring for a model of this process, and how large a batch should fit.

    It is measured here, on copies; nothing is stored. After `limit` s nothing more is begun.
    """
    from mldyno.runner import in_notebook

    source = in_notebook.source_of(model, batch, targets, loss, optimiser)
    names = devices or [device.name for device in plugins.framework(source.framework).devices()]
    cases = in_notebook.ways(source, modes or source.modes, names)
    unchecked = (no_check,) if isinstance(no_check, str) else tuple(no_check)
    records, left_out = in_notebook.measured(source, cases, limit, unchecked)
    results = Results(records[0].run.id, records, left_out)
    return ModelCheck(results, in_notebook.largest_batches(source, cases))


def track(
    loader: Any = None,
    *,
    name: str | None = None,
    items: Items = None,
    item: str = "item",
    replay: bool = False,
    sync: Callable[[], Any] | None = None,
    store: Store | str | None = None,
) -> Tracker:
    """Measure a training loop as it runs: `for batch in mldyno.track(loader):`, and nothing else.

    Without a loader it is `with mldyno.track() as t:`, and `t.step()` after each step. `items` is the number of items
    of a step, or a function of its batch; `item` is what they are called. `replay` holds batches in between, to tell
    what the loader costs. `sync` waits for a device that mldyno does not know. The record is stored at the end.
    """
    return tracker.track(loader, name=name, items=items, item=item, replay=replay, sync=sync, store=store)
