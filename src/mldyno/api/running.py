"""Functions that measure: a user's words become a plan, and a plan becomes results."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from mldyno import interpreters, keys, machine_lock, plugins, rendezvous, sources, suites
from mldyno import machine as machines
from mldyno import plan as plans
from mldyno.analysis.league import league, place
from mldyno.analysis.outcomes import outcomes
from mldyno.analysis.sweeps import Crossover
from mldyno.axes import Case, axis_named
from mldyno.errors import MldynoError, UsageError
from mldyno.files import make_folder
from mldyno.messages import FrameworksProbed
from mldyno.plan import Plan
from mldyno.printable import printable
from mldyno.records import Record
from mldyno.results import QuickResults, Results
from mldyno.runner.describing import at_revision, describe, separate_trees
from mldyno.runner.events import Listener
from mldyno.runner.forecast import Forecast, forecast
from mldyno.runner.probing import (
    PROBE_TIMEOUT_S,
    Attempt,
    Search,
    largest_batch,
    probe_frameworks,
    probe_rates,
    with_vendors,
)
from mldyno.runner.quick import Chosen, choose
from mldyno.runner.remote_case import SHORTEST_TIMEOUT_S
from mldyno.settings import OF_PLANS, RunSettings, axes_and_settings, parsed
from mldyno.sources import Source
from mldyno.store import Query, Store
from mldyno.store.selection import AnyStore, Tell, opened, silent
from mldyno.suites import reader
from mldyno.temporary import is_elsewhere
from mldyno.units import count, digits, show_seconds
from mldyno.worker import joining

Axes = Mapping[str, Sequence[Any] | Any]
FLEET = '{"fleet":'  # begins what the store keeps of a run on several hosts, in place of a plan


def make_plan(targets: Sequence[str], axes: Axes, settings: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan for targets on axes, with the devices that are here; a worker inspects the user's own targets."""
    chosen = parsed(settings)
    words, listed, given = list(targets), _listed(axes), RunSettings(**chosen)
    of_plan = {name: value for name, value in chosen.items() if name in OF_PLANS}
    read = partial(sources.read, weights=given.weights, download=given.download)
    inspect = partial(_inspect_target, axes=listed, timeout=given.timeout)
    if given.against is not None:
        words = _with_version(words, given, inspect, read)
        return plans.expand(words, listed, {**of_plan, "by": "workload"}, cache(device_names))
    for word in words:
        if sources.is_target(word):
            inspect(word, read(word))
        elif suites.is_suite(word):
            for target, file in reader.own_targets(reader.read(word, given.trust)).items():
                if sources.runs_code(target) and target not in words and not given.trust:
                    allow = "allow it with --trust, if you trust both"
                    raise UsageError(f"suite {file} runs the code of {target}; {allow}.")
                inspect(target, read(target))
    return plans.expand(words, listed, of_plan, cache(device_names), given.trust)


def _listed(axes: Axes) -> dict[str, list[str]]:
    """Return the axes with what a user would type, without those that have no value; interpreters get their names."""
    given = {axis_named(name): values for name, values in axes.items() if values is not None}
    listed = {name: [str(value) for value in (values if isinstance(values, list | tuple) else [values])]
              for name, values in given.items()}  # fmt: skip
    if "python" in listed:
        listed["python"] = [interpreters.name_of(path) for path in listed["python"]]
    return listed


def _inspect_target(word: str, source: Source, axes: Mapping[str, Sequence[str]], timeout: float | None) -> Source:
    """Have a worker describe a target of the user's, and register it under the user's word."""
    described = describe(source, next(iter(axes.get("python", ())), None), timeout)
    sources.register(described, word)
    return described


def _with_version(
    words: Sequence[str], given: RunSettings, inspect: Callable[[str, Source], Source], read: Callable[[str], Source]
) -> list[str]:
    """Return an older version of the only target, then the target."""
    if len(words) != 1 or not sources.is_target(words[0]):
        raise UsageError("--against is for one file of yours: mldyno run my_model.py --against HEAD~1.")
    if given.by not in (None, "workload"):
        raise UsageError("--against compares two versions of a file; omit --by.")
    against = given.against or ""
    source, is_file = read(words[0]), os.path.isfile(against) or sources.is_target(against)
    if is_file:
        source, older = separate_trees(source, sources.read(against))
    own = inspect(words[0], replace(source, version=sources.NOW))
    if not is_file:
        older = at_revision(own, against)
    older = inspect(against, replace(older, version=against))
    if older.name == own.name:
        place = f" from {os.path.basename(own.root)}" if own.root else ""
        raise MldynoError(f"{own.title} is the same at {against}, with all that it imports{place}; nothing to compare.")
    sources.register(replace(own, other=older.root if older.other else ""), words[0])
    return [against, *words]


