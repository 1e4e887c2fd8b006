"""Signals while a run lasts: noted where it is safe, and given back afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from mldyno.runner.events import Interrupted, Interrupts


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Signals of this process as they were before the test."""
    before = {number: signal.getsignal(number) for number in Interrupts.SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a process of the background
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_all_handlers_are_given_back_where_no_connection_was_lost() -> None:
    before = [signal.getsignal(number) for number in Interrupts.SIGNALS]
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted, match="ended by SIGINT"):
            interrupts.check()
    assert [signal.getsignal(number) for number in Interrupts.SIGNALS] == before


def test_of_a_lost_connection_no_further_signal_ends_the_process_before_it_is_done() -> None:
    with Interrupts() as interrupts:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
        with pytest.raises(Interrupted, match="ended by SIGHUP"):
            interrupts.check()
    os.kill(os.getpid(), signal.SIGHUP)


def test_what_is_ignored_at_the_start_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGHUP)
        interrupts.check()
