"""One function per verb: what the command line calls, and what a notebook imports.

from mldyno import api
results = api.run("mlp", device="cpu", placement=["device", "roundtrip"])
results.compare(by="placement")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from mldyno import machine as machines
from mldyno import plan as plans
from mldyno import plugins
from mldyno.analysis import beside
from mldyno.analysis import comparisons as comparing
from mldyno.analysis import tables as laying
from mldyno.analysis.answers import Answers, answers
from mldyno.analysis.comparisons import Comparison
from mldyno.analysis.crossover import Crossover
from mldyno.analysis.findings import of as findings
from mldyno.analysis.outcomes import Outcome, check_value, outcomes
from mldyno.analysis.symptoms import Checkup
from mldyno.errors import MldynoError, UsageError, unknown
from mldyno.plan import Plan
from mldyno.records import AXIS, Device, Machine, Record, axis_named
from mldyno.runner.events import Listener
from mldyno.runner.forecast import Forecast, forecast
from mldyno.runner.max_batch import Attempt, Search, largest
from mldyno.selftest.measures import Measure
from mldyno.store import Query, Store, transfer
from mldyno.store.machine_names import the_one_meant
from mldyno.store.query import parse_filter

if TYPE_CHECKING:
    from mldyno.views.report.subject import Subject

THIS_MACHINE = "this-machine"
Axes = Mapping[str, Sequence[Any] | Any]


# -- running -------------------------------------------------------------------------------------


@dataclass
class Results:
    """What a run brought: its records, ready to be compared and laid out."""

    run: str
    everything: list[Record] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        """The records of cases that were alone: one for each case and round."""
        return [record for record in self.everything if record.alone]

    @property
    def outcomes(self) -> list[Outcome]:
        """The records put together by case."""
        return outcomes(self.everything)

    @property
    def all_ok(self) -> bool:
        """Whether every case came out well."""
        return all(record.status == "ok" for record in self.records)

    def compare(self, by: str) -> list[Comparison]:
        """The cases against each other along one axis."""
        return _compared(comparing.along(self.outcomes, axis_named(by)))

    @property
    def answers(self) -> Answers:
        """What the cases say: crossovers, precisions, copies, growth with the length."""
        return answers(self.outcomes)

    def table(self, rows: Sequence[str] = (), cols: Sequence[str] = (), value: str = "step") -> laying.Table:
        """The cases laid out on axes; what their warnings say is for the trust lines."""
        return laying.lay_out(self.outcomes, rows, cols, value, warnings_too=False)

    def report(self, path: str = "report.html") -> str:
        """Write the report of this run, one page that works offline; gives its path."""
        return _written_page(self.everything, path)


def make_plan(targets: Sequence[str], axes: Axes, settings: Mapping[str, Any] | None = None) -> Plan:
    """The plan for targets on axes; `gpu` and `all` become the devices that are here."""
    listed = {name: _listed(values) for name, values in axes.items() if values is not None}
    return plans.expand(list(targets), listed, settings, cache(_device_names))


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
    listed = {name: _listed(values) for name, values in axes.items() if values is not None}
    ends = (None if smallest is None else str(smallest), None if largest is None else str(largest))
    return plans.sweep(workload, listed, over, ends, per_doubling, settings, cache(_device_names))


def _listed(values: Sequence[Any] | Any) -> list[str]:
    several = values if isinstance(values, list | tuple) else [values]
    return [str(one) for one in several]


def probe(frameworks: Sequence[str]) -> dict[str, Any]:
    """What each framework is and sees here, found out in a process of its own, with what vendors say of its devices."""
    from mldyno.runner import probing

    return probing.probe(_python(), frameworks)


def _device_names(framework: str) -> list[str]:
    """The devices that a framework can use here; for names nobody else need be asked."""
    from mldyno.runner import probing

    plugins.check("frameworks", framework)
    found = probing.seen(_python(), [framework])["frameworks"][framework]
    if "error" in found:
        raise MldynoError(f"{framework}: {found['error']}.")
    return [str(device["name"]) for device in found["devices"]]


def _python() -> str:
    import sys

    return sys.executable


def run(
    *targets: str,
    store: Store | str | None = None,
    listener: Listener | None = None,
    steps: int | None = None,
    budget: float | None = None,
    target: float | None = None,
    repeats: int | None = None,
    timeout: float | None = None,
    data: str | None = None,
    by: str | None = None,
    **axes: Any,
) -> Results:
    """Measure workloads or suites; axes are keywords with a value or a list: device=["cpu", "mps"]."""
    settings = {"steps": steps, "budget": budget, "target": target, "repeats": repeats, "timeout": timeout,
                "data": data, "by": axis_named(by) if by else None}  # fmt: skip
    named = {axis_named(name): values for name, values in axes.items()}
    return run_plan(make_plan(targets, named, settings), opened(store), listener)


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
    named = {axis_named(name): values for name, values in axes.items()}
    plan = crossover_plan(workload, named, over, smallest, largest, per_doubling, settings)
    return list(run_plan(plan, opened(store)).answers.crossovers)


def command_plan(words: Sequence[str], settings: Mapping[str, Any] | None = None) -> Plan:
    """The plan that times a command, whole."""
    import shutil

    if not words:
        raise UsageError("name the command after --, for example: mldyno run -- python train.py")
    if shutil.which(words[0]) is None:
        raise UsageError(f"there is no command '{words[0]}' here; name one that your shell finds, or its path.")
    return plans.for_command(words, settings)


def run_plan(plan: Plan, store: Store, listener: Listener | None = None, resume: str | None = None) -> Results:
    """Run a plan, or what is missing of the run to resume."""
    from mldyno.runner.run import Runner, new_run_id

    runner = Runner(plan, store, resume or new_run_id(), _python())
    runner.execute(listener or Listener())
    if not resume:
        return Results(runner.run, runner.records)
    whole = store.select(Query({"run": runner.run}, provenances=("measured",)))
    return Results(runner.run, [record for record in whole if not record.interrupted])


def unfinished(store: Store, plan: Plan | None) -> tuple[str, Plan]:
    """The newest run that did not end, of this plan if one is given, and is not being run now."""
    from mldyno.runner.run import busy

    waiting = False
    for run_id, owner, text in store.unfinished_runs(plan.key if plan else None):
        if not busy(owner):
            return run_id, plans.from_text(text)
        waiting = True
    if waiting:
        raise MldynoError("that run is still going on in another process; nothing to resume.")
    raise MldynoError("no unfinished run to resume" + (" with these cases" if plan else "") + "; leave --resume away.")


def foretell(plan: Plan, store: Store, tell: Callable[[int, int], None] = lambda done, total: None) -> list[Forecast]:
    """The expected time and memory of each case, for a dry run: what is not known from before is looked into."""
    return forecast(plan, store, _python(), tell)


def max_batch(
    workload: str,
    modes: Sequence[str] | None = None,
    most: int | None = None,
    timeout: float = 900.0,
    tell: Callable[[str, Attempt], None] = lambda mode, attempt: None,
    **axes: Any,
) -> dict[str, Search]:
    """The largest batch that fits, for each mode asked for, with all that was tried; `axes` take one value each."""
    plugins.check("workloads", workload)
    named = {axis_named(name): value for name, value in axes.items() if value is not None}
    plan = make_plan([workload], {**named, "mode": modes})
    found: dict[str, Search] = {}
    for case in plan.cases:
        mode = str(case.mode)
        if mode in found:
            raise UsageError("max-batch takes one value for each axis but mode.")
        found[mode] = largest(case, _python(), timeout, most, lambda one, mode=mode: tell(mode, one))  # type: ignore[misc]
    return found


# -- reading -------------------------------------------------------------------------------------


def opened(store: Store | str | None) -> Store:
    """The store that is meant."""
    return store if isinstance(store, Store) else Store(store)


def this_machine() -> Machine:
    """The facts of this machine."""
    return machines.describe()


def _is_id(text: str) -> bool:
    return len(text) >= 6 and all(letter in "0123456789abcdef" for letter in text)


def pinned_by(text: str, store: Store) -> dict[str, Any]:
    """The axes and columns that a filter, or a machine's name, pins."""
    stored = store.workloads()
    if text == THIS_MACHINE:
        return {"machine": machines.describe().name}
    if (typed := plans.name_of(text)) in stored:  # a command as it was typed, slashes and all
        return {"workload": typed}
    workloads = list(dict.fromkeys([*plugins.names("workloads"), *stored]))
    try:
        return parse_filter(text, workloads, [*plugins.names("frameworks"), *plugins.to_come()])
    except UsageError as error:
        names = store.machines()
        machine = the_one_meant(text, names)
        if machine is not None:
            return {"machine": machine}
        if "=" in text or "/" in text or text in workloads:
            raise
        raise unknown("workload, machine, case or file", text, [*workloads, THIS_MACHINE, *names]) from error


