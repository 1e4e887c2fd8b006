"""Nodes of a fleet in words, as a table, as data and as a chart: which is slow, and below what nothing can be said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from mldyno.analysis.comparisons import DELTA
from mldyno.analysis.fleet import FEWEST_NODES, WORTH_FINDING, WRONG_FLEETS, Apart, Group, Meeting, Node, State
from mldyno.units import Interval, count, show_interval, show_percent
from mldyno.views.charts import Dot, Dots, Mark, Row, Rows
from mldyno.views.titles import case_on_device

MOST_LISTED = 20  # nodes of a table in a terminal
MOST_NAMED = 5  # nodes in a sentence
MOST_ROWS = 24  # of a chart with a row for each node
STATES: dict[State, str] = {
    "slow": "slow, confirmed", "awaits": "slow, to be confirmed", "not confirmed": "slow once, not confirmed",
    "like the others": "", "can't tell": "",
}  # fmt: skip
COLOURS: dict[State, str] = {"slow": "accent", "awaits": "s4"}
Json = dict[str, Any]


def by_share(number: Interval) -> str:
    """Show by how much longer a node takes: 4.1 % (3.2-5.0)."""
    return show_interval(number, "%")


def listed(names: Sequence[str]) -> str:
    """Name nodes; of many, the first ones and how many more there are."""
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {count(len(names) - MOST_NAMED, 'other')}"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def lines(groups: Sequence[Group], again: str) -> list[str]:
    """Say which nodes are slow, what this could not show, and who was not compared; `again` measures all once more."""
    said = [line for group in groups for line in _of_group(group, again)]
    if any(group.meeting is not None for group in groups):
        said.append(f"Such a call is wrong in at most {WRONG_FLEETS * 100:.0f} of 100 fleets.")
    return said


def _of_group(group: Group, again: str) -> Iterator[str]:
    where = f"in {case_on_device(group.case)}"
    if group.meeting is None:
        yield f"{_too_few(group)} {where}"
    else:
        for node in group.called:
            yield _about(node, len(group.names) - 1, where, again)
        yield _limits(group.meeting, where, bool(group.called))
    yield from map(_apart, group.apart)


def _about(node: Node, others: int, where: str, again: str) -> str:
    """Return the sentence of a node that is called slow."""
    by = f"slower than the {others} others by {by_share(node.difference)} {where}"
    causes = f"; its records say: {', '.join(node.causes)}" if node.causes else ""
    if node.state == "slow":
        return f"{node.name} is {by}, confirmed{causes}"
    if node.state == "not confirmed":
        return f"{node.name} was {by}, but not in another measurement: it is not called slow{causes}"
    return f"{node.name} looks {by}, which awaits a second measurement: {again}{causes}"


def _limits(meeting: Meeting, where: str, called: bool) -> str:
    """Say what else this measurement would have shown."""
    rest = "no other node" if called else f"none of {count(len(meeting.nodes), 'node')}"
    if meeting.more == 0:
        return f"{rest} is called slow {where}: one that is slower by {show_percent(meeting.least)} would be"
    if meeting.more < 0:
        cure = "no number of processes would be enough: find what disturbs them with `mldyno doctor`"
    else:
        noun = "process" if meeting.more == 1 else "processes"
        cure = f"measure {meeting.more} more {noun} of each node, which show {show_percent(math.expm1(WORTH_FINDING))}"
    return f"{rest} is called slow {where}: can't tell below {show_percent(meeting.least)}; {cure}"


def _too_few(group: Group) -> str:
    if len(group.names) < FEWEST_NODES:
        few = f"{listed(group.names)}: {count(len(group.names), 'node')} can't show which one is slow"
        return f"{few}, it takes {FEWEST_NODES} of one kind"
    return f"{listed(group.names)}: one process of each does not show how far processes lie apart; use --repeats 3"


def _apart(apart: Apart) -> str:
    verb = "is" if len(apart.nodes) == 1 else "are"
    return f"{listed(apart.nodes)} {verb} apart: {apart.why}"


def tables(groups: Sequence[Group]) -> Iterator[str]:
    """Yield a table of each case: the slowest nodes, and all that are called."""
    from mldyno.views.tables import aligned

    for group in groups:
        if group.meeting is None:
            continue
        nodes = group.meeting.nodes
        shown = nodes if len(nodes) <= MOST_LISTED else nodes[: max(MOST_LISTED, len(group.called))]
        rows = [[node.name, by_share(node.difference), str(node.processes), STATES[node.state]] for node in shown]
        yield f"{case_on_device(group.case)}: {', '.join(group.alike.values())}"
        yield aligned(["node", "takes longer by", "processes", ""], rows, 1)
        if len(shown) < len(nodes):
            yield f"and {count(len(nodes) - len(shown), 'faster node')}"


def as_json(run: str, groups: Sequence[Group], again: str) -> Json:
    """Return all groups as data; differences are shares of the time of a step on the median of the others."""
    return {"run": run, "again": again, "tolerance": DELTA, "wrong_fleets": WRONG_FLEETS,
            "groups": [_group_json(group) for group in groups]}  # fmt: skip


def _group_json(group: Group) -> Json:
    meeting = group.meeting
    finite = meeting is not None and math.isfinite(meeting.least)
    return {
        "case": group.case.id, "alike": dict(group.alike),
        "least": meeting.least if meeting is not None and finite else None,
        "more_processes": None if meeting is None or meeting.more < 0 else meeting.more,
        "nodes": [{"node": node.name, "difference": node.difference.value, "low": node.difference.low,
                   "high": node.difference.high, "processes": node.processes, "state": node.state,
                   "causes": list(node.causes)} for node in (meeting.nodes if meeting else ())],
        "apart": [{"nodes": list(each.nodes), "why": each.why} for each in group.apart],
    }  # fmt: skip


# -- charts ----------------------------------------------------------------------------------------


def drawing(group: Group) -> Rows | Dots:
    """Return the chart of all nodes of a group: a row for each, or of many a dot for each."""
    assert group.meeting is not None
    nodes = group.meeting.nodes
    if len(nodes) > MOST_ROWS:
        return Dots([_dot(node) for node in nodes], "% longer than the median of the others", (0.0, DELTA))
    rows = [Row(node.name, [_mark(node)], node.state == "slow") for node in nodes]
    return Rows([("", rows)], "time of a step, over the median of the others; log scale", base=1.0)


def _mark(node: Node) -> Mark:
    times = Interval(*(1 + end for end in (node.difference.value, *(node.difference.ends or ()))))
    return Mark(times, show_percent(node.difference.value), _hover(node), COLOURS.get(node.state, "s1"))


def _hover(node: Node) -> str:
    return ", ".join(filter(None, [f"{by_share(node.difference)} longer", STATES[node.state]]))


def _dot(node: Node) -> Dot:
    label = node.name if node.slow else ""
    return Dot(node.difference, f"{node.name}: {_hover(node)}", COLOURS.get(node.state, "s1"), label)
