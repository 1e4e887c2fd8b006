"""The ports of a job of ranks: where it listens, and what a stranger who connects to them can do."""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from bench.networks import two_nodes
from tests.faults.conftest import wait_for
from tests.faults.test_nodes import LONGEST_S, first, joined
from tests.faults.test_rank_faults import RUN

if TYPE_CHECKING:
    from tests.faults.conftest import Dyno

pytestmark = pytest.mark.timeout(600)
Address = tuple[str, int]
ESTABLISHED, LISTENS = "01", "0A"  # states in /proc/net/tcp
# Read by Python when it starts: a rank that unpickles what came over a connection fails.
NO_OBJECTS = """
import os
if "RANK" in os.environ:
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


def attack(addresses: Iterable[Address], file: Path) -> None:
    """Send a pickle to each port: as it is, and as values of the keys of PyTorch's store, if it is one."""
    from torch.distributed import TCPStore

    payload = pickle.dumps(Payload(file))
    for address in addresses:
        with suppress(OSError), socket.create_connection(address, timeout=5.0) as connection:
            connection.sendall(payload)
        with suppress(RuntimeError):
            store = TCPStore(*address, is_master=False, timeout=timedelta(seconds=1), wait_for_workers=False)
            for key in ("torch.rendezvous.none", "none", "torchelastic/role_info/0", "default_pg/0//0//0"):
                store.set(key, base64.b64encode(payload))


def test_on_one_machine_ranks_listen_on_the_loopback_only_and_unpickle_nothing(dyno: Dyno, tmp_path: Path) -> None:
    process = dyno.start(*RUN, "--budget", "10s")
    addresses = at_work(dyno, connections=4)
    assert {host for host, _ in addresses} == {"127.0.0.1"}
    assert not {host for host, _ in sockets(dyno.living())[0]} - {"127.0.0.1"}
    attack(addresses, tmp_path / "unpickled")
    dyno.finish(process)
    assert len(dyno.records()) == 1
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_ranks_pass_no_objects_to_each_other(dyno: Dyno, tmp_path: Path, parallel: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_OBJECTS, encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    done = dyno("run", "bert-tiny", "--mode", "train", "--ranks", "2", "--parallel", parallel, "--batch", "2", "--seq",
                "8", "--repeats", "1", "--budget", "1s", PYTHONPATH=path)  # fmt: skip
    assert done.code == 0, done.lines


def test_between_nodes_only_the_named_address_listens_and_a_stranger_runs_nothing(dyno: Dyno, tmp_path: Path) -> None:
    with two_nodes() as nodes:
        process, words = first(dyno, nodes[0], "--budget", "10s")
        wait_for(lambda: bool(sockets(dyno.living())[0]), LONGEST_S, "a first node that listens")
        assert sockets(dyno.living())[0] == {(nodes[0].address, int(words[1].rpartition(":")[2]))}
        other = joined(dyno, nodes[1], words)
        addresses = at_work(dyno, connections=4)
        assert {host for host, _ in addresses} == {node.address for node in nodes}
        words = ["ip", "netns", "exec", nodes[1].namespace, sys.executable, "-m", __name__, str(tmp_path / "unpickled")]
        subprocess.run([*words, json.dumps(sorted(addresses))], cwd=Path(__file__).parents[2], check=True)
        process.communicate(timeout=LONGEST_S)
        other.communicate(timeout=LONGEST_S)
    assert not (tmp_path / "unpickled").exists()


if __name__ == "__main__":
    attack([(host, port) for host, port in json.loads(sys.argv[2])], Path(sys.argv[1]))
