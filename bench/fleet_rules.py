"""How often do rules call a node of a fleet slow: wrongly in a fleet of like nodes, and rightly a node that is?

1,500 simulated fleets of each kind, three processes of each node; the log time of a process is its node's, plus what
its session and its process vary by. "False": fleets in which a node is called that no one made slow. "Found": fleets
in which a node that was made slower by 5 % is called. Writes its part of bench/FLEET.md.

    python bench/fleet_rules.py [FLEETS]
"""

from __future__ import annotations

import math
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mldyno.analysis.fleet import TOLERANCE, judged
from mldyno.stats.intervals import student_t

PAGE = Path(__file__).parent / "FLEET.md"
TITLE = "## Rules for a slow node, by simulation"
FLEETS, PROCESSES, SLOWER = 1500, 3, 0.05
Fleet = list[list[float]]  # log times of the processes of each node
Rule = Callable[[Fleet], set[int]]  # the nodes that it calls slow


@dataclass(frozen=True)
class Kind:
    """A kind of fleet: standard deviations of processes, sessions and nodes, as shares."""

    name: str
    process: float
    session: float
    node: float
    heavy: bool = False  # whether processes have heavy tails: Student's t with 3 degrees of freedom


KINDS = (
    Kind("quiet: processes 1 %, nodes 0.5 %", 0.01, 0.003, 0.005),
    Kind("noisy: processes 3 %, nodes 1 %", 0.03, 0.01, 0.01),
    Kind("noisy, heavy tails", 0.03, 0.01, 0.01, heavy=True),
    Kind("real differences: processes 0.5 %, nodes 3 %", 0.005, 0.003, 0.03),
)


def nodes_of(kind: Kind, count: int, slower: float, chance: random.Random) -> list[float]:
    """Return the log times of nodes; the first is slower."""
    return [chance.gauss(0, kind.node) + (slower if place == 0 else 0.0) for place in range(count)]


def measured(kind: Kind, nodes: Sequence[float], chance: random.Random, processes: int = PROCESSES) -> Fleet:
    """Return one measurement of nodes, in a session of each."""

    def process() -> float:
        if not kind.heavy:
            return chance.gauss(0, kind.process)
        squares = sum(chance.gauss(0, 1) ** 2 for _ in range(3))
        return kind.process * chance.gauss(0, 1) / math.sqrt(squares)  # over its own deviation, the root of 3

    sessions = [node + chance.gauss(0, kind.session) for node in nodes]
    return [[session + process() for _ in range(processes)] for session in sessions]


def superbench(fleet: Fleet) -> set[int]:
    """More than 5 % under the mean rate of those that pass, until nothing changes."""
    rates, out = [math.exp(-statistics.fmean(node)) for node in fleet], set[int]()
    while True:
        mean = statistics.fmean([rate for place, rate in enumerate(rates) if place not in out])
        more = out | {place for place, rate in enumerate(rates) if (rate - mean) / mean < -0.05}
        if more == out or len(more) == len(rates):
            return out
        out = more


def megatron(fleet: Fleet) -> set[int]:
    """More than one standard deviation and more than 10 % under the mean rate."""
    rates = [math.exp(-statistics.fmean(node)) for node in fleet]
    mean, deviation = statistics.fmean(rates), statistics.pstdev(rates)
    return {place for place, rate in enumerate(rates) if rate < mean - deviation and rate < 0.9 * mean}


def z_above_3(fleet: Fleet) -> set[int]:
    """More than three standard deviations over the mean time."""
    times = [statistics.fmean(node) for node in fleet]
    mean, deviation = statistics.fmean(times), statistics.stdev(times)
    return {place for place, value in enumerate(times) if (value - mean) / deviation > 3}


def mad_above_3_5(fleet: Fleet) -> set[int]:
    """More than 3.5 deviations over the median time, as the median absolute deviation has them."""
    times = [statistics.fmean(node) for node in fleet]
    middle = statistics.median(times)
    deviation = 1.4826 * statistics.median([abs(value - middle) for value in times])
    return {place for place, value in enumerate(times) if (value - middle) / deviation > 3.5}


def mldyno(fleet: Fleet) -> set[int]:
    """What `mldyno fleet show` calls slow."""
    meeting = judged({str(place): node for place, node in enumerate(fleet)})
    assert meeting is not None
    return {int(node.name) for node in meeting.nodes if node.slow}


