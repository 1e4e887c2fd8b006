"""A thread on each core: what share of it each got."""

from __future__ import annotations

import os

from mldyno.timing.clock import shares


def test_each_thread_gets_a_share_of_a_core_and_no_more() -> None:
    gained = shares(2, 0.3)
    assert len(gained) == 2
    assert all(0 < share <= 1 for share in gained)


def test_more_threads_than_cores_share_what_there_is() -> None:
    cores = len(os.sched_getaffinity(0))
    assert sum(shares(4 * cores, 0.4)) < 1.3 * cores
