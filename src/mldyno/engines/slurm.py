"""Nodes of a Slurm cluster by `srun`, each as a job that has the whole node.

Asked for without a number of CPUs, an exclusive task gets one core of its node; without a time limit, an allocation
outlives an `srun` that was killed; with the caller's environment, the caller's threads are measured. So all three are
always said. GPUs are asked for as `sinfo` counts them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mldyno.engines import NAME, Engine, Host, names_in
from mldyno.errors import MldynoError, UsageError

WANTED = re.compile(rf"{NAME.pattern}|[A-Za-z0-9_.-]*\[[0-9]{{1,6}}-[0-9]{{1,6}}\]")  # also node[1-16]
ASKED = "%N|%P|%c|%G|%t|%l"  # node, partition with * if it is the default, CPUs, GPUs, state, time limit
UNUSABLE = {"drain": "drained", "drng": "draining", "down": "down", "fail": "failing", "failg": "failing",
            "maint": "in maintenance", "boot": "booting", "unk": "in an unknown state"}  # fmt: skip
SILENT = "*#$@^~!%-"  # marks after a state; * is for a node that does not answer
GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:([0-9]+)")
LIMIT = re.compile(r"(?:(?P<days>[0-9]+)-)?(?:(?P<hours>[0-9]+):)?(?P<minutes>[0-9]+):[0-9]+")
ENDED = re.compile(r"srun: (?:error: \S+: tasks? [0-9,-]+: |job [0-9]+ |Job step |Terminating |Force Term|launch/)")
EXPORTED = "HOME,PATH,USER,LOGNAME"  # of the caller's environment, no more
OPTIONS = {"account", "constraint", "qos", "reservation"}  # of srun, that a hosts file may give
UNKNOWN_S = 4 * 3600.0  # that a run may take, if nothing is known of it


@dataclass(frozen=True)
class Node:
    """A node as a member of one partition."""

    name: str
    partition: str
    usual: bool  # whether that is the default partition
    cpus: str
    gpus: str
    state: str
    limit: float  # minutes of a job

    @property
    def host(self) -> Host:
        options = {"partition": self.partition, "cpus": self.cpus, "gpus": self.gpus, "state": self.state}
        return Host(self.name, "slurm", self.name, options=options | {"minutes": f"{self.limit}"})


class Slurm(Engine):
    """One job for each node, at most for as long as the run is expected to take."""

    queues: ClassVar[bool] = True

    def hosts(self, wanted: str) -> list[Host]:
        names = names_in(wanted, "slurm", WANTED) if wanted else []
        nodes = [
            _node(line) for line in self.ask(["sinfo", "-h", "-N", "-o", ASKED]).splitlines() if line.count("|") == 5
        ]
        hosts = dict[str, Host]()
        for name in names or [""]:
            for node in self._meant(name, nodes):
                hosts.setdefault(node.name, node.host)
        return list(hosts.values())

    def _meant(self, name: str, nodes: list[Node]) -> list[Node]:
        """Return the nodes of a partition or of that name, each in the partition in which it is to run."""
        if any(node.partition == name for node in nodes):
            return [node for node in nodes if node.partition == name]
        within = sorted(nodes, key=lambda node: not node.usual)
        if not name:
            return within
        named = self.ask(["scontrol", "show", "hostnames", name]).split() if "[" in name else [name]
        meant = [node for node in within if node.name in named]
        if missing := next((each for each in named if each not in {node.name for node in meant}), None):
            partitions = ", ".join(dict.fromkeys(node.partition for node in nodes))
            raise UsageError(f"'{missing}' is no node and no partition of this cluster; it has {partitions or 'none'}.")
        return meant

    def command(self, host: Host, words: Sequence[str]) -> list[str]:
        own = host.options
        if why := UNUSABLE.get(own.get("state", "")):
            raise MldynoError(f"Slurm has {host.address} {why}; `sinfo -R` says why.")
        if unknown := set(own) - {"partition", "cpus", "gpus", "state", "minutes"} - OPTIONS:
            raise UsageError(f"slurm has no option '{min(unknown)}'; it has {', '.join(sorted(OPTIONS))}.")
        seconds = UNKNOWN_S if self.seconds is None else self.seconds
        minutes = math.ceil(min(seconds / 60, float(own.get("minutes", "inf"))))
        whole = ["-N1", "-n1", "--exclusive", f"--cpus-per-task={own.get('cpus', '1')}", "--mem=0"]
        gpus = [f"--gpus-per-node={own['gpus']}"] if own.get("gpus", "0") != "0" else []
        asked = [f"--{name}={own[name]}" for name in sorted({"partition", *OPTIONS} & set(own))]
        return ["srun", f"--nodelist={host.address}", *whole, *gpus, *asked, f"--time={minutes}", "--mpi=none",
                f"--job-name={self._job(host)}", f"--export={EXPORTED}", "--chdir=/tmp", "--", *words]  # fmt: skip

    def clear(self, host: Host) -> None:
        try:
            self.ask(["scancel", f"--name={self._job(host)}"])
        except MldynoError:
            return

    def why(self, lines: Sequence[str]) -> str:
        """Return the last line that says more than that a task has ended, if there is any."""
        return super().why([line for line in lines if not ENDED.match(line)]) or super().why(lines)

    def _job(self, host: Host) -> str:
        """Return the name of a job, for one host of one run: jobs that wait are on no node yet."""
        return f"mldyno-{self.run}-{host.address}"


def _node(line: str) -> Node:
    name, partition, cpus, gres, state, limit = line.split("|")
    gpus = sum(int(number) for number in GPUS.findall(gres))
    known = "down" if "*" in state else state.rstrip(SILENT)
    return Node(name, partition.rstrip("*"), partition.endswith("*"), cpus, f"{gpus}", known, _minutes(limit))


def _minutes(limit: str) -> float:
    """Return a partition's limit, such as 2-00:00:00 or 30:00, in minutes."""
    match = LIMIT.fullmatch(limit)
    if match is None:
        return math.inf
    days, hours, minutes = (int(match[part] or 0) for part in ("days", "hours", "minutes"))
    return (days * 24 + hours) * 60 + minutes


ENGINE = Slurm