RULES: dict[str, Rule] = {
    "SuperBench: 5 % under the mean": superbench, "Megatron: 1 SD and 10 %": megatron, "z > 3": z_above_3,
    "MAD > 3.5": mad_above_3_5, "mldyno, one measurement": mldyno,
}  # fmt: skip
CONFIRMED = "mldyno, confirmed"


def slower_than_others(nodes: Sequence[float]) -> set[int]:
    """Return the nodes that really are slower than the median of the others, by more than the tolerance."""
    return {place for place, node in enumerate(nodes)
            if node - statistics.median([*nodes[:place], *nodes[place + 1 :]]) > TOLERANCE}  # fmt: skip


@dataclass
class Counted:
    """What a rule did in all fleets of a kind."""

    healthy: int = 0  # fleets without a node that was made slow, in which one is called
    wrong: int = 0  # the same, but nodes that chance made slower by over 2 % may be called
    found: int = 0


def trial(kind: Kind, count: int, fleets: int, seed: int = 7) -> dict[str, Counted]:
    """Return how often each rule calls a node, over simulated fleets."""
    chance, counted = random.Random(f"{seed} {kind.name} {count}"), {name: Counted() for name in (*RULES, CONFIRMED)}
    for _ in range(fleets):
        for slower in (0.0, SLOWER):
            nodes = nodes_of(kind, count, slower, chance)
            first, second = (measured(kind, nodes, chance) for _ in range(2))
            called = {name: rule(first) for name, rule in RULES.items()}
            called[CONFIRMED] = called["mldyno, one measurement"] & mldyno(second)
            really = slower_than_others(nodes)
            for name, places in called.items():
                counted[name].healthy += not slower and bool(places)
                counted[name].wrong += not slower and bool(places - really)
                counted[name].found += bool(slower) and 0 in places
    return counted


def main() -> None:
    """Simulate, and write the part of the page."""
    fleets = int(sys.argv[1]) if len(sys.argv) > 1 else FLEETS
    lines = [TITLE, "", f"`python bench/fleet_rules.py`: {fleets:,} fleets of each kind, {PROCESSES} processes a node. "
             "In each cell: false / found, in % of fleets. False: a node is called in a fleet where none was made slow "
             "and the node is not slower by 2 % by chance; in brackets, any node at all. Found: a node that was made "
             "slower by 5 % is called.", ""]  # fmt: skip
    columns = [(kind, count) for kind in KINDS for count in (8, 64)]
    lines.append("| rule | " + " | ".join(f"{kind.name}: {count} nodes" for kind, count in columns) + " |")
    lines.append("|---|" + "---|" * len(columns))
    results = {(kind.name, count): trial(kind, count, fleets) for kind, count in columns}
    for rule in (*RULES, CONFIRMED):
        cells = []
        for kind, count in columns:
            each, percent = results[kind.name, count][rule], 100 / fleets
            cells.append(f"{each.wrong * percent:.1f} ({each.healthy * percent:.1f}) / {each.found * percent:.0f}")
        lines.append(f"| {rule} | " + " | ".join(cells) + " |")
    lines += ["", "Time of the analysis alone, from log times:", "", "| nodes | processes each | ms |", "|---|---|---|"]
    for count in (8, 64, 1000):
        chance = random.Random(count)
        fleet = measured(KINDS[0], nodes_of(KINDS[0], count, SLOWER, chance), chance)
        logs = {f"node{place}": node for place, node in enumerate(fleet)}
        times = []
        for _ in range(5):
            student_t.cache_clear()
            began = time.perf_counter()
            judged(logs)
            times.append(time.perf_counter() - began)
        lines.append(f"| {count:,} | {PROCESSES} | {1000 * min(times):.1f} |")
    write("\n".join(lines) + "\n")


def write(part: str) -> None:
    """Replace this part of the page, or add it."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else "# Fleets, measured and simulated\n"
    before, found, rest = text.partition(TITLE)
    after = re.search(r"^## ", rest, re.MULTILINE) if found else None
    behind = f"\n{rest[after.start() :]}" if after else ""
    PAGE.write_text(f"{before.rstrip()}\n\n{part}{behind}", encoding="utf-8")
    print(part)


if __name__ == "__main__":
    main()
