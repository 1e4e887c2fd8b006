"""Where the nodes of a job meet: an address, a token that says who may join, and the interface that leads there.

The first node listens at its address until all nodes are there. Host and guest each prove to the other that they have
the token, by an HMAC over random numbers of both; what is received before that is compared, and nothing else. Rule:
standard library only; a worker's launcher reads this from its environment.
"""

from __future__ import annotations

import hmac
import json
import os
import queue
import re
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mldyno.errors import MldynoError, UsageError

RANKED = "MLDYNO_RANKED"  # the framework of ranks
JOB = "MLDYNO_JOB"  # by which all processes of a job are found
NODE, STORE = "MLDYNO_NODE", "MLDYNO_RANK_STORE"  # a node's number; the address of the store of its ranks
STORE_SOCKET = "MLDYNO_RANK_STORE_SOCKET"  # the descriptor of its listening socket, where the first rank has it
# On standard error: a rank that fails says why, the launcher says how one has ended.
FAILED, ENDED, RANK_DONE = "mldyno-rank-failed ", "mldyno-rank-ended ", "mldyno-rank-done"
ADDRESS, TOKEN, HOSTS = "MLDYNO_RENDEZVOUS", "MLDYNO_RENDEZVOUS_TOKEN", "MLDYNO_RENDEZVOUS_HOSTS"
INTERFACE = "GLOO_SOCKET_IFNAME"  # of gloo
USUAL = "127.0.0.1:29400"  # the loopback: no other machine can reach it unless an address is named
_WRITTEN = re.compile(r"(?P<host>[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_TOKEN = re.compile(r"[0-9a-f]{8,64}")
LOOPBACK_ADDRESS = "127.0.0.1"
HELLO_S = 10.0  # within which a guest must prove itself
LOOK_EVERY_S = 0.2
LONGEST_LINE = 512  # B of a line that are read
REFUSED = "refused"


@dataclass(frozen=True)
class Rendezvous:
    """The address on the first node, the token of the job, and whether this is the first node."""

    host: str
    port: int
    token: str
    first: bool

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def proof(self, role: str, exchanged: str) -> str:
        """Return the proof that a host or a guest has the token, over the words that they exchanged."""
        return hmac.new(self.token.encode(), f"mldyno {role} {exchanged}".encode(), "sha256").hexdigest()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that hand it on to a process."""
        return {ADDRESS: self.address, TOKEN: self.token, HOSTS: "1" if self.first else "0"}


def read(address: str, token: str | None = None) -> Rendezvous:
    """Parse what a user has typed; without a token it is the first node, which makes one."""
    match = _WRITTEN.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise UsageError(f"'{address[:60]}' is no address; write the first node's, such as 10.0.0.1:29400.")
    if token is not None and not _TOKEN.fullmatch(token):
        raise UsageError(f"'{token[:60]}' is no token; take the one that `mldyno run --nodes` shows.")
    return Rendezvous(match["host"], int(match["port"]), token or secrets.token_hex(8), token is None)


def from_environment(environ: Mapping[str, str] | None = None) -> Rendezvous | None:
    """Return the rendezvous that was handed on; None where there is none."""
    given = os.environ if environ is None else environ
    if ADDRESS not in given:
        return None
    host, _, port = given[ADDRESS].rpartition(":")
    return Rendezvous(host, int(port), given.get(TOKEN, ""), given.get(HOSTS) == "1")


def failure_line(rank: str, status: str, reason: str) -> str:
    """Return the line with which a rank reports its failure."""
    return f"\n{FAILED}{json.dumps([rank, status, reason])}\n"


def end_line(rank: int, code: int) -> str:
    """Return the line by which a launcher reports the first rank that failed; negative codes are signals."""
    return f"\n{ENDED}{json.dumps([rank, code])}\n"


@dataclass(frozen=True)
class RankFailure:
    """Which rank failed: by a signal, or with a status and a reason."""

    rank: str
    signal: int | None = None
    status: str = "failed"
    reason: str = ""


def failure_in(lines: Sequence[str]) -> RankFailure | None:
    """Return which rank failed first, from the lines of ranks and launcher; a signal counts before its consequences."""
    failures, ended = [], None
    for line in lines:
        _, failed, why = line.partition(FAILED)
        _, by_launcher, how = line.partition(ENDED)
        with suppress(ValueError, TypeError):
            if failed:
                rank, status, reason = map(str, json.loads(why))
                failures.append(RankFailure(rank, None, status, reason))
            elif by_launcher:
                number, code = map(int, json.loads(how))
                words = "" if code < 0 else f"it ended early with exit code {code}"
                ended = RankFailure(str(number), -code if code < 0 else None, reason=words)
    if ended is not None and ended.signal is None:
        ended = next((failure for failure in failures if failure.rank == ended.rank), ended)
    return ended or next(iter(failures), None)


# -- nodes meet ------------------------------------------------------------------------------------


class Refused(MldynoError):
    """The first node does not let this one join."""


def listen_at(meeting: Rendezvous) -> socket.socket:
    """Return a socket that listens at that address, and at no other."""
    try:
        return socket.create_server((meeting.host, meeting.port))
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"can't listen at {meeting.address}: {why}; name an address of this machine.") from None


def receive(meeting: Rendezvous, ranks: int, nodes: int, store_port: int) -> None:
    """On the first node: wait until all nodes have proven that they have the token; send each its number and the port.

    Each connection has a thread, so that a silent one holds up no other.
    """
    guests: queue.Queue[tuple[socket.socket, str]] = queue.Queue()

    def welcome(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.settimeout(HELLO_S)
            own_nonce = secrets.token_hex(16)
            connection.sendall(f"{own_nonce}\n".encode())
            nonce, shape, proof = _words(connection, 3)
            exchanged = f"{own_nonce} {nonce} {shape}"
            if not hmac.compare_digest(proof.encode(), meeting.proof("guest", exchanged).encode()):
                connection.sendall(f"{REFUSED} token\n".encode())
            elif shape != f"{ranks}/{nodes}":
                connection.sendall(f"{REFUSED} {ranks}/{nodes}\n".encode())
            else:
                guests.put((connection, exchanged))
                return
        connection.close()

    present: list[tuple[socket.socket, str]] = []
    with listen_at(meeting) as listening:
        listening.settimeout(LOOK_EVERY_S)
        while len(present) < nodes - 1:
            with suppress(OSError):  # no connection in time, or too many of them
                threading.Thread(target=welcome, args=(listening.accept()[0],), daemon=True).start()
            present = [guest for guest in present if not _has_left(guest[0])]
            while not guests.empty():
                present.append(guests.get())
    for number, (connection, exchanged) in enumerate(present[: nodes - 1], 1):
        place = f"{number} {store_port}"
        with connection:
            connection.sendall(f"{place} {meeting.proof('host', f'{exchanged} {place}')}\n".encode())


def enter(meeting: Rendezvous, ranks: int, nodes: int, wait: float) -> dict[str, str] | None:
    """On another node: prove the token, wait until all are there, and return the environment of its ranks' launcher.

    None where no node listens, or not all come within `wait` s. Raises Refused where the first node refuses this one.
    """
    try:
        with socket.create_connection((meeting.host, meeting.port), timeout=min(HELLO_S, wait)) as connection:
            (nonce,) = _words(connection, 1)
            own_nonce, shape = secrets.token_hex(16), f"{ranks}/{nodes}"
            exchanged = f"{nonce} {own_nonce} {shape}"
            connection.sendall(f"{own_nonce} {shape} {meeting.proof('guest', exchanged)}\n".encode())
            connection.settimeout(wait)
            answer = _words(connection, None)
    except OSError:
        return None
    if answer == [REFUSED, "token"]:
        raise Refused(f"{meeting.address} refuses this token; take the one that `mldyno run --nodes` shows there.")
    if answer[:1] == [REFUSED]:
        raise Refused(f"{meeting.address} runs other --ranks/--nodes than {shape}; take the line that it shows.")
    proof = meeting.proof("host", f"{exchanged} {' '.join(answer[:2])}")
    if len(answer) != 3 or not hmac.compare_digest(answer[2].encode(), proof.encode()):
        raise Refused(f"what answers at {meeting.address} does not have this token; name the first node's address.")
    return {NODE: answer[0], STORE: f"{meeting.host}:{answer[1]}"}


def _has_left(connection: socket.socket) -> bool:
    """Return whether a waiting guest is gone; it never sends more."""
    connection.setblocking(False)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(HELLO_S)


def _words(connection: socket.socket, count: int | None) -> list[str]:
    """Return the words of the next line; raise OSError where it is no line with `count` words."""
    line = b""
    while not line.endswith(b"\n"):
        part = connection.recv(1)
        if not part or len(line) > LONGEST_LINE:
            raise ConnectionError("no whole line")
        line += part
    words = line.decode("ascii", "replace").split()
    if count is not None and len(words) != count:
        raise ConnectionError("not the expected words")
    return words


def own_address(meeting: Rendezvous) -> str:
    """Return this node's address on the way to the first one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((meeting.host, meeting.port))  # sends nothing
        except OSError as error:
            raise UsageError(f"no way to {meeting.host}: {error.strerror or error}; name an address of it.") from None
        return str(probe.getsockname()[0])
