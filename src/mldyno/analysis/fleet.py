"""Which node of a fleet is slow: each node against the median of the others, in one case that all have measured.

A node is called slow where the lower bound of its difference is above the tolerance, and confirmed where a second,
fresh measurement of it calls it too. All is in logarithms of the time of a step. The number of a node is the median
over its processes; how far processes lie apart is pooled within nodes, and the bound is Student's t, corrected for the
number of all differences that are judged together. So of 100 healthy fleets at most 5 have a node that is called.

Only nodes whose device has the same title, with the same versions, cores and threads, are compared. The others are
apart, with what differs.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mldyno.analysis import grouped
from mldyno.analysis.comparisons import DELTA
from mldyno.analysis.estimates import by_process
from mldyno.analysis.outcomes import Outcome
from mldyno.records import Case, Record
from mldyno.stats.intervals import MOST_FREEDOM, mean, median, student_t
from mldyno.units import Interval, count

TOLERANCE = math.log1p(DELTA)  # a node that is slower by less is like the others
WRONG_FLEETS = 0.05  # share of healthy fleets in which any node may be called slow
WORTH_FINDING = math.log1p(0.05)  # a difference that a fleet should be able to show
POWER = 0.9  # with which a difference that is said to be visible is called, in one measurement
FEWEST_NODES = 3  # of two, none is known to be the slow one
MOST_PROCESSES = 100  # of a node: more than anybody would wait for
CAUSES = ("niced", "few-cores", "throttled", "power-capped", "contended", "swapping", "on-battery", "low-power")

Logs = Mapping[str, Sequence[float]]  # log time of a step in each process of each node
State = Literal["slow", "awaits", "not confirmed", "like the others", "can't tell"]


@dataclass(frozen=True)
class Node:
    """A node: by which share a step takes longer than on the median of the others, with the bounds that count."""

    name: str
    difference: Interval
    processes: int
    slow: bool = False  # in this measurement
    again: bool | None = None  # whether another measurement calls it slow too; None where there is none
    causes: tuple[str, ...] = ()  # warnings of its records that would explain it

    @property
    def state(self) -> State:
        if self.slow:
            return "awaits" if self.again is None else "slow" if self.again else "not confirmed"
        high = self.difference.high
        return "like the others" if high is not None and high < DELTA else "can't tell"


@dataclass(frozen=True)
class Meeting:
    """What one measurement of a group of like nodes says."""

    nodes: tuple[Node, ...]  # the slowest first
    least: float  # the smallest difference, as a share, that such a measurement would show; infinite if none
    more: int  # processes of each node, beyond those it has, that would show 5 %; 0 if it does already

    @property
    def fewest_processes(self) -> int:
        return min(node.processes for node in self.nodes)


@dataclass(frozen=True)
class Apart:
    """Nodes that are not compared, and why."""

    nodes: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Group:
    """One case on the nodes that can be compared in it, and those that can't."""

    case: Case
    alike: Mapping[str, str]  # what these nodes have in common
    meeting: Meeting | None  # None where there are too few nodes, or processes
    names: tuple[str, ...]
    apart: tuple[Apart, ...] = ()

    @property
    def called(self) -> list[Node]:
        """The nodes that this measurement calls slow, confirmed or not."""
        return [] if self.meeting is None else [node for node in self.meeting.nodes if node.slow]


# -- the statistics --------------------------------------------------------------------------------


def median_variance(count: int) -> float:
    """Return the variance of the median of that many normal values, over that of one; a little too large if even."""
    return 1 / count if count < 3 else (math.pi / 2) / (count + math.pi / 2 - 1)


