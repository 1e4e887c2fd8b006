"""Two nodes on one machine: network namespaces with an address each and a cable between them, as slow as is asked for.

Needs root and iproute2 (Linux).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

BURST, QUEUE_S = 64 << 10, 0.4  # bytes that pass at once, and how long others may wait for their turn


@dataclass(frozen=True)
class Node:
    """One of the two."""

    namespace: str
    address: str

    def start(self, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start `mldyno` there, with what it says in a pipe."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, sys.executable, "-m", "mldyno", *words],
            env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def received(self) -> int:
        """Bytes that have come in by the cable."""
        words = ["ip", "-j", "-s", "-n", self.namespace, "link", "show"]
        links = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        return sum(int(link["stats64"]["rx"]["bytes"]) for link in links if link["ifname"] != "lo")


@contextmanager
def two_nodes(bits_per_s: float | None = None) -> Iterator[tuple[Node, Node]]:
    """Both nodes; with a rate, no more than that passes each way."""
    mark = uuid.uuid4().hex[:6]
    nodes = (Node(f"mldyno-{mark}-a", "10.77.0.1"), Node(f"mldyno-{mark}-b", "10.77.0.2"))
    ends = (f"mla{mark}", f"mlb{mark}")
    try:
        for node in nodes:
            _ip("netns", "add", node.namespace)
        _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for node, end in zip(nodes, ends, strict=True):
            _ip("link", "set", end, "netns", node.namespace)
            _ip("-n", node.namespace, "addr", "add", f"{node.address}/24", "dev", end)
            _ip("-n", node.namespace, "link", "set", end, "up")
            _ip("-n", node.namespace, "link", "set", "lo", "up")
            if bits_per_s is not None:
                _run("tc", "-n", node.namespace, "qdisc", "add", "dev", end, "root", "tbf", "rate",
                     f"{bits_per_s:.0f}bit", "burst", str(BURST), "latency", f"{QUEUE_S * 1e3:.0f}ms")  # fmt: skip
        yield nodes
    finally:
        for node in nodes:
            subprocess.run(["ip", "netns", "del", node.namespace], check=False, capture_output=True)


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