def select(text: str, store: Store, heads: bool = True) -> tuple[list[Record], dict[str, Any]]:
    """The records that a word means (a file, an id, a machine, a filter), and what it pins."""
    if os.path.isfile(text):
        return [record for record, _ in transfer.read(text)], {"file": text}
    if _is_id(text):
        found = store.select(Query(ids=(text,), heads=False))
        if not found:
            raise MldynoError(f"no record's id begins with {text}; `mldyno history` lists ids.")
        return found, {"id": text}
    pinned = pinned_by(text, store)
    return store.select(Query(pinned, heads=heads)), pinned


def compare(
    a: str, b: str | None = None, by: str | None = None, anyway: bool = False, store: Store | str | None = None
) -> list[Comparison]:
    """A against B, or the cases of A against each other along an axis."""
    if b is None:
        return compare_along(a, by, store)[0]
    kept = opened(store)
    left, pinned = select(a, kept)
    right, pinned_too = select(b, kept)
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
        if not _compared(comparing.pairs(outcomes(left), outcomes(right), allowed, one_free)[0]):
            raise MldynoError(beside.nothing_shared(text, outcomes(theirs), plugins.names("workloads")))
    return _compared(comparing.match(_with_time(left, a), _with_time(right, b), allowed, one_free))


def compare_along(
    text: str, by: str | None = None, store: Store | str | None = None
) -> tuple[list[Comparison], Answers]:
    """The cases that a word means against each other along an axis (device, if none is named), and what they say."""
    axis = axis_named(by or "device", ("machine",))
    records, _ = select(text, opened(store))
    found = _compared(comparing.along(_with_time(records, text), axis))
    return found, answers(outcomes(records), axis)


