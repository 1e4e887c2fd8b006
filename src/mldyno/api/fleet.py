"""Functions that measure on many machines: a user's words go to all of them, and what they measure comes back."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from mldyno import keys, plugins, sources, suites
from mldyno import plan as plans
from mldyno.api.running import FLEET, planned
from mldyno.engines import Host
from mldyno.errors import MldynoError, UsageError
from mldyno.files import regular
from mldyno.fleet import hosts, remote
from mldyno.fleet.conductor import Conductor, FleetListener, Member, Times
from mldyno.fleet.examining import examined
from mldyno.fleet.pipes import Pipes
from mldyno.fleet.wire import Request
from mldyno.masking import MASK, masked_words
from mldyno.plan import Plan
from mldyno.records import Record
from mldyno.results import FleetResults
from mldyno.runner.events import Interrupts
from mldyno.runner.forecast import forecast
from mldyno.settings import axes_and_settings, parsed
from mldyno.store import Query, Store
from mldyno.store.codec import with_origin
from mldyno.store.query import OF_FLEET
from mldyno.store.selection import AnyStore, Tell, opened
from mldyno.temporary import own_name

MOST_AT_ONCE = 32  # hosts that are cleared
LONGEST_FILE_B = 1 << 20  # of the user's own
STORE_PATIENCE_S = 2.0  # for which the conductor may hear nothing
MOST_EARLIER = 5  # runs that were cut off, of which hosts may have records
START_S, EXTRA_S, TIMES_BUDGET = 300.0, 60.0, 3.0  # what a host may take, where an engine has to be told a limit
HERE_ONLY = ("against", "rendezvous", "nodes")  # options of runs on one machine, or of one job on several


def run_on(
    on: str, *targets: str, command: Sequence[str] | None = None, resume: bool = False, store: AnyStore = None,
    listener: FleetListener | None = None, times: Times | None = None, **options: Any,
) -> FleetResults:  # fmt: skip
    """Measure on all hosts that `on` names, each what its user's words mean there; every run has one id.

    `resume` goes on with the run of these words that did not finish, on each host where it was; without targets, with
    the newest one on these hosts.
    """
    from mldyno.runner.recording import new_run_id, now
    from mldyno.runner.run import PLAN

    entries, here = hosts.read(on), opened(store)
    run, asked = new_run_id(), None
    if resume:
        wanted = request_for(targets, command, options) if targets or command else None
        run, asked = _unfinished(here, on, wanted, bool(options.get("trust")))
    asked = asked or request_for(targets, command, options)
    members = hosts.found(entries, run, longest(asked))
    if resume:  # what a killed conductor has left in a queue would be measured too
        with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
            list(threads.map(lambda member: member[1].clear(member[0]), members))
    stored = Store(here.path, patience=STORE_PATIENCE_S)
    text = _text(on, asked)
    stored.begin_run(run, now(), own_name(), text, keys.authenticate(PLAN, run, text))
    earlier = [each for each, *_ in _runs(here) if each != run][:MOST_EARLIER]

    def known(host: Host) -> dict[str, list[str]]:
        query = {"imported_from": _origin(host)}
        return {each: stored.ids(Query({**query, "run": each}, heads=False)) for each in (run, *earlier)}

    def keep(records: Iterable[tuple[Host, Record]]) -> None:
        stored.append([with_origin(record, _origin(host)) for host, record in records])

    ended = _conducted(members, asked.of_run(run), listener, times, known, keep)
    if all(member.state == "done" and not member.left_out for member in ended):
        stored.finish_run(run)
    whole = here.select(Query({"run": run}, provenances=("measured",)))
    return FleetResults(run, [record for record in whole if not record.interrupted], hosts=ended, on=on)


def _conducted(
    members: Sequence[hosts.Member], request: Request, listener: FleetListener | None, times: Times | None = None,
    known: Any = lambda host: {}, keep: Any = lambda records: None,
) -> list[Member]:  # fmt: skip
    """Ask all hosts; return how each ended."""
    pipes, shown = Pipes(len(members)), listener or FleetListener()
    try:
        with Interrupts() as interrupts:
            ended = partial(getattr, interrupts, "came")
            return Conductor(members, request, pipes, known, keep, shown, times, ended).run()
    finally:
        pipes.end()
        shown.end()


def dry_run_on(
    on: str, *targets: str, command: Sequence[str] | None = None, listener: FleetListener | None = None, **options: Any
) -> list[Member]:
    """Return what each host would run, and for how long."""
    asked = request_for(targets, command, options, "dry-run")
    return _conducted(hosts.found(hosts.read(on), seconds=START_S), asked, listener)


def fleet_doctor(on: str, listener: FleetListener | None = None) -> list[Member]:
    """Return what each host is and can run."""
    return _conducted(hosts.found(hosts.read(on), seconds=START_S), Request("doctor"), listener)


def serve_conductor() -> int:
    """Answer a conductor on standard input and output."""

    def planned_here(request: Request, targets: Sequence[str], store: Store, tell: Tell) -> Plan:
        return planned(*targets, command=request.command, store=store, say=tell, **request.options)[0]

    return remote.serve(planned_here, forecast, examined)


# -- requests --------------------------------------------------------------------------------------


def request_for(
    targets: Sequence[str], command: Sequence[str] | None, options: Mapping[str, Any], purpose: Any = "measure"
) -> Request:
    """Return what to ask of hosts; raise for what no host could do."""
    given = {name: value for name, value in options.items() if value not in (None, False, ())}
    for name in HERE_ONLY:
        if name in given:
            raise UsageError(f"--{name} and --on exclude each other; run that on one machine.")
    if not targets and not command:
        raise UsageError("name what to run: a workload or a suite, for example: mldyno run mlp --on lab.toml")
    files: dict[str, str] = {}
    words = [_sent(word, files) for word in targets]
    axes, settings = axes_and_settings(given)
    parsed(settings)
    if not command and not any(sources.is_target(word) or word.endswith(".toml") for word in words):
        plans.expand(words, _texts(axes), {}, lambda framework, python: ("cpu", "gpu"))  # the devices are theirs
    content = json.loads(json.dumps(given, default=str))
    return Request(
        purpose, targets=tuple(words), options=content, command=tuple(command) if command else None, files=files
    )


def _texts(axes: Mapping[str, Any]) -> dict[str, list[str]]:
    return {name: [str(value) for value in (values if isinstance(values, list | tuple) else [values])]
            for name, values in axes.items() if name != "python"}  # fmt: skip


def _sent(word: str, files: dict[str, str]) -> str:
    """Return a target as hosts get it; note the text of the file that it names."""
    is_suite = suites.is_suite(word)
    path, colon, function = word.partition(":") if ".py:" in word else (word, "", "")
    if not path.endswith((".py", ".toml")):
        if sources.is_target(word) and word.endswith(".onnx"):
            raise UsageError(f"{word} is not text, so it is not sent to hosts; measure it on each of them.")
        if not is_suite and not sources.is_target(word):
            plugins.check("workloads", word)
        return word
    name = os.path.basename(path)
    try:
        with open(Path(path).expanduser(), encoding="utf-8", opener=regular) as file:
            text = file.read(LONGEST_FILE_B + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}; name a file of text.") from None
    if len(text) > LONGEST_FILE_B:
        raise UsageError(f"{path} is over {LONGEST_FILE_B >> 20} MiB long; it is not sent to hosts.")
    if files.setdefault(name, text) != text:
        raise UsageError(f"two files are called {name}; hosts get one folder of them: rename one.")
    return f"{name}{colon}{function}"


def longest(request: Request) -> float:
    """Return the time in s that a host may take at most, where an engine has to be told: a limit, never a forecast."""
    axes, settings = axes_and_settings(request.options)
    given = parsed(settings)
    if limit := given.get("limit"):
        return START_S + float(limit)
    cases = math.prod(len(values) for values in _texts(axes).values()) * max(1, len(request.targets))
    if not request.files and not request.command:
        cases = len(plans.expand(request.targets, _texts(axes), {}, lambda framework, python: ("cpu", "gpu")).cases)
    budget = float(given.get("budget") or plans.BUDGET_PER_PROCESS_S * (given.get("repeats") or plans.FEWEST_REPEATS))
    return START_S + 2 * cases * (TIMES_BUDGET * budget + EXTRA_S)


# -- runs that did not finish ----------------------------------------------------------------------


def _origin(host: Host) -> str:
    """Return what the store notes as the origin of a host's records: nothing where they were measured here."""
    return "" if host.engine == "local" else OF_FLEET + host.name


