"""The ports of a job of ranks: where it listens, and what a stranger who connects to them can do."""

from __future__ import annotations

import base64
import ctypes
import ipaddress
import os
import pickle
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from bench.networks import Node
from tests.faults.conftest import wait_for
from tests.faults.test_nodes import LONGEST_S, first, has_the_facts_of_both, joined, record
from tests.faults.test_rank_faults import RUN

if TYPE_CHECKING:
    from tests.faults.conftest import Dyno

pytestmark = pytest.mark.timeout(600)
Address = tuple[str, int]
ESTABLISHED, LISTENS = "01", "0A"  # states in /proc/net/tcp
# Read by Python when it starts, be it a rank or what ranks are forked from: a rank that unpickles what it received
# fails.
NO_OBJECTS = """
import os, sys
if "RANK" in os.environ or any("warm_workers" in word for word in sys.orig_argv):
    import torch.distributed.distributed_c10d as c10d
    def refuse(*given):
        raise RuntimeError("an object was unpickled")
    c10d._unpickler = refuse
"""


class Payload:
    """Creates a file where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.file),)


def sockets(processes: Iterable[psutil.Process]) -> tuple[set[Address], int]:
    """Addresses at which these processes listen, each in its own network, and how many connections they have."""
    addresses, established = set[Address](), 0
    for process in processes:
        with suppress(OSError):
            folder = Path(f"/proc/{process.pid}")
            own = {os.readlink(link) for link in (folder / "fd").iterdir()}
            for table in ("tcp", "tcp6"):
                for line in (folder / "net" / table).read_text().splitlines()[1:]:
                    words = line.split()
                    if f"socket:[{words[9]}]" in own:
                        established += words[3] == ESTABLISHED
                        addresses |= {address_of(words[1])} if words[3] == LISTENS else set()
    return addresses, established


def address_of(text: str) -> Address:
    """An address as the kernel writes it: words of 32 bits, each with its first byte last."""
    host, _, port = text.partition(":")
    packed = b"".join(bytes.fromhex(host[place : place + 8])[::-1] for place in range(0, len(host), 8))
    return str(ipaddress.ip_address(packed)), int(port, 16)


def at_work(dyno: Dyno, connections: int) -> set[Address]:
    """All addresses at which the job listened until its ranks had so many connections."""
    every = set[Address]()

    def connected() -> bool:
        addresses, established = sockets(dyno.living())
        every.update(addresses)
        return established >= connections and bool(addresses)

    wait_for(connected, LONGEST_S, f"{connections} connections between ranks")
    return every


def enter(node: Node) -> None:
    """Let this thread be on that node."""
    with open(f"/run/netns/{node.namespace}", "rb") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0):
            raise OSError(ctypes.get_errno(), "no way into that namespace")


def attack(addresses: Iterable[Address], file: Path, begin: Callable[[], None] = lambda: None) -> None:
    """Send a pickle to each port: as it is, and as values of the keys of PyTorch's store, which one of them is.

    Each has a thread, which calls `begin` first: a port of gloo answers nothing to a client of the store until its job
    ends.
    """
    from torch.distributed import TCPStore

    payload, stores = pickle.dumps(Payload(file)), list[Address]()

    def fill(address: Address) -> None:
        begin()
        with suppress(OSError), socket.create_connection(address, timeout=5.0) as connection:
            connection.sendall(payload)
        with suppress(RuntimeError):
            store = TCPStore(*address, is_master=False, timeout=timedelta(seconds=1), wait_for_workers=False)
            for key in ("torch.rendezvous.none", "none", "torchelastic/role_info/0", "default_pg/0//0//0"):
                store.set(key, base64.b64encode(payload))
            stores.append(address)

    for address in addresses:
        threading.Thread(target=fill, args=(address,), daemon=True).start()
    wait_for(lambda: bool(stores), LONGEST_S, "a store that takes values from anybody")


def test_on_one_machine_ranks_listen_on_the_loopback_only_and_unpickle_nothing(dyno: Dyno, tmp_path: Path) -> None:
    process = dyno.start(*RUN)
    addresses = at_work(dyno, connections=4)
    assert {host for host, _ in addresses} == {"127.0.0.1"}
    assert not {host for host, _ in sockets(dyno.living())[0]} - {"127.0.0.1"}
    attack(addresses, tmp_path / "unpickled")
    assert process.poll() is None, "it was at work all the time"
    dyno.finish(process)
    assert len(dyno.records()) == 1
    assert not (tmp_path / "unpickled").exists()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where Python finds what it reads when it starts."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "sitecustomize.py").write_text(NO_OBJECTS, encoding="utf-8")
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_ranks_pass_no_objects_to_each_other(dyno: Dyno, path: str, parallel: str) -> None:
    done = dyno.quickly("run", "bert-tiny", "--mode", "train", "--ranks", "2", "--parallel", parallel, "--batch", "2",
                        "--seq", "8", "--repeats", "1", "--budget", "0.3s", PYTHONPATH=path)  # fmt: skip
    assert done.code == 0, done.lines


def test_between_nodes_only_the_named_address_listens_and_a_stranger_runs_nothing(
    dyno: Dyno, tmp_path: Path, nodes: tuple[Node, Node]
) -> None:
    """The first node has the higher address here; in the other tests of nodes it has the lower one."""
    other_node, first_node = nodes
    process, words = first(dyno, first_node, "--budget", "2s")
    assert sockets(dyno.living())[0] == {(first_node.address, int(words[1].rpartition(":")[2]))}
    other = joined(dyno, other_node, words)
    addresses = at_work(dyno, connections=4)
    assert {host for host, _ in addresses} == {node.address for node in nodes}
    attack(addresses, tmp_path / "unpickled", lambda: enter(other_node))
    assert process.poll() is None, "they were at work all the time"
    process.communicate(timeout=LONGEST_S)
    said = other.communicate(timeout=LONGEST_S)[1]
    assert not (tmp_path / "unpickled").exists()
    has_the_facts_of_both(record(dyno), said)
