"""Nodes of a fleet in words and pictures: who is slow, how sure that is, and what to do next."""

from __future__ import annotations

from xml.etree import ElementTree

from tests.analysis.test_fleet import fleet, node

from mldyno.analysis.fleet import Apart, Group, Meeting, Node, groups
from mldyno.analysis.outcomes import outcomes
from mldyno.records import Case
from mldyno.units import Interval
from mldyno.views.charts import Dots, Rows
from mldyno.views.drawing import IN_PICTURE
from mldyno.views.fleet import as_json, drawing, lines, tables

AGAIN = "mldyno run resnet18 --mode train --on lab.toml"
CASE = Case("resnet18", mode="train", batch=8)


def group(*nodes: Node, least: float = 0.034, more: int = 0, apart: tuple[Apart, ...] = ()) -> Group:
    return Group(CASE, {"device": "H100"}, Meeting(nodes, least, more), tuple(each.name for each in nodes), apart)


SLOW = Node("node7", Interval(0.041, 0.032, 0.05), 3, slow=True)
LIKE = tuple(Node(f"node{n}", Interval(0.001, -0.008, 0.01), 3) for n in range(15))


def test_a_slow_node_is_named_with_its_interval_and_whether_that_is_confirmed() -> None:
    confirmed = Node("node7", SLOW.difference, 3, slow=True, again=True)
    first, *_ = lines([group(confirmed, *LIKE)], AGAIN)
    assert first == (
        "node7 is slower than the 15 others by 4.1 % (3.2-5.0) in ResNet-18, training, batch 8 on cpu, confirmed"
    )
    first, *_ = lines([group(SLOW, *LIKE)], AGAIN)
    assert first.startswith("node7 looks slower than the 15 others by 4.1 % (3.2-5.0)")
    assert first.endswith(f"which awaits a second measurement: {AGAIN}")
    first, *_ = lines([group(Node("node7", SLOW.difference, 3, slow=True, again=False), *LIKE)], AGAIN)
    assert first.endswith("but not in another measurement: it is not called slow")


def test_how_often_such_a_call_is_wrong_is_said_once() -> None:
    said = lines([group(*LIKE), group(*LIKE)], AGAIN)
    assert said.count("Such a call is wrong in at most 5 of 100 fleets.") == 1
    assert said[-1].startswith("Such a call")


def test_below_what_nothing_can_be_said_comes_with_the_number_of_processes_that_help() -> None:
    where = "in ResNet-18, training, batch 8 on cpu"
    assert lines([group(*LIKE, least=0.06, more=4)], AGAIN)[0] == (
        f"none of 15 nodes is called slow {where}: can't tell below 6.0 %; "
        "measure 4 more processes of each node, which show 5.0 %"
    )
    assert lines([group(*LIKE)], AGAIN)[0] == (
        f"none of 15 nodes is called slow {where}: one that is slower by 3.4 % would be"
    )
    assert "find what disturbs them" in lines([group(*LIKE, least=0.9, more=-1)], AGAIN)[0]


def test_who_is_apart_and_why_is_named_and_of_many_the_first() -> None:
    apart = (Apart(("box",), "A100, not H100"), Apart(tuple(f"m{n}" for n in range(9)), "8 cores, not 64 cores"))
    said = lines([group(*LIKE, apart=apart)], AGAIN)
    assert "box is apart: A100, not H100" in said
    assert "m0, m1, m2, m3, m4 and 4 others are apart: 8 cores, not 64 cores" in said


def test_two_nodes_are_too_few_and_one_process_of_each_too() -> None:
    (line,) = lines(groups(outcomes([*node("a", 0.1), *node("b", 0.2)])), AGAIN)
    assert line.startswith("a and b: 2 nodes can't show which one is slow, it takes 3 of one kind")
    single = outcomes([record for n in range(3) for record in node(f"n{n}", 0.1)[:1]])
    (line,) = lines(groups(single), AGAIN)
    assert "use --repeats 3" in line


def test_the_table_has_the_slowest_first_and_of_many_the_slowest_only() -> None:
    head, table = tables(groups(fleet(1.05)))
    assert head == "ResNet-18, training, batch 8 on cpu: H100, 8 cores, 8 threads, Python 3.11.7, torch 2.13.0"
    assert next(row for row in table.splitlines() if "%" in row).split()[0] == "node0"
    assert "slow, to be confirmed" in table
    *_, more = tables([group(SLOW, *LIKE * 4)])
    assert more == "and 41 faster nodes"


def test_as_data_nothing_is_left_out() -> None:
    data = as_json("r", [group(SLOW, *LIKE, apart=(Apart(("box",), "why"),))], AGAIN)
    (only,) = data["groups"]
    assert (data["run"], data["again"], len(only["nodes"])) == ("r", AGAIN, 16)
    first = only["nodes"][0]
    assert (first["node"], first["difference"], first["low"], first["high"]) == ("node7", 0.041, 0.032, 0.05)
    assert first["state"] == "awaits"
    assert only["apart"] == [{"nodes": ["box"], "why": "why"}]


def test_few_nodes_have_a_row_each_and_many_a_dot_each_with_the_called_ones_named() -> None:
    few, many = drawing(group(SLOW, *LIKE)), drawing(group(SLOW, *LIKE * 60))
    assert isinstance(few, Rows)
    assert isinstance(many, Dots)
    assert len(many.dots) == 901
    for width in many.widths:
        svg = many.draw(width, IN_PICTURE).svg("nodes")
        root = ElementTree.fromstring(svg)
        assert sum(element.tag.endswith("circle") for element in root.iter()) == 901
        assert ">node7</text>" in svg
        assert ">node3</text>" not in svg
