"""The limit of a run: what does not fit is not begun, what hangs is ended, and the rest can be run later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mldyno import api
from mldyno.results import Results
from mldyno.runner import run as running
from mldyno.store import Store

FakeRun = Callable[..., Results]
Script = Callable[..., None]


def test_after_the_limit_nothing_is_begun_and_a_resumed_run_goes_on(store: Store) -> None:
    plan = api.make_plan(["mlp"], {"framework": "fake", "batch": [8, 16]}, {"repeats": 1, "limit": 1e-9})
    results = api.run_plan(plan, store)
    assert results.records == []
    assert results.left_out == list(plan.cases)
    run, again = api.unfinished(store, None)
    assert again == plan
    from dataclasses import replace

    rest = api.run_plan(replace(again, limit=None), store, resume=run)
    assert (len(rest.records), rest.left_out) == (4, [])


def test_what_hangs_is_ended_soon_after_the_limit_and_says_so(
    fake_run: FakeRun, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "GRACE_S", 0.5)
    script({"fail": "hang"})  # for ever: only the limit ends it
    results = fake_run(mode="infer", batch=[8, 16], limit=0.3)
    (record,) = results.records
    assert (record.status, record.reason) == (
        "timeout", "not done when the run's limit of 300 ms was over; give it more with --limit",
    )  # fmt: skip
    assert [case.batch for case in results.left_out] == [16]