@dataclass(frozen=True)
class Spread:
    """How far processes of a node lie apart, pooled within nodes, and how often it is used at once."""

    deviation: float
    freedom: int
    tests: int

    def error(self, own: int, others: Sequence[int]) -> float:
        """Return the standard error of a node's difference from the median of the others, by their processes."""
        theirs = mean([median_variance(count) for count in others]) * median_variance(len(others))
        return self.deviation * math.sqrt(median_variance(own) + theirs)

    def quantile(self, tail: float) -> float:
        return student_t(min(MOST_FREEDOM, self.freedom), tail)

    @property
    def strict(self) -> float:
        """The quantile of a bound that holds for all differences at once."""
        return self.quantile(WRONG_FLEETS / self.tests)


def judged(logs: Logs, tests: int = 0) -> Meeting | None:
    """Judge each node by its processes; None where nothing can be said.

    `tests` are all differences that are judged together; those of these nodes if 0.
    """
    counts = [len(values) for values in logs.values()]
    freedom = sum(counts) - len(counts)
    if len(counts) < FEWEST_NODES or not all(counts) or freedom < 1:
        return None
    within = math.fsum((value - mean(values)) ** 2 for values in logs.values() for value in values)
    spread = Spread(math.sqrt(within / freedom), freedom, tests or len(counts))
    centres = {name: median(values) for name, values in logs.items()}
    ordered, strict = sorted(centres.values()), spread.strict
    usual = {count: spread.error(count, counts[1:]) for count in {*counts}}  # of the others, one more or less is alike
    nodes = []
    for name, values in logs.items():
        difference = centres[name] - _median_without(ordered, centres[name])
        error = usual[len(values)]
        low, high = difference - strict * error, difference + strict * error
        nodes.append(Node(name, Interval(*map(math.expm1, (difference, low, high))), len(values), low > TOLERANCE))
    nodes.sort(key=lambda node: (-node.difference.value, node.name))
    fewest = min(counts)
    return Meeting(tuple(nodes), math.expm1(_visible(spread, fewest, len(counts))),
                   _more_processes(spread, fewest, len(counts)))  # fmt: skip


def _median_without(ordered: Sequence[float], value: float) -> float:
    """Return the median of sorted values without one of them."""
    place, rest = bisect_left(ordered, value), len(ordered) - 1
    upper, lower = rest // 2, (rest - 1) // 2
    return (ordered[lower + (lower >= place)] + ordered[upper + (upper >= place)]) / 2


def _visible(spread: Spread, processes: int, nodes: int) -> float:
    """Return the smallest log difference that is called with POWER, from that many processes of each node."""
    if processes < 1:
        return math.inf
    error = spread.error(processes, [processes] * (nodes - 1))
    return TOLERANCE + (spread.strict + spread.quantile(1 - POWER)) * error


def _more_processes(spread: Spread, processes: int, nodes: int) -> int:
    """Return how many more processes of each node would show WORTH_FINDING; -1 where even very many would not."""
    for more in range(MOST_PROCESSES - processes + 1):
        known = replace(spread, freedom=spread.freedom + more * nodes)
        if _visible(known, processes + more, nodes) <= WORTH_FINDING:
            return more
    return -1


# -- records ---------------------------------------------------------------------------------------


def groups(outcomes: Sequence[Outcome], others: Iterable[Sequence[Outcome]] = ()) -> list[Group]:
    """Return all cases of a run that several nodes did, judged together; `others` are other runs, nearest first.

    The first of them that measured a case on the same group of nodes is the second measurement of those it has.
    """
    cases = [_split(group) for group in grouped(outcomes, lambda outcome: outcome.case).values()]
    sets = [(alike, members, apart) for case in cases for alike, members, apart in case]
    tests = sum(len(members) for _, members, _ in sets if len(members) >= FEWEST_NODES)
    made = [_group(alike, members, apart, tests) for alike, members, apart in sets]
    again, rest = dict[tuple[Case, str], bool](), iter(others)
    while any((group.case, node.name) not in again for group in made for node in group.called):
        other = next(rest, None)
        if other is None:
            break
        for second in groups(other):
            of_these = any((second.case, second.alike) == (each.case, each.alike) for each in made)
            if second.meeting is not None and of_these:
                again = {(second.case, node.name): node.slow for node in second.meeting.nodes} | again
    return [_confirmed(group, again) for group in made]


