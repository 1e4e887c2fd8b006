"""Which node of a fleet is slow? And what does a million steps cost on each machine?"""

from __future__ import annotations

from collections.abc import Iterator

from mldyno.analysis import grouped
from mldyno.analysis.fleet import Group
from mldyno.units import count
from mldyno.views.fleet import STATES, by_share, drawing, lines, listed
from mldyno.views.outcomes import show_estimate
from mldyno.views.report.parts import Bullets, Chart, Content, Grid, GridCell
from mldyno.views.report.subject import Subject
from mldyno.views.titles import case_on_device

NODES_LEAD = (
    "Each node against the median of the others, in the time of a step; the bars hold for all nodes at once. A node is "
    "called slow where its bar is above 2 %, and a second run confirms it. Only nodes of the same device, versions and "
    "cores are compared."
)
COST_LEAD = "The price of the machine as its user states it, times the time of a step, with the interval of that time."
MOST_ROWS = 12  # of a table, before the rest of it is unfolded
AGAIN = "`mldyno fleet show` has the command"


def which_is_slow(subject: Subject) -> Content:
    """Show all nodes of a fleet against the median of the others, in each case."""
    drawn = [group for group in subject.fleet if group.meeting is not None]
    parts = [part for number, group in enumerate(drawn) for part in _of_group(group, number)]
    return NODES_LEAD, [Bullets("node-lines", lines(subject.fleet, AGAIN) if subject.fleet else ()), *parts]


def _of_group(group: Group, number: int) -> Iterator[Chart | Grid]:
    assert group.meeting is not None
    nodes, about = group.meeting.nodes, ", ".join(group.alike.values())
    slow = [node.name for node in nodes if node.state == "slow"]
    finding = f"{listed(slow)} {'is' if len(slow) == 1 else 'are'} slow" if slow else "No node is confirmed as slow"
    title = f"{finding}: {case_on_device(group.case)}"
    yield Chart(f"nodes-{number}", title, f"{count(len(nodes), 'node')}: {about}", drawing(group))
    rows = [
        [GridCell(node.name, head=True), GridCell(by_share(node.difference), node.difference.value),
         GridCell(str(node.processes), node.processes), GridCell(STATES[node.state])] for node in nodes
    ]  # fmt: skip
    columns = ["node", "takes longer by", "processes", ""]
    yield Grid(f"node-grid-{number}", case_on_device(group.case), columns, rows, shown=MOST_ROWS)


def cost(subject: Subject) -> Content:
    """Show the price of a million steps, and of a million items, a table for each currency."""
    priced = [(outcome, price) for outcome in (*subject.outcomes, *subject.others)
              if outcome.status == "ok" and (price := outcome.price) is not None]  # fmt: skip
    parts = []
    for currency, group in grouped(priced, lambda pair: pair[1].currency).items():
        rows = []
        for outcome, price in group:
            steps, items = map(outcome.figure, ("price_per_million_steps", "price_per_million_items"))
            cells = [
                GridCell("") if each is None else GridCell(show_estimate(each), each.value) for each in (steps, items)
            ]
            rows.append([GridCell(case_on_device(outcome.case), head=True), GridCell(outcome.machine), *cells,
                         GridCell(f"{outcome.item}s" if items else ""), GridCell(str(price))])  # fmt: skip
        columns = ["case", "machine", "a million steps", "a million items", "items", "the machine"]
        parts.append(Grid(f"price-{currency.lower()}", f"Prices in {currency}", columns, rows, numbers=2))
    return COST_LEAD, parts