def _text(on: str, request: Request) -> str:
    """Return what the store keeps of a run, so that it can be resumed: without secrets."""
    content = json.loads(request.text)
    content["command"] = request.command and masked_words(request.command)
    return json.dumps({"fleet": 1, "on": os.path.abspath(on) if on.endswith(".toml") else on, "request": content})


def _runs(store: Store) -> list[tuple[str, str, str, str]]:
    """Return the unfinished runs on hosts, newest first."""
    return [row for row in store.unfinished_runs() if row[2].startswith(FLEET)]


def _unfinished(store: Store, on: str, wanted: Request | None, trust: bool) -> tuple[str, Request | None]:
    """Return the newest run to go on with, and its request where none was given."""
    from mldyno.fleet import wire
    from mldyno.runner.run import PLAN, busy

    for run, owner, text, proof in _runs(store):
        if wanted is not None and text != _text(on, wanted):
            continue
        content = json.loads(text)
        if wanted is None and content.get("on") != json.loads(_text(on, Request("measure")))["on"]:
            continue
        if busy(owner):
            raise MldynoError("that run is still going on in another process; nothing to resume.")
        if wanted is not None:
            return run, None
        if not keys.is_authentic(proof, PLAN, run, text) and not trust:
            raise UsageError(f"nothing proves that this machine began run {run}; allow it with --trust.")
        request = wire.request(json.dumps({"do": "request", **content["request"]}).encode())
        if any(MASK in word for word in request.command or ()):
            raise MldynoError("its secrets were not kept; give the command again, with --resume.")
        return run, request
    raise MldynoError("no unfinished run to resume on these hosts; omit --resume.")