def name_of(outcome: Outcome) -> str:
    """Return the name of an outcome's node, wherever its records came from."""
    return outcome.records[0].machine.name


Split = tuple[dict[str, str], list[Outcome], tuple[Apart, ...]]


def _split(outcomes: Sequence[Outcome]) -> list[Split]:
    """Split the outcomes of a case into sets of like nodes; what is in none of the larger sets is apart."""
    good = [outcome for outcome in outcomes if outcome.good]
    failed = [Apart((name_of(outcome),), f"{outcome.status}: {outcome.reason}") for outcome in outcomes
              if not outcome.good]  # fmt: skip
    by_likeness = grouped(good, lambda each: tuple(sorted(likeness(each).items())))
    sets = sorted(by_likeness.values(), key=lambda each: -len(each))
    large = [members for members in sets if len(members) >= FEWEST_NODES] or sets[:1]
    splits: list[Split] = []
    for place, members in enumerate(large):
        alike = likeness(members[0])
        rest = [] if place else [each for each in sets if each not in large]
        apart = [Apart(tuple(map(name_of, each)), _differing(likeness(each[0]), alike)) for each in rest]
        splits.append((alike, members, tuple(apart if place else [*apart, *failed])))
    return splits


def likeness(outcome: Outcome) -> dict[str, str]:
    """Return what nodes must have in common to be compared, in words."""
    record, case = outcome.good[0], outcome.case
    device = next((each for each in record.machine.devices if each.name == case.device), None)
    title = device.title if device is not None and device.title != "unknown" else record.machine.cpu
    driver = device.facts.get("driver") if device is not None else None
    software = record.software
    known = {
        "device": title, "driver": f"driver {driver}" if driver else "",
        "cores": count(record.machine.cores or 0, "core"),
        "threads": count(software.threads, "thread") if software.threads and case.device == "cpu" else "",
        "python": f"Python {software.python}",
        **{name: f"{name} {version}" for name, version in software.versions.items()},
    }  # fmt: skip
    return {name: words for name, words in known.items() if words}


def _differing(own: Mapping[str, str], usual: Mapping[str, str]) -> str:
    """Say in what a node differs from the others: torch 2.12.0, not torch 2.13.0."""
    names = [name for name in {**own, **usual} if own.get(name) != usual.get(name)]
    return "; ".join(f"{own.get(name) or f'no {name}'}, not {usual.get(name) or f'no {name}'}" for name in names)


def _group(alike: Mapping[str, str], members: Sequence[Outcome], apart: tuple[Apart, ...], tests: int) -> Group:
    by_name = {name_of(outcome): outcome for outcome in members}
    meeting = judged({name: _logs(outcome.good) for name, outcome in by_name.items()}, tests)
    if meeting is not None:
        nodes = (replace(node, causes=_causes(by_name[node.name])) if node.slow else node for node in meeting.nodes)
        meeting = replace(meeting, nodes=tuple(nodes))
    return Group(members[0].case, alike, meeting, tuple(by_name), apart)


def _logs(records: Sequence[Record]) -> list[float]:
    """Return the log of the median time of a step in each process."""
    medians = [median(values) for record in records for values in by_process(record, "step_time")]
    return [math.log(value) for value in medians if value > 0]


def _causes(outcome: Outcome) -> tuple[str, ...]:
    codes = {warning.code for warning in outcome.warnings}
    return tuple(code for code in CAUSES if code in codes)


def _confirmed(group: Group, again: Mapping[tuple[Case, str], bool]) -> Group:
    """Return a group whose nodes know whether another measurement calls them too."""
    if group.meeting is None:
        return group
    nodes = tuple(replace(node, again=again.get((group.case, node.name))) if node.slow else node
                  for node in group.meeting.nodes)  # fmt: skip
    return replace(group, meeting=replace(group.meeting, nodes=nodes))
