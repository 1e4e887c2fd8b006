"""Verbs that measure: plans from what a user types, runs, what joins them, and how large a batch fits."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from mldyno import interpreters, keys, plugins, rendezvous, sources
from mldyno import machine as machines
from mldyno import plan as plans
from mldyno.analysis.sweeps import Crossover
from mldyno.axes import Case, axis_named
from mldyno.client import joining
from mldyno.client.remote_case import SHORTEST_TIMEOUT_S
from mldyno.errors import MldynoError, UsageError
from mldyno.messages import FrameworksProbed
from mldyno.plan import Plan
from mldyno.printable import printable
from mldyno.results import Results
from mldyno.runner.describing import beside, describe, earlier
from mldyno.runner.events import Listener
from mldyno.runner.forecast import Forecast, forecast
from mldyno.runner.probing import Attempt, Search, frameworks_seen, largest, look, with_vendors
from mldyno.runner.quick import Chosen, choose
from mldyno.selection import opened
from mldyno.sources import Source
from mldyno.store import Query, Store
from mldyno.suites import reader
from mldyno.units import parse_duration, parse_fraction

Axes = Mapping[str, Sequence[Any] | Any]


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
    measured beside it; `trust` lets a suite name code and interpreters; `weights` and `download` are for models of
    Hugging Face.
    """
    words, listed, given = list(targets), _listed(axes), dict(settings or {})
    look_at = partial(_look_at, axes=listed, timeout=given.get("timeout"))
    if against is not None:
        words, given = _held_against(words, against, given, look_at, weights, download)
        return plans.expand(words, listed, given, cache(device_names))
    for word in words:
        if sources.is_target(word):
            look_at(word, sources.read(word, weights, download))
        elif reader.is_suite(word):
            for own, file in reader.own_targets(reader.read(word, trust)).items():
                if sources.runs_code(own) and own not in words and not trust:
                    raise UsageError(f"suite {file} runs the code of {own}; allow it with --trust, if you trust both.")
                look_at(own, sources.read(own, weights, download))
    return plans.expand(words, listed, given, cache(device_names), trust)


def _look_at(word: str, source: Source, axes: Mapping[str, Sequence[str]], timeout: float | None) -> Source:
    """What a target of the user's own is, as a worker finds it; from now on it is known by the user's word."""
    python = next(iter(axes.get("python", ())), None)
    described = describe(source, python, timeout)
    sources.register(described, word)
    return described


def _held_against(
    words: list[str],
    against: str,
    settings: dict[str, Any],
    look_at: Callable[[str, Source], Source],
    weights: bool = False,
    download: bool = False,
) -> tuple[list[str], dict[str, Any]]:
    """Targets and settings that measure the one target beside an older version of it, which comes first."""
    if len(words) != 1 or not sources.is_target(words[0]):
        raise UsageError("--against is for one file of yours: mldyno run my_model.py --against HEAD~1.")
    if settings.get("by") not in (None, "workload"):
        raise UsageError("--against compares two versions of a file; omit --by.")
    source, is_file = sources.read(words[0], weights, download), os.path.isfile(against) or sources.is_target(against)
    if is_file:
        source, older = beside(source, sources.read(against))
    own = look_at(words[0], replace(source, version=sources.NOW))
    if not is_file:
        older = earlier(own, against)
    older = look_at(against, replace(older, version=against))
    if older.name == own.name:
        place = f" from {os.path.basename(own.root)}" if own.root else ""
        raise MldynoError(f"{own.title} is the same at {against}, with all that it imports{place}; nothing to compare.")
    sources.register(replace(own, other=older.root if older.other else ""), words[0])
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
    return plans.sweep(workload, _listed(axes), over, ends, per_doubling, settings, cache(device_names))


def _listed(axes: Axes) -> dict[str, list[str]]:
    """Return the axes by their names, each with a list of what a user would type; omit those without a value.

    The user's own interpreters are asked for their names here.
    """
    given = {axis_named(name): values for name, values in axes.items() if values is not None}
    listed = {name: [str(value) for value in (values if isinstance(values, list | tuple) else [values])]
              for name, values in given.items()}  # fmt: skip
    if "python" in listed:
        listed["python"] = [interpreters.name_of(path) for path in listed["python"]]
    return listed