def _one_published(records: list[Record]) -> bool:
    """Whether these are the figures of one published machine."""
    names = {record.machine.name for record in records}
    return len(names) == 1 and all(record.provenance == "published" for record in records)


def _with_time(records: list[Record], text: str) -> list[Outcome]:
    found = outcomes(records)
    if not found:
        raise MldynoError(f"nothing recorded for '{text}' yet; measure it with `mldyno run`.")
    return [outcome for outcome in found if outcome.status == "ok"]


def _compared(pairs: Sequence[tuple[Outcome, Outcome]]) -> list[Comparison]:
    return [found for base, other in pairs if (found := comparing.compare(base, other)) is not None]


def table(
    target: str | None,
    rows: Sequence[str] = ("workload", "mode", "batch", "seq"),
    cols: Sequence[str] = ("machine", "device"),
    value: str = "step",
    store: Store | str | None = None,
) -> laying.Table:
    """The newest outcomes of a target, laid out on axes."""
    kept = opened(store)
    records = select(target, kept)[0] if target else kept.select(Query())
    check_value(value, {series.metric for record in records for series in record.series})
    names = [[axis_named(word, ("machine",)) for word in words] for words in (rows, cols)]
    if set(names[0]) & set(names[1]):
        raise UsageError(f"an axis can't be both a row and a column: {', '.join(set(names[0]) & set(names[1]))}.")
    found = outcomes(records)
    if not found:
        raise MldynoError(f"nothing recorded for '{target}' yet; measure it with `mldyno run {target}`.")
    return laying.lay_out(found, names[0], names[1], value)


