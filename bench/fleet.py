"""Figures of a fleet for bench/FLEET.md, on machines that are namespaces of this one.

python -m bench.fleet overhead     a plan on two hosts, and on each alone; and what the fleet's parts take there
python -m bench.fleet engines      one case on one host, by each engine in turn: the same number?
python -m bench.fleet hosts 1000   a conductor of so many hosts, which are scripts: CPU, memory, lost lines

The plan of `overhead` is a command that sleeps: both hosts share the cores of this machine, so a plan that computes
would measure how they share them. `engines` computes, and is alone.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
from bench.labs import ray, slurm, ssh
from bench.labs.machines import Lab, Machine, machines

from mldyno import api
from mldyno.engines import Engine, Host
from mldyno.fleet import wire
from mldyno.fleet.conductor import Conductor, FleetListener, Times
from mldyno.fleet.pipes import Pipes
from mldyno.records import Record, Run, seal
from mldyno.store import Query, Store

SLEEPS, SLEEP_S = 300, "0.2"
PLAN = ("--steps", str(SLEEPS), "--repeats", "1", "--", "sleep", SLEEP_S)
TURNS = 3
CASE = (
    "mnist-mlp",
    "--mode",
    "train",
    "--device",
    "cpu",
    "--placement",
    "device",
    "--threads",
    "1",
    "--budget",
    "4s",
    "--repeats",
    "2",
)
LOOK_S = 0.5
PARTS = {"mldyno.__main__": "mldyno", "-m mldyno": "mldyno", "sshd": "sshd", "slurm": "Slurm", "ray": "Ray"}
HOSTS = """
[hosts.node1]
{node1}
python = "{python}"
[hosts.node2]
{node2}
python = "{python}"
"""
IN_TURN = """
[hosts.{name}]
{engine} = "{wanted}"
python = "{python}"
{more}
"""
# A host that answers as a remote runner does, in 1 MB: it says hello, sends its records one after the other, and ends.
SCRIPT = """
read -r boot; cat {folder}/hello; read -r request
for n in $(seq {records}); do cat {folder}/{host}.$n; sleep {pause}; done
cat {folder}/end
"""


# -- overhead ------------------------------------------------------------------------------------------


class Watch:
    """The CPU time that each part of mldyno and of an engine takes on a machine, in s, while it looks."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.seconds = machine, dict[tuple[int, str], tuple[float, float]]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            for process in self.machine.processes():
                with suppress(psutil.Error):
                    words = " ".join(process.cmdline())
                    part = next((part for word, part in PARTS.items() if word in words), "")
                    used = sum(process.cpu_times()[:2])
                    first = self.seconds.get((process.pid, part), (used if part != "mldyno" else 0.0, 0.0))[0]
                    self.seconds[process.pid, part] = first, used

    def taken(self) -> dict[str, float]:
        """Return the CPU time of each part."""
        parts: dict[str, float] = {}
        for (_, part), (first, last) in self.seconds.items():
            if part:
                parts[part] = parts.get(part, 0.0) + last - first
        return parts


class Marks(FleetListener):
    """When a host was first running, since the start."""

    def __init__(self) -> None:
        self.began, self.running = time.monotonic(), dict[str, float]()

    def changed(self, member: object) -> None:
        name, state = getattr(member, "name", ""), getattr(member, "state", "")
        if state == "running":
            self.running.setdefault(name, time.monotonic() - self.began)