def crossover_plan(
    workload: str, over: str = "batch", smallest: int | str | None = None, largest: int | str | None = None,
    per_doubling: int = 1, **options: Any,
) -> Plan:  # fmt: skip
    """Return the plan that compares two values of one axis over sizes, `per_doubling` of them for each doubling."""
    axes, settings = axes_and_settings(options)
    listed, given = _listed(axes), parsed(settings)
    if sources.is_target(workload):
        _inspect_target(workload, sources.read(workload), listed, given.get("timeout"))
    ends = (None if smallest is None else str(smallest), None if largest is None else str(largest))
    return plans.sweep(workload, listed, over, ends, per_doubling, given, cache(device_names))


def command_plan(words: Sequence[str], settings: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan that times a command as a whole, or several with `--` between them, interleaved."""
    commands = plans.split_commands(words)
    for command in commands:
        if not command:
            raise UsageError("name the command after --, for example: mldyno run -- python train.py")
        if shutil.which(command[0]) is None:
            quoted = "" if len(commands) == 1 else "; a command that has a -- itself goes into sh -c '...'"
            name_it = f"name one that your shell finds, or its path{quoted}"
            raise UsageError(f"there is no command '{command[0]}' here; {name_it}.")
    return plans.for_command(words, {name: value for name, value in (settings or {}).items() if name in OF_PLANS})


def planned(
    *targets: str, command: Sequence[str] | None = None, resume: bool = False, store: AnyStore = None,
    say: Tell = silent, **options: Any,
) -> tuple[Plan, str | None]:  # fmt: skip
    """Return the plan of `run` with these arguments, and the id of the run to resume, if any."""
    axes, settings = axes_and_settings(options)
    opened_store = opened(store)
    if resume and not targets and command is None:
        run_id, plan = unfinished(opened_store, None, settings.get("trust", False), say)
        return plan, run_id
    if command is None:
        plan = make_plan(targets, axes, settings)
    else:
        named = [*targets, *(f"--{name.replace('_', '-')}" for name in (*axes, *({"by"} & settings.keys())))]
        if named:
            raise UsageError(f"a command is run as it is typed; omit {', '.join(named)} before --.")
        plan = command_plan(command, settings)
    untrained = {
        source.title: source.untrained for source in plan.sources if source.untrained
    }  # versions share a title
    for title, why in untrained.items() if "mode" not in axes else ():
        say(f"{title} is measured in inference only: {why}")
    return (plan, unfinished(opened_store, plan, tell=say)[0]) if resume else (plan, None)


def unfinished(store: Store, plan: Plan | None, trust: bool = False, tell: Tell = silent) -> tuple[str, Plan]:
    """Return the newest run that did not finish, of this plan if one is given, and that no process is running now.

    Without a plan it is the stored one: `tell` gets a line for each program that it runs, and a run that this machine
    did not begin needs `trust`.
    """
    from mldyno.runner.run import PLAN, busy

    running = False
    # `--resume --on` goes on with those of a fleet
    of_this_machine = (each for each in store.unfinished_runs() if not each[2].startswith(FLEET))
    for run_id, owner, text, proof in of_this_machine:
        begun = plans.from_text(text)
        if plan is not None and not begun.same_as(plan):
            continue
        if is_elsewhere(owner):
            tell(f"run {run_id} was begun on another host or in another container; make sure that it has ended there")
        if busy(owner):
            running = True
        elif plan is None and begun.masked:
            words = " -- ".join(map(shlex.join, begun.commands))
            raise MldynoError(f"its secrets were not kept; give the command again: mldyno run --resume -- {words}")
        elif plan is not None:
            return run_id, plan
        else:
            own = keys.is_authentic(proof, PLAN, run_id, text)
            programs = list(_programs(begun))
            for line in [f"resumes run {run_id}", *programs] if programs or not own else ():
                tell(printable(line))
            if not own and not trust:
                allow = "allow it with --trust, if you trust what it runs"
                raise UsageError(f"nothing proves that this machine began run {run_id} of {store.path}; {allow}.")
            for source in begun.sources:
                if not source.is_there:
                    again = "give the command again, with --resume"
                    raise MldynoError(f"{source.version_title} is not where run {run_id} had it; {again}.")
                sources.register(source)
            return run_id, begun
    if running:
        raise MldynoError("that run is still going on in another process; nothing to resume.")
    raise MldynoError("no unfinished run to resume" + (" with these cases" if plan else "") + "; omit --resume.")


def _programs(plan: Plan) -> Iterator[str]:
    """Yield a line for each program that a stored plan runs: commands, the user's code, interpreters."""
    yield from (f"  runs the command: {shlex.join(words)}" for words in plan.commands)
    for source in plan.sources:
        function = f", function {source.function}" if source.function else ""
        folder = f" in {source.folder}" if source.kind == "module" else ""
        yield f"  runs {source.kind} {source.place}{folder}{function}"
    for python in dict.fromkeys(case.python for case in plan.cases if case.python):
        yield f"  runs in Python {python}"


def dry_run(plan: Plan, store: Store, tell: Callable[[int, int], None] = lambda done, total: None) -> list[Forecast]:
    """Return the expected time and memory of each case; probe what is not known from earlier runs."""
    plans.check_present(plan.cases, cache(device_names))
    return forecast(plan, store, tell)


def run(
    *targets: str, store: AnyStore = None, listener: Listener | None = None, on: str | None = None, **options: Any
) -> Results:
    """Measure workloads, suites or files of your own.

    Axes and settings are keywords, as the options of `mldyno run`: device=["cpu", "mps"], budget="3s", target=0.05.
    `command` are the words of a command to time instead, `resume` continues a run that did not finish. `on` names
    hosts to measure on instead of this machine: a hosts file, or words such as "ssh:mini,ssh:box".
    """
    if on is not None:
        from mldyno.api.fleet import run_on

        return run_on(on, *targets, store=store, **options)
    opened_store, shown = opened(store), listener or Listener()
    plan, run_id = planned(*targets, store=opened_store, say=shown.say, **options)
    hosted = listener is not None or options.get("rendezvous") is not None  # else the line to type there is not shown
    if hosted and (line := host(plan, options.get("rendezvous"))):
        shown.say(f"on each other machine: {line}")
    results = run_plan(plan, opened_store, shown, run_id)
    if any(record.run.suite is not None for record in results.records):
        results.placed = place(results.outcomes, outcomes(opened_store.select(Query(provenances=("published",)))))
    return results


def run_plan(
    plan: Plan, store: Store, listener: Listener | None = None, resume: str | None = None,
    forecasts: Sequence[Forecast] | None = None,
) -> Results:  # fmt: skip
    """Run a plan, or what is missing of the run to resume; `forecasts` limit the time of each case."""
    from mldyno.runner.recording import new_run_id
    from mldyno.runner.run import Runner

    runner = Runner(plan, store, resume or new_run_id(), forecasts)
    runner.execute(listener or Listener())
    if not resume:
        return Results(runner.run, runner.records, runner.left_out, plan)
    whole = store.select(Query({"run": runner.run, "imported_from": ""}, provenances=("measured",)))
    return Results(runner.run, [record for record in whole if not record.interrupted], runner.left_out, plan)


def crossover(workload: str, over: str = "batch", **options: Any) -> list[Crossover]:
    """Return the size from which one of two beats the other, in each mode; one axis has two values.

    Sizes go from `smallest` to `largest`, `per_doubling` of them for each doubling. Axes and settings are keywords, as
    in `run`: device=["cpu", "mps"], budget="3s".
    """
    return list(sweep(workload, over, **options).answers.crossovers)


def sweep(
    workload: str, over: str = "batch", resume: bool = False, store: AnyStore = None,
    listener: Listener | None = None, **options: Any,
) -> Results:  # fmt: skip
    """Measure the cases that `crossover` compares."""
    plan, opened_store = crossover_plan(workload, over, **options), opened(store)
    return run_plan(plan, opened_store, listener, unfinished(opened_store, plan)[0] if resume else None)


def quick(
    framework: str = "torch", store: AnyStore = None, listener: Listener | None = None, **settings: Any
) -> QuickResults:
    """Measure this machine in at most three minutes: how fast it trains and runs models, on every device.

    `budget` and `limit` are as in `run`. The report is written to the folder of the store.
    """
    opened_store, shown = opened(store), listener or Listener()
    plugins.check("frameworks", framework)
    with machine_lock.held(shown.say, needed=plugins.framework(framework).clock is None):
        return _quick(framework, opened_store, shown, settings)


def _quick(framework: str, opened_store: Store, shown: Listener, settings: Mapping[str, Any]) -> QuickResults:
    from mldyno.analysis.answers import verdicts

    chosen = quick_plan(settings, framework, opened_store)
    notes = list(chosen.notes)
    if chosen.setting is not None:
        variable, _, value = chosen.setting.name.partition("=")
        os.environ[variable] = value
        notes.insert(0, f"other programs use cores, so mldyno set {chosen.setting.name}: waiting threads sleep, which "
                        f"makes a step {digits(chosen.setting.gain.value, most=2)} times as fast here")  # fmt: skip
    total = min(sum(expected.seconds for expected in chosen.forecasts), chosen.plan.limit or math.inf)
    shown.say(f"{count(len(chosen.plan.cases), 'case')}, about {show_seconds(total)} in all.")
    results = run_plan(chosen.plan, opened_store, shown, forecasts=chosen.forecasts)
    here = {outcome.machine for outcome in results.outcomes}
    elsewhere = [record for record in opened_store.select(Query()) if record.shown_machine not in here]
    published = opened_store.select(Query(provenances=("published",)))
    return QuickResults(
        **vars(results), notes=notes, verdicts=verdicts(results.outcomes, outcomes(published)),
        standings=league(results.outcomes, outcomes(elsewhere)),
        page=_page(results, opened_store, [record for record in elsewhere if record.provenance != "published"]),
    )  # fmt: skip


def _page(results: Results, store: Store, context: Sequence[Record]) -> str:
    """Write the report of a run to the folder of the store, which is writable; return a line that says where it is."""
    try:
        folder = make_folder(str(store.path.parent / "reports"))
        return f"report: {results.report(os.path.join(folder, f'{results.run}.html'), context)}"
    except MldynoError as error:
        return f"There is no report: {error}"


def quick_plan(settings: Mapping[str, Any] | None = None, framework: str = "torch", store: AnyStore = None) -> Chosen:
    """Return the plan of `quick`: relevant cases that fit into its time; and a setting of threads, if one helps."""
    from mldyno.doctor.settings import passive_wait_helps

    plugins.check("frameworks", framework)
    began, rates, setting = time.monotonic(), probe_rates(framework), None
    if plugins.framework(framework).clock is None:
        setting = passive_wait_helps(framework, rates.threads, machines.describe().cores)
    axes = {"device": ["all"], "framework": [framework]}
    whole = plans.expand(["quick"], axes, settings, lambda name, python: rates.devices)
    left = None if whole.limit is None else max(1.0, whole.limit - (time.monotonic() - began))
    return replace(choose(replace(whole, limit=left), opened(store), rates), setting=setting)


def max_batch(
    workload: str, modes: Sequence[str] | None = None, most: int | None = None, timeout: float | str | None = None,
    tell: Callable[[str, Attempt], None] = lambda mode, attempt: None, say: Tell = silent, **axes: Any,
) -> dict[str, Search]:  # fmt: skip
    """Find the largest batch that fits, for each mode; return all that was tried. `axes` take one value each."""
    if not sources.is_target(workload):
        plugins.check("workloads", workload)
    plan = make_plan([workload], {**axes, "mode": modes}, {"timeout": timeout})
    cases = {str(case.mode): case for case in plan.cases}
    if len(cases) < len(plan.cases):
        raise UsageError("max-batch takes one value for each axis but mode.")
    longest = plan.timeout or SHORTEST_TIMEOUT_S
    with machine_lock.held(say, needed=plan.real):  # what others take does not fit
        return {mode: largest_batch(case, longest, most, partial(tell, mode)) for mode, case in cases.items()}


def host(plan: Plan, address: str | None) -> str:
    """Let other machines join the plan's cases here; return the line to type there, or nothing if none may join."""
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


def join(address: str, token: str, ranks: int, nodes: int, threads: int | None, wait: float, tell: Tell) -> int:
    """Take part in what another machine measures, until no job starts for `wait` s; return the number of jobs."""
    plans.check_most({"ranks": (ranks,), "nodes": (nodes,), "threads": (threads,)})
    if ranks % nodes:
        raise UsageError(f"{ranks} ranks can't be spread over {nodes} nodes evenly.")
    case = Case("", ranks=ranks, nodes=nodes, threads=threads)
    return joining.join(rendezvous.read(address, token), case, wait, sys.executable, tell)


def probe(frameworks: Sequence[str], timeout: float = PROBE_TIMEOUT_S) -> FrameworksProbed:
    """Return the versions and devices of each framework, with facts from vendors, found by other processes.

    Each may take `timeout` s.
    """
    return with_vendors(probe_frameworks(frameworks, timeout=timeout), machines.Vendors())


def device_names(framework: str, python: str | None = None) -> list[str]:
    """Return the devices that a framework can use here, in this or another interpreter."""
    plugins.check("frameworks", framework)
    if python is None and not plugins.installed(framework):
        return ["cpu"]  # its cases will say what is missing, and those of other frameworks are measured
    facts = probe_frameworks([framework], python=python).frameworks[framework]
    if facts.error:
        raise MldynoError(f"{framework}: {facts.error}.")
    return [device.name for device in facts.devices]
