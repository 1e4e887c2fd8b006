"""A tracked loop in words: no more than is known."""

from __future__ import annotations

import pytest

from mldyno.analysis.breakdown import Change, LoaderCost, LoopParts
from mldyno.units import Interval
from mldyno.views.outcomes import loop_lines

NOTHING = LoopParts(None, None, None, 0, 0.0, 1)


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        (LoopParts(Interval(0.16, 0.14, 0.18), None, None, 0, 0.0, 1), "16 % (14-18) of a step waiting for data"),
        (
            LoopParts(Interval(0.161, 0.160, 0.162), None, None, 0, 0.0, 1),
            "16.1 % (16.0-16.2) of a step waiting for data",
        ),
        (LoopParts(Interval(0.16, None, None), None, None, 0, 0.0, 1), "16 % of a step waiting for data"),
        (LoopParts(None, None, Change(0.08, 400), 0, 0.0, 1), "slower by 8.0 % from step 400 on"),
        (LoopParts(None, None, Change(-0.3, None), 0, 0.0, 1), "faster by 30 % bit by bit"),
        (LoopParts(None, None, None, 1, 2.5, 1), "1 long step apart, 2.50 s in all"),
        (LoopParts(None, None, None, 0, 0.0, 1, 2, 0.4), "2 pauses for other work, 400 ms in all"),
        (LoopParts(None, None, None, 3, 2.5, 50), "3 long blocks apart, 2.50 s in all"),
        (
            LoopParts(None, LoaderCost(Interval(0.2, 0.19, 0.21), Interval(2e-3, 1.9e-3, 2.1e-3), 30), None, 0, 0.0, 1),
            "the loader costs 20 % (19-21) of a step, 1.90 ms to 2.10 ms, over 30 rounds of real and held batches",
        ),
        (
            LoopParts(None, LoaderCost(Interval(0.01, -0.01, 0.03), Interval(1e-4, -1e-4, 3e-4), 30), None, 0, 0.0, 1),
            "no measurable loader cost: at most 300 µs a step, over 30 rounds of real and held batches",
        ),
        (
            LoopParts(None, LoaderCost(Interval(0.2, None, None), Interval(2e-3, None, None), 1), None, 0, 0.0, 1),
            "the loader costs 2.00 ms a step, over 1 round of real and held batches",
        ),
    ],
)
def test_each_part_has_its_words(parts: LoopParts, line: str) -> None:
    assert list(loop_lines(parts)) == [line]


def test_where_there_is_nothing_to_say_nothing_is_said() -> None:
    assert list(loop_lines(NOTHING)) == []