def overhead() -> None:
    """Print the wall time of the plan on two hosts, and on each of them alone, and what the parts take."""
    with lab("ssh", "slurm") as made:
        alone = {}
        for node in made.nodes:
            words = [sys.executable, "-m", "mldyno", "run", *PLAN[:-3], "-q", *PLAN[-3:]]
            began = time.monotonic()
            with Watch(node) as watch:
                node.run(*words, PYTHONPATH="", MLDYNO_STORE=str(node.home / "alone.sqlite"))
            alone[node.name] = time.monotonic() - began
            runner = watch.taken().get("mldyno", 0.0)
            print(f"{node.name} alone: {alone[node.name]:.2f} s; mldyno there {runner:.2f} s of CPU")
        for engine, tables in (("ssh", 'ssh = "{}"'), ("slurm", 'slurm = "{}"')):
            file = made.folder / f"{engine}.toml"
            named = {node.name: tables.format(node.name) for node in made.nodes}
            file.write_text(HOSTS.format(**named, python=sys.executable), encoding="utf-8")
            marks, began, own = Marks(), time.monotonic(), time.process_time()
            with Watch(made.nodes[0]) as watch:
                done = api.run_on(
                    str(file), command=["sleep", SLEEP_S], steps=SLEEPS, repeats=1, listener=marks,
                    store=str(made.folder / f"{engine}.sqlite"),
                )  # fmt: skip
            wall, taken = time.monotonic() - began, watch.taken()
            start = max(marks.running.values())
            cpu = time.process_time() - own
            print(f"{engine}: {wall:.2f} s on both, start-up {start:.2f} s; over the slower alone: "
                  f"{wall / max(alone.values()):.3f}, without start-up {(wall - start) / max(alone.values()):.3f}; "
                  f"{len(done)} records, all ok: {done.all_ok}; conductor {cpu:.2f} s of CPU")  # fmt: skip
            beside = {part: f"{100 * seconds / wall:.2f} %" for part, seconds in taken.items() if part != "mldyno"}
            more = 100 * (taken.get("mldyno", 0.0) - runner) / wall
            print(f"{engine}: on node1, in shares of a core: {beside}; the runner {more:+.2f} % over alone")


# -- engines -------------------------------------------------------------------------------------------


def engines() -> None:
    """Print whether a case has the same speed on one host by each engine."""
    with lab("ssh", "slurm", "ray") as made:
        (made.folder / "here").mkdir()
        store = made.folder / "engines.sqlite"
        for turn in range(TURNS):
            for engine in ("local", "ssh", "slurm", "ray"):
                more = 'options = {python = "ray-python"}' if engine == "ray" else ""
                file = made.folder / f"{engine}.toml"
                file.write_text(
                    IN_TURN.format(name=f"by-{engine}", engine=engine, wanted="" if engine == "local" else "node1",
                                   python=sys.executable, more=more), encoding="utf-8",
                )  # fmt: skip
                began = time.monotonic()
                mldyno("run", *CASE, "--on", str(file), "--store", str(store), "-q", MLDYNO_MACHINE="by-local")
                print(f"turn {turn + 1}, {engine}: {time.monotonic() - began:.1f} s", flush=True)
        print(*compared_with_local(store), sep="\n")


def compared_with_local(store: Path) -> list[str]:
    """Return what mldyno says of each engine against a process here, and how many records are contended."""
    from mldyno.analysis.comparisons import compared
    from mldyno.analysis.outcomes import Outcome
    from mldyno.views.outcomes import show_estimate

    groups: dict[str, list[Record]] = {}
    for record in Store(store).stream(Query(heads=False)):
        groups.setdefault(record.machine.name, []).append(record)
    lines = []
    for name, records in sorted(groups.items()):
        step = Outcome(tuple(records)).figure("step")
        contended = sum(any(each.code == "contended" for each in record.warnings) for record in records)
        shown = "no time" if step is None else show_estimate(step)
        lines.append(f"{name}: {shown}; {contended} of {len(records)} records contended")
        base = Outcome(tuple(groups["by-local"]))
        for each in compared([(base, Outcome(tuple(records)))] if name != "by-local" else []):
            lines.append(f"  speed over by-local: {each.speedup}; {each.verdict}")
    return lines


