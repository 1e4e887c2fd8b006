"""`mldyno history`: run by run, with dates, in lines that fit the screen."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.conftest import OWN_KEY
from tests.views.report.made_records import BENCH, record

from mldyno.axes import unstated
from mldyno.records import Case, Run, seal
from mldyno.store import Store

Mldyno = Callable[..., tuple[int, str, str]]
LONG = Case("bert-large", device="cuda:0", precision="amp-fp16", batch=256, seq=512, placement="roundtrip",
            compile=True, threads=16, layout="channels-last")  # fmt: skip
COMMAND = unstated("python train.py --epochs 3 --model :models:a-model-with-a-long-name --out :tmp:out", "command")


@pytest.fixture
def measured(store: Store) -> None:
    """Two runs: one of two short cases, and one of a long name and of a command."""
    bench = replace(BENCH, name="test bench", key=OWN_KEY)
    for run, day, cases in (
        ("20261101T120000-aaaaaa", "2026-11-01", [Case("mlp", batch=8), Case("mlp", batch=16, mode="infer")]),
        ("20261102T120000-bbbbbb", "2026-11-02", [LONG, COMMAND]),
    ):
        for case in cases:
            store.append([seal(replace(record(case, 0.002, bench), created=f"{day}T12:00:00.000Z", run=Run(run)))])
    store.close()


def test_each_run_is_named_with_its_date_above_its_records(mldyno: Mldyno, measured: None) -> None:
    code, out, _ = mldyno("history", "mlp")
    assert code == 0
    head, infer, train = out.splitlines()
    assert head == "2026-11-01 12:00 UTC (run 20261101T120000-aaaaaa)"
    assert infer.split()[1] == "mlp/infer/torch/cpu/fp32/b16/device"
    assert train.split()[1] == "mlp/train/torch/cpu/fp32/b8/device"
    assert train.index(" ms a step") == infer.index(" ms a step")


@pytest.mark.parametrize("columns", [80, 60])
def test_no_line_is_longer_than_the_screen_or_ends_within_a_word(
    columns: int, mldyno: Mldyno, measured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = mldyno("history")[1].splitlines()
    assert max(map(len, whole)) > 80, "a pipe gets whole lines"
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = mldyno("history")[1].splitlines()
    assert max(map(len, lines)) <= columns
    words = {word for line in lines for word in re.split("[ /]+", line)}
    assert set(re.split("[ /]+", f"{LONG.id} {COMMAND.workload} 20261102T120000-bbbbbb)")) <= words


def test_what_is_older_than_a_moment_is_left_out(mldyno: Mldyno, measured: None) -> None:
    out = mldyno("history", "--since", "2026-11-02")[1]
    assert "20261102T120000-bbbbbb" in out
    assert "20261101T120000-aaaaaa" not in out
    assert mldyno("history", "mlp", "--since", "2026-11-02")[1] == "Nothing measured for 'mlp' since 2026-11-02.\n"
