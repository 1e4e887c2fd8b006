"""Where nodes meet, as users write it; and which rank failed, from what ranks and their launcher said."""

from __future__ import annotations

import pytest

from mldyno import rendezvous
from mldyno.errors import UsageError
from mldyno.rendezvous import RankFailure, failure_in, failure_line

TORCHRUN = """
E1117 20:23:01 elastic/multiprocessing/api.py:984] failed (exitcode: {code}) local_rank: 1 (pid: 4711) of binary: python
============================================================
start.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-17_20:23:01
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 4710)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-17_20:23:00
  rank      : 3 (local_rank: 1)
  exitcode  : {code} (pid: 4711)
============================================================
"""


def test_a_rank_that_a_signal_ended_is_named_and_not_those_that_its_launcher_ended() -> None:
    said = failure_line("0", "failed", "connection closed") + TORCHRUN.format(code=-9)
    assert failure_in(said.splitlines()) == RankFailure("3", signal=9)


def test_a_rank_that_said_why_is_believed_before_those_that_only_lost_it() -> None:
    said = failure_line("2", "failed", "connection closed") + failure_line("3", "oom", "no memory")
    assert failure_in((said + TORCHRUN.format(code=1)).splitlines()) == RankFailure("3", None, "oom", "no memory")
    assert failure_in(said.splitlines()) == RankFailure("2", None, "failed", "connection closed")


@pytest.mark.parametrize(
    "said", ["", "hello", "mldyno-rank-failed ", 'mldyno-rank-failed {"a": 1}', "mldyno-rank-failed [1"]
)
def test_nonsense_is_no_failure(said: str) -> None:
    assert failure_in([said]) is None


def test_the_first_node_makes_a_token_up_and_the_others_are_given_it() -> None:
    first = rendezvous.read("10.0.0.1:29400")
    assert first.first
    other = rendezvous.read("10.0.0.1:29400", first.token)
    assert (other.first, other.token, other.address) == (False, first.token, "10.0.0.1:29400")
    assert rendezvous.from_environment(first.environment) == first


@pytest.mark.parametrize("address", ["", "host", "host:", "host:0", "host:99999", ":1", "a b:1", "[::1]:1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="is no address"):
        rendezvous.read(address)