def show(text: str, store: Store | str | None = None) -> list[Record]:
    """The newest records of a case, or the one with an id; meetings are shown by their ids only."""
    found, pinned = select(text, opened(store))
    if "id" not in pinned:
        found = [record for record in found if record.alone]
    if not found:
        raise MldynoError(f"nothing recorded for '{text}'; `mldyno history` lists what there is.")
    return found


def history(text: str | None = None, most: int = 20, store: Store | str | None = None) -> list[Record]:
    """The newest records, newest first."""
    kept = opened(store)
    pinned = pinned_by(text, kept) if text else {}
    return kept.history(Query(pinned, heads=False), most)


def export(path: str, form: str, text: str | None = None, store: Store | str | None = None) -> int:
    """Write stored records to a file; gives how many."""
    kept = opened(store)
    query = Query(pinned_by(text, kept) if text else {}, heads=False)
    return transfer.write(kept.texts(query), path, form)


def import_(paths: Sequence[str], store: Store | str | None = None) -> tuple[int, int]:
    """Take the records of files into the store, all or none; gives how many were new and how many there were."""
    kept = opened(store)
    seen = 0

    def rows() -> Any:
        nonlocal seen
        for path in paths:
            for row in transfer.read(path):
                seen += 1
                yield row

    new = kept.append_rows(rows())
    return new, seen


def report(
    path: str | None = None, what: str | None = None, form: str = "html", store: Store | str | None = None
) -> list[str]:
    """Write the report of what a word means (everything, if none is given): a page, or a folder of pictures.

    Gives the paths of what was written.
    """
    records = _reported(what, store)
    if form == "html":
        return [_written_page(records, path or "report.html")]
    from mldyno.views.report.pictures import charts_of, drawn
    from mldyno.views.report.sections import sections_of

    folder = transfer.folder(path or f"report-{form}")
    paths = []
    for name, spec in charts_of(sections_of(_subject(records))):
        paths.append(os.path.join(folder, f"{name}.{form}"))
        with transfer.whole_file(paths[-1]) as out:
            out.write(drawn(spec, form))
    return paths


def card(path: str, what: str | None = None, store: Store | str | None = None) -> str:
    """Write one picture to post, PNG: the machine, what was found, and the command to do it again."""
    from mldyno.views.report.card import card as picture

    drawn = picture(_subject(_reported(what, store)))
    with transfer.whole_file(path) as out:
        out.write(drawn)
    return path


def _reported(what: str | None, store: Store | str | None) -> list[Record]:
    """The records that a report is about: those that were measured, or imported."""
    kept = opened(store)
    records = select(what, kept)[0] if what else kept.select(Query())
    found = [record for record in records if record.provenance != "published"]
    if not outcomes(found):
        if what is None:
            raise MldynoError("nothing was measured yet; `mldyno quick` is a good beginning.")
        told = "only published figures" if records else "nothing recorded"
        raise MldynoError(
            f"{told} for '{what}'; measure it with `mldyno run`, and see what there is with `mldyno history`."
        )
    return found


def _subject(records: Sequence[Record]) -> Subject:
    from datetime import datetime, timezone

    from mldyno import __version__
    from mldyno.store import reference
    from mldyno.views.report.subject import Subject

    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Subject(outcomes(records), outcomes(reference.newest()), now, __version__)


def _written_page(records: Sequence[Record], path: str) -> str:
    from mldyno.store.codec import encode
    from mldyno.views.report.page import page

    text = page(_subject(records), [encode(record) for record in records])
    with transfer.whole_file(path) as out:
        out.write(text.encode())
    return path