def probe(frameworks: Sequence[str]) -> FrameworksProbed:
    """What each framework is and sees here, found out in a process of its own, with what vendors say of its devices."""
    return with_vendors(frameworks_seen(frameworks), machines.Vendors())


def device_names(framework: str, python: str | None = None) -> list[str]:
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
    from mldyno.recording import new_run_id
    from mldyno.runner.run import Runner

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

    plans.check_most({"ranks": (ranks,), "nodes": (nodes,), "threads": (threads,)})
    if ranks % nodes:
        raise UsageError(f"{ranks} ranks can't be spread over {nodes} nodes evenly.")
    case = Case("", ranks=ranks, nodes=nodes, threads=threads)
    return joining.join(rendezvous.read(address, token), case, wait, sys.executable, tell)


def unfinished(
    store: Store, plan: Plan | None, trust: bool = False, tell: Callable[[str], None] = lambda line: None
) -> tuple[str, Plan]:
    """The newest run that did not end, of this plan if one is given, and is not being run now.

    Without one, the plan is the store's: `tell` hears what it runs, and one that this machine did not begin needs
    `trust`.
    """
    from mldyno.runner.run import PLAN, busy

    waiting = False
    for run_id, owner, text, proof in store.unfinished_runs():
        begun = plans.from_text(text)
        if plan is not None and not begun.same_as(plan):
            continue
        if busy(owner):
            waiting = True
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
                raise UsageError(
                    f"nothing proves that this machine began run {run_id} of {store.path}; "
                    "allow it with --trust, if you trust what it runs."
                )
            for source in begun.sources:
                if not source.is_there:
                    again = "give the command again, with --resume"
                    raise MldynoError(f"{source.version_title} is not where run {run_id} had it; {again}.")
                sources.register(source)
            return run_id, begun
    if waiting:
        raise MldynoError("that run is still going on in another process; nothing to resume.")
    raise MldynoError("no unfinished run to resume" + (" with these cases" if plan else "") + "; omit --resume.")


def _programs(plan: Plan) -> Iterator[str]:
    """A line for each program beside the catalogue's that a stored plan runs: commands, code, other interpreters."""
    yield from (f"  runs the command: {shlex.join(words)}" for words in plan.commands)
    for source in plan.sources:
        function = f", function {source.function}" if source.function else ""
        folder = f" in {source.folder}" if source.kind == "module" else ""
        yield f"  runs {source.kind} {source.place}{folder}{function}"
    for python in dict.fromkeys(case.python for case in plan.cases if case.python):
        yield f"  runs in Python {python}"


def dry_run(plan: Plan, store: Store, tell: Callable[[int, int], None] = lambda done, total: None) -> list[Forecast]:
    """The expected time and memory of each case, for a dry run: what is not known from before is looked into."""
    plans.check_present(plan.cases, cache(device_names))
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


def quick_plan(
    settings: Mapping[str, Any] | None = None, framework: str = "torch", store: Store | str | None = None
) -> Chosen:
    """The plan of `mldyno quick`: of its suite what tells something on this machine, and fits into its time.

    Where other programs take cores, a setting of threads is tried first; whoever runs the plan may use it.
    """
    from mldyno.doctor.settings import passive_wait_helps

    plugins.check("frameworks", framework)
    began, rates, setting = time.monotonic(), look(framework), None
    if plugins.framework(framework).clock is None:
        setting = passive_wait_helps(framework, rates.threads, machines.describe().cores)
    axes = {"device": ["all"], "framework": [framework]}
    whole = plans.expand(["quick"], axes, settings, lambda name, python: rates.devices)
    left = None if whole.limit is None else max(1.0, whole.limit - (time.monotonic() - began))
    return replace(choose(replace(whole, limit=left), opened(store), rates), setting=setting)