def mldyno(*words: str, **environment: str) -> str:
    """Run a command; return what it prints."""
    command = [sys.executable, "-m", "mldyno", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    return done.stdout + done.stderr


@contextmanager
def lab(*services: str) -> Iterator[Lab]:
    """A lab with services, whose programs come first in PATH."""
    starts = {"ssh": ssh.start, "slurm": slurm.start, "ray": ray.start}
    with machines() as made:
        for service in services:
            starts[service](made)
        os.environ["PATH"] = f"{made.programs}:{os.environ['PATH']}"
        os.environ["HOME"] = str(made.home)
        yield made


# -- many hosts ----------------------------------------------------------------------------------------


class Scripts(Engine):
    """Hosts that are scripts in a folder."""

    def hosts(self, wanted: str) -> list[Host]:
        return [Host(f"host{number}", "ssh", "") for number in range(int(wanted))]

    def command(self, host: Host, words: Sequence[str]) -> list[str]:
        return ["sh", self.options["folder"] + f"/{host.name}.sh"]


class Usage(FleetListener):
    """The CPU time and memory of a conductor, and the time at which all hosts ran."""

    def __init__(self, hosts: int) -> None:
        self.hosts, self.began, self.all_run = hosts, time.monotonic(), 0.0
        self.running: set[str] = set()

    def changed(self, member: object) -> None:
        if getattr(member, "state", "") == "running":
            self.running.add(getattr(member, "name", ""))
            if len(self.running) == self.hosts and not self.all_run:
                self.all_run = time.monotonic() - self.began


def hosts(count: int, records: int = 10, pause: str = "3") -> None:
    """Print what a conductor of so many hosts takes, and how many lines it has lost."""
    run = "20260101T000000-abcdef"
    with tempfile.TemporaryDirectory(prefix="mldyno-fleet-") as name:
        folder = Path(name)
        (outcome,) = api.run("mlp", framework="fake", repeats=1, mode="infer", store=str(folder / "one.sqlite"))
        texts = written(folder, outcome.records[0], run, count, records, pause)
        store = Store(folder / "kept.sqlite")
        engine = Scripts(run, options={"folder": str(folder)})
        members = [(host, engine) for host in engine.hosts(str(count))]

        def keep(kept: Sequence[tuple[Host, Record]]) -> None:
            store.append([record for _, record in kept])

        def known(host: Host) -> Mapping[str, Sequence[str]]:
            return {run: []}

        usage, pipes = Usage(count), Pipes(count)
        before = resource.getrusage(resource.RUSAGE_SELF)
        request = wire.Request("measure", run, targets=("mlp",))
        ended = Conductor(members, request, pipes, known, keep, usage, Times()).run()
        wall = time.monotonic() - usage.began
        after = resource.getrusage(resource.RUSAGE_SELF)
        pipes.end()
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        kept = {record.id for record in store.stream(Query(heads=False))}
        print(f"{count} hosts, {records} records each, one in {pause} s: {wall:.1f} s; all ran after "
              f"{usage.all_run:.1f} s; done: {sum(each.state == 'done' for each in ended)}; conductor {cpu:.1f} s of "
              f"CPU ({100 * cpu / wall:.0f} % of a core), {after.ru_maxrss >> 10} MiB at most; "
              f"{len(texts)} records sent, {len(texts - kept)} lost")  # fmt: skip


def written(folder: Path, first: Record, run: str, count: int, records: int, pause: str) -> set[str]:
    """Write what each host says; return the ids of all records."""
    import mldyno

    hello = wire.Hello(wire.VERSION, mldyno.__version__, "3.11.2", 42)
    (folder / "hello").write_bytes(wire.line_of(hello))
    (folder / "end").write_bytes(wire.line_of(wire.End("done")))
    ids = set()
    for number in range(count):
        script = SCRIPT.format(folder=folder, host=f"host{number}", records=records, pause=pause)
        (folder / f"host{number}.sh").write_text(script, encoding="utf-8")
        for process in range(1, records + 1):
            record = seal(replace(first, run=Run(run, process=number * records + process)))
            ids.add(record.id)
            (folder / f"host{number}.{process}").write_bytes(wire.line_of(wire.Measured(record.text)))
    return ids


def main() -> None:
    """Print one of the figures."""
    match sys.argv[1:]:
        case ["overhead"]:
            overhead()
        case ["engines"]:
            engines()
        case ["hosts", count]:
            hosts(int(count))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
