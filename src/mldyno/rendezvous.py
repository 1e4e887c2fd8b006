"""Where the nodes of a job meet: an address, a token that says who may join, and the interface that leads there.

Rule: standard library only; a worker's launcher reads this from its environment.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mldyno.errors import UsageError

RANKED, LEADS = "MLDYNO_RANKED", "MLDYNO_LEADS"  # the framework of ranks; whether a command waits for their answers
JOB = "MLDYNO_JOB"  # by which all processes of a job are found
FAILED, DONE = "mldyno-rank-failed ", "mldyno-rank-done"  # on standard error: a launcher passes on a code only
ADDRESS, TOKEN, HOSTS = "MLDYNO_RENDEZVOUS", "MLDYNO_RENDEZVOUS_TOKEN", "MLDYNO_RENDEZVOUS_HOSTS"
INTERFACE = "GLOO_SOCKET_IFNAME"  # gloo's own
USUAL = "127.0.0.1:29400"  # the loopback: nobody else can reach it unless an address is named
_WRITTEN = re.compile(r"(?P<host>[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
# What torchrun says of a rank that has ended: at once in its log, where ranks are numbered on their machine, and at
# its own end in a summary.
_LOGGED = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+)")
_SUMMARY = re.compile(r"rank\s*: (?P<rank>\d+) \(local_rank: \d+\)\s+exitcode\s*: (?P<code>-?\d+)")
_TOKEN = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True)
class Rendezvous:
    """The address on the first node, the token of the job, and whether this is the first node."""

    host: str
    port: int
    token: str
    first: bool

    @property
    def address(self) -> str:
        """As it is written."""
        return f"{self.host}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What hands it on to a process that is started."""
        return {ADDRESS: self.address, TOKEN: self.token, HOSTS: "1" if self.first else "0"}


def read(address: str, token: str | None = None) -> Rendezvous:
    """From what a user has written; without a token it is the first node, which makes one up."""
    match = _WRITTEN.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise UsageError(f"'{address[:60]}' is no address; write the first node's, such as 10.0.0.1:29400.")
    if token is not None and not _TOKEN.fullmatch(token):
        raise UsageError(f"'{token[:60]}' is no token; take the one that `mldyno run --nodes` shows.")
    return Rendezvous(match["host"], int(match["port"]), token or secrets.token_hex(8), token is None)


def from_environment(environ: Mapping[str, str] | None = None) -> Rendezvous | None:
    """The one that was handed on; None where there is none."""
    given = os.environ if environ is None else environ
    if ADDRESS not in given:
        return None
    host, _, port = given[ADDRESS].rpartition(":")
    return Rendezvous(host, int(port), given.get(TOKEN, ""), given.get(HOSTS) == "1")


def leads(environ: Mapping[str, str]) -> bool:
    """Whether a rank is the one that speaks with a command, by its environment."""
    return environ.get(LEADS) == "1" and environ.get("LOCAL_RANK", "0") == "0"


def failure_line(rank: str, status: str, reason: str) -> str:
    """What a rank says of its end."""
    return f"\n{FAILED}{json.dumps([rank, status, reason])}\n"


@dataclass(frozen=True)
class RankFailure:
    """Which rank failed: by a signal, or with a status and a reason."""

    rank: str
    signal: int | None = None
    status: str = "failed"
    reason: str = ""


def failure_in(lines: Sequence[str]) -> RankFailure | None:
    """Which rank failed first, from what ranks and their launcher said; a signal comes before what others saw of it."""
    text = "\n".join(lines)
    ends = [*_SUMMARY.finditer(text), *_LOGGED.finditer(text)]
    first = next((end for end in ends if int(end["code"]) != -signal.SIGTERM), None)  # by which the others are ended
    if first is not None and int(first["code"]) < 0:
        return RankFailure(first["rank"], signal=-int(first["code"]))
    failures = []
    for line in lines:
        _, mark, words = line.partition(FAILED)
        with suppress(ValueError):
            if mark:
                rank, status, reason = map(str, json.loads(words))
                failures.append(RankFailure(rank, None, status, reason))
    of_first = [failure for failure in failures if first is not None and failure.rank == first["rank"]]
    return next(iter(of_first or failures), None)


def own_address(meeting: Rendezvous) -> str:
    """This node's address on the way to the first one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((meeting.host, meeting.port))  # sends nothing
        except OSError as error:
            raise UsageError(f"no way to {meeting.host}: {error.strerror or error}; name an address of it.") from None
        return str(probe.getsockname()[0])
