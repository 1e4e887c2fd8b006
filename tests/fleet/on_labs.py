"""Runs on the machines of a lab, by each engine, and what strikes them in the middle."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from bench.labs import ray, slurm
from bench.labs.machines import Lab, Machine, wait_for

from mldyno import api
from mldyno.fleet.conductor import FleetListener, Member, Times
from mldyno.records import Record
from mldyno.results import FleetResults
from mldyno.store import Query, Store

ENGINES = ("ssh", "slurm", "ray", "ssh-slurm")
TIMES = Times(beat=1.0, silent=6.0, start=40.0, again=1.0, busy=2.0, tidy=20.0, linger=3.0, locked=3.0)
GONE_S = 60.0  # until nothing of a run is left on a host
FIRST = 2  # records of a host that is struck, before it is
OURS = ("mldyno.__main__", "mldyno/worker", "json.loads(open(0")  # in the commands of what a run starts on a host
TABLES = {
    "ssh": '[hosts.node1]\nssh = "node1"\n{more}\n[hosts.node2]\nssh = "node2"\n{more}\n',
    "slurm": '[clusters.lab]\nslurm = ""\n{more}\n',
    "ray": '[clusters.lab]\nray = ""\noptions = {{python = "ray-python"}}\n{more}\n',
    "ssh-slurm": '[clusters.lab]\nssh = "login"\nslurm = ""\n{more}\n',
}


class Striking(FleetListener):
    """Strikes as soon as so many records of node1 are here; notes what happens."""

    def __init__(self, strike: Callable[[], object] | None, after: int = FIRST) -> None:
        self.strike, self.left = strike, after
        self.states: dict[str, list[str]] = {}
        self.reasons: dict[str, list[str]] = {}
        self.addresses: dict[str, str] = {}

    def begin(self, members: Sequence[Member]) -> None:
        self.addresses = {member.name: member.host.address for member in members}

    def changed(self, member: Member) -> None:
        states = self.states.setdefault(member.name, [])
        if states[-1:] != [member.state]:
            states.append(member.state)
            self.reasons.setdefault(member.name, []).append(member.reason)

    def kept(self, member: Member, record: Record) -> None:
        if member.name == "node1":
            self.left -= 1
            if self.left == 0 and self.strike is not None:
                self.strike()


@dataclass
class Fleet:
    """A fleet of two nodes, reached by one engine."""

    engine: str
    lab: Lab
    folder: Path
    store: Path
    python: str = sys.executable
    events: Striking = field(default_factory=lambda: Striking(None))

    @property
    def file(self) -> Path:
        """The hosts file."""
        path = self.folder / "lab.toml"
        path.write_text(TABLES[self.engine].format(more=f'python = "{self.python}"'), encoding="utf-8")
        return path

    @property
    def struck(self) -> Machine:
        return self.lab.nodes[0]

    def run(
        self, strike: Callable[[], object] | None = None, repeats: int = 8, resume: bool = False, times: Times = TIMES,
        after: int = FIRST,
    ) -> dict[str, Member]:  # fmt: skip
        """Measure one case of the fake framework in so many processes on both nodes; return how each host ended."""
        self.events = Striking(strike, after)
        self.results: FleetResults = api.run_on(
            str(self.file), "mlp", framework="fake", device="cpu", mode="infer", steps=3, repeats=repeats,
            resume=resume, store=str(self.store), listener=self.events, times=times,
        )  # fmt: skip
        return {member.name: member for member in self.results.hosts}

    def later(self, seconds: float, strike: Callable[[], object]) -> None:
        """Strike after so many s."""
        threading.Timer(seconds, strike).start()

    def records(self) -> dict[str, list[Record]]:
        """The records that are here, by the names of their machines."""
        by_host: dict[str, list[Record]] = {}
        for record in Store(self.store).stream(Query(heads=False)):
            by_host.setdefault(record.machine.name, []).append(record)
        return by_host

    def complete(self, repeats: int = 8) -> bool:
        """Whether all records of both hosts are here, once each."""
        return {name: len(records) for name, records in self.records().items()} == {"node1": repeats, "node2": repeats}

    def remotes(self, machine: Machine) -> list[psutil.Process]:
        """The processes of mldyno on a machine."""
        return [each for each in machine.processes("fleet remote") if "sh" not in each.name()]

    def launchers(self) -> list[psutil.Process]:
        """The local processes that hold the pipes to node1."""
        there, here = [], os.readlink("/proc/self/ns/mnt")
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error, OSError):
                reaches = any(self.events.addresses["node1"] in word for word in process.cmdline())
                if reaches and os.readlink(f"/proc/{process.pid}/ns/mnt") == here:  # else it is of the lab itself
                    there.append(process)
        return there

    def heal(self) -> None:
        """Make all nodes as they were: cables, disks, services."""
        for node in self.lab.nodes:
            self.lab.mend(node.name)
            node.empty_disk()
        if "slurm" in self.engine:
            wait_for(lambda: slurm.idle(self.lab), "all nodes of Slurm idle")
        if self.engine == "ray":
            ray.heal(self.lab)

    def nothing_is_left(self) -> None:
        """Wait until no process of a run is on any node; fail where one stays."""

        def left() -> list[psutil.Process]:
            return [each for node in self.lab.nodes for word in OURS for each in node.processes(word)]

        wait_for(lambda: not left(), "nothing of the run left on the nodes", GONE_S)


def clean(lab: Lab) -> None:
    """Remove what earlier runs have left in the homes of the nodes."""
    for node in lab.nodes:
        node.run("sh", "-c", "rm -rf $HOME/.local $HOME/.cache $HOME/shim /tmp/own")