def against_published(results: Results, store: Store) -> list[Comparison]:
    """The cases of a run against the published figures of the same cases."""
    found = []
    for outcome in results.outcomes:
        case = outcome.case
        same = ("workload", "mode", "batch", "seq", "placement", "precision")
        query = Query({name: getattr(case, name) for name in same}, provenances=("published",))
        if outcome.status == "ok":
            found += _compared([(other, outcome) for other in outcomes(store.select(query)) if other.status == "ok"])
    return found


def placed(results: Results, store: Store) -> laying.Table | None:
    """A suite's run among the published figures of the same work; None where there are none, or no suite was run."""
    if all(record.run.suite is None for record in results.records):
        return None
    return beside.place(results.outcomes, outcomes(store.select(Query(provenances=("published",)))))


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
    from mldyno.selftest import table as whole

    if plugins.framework(framework).clock is not None:
        raise UsageError(f"{framework} computes nothing; the self-test times real steps: --framework torch")
    if export is not None:
        result_file.check_place(export)
    found = _device_meant(framework, device)
    ids = whole.ON_ANY_MACHINE if found == "cpu" else whole.ON_A_DEVICE
    effort = whole.QUICK if quick else whole.FULL
    measures = whole.run(effort, framework, ids, progress or (lambda part, left: None), found)
    return measures if export is None else _exported(measures, export, found, framework, quick)


def _device_meant(framework: str, word: str) -> str:
    """The one device that a word means; raises where it is not here. Nothing is asked for the CPU."""
    if word == "all":
        raise UsageError("the self-test takes one device at a time, for example: --device gpu")
    name = str(AXIS["device"].parse(word))
    if name == "cpu":
        return name
    names = _device_names(framework)
    if name == plans.GPU and name not in names:
        name = next((one for one in names if one != "cpu"), name)
    if name not in names:
        raise MldynoError(
            f"no device '{name}' here; {framework} sees {', '.join(names)}. `mldyno doctor` says what it finds."
        )
    return name


def _exported(measures: Iterator[Measure], path: str, device: str, framework: str, quick: bool) -> Iterator[Measure]:
    """The measures; after the last of them the file is written."""
    import time

    from mldyno.selftest import result_file

    began = time.monotonic()
    found: list[Measure] = []
    for one in measures:
        found.append(one)
        yield one
    probed = probe([framework])
    seen = probed["frameworks"][framework]
    machine = machines.describe([Device(**one) for one in seen.get("devices", ())])
    software = {"python": probed.get("python"), "versions": seen.get("versions"), "threads": seen.get("threads")}
    spent = time.monotonic() - began
    result_file.write(path, result_file.document(found, device, framework, quick, spent, machine, software))


def doctor(
    quick: bool = False, noise: float | None = None, framework: str | None = None, store: str | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Checkup:  # fmt: skip
    """All that a check-up sees, so many s of it for noise (60, none if quick); `findings(it)` says what it means."""
    from mldyno.doctor import checkup

    wanted = checkup.wanted(_python(), quick, noise, framework, store)
    return checkup.check_up(wanted, progress or (lambda part, left: None))


def quick_plan(settings: Mapping[str, Any] | None = None, framework: str = "torch") -> Plan:
    """The plan of `mldyno quick`: its suite on every device that is here."""
    return make_plan(["quick"], {"device": ["all"], "framework": [framework]}, settings)


__all__ = ["Answers", "Attempt", "Checkup", "Comparison", "Crossover", "Forecast", "Results", "Search", "card",
           "command_plan", "compare", "compare_along", "crossover", "crossover_plan", "doctor", "export", "findings",
           "forecast", "foretell", "history", "import_", "make_plan", "max_batch", "opened", "placed", "probe",
           "quick_plan", "report", "run", "run_plan", "selftest", "show", "table", "this_machine"]  # fmt: skip
