"""Nodes of a running Ray cluster, each whole: all its CPUs and GPUs, that node and no other.

Ray is not imported: a program for the interpreter that has it, the bridge, asks for the nodes and carries the pipe.
That interpreter is the one beside the command `ray`, or `options = {python = "..."}` of a hosts file. Nodes run mldyno
by the same path, unless the user names another one.
Ray's workers run at niceness 15, unless a node was started with RAY_worker_niceness=0.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from mldyno.engines import NAME, Engine, Host, names_in
from mldyno.errors import MldynoError, UsageError

BRIDGE = Path(__file__).with_name("_ray_bridge.py")
NODE_ID = re.compile(r"[0-9a-f]{8,128}")


class Ray(Engine):
    """The cluster of this machine, or of a login node: `ray start` has joined it, or RAY_ADDRESS names it."""

    queues: ClassVar[bool] = True

    def hosts(self, wanted: str) -> list[Host]:
        names = names_in(wanted, "ray") if wanted else []
        try:
            hosts = _hosts(self.ask([*self._bridge, "nodes"]).splitlines())
        except MldynoError as error:
            if "No module named 'ray'" not in str(error):
                raise
            where = 'run this on a machine of the cluster, or name an interpreter with options = {python = "..."}'
            raise MldynoError(f"{self._bridge[0]} has no Ray; {where}.") from None
        for name in names:
            if not any(name in (host.name, host.options["ip"]) for host in hosts):
                there = ", ".join(host.name for host in hosts)
                raise UsageError(f"'{name}' is no node of this Ray cluster; it has {there or 'none'}.")
        return [host for host in hosts if not names or {host.name, host.options["ip"]} & set(names)]

    def command(self, host: Host, words: Sequence[str]) -> list[str]:
        return [*self._bridge, "pipe", host.address, *words]

    @cached_property
    def _bridge(self) -> list[str]:
        """The bridge as a text: behind a login node there is no file of ours."""
        return [self.options.get("python") or _ray_here(), "-c", BRIDGE.read_text(encoding="utf-8")]


def _ray_here() -> str:
    """Return the interpreter beside the command `ray`."""
    command = shutil.which("ray")
    beside = Path(command).parent / "python" if command else None
    return str(beside) if beside is not None and beside.exists() else "python3"


def _hosts(lines: Sequence[str]) -> list[Host]:
    """Return the nodes by the names of their machines; where several have one name, with their addresses."""
    try:
        nodes = [{key: str(value) for key, value in json.loads(line).items()} for line in lines if line[:1] == "{"]
        times = Counter(node["name"] for node in nodes)
        hosts = list[Host]()
        for node in nodes:
            name = node["name"] + (f"-{node['address']}" if times[node["name"]] > 1 else "")
            known = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
            if not NAME.fullmatch(known) or not NODE_ID.fullmatch(node["id"]):
                raise ValueError
            hosts.append(Host(known, "ray", node["id"], node["python"], options={"ip": node["address"]}))
    except (ValueError, AttributeError, KeyError):
        raise MldynoError("the bridge to Ray has said nonsense; run it with the Ray of the cluster.") from None
    return sorted(hosts, key=lambda host: host.name)


ENGINE = Ray
