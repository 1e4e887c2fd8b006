"""The program that reaches the nodes of a Ray cluster; run by an interpreter that has Ray, never imported by mldyno.

nodes              print each node as a line of JSON
pipe ID WORDS...   be the standard input and output of a process on that node, which has all its CPUs and GPUs

Ray's workers have a signal mask, an environment and a niceness of their own; the process gets none of them, as far as
the system permits. Nothing is tried twice: a node that fails has failed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

CHUNK_B = 1 << 16
UNREACHED = 255  # exit code, as ssh's
DROPPED = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PYTHONUNBUFFERED")  # that Ray sets; and all that begins with RAY_


class Pipe:
    """On the node: the process, fed and read piece by piece."""

    process: subprocess.Popen[bytes]

    def begin(self, words: list[str]) -> str:
        """Start the process; return why it can't be."""
        kept = {name: value for name, value in os.environ.items() if name not in DROPPED and name[:4] != "RAY_"}
        niceness = os.getpriority(os.PRIO_PROCESS, 0)
        if niceness > 0 and os.geteuid() == 0:  # nobody else may; it is a fact of every record
            words = ["nice", "-n", str(-niceness), *words]
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the process inherits it from this thread
        try:
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, env=kept,
                cwd="/tmp", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        return ""

    async def feed(self, data: bytes) -> None:
        """Pass bytes on; none for the end."""
        assert self.process.stdin is not None
        with suppress(OSError, ValueError):  # it has ended, or has closed its input
            if data:
                await self._apart(self.process.stdin.write, data)
            else:
                self.process.stdin.close()

    async def read(self, stream: str) -> bytes:
        """Return what comes next; nothing at the end."""
        return cast(bytes, await self._apart(os.read, getattr(self.process, stream).fileno(), CHUNK_B))

    async def wait(self) -> int:
        """Return the exit code."""
        return cast(int, await self._apart(self.process.wait))

    async def _apart(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)


def nodes(ray: Any, out: int) -> int:
    """Print the nodes that can run something."""
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU"):
            facts = {
                "id": node["NodeID"], "name": node["NodeManagerHostname"], "address": node["NodeManagerAddress"],
                "python": sys.executable,
            }  # fmt: skip
            os.write(out, json.dumps(facts).encode() + b"\n")
    return 0


def pipe(ray: Any, out: int, err: int, where: str, words: list[str]) -> int:
    """Connect our input and output to a process on a node; return its exit code."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = next((node for node in ray.nodes() if node["Alive"] and node["NodeID"] == where), None)
    if node is None:
        return failed(err, f"the node {where[:12]} is gone")
    whole = {"num_cpus": node["Resources"].get("CPU", 0), "num_gpus": node["Resources"].get("GPU", 0)}
    once = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": 8}
    there_only = NodeAffinitySchedulingStrategy(where, soft=False)
    there = ray.remote(Pipe).options(**whole, **once, scheduling_strategy=there_only).remote()

    def feed() -> None:
        data = b"any"
        with suppress(Exception):  # the main thread says what happened
            while data:
                data = os.read(0, CHUNK_B)
                ray.get(there.feed.remote(data))

    def copy(stream: str, to: int) -> None:
        while data := ray.get(there.read.remote(stream)):
            while data:
                data = data[os.write(to, data) :]

    def copy_errors() -> None:
        with suppress(Exception):
            copy("stderr", err)

    errors = threading.Thread(target=copy_errors, daemon=True)
    try:
        if why := ray.get(there.begin.remote(words)):
            return failed(err, why)
        errors.start()
        threading.Thread(target=feed, daemon=True).start()
        copy("stdout", out)
        code = cast(int, ray.get(there.wait.remote()))
        errors.join(5)
    except ray.exceptions.RayError as error:
        return failed(err, f"{type(error).__name__}: {error}")
    return code if code >= 0 else 128 - code


def failed(err: int, why: str) -> int:
    """Say in one line why there is no pipe."""
    os.write(err, f"ray: {why.strip().splitlines()[0]}\n".encode())
    return UNREACHED


def main() -> int:
    """Do what the arguments ask for; what Ray itself prints, such as its logs, goes nowhere."""
    out, err, silent = os.dup(1), os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    try:
        import ray

        ray.init(address="auto", log_to_driver=False, logging_level="CRITICAL", configure_logging=False)
    except Exception as error:
        return failed(err, f"{type(error).__name__}: {error}")
    purpose, *rest = sys.argv[1:]
    return nodes(ray, out) if purpose == "nodes" else pipe(ray, out, err, rest[0], rest[1:])


if __name__ == "__main__":
    os._exit(main())  # a node that is lost can't hold it up
