"""mldyno as a Python user meets it: verbs of the package, results that show themselves, any function measured."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mldyno
from mldyno.errors import MldynoError, UsageError
from mldyno.results import Comparisons
from mldyno.store import Store
from mldyno.timing import clock

Script = Callable[..., None]


def test_importing_mldyno_loads_nothing_heavy() -> None:
    code = (
        "import sys, mldyno; assert 'mldyno.api' not in sys.modules; mldyno.run;"
        "print([name for name in ('numpy', 'torch', 'rich', 'pandas', 'resvg_py') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_verbs_are_functions_of_the_package_and_nothing_else_is_there() -> None:
    assert all(isinstance(getattr(mldyno, name), types.FunctionType) for name in mldyno.__all__[1:])
    assert dir(mldyno) == sorted(mldyno.__all__), "though the package has been imported from meanwhile"
    with pytest.raises(AttributeError):
        mldyno.nothing_of_the_kind  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'history'; `from mldyno import api` has it: api.history"):
        mldyno.history  # noqa: B018


def test_a_run_is_compared_laid_out_and_shown(store: Store, script: Script) -> None:
    script({"match": "*/bf16/*", "step": 0.001}, {"step": 0.002})
    results = mldyno.run(
        "mlp", framework="fake", device=["cpu"], precision=["fp32", "bf16"], mode="infer", repeats=1, store=store
    )
    (found,) = results.compare(by="precision")
    assert found.verdict == "faster"
    assert found.ratio == pytest.approx(2.0, rel=0.01)
    assert "bf16 is 2.00x" in str(results.compare(by="precision"))
    assert "2.00x" in str(results.table(cols=["precision"], by="precision"))
    for shown in (results, results.table(), results.compare(by="precision")):
        assert "<table>" in shown._repr_html_()
    assert "trust mlp/infer/fake" in str(results)
    assert results.table(cols=["precision"]).to("csv").startswith("fp32 [ms],")
    with pytest.raises(UsageError, match="unknown format 'pdf'"):
        results.table().to("pdf")
    with pytest.raises(UsageError, match="unknown axis 'colour'"):
        results.table(rows=["colour"])


def test_results_fit_a_screen_and_can_be_counted_walked_through_and_saved(store: Store, tmp_path: Path) -> None:
    results = mldyno.run(
        "mlp", framework="fake", batch=[2**n for n in range(12)], repeats=1, budget="1s", target="5%", store=store
    )
    assert len(results) == len(list(results)) == 24
    assert len(repr(results).splitlines()) <= 21
    assert repr(results).endswith("print it to see them")
    assert len(repr(results.compare("batch")).splitlines()) <= 21
    assert len(repr(results.table()).splitlines()) <= 21
    assert repr(results.table()).startswith("time of one step")
    assert len(repr(results.compare("batch")[0])) < 300
    path = tmp_path / "mine.jsonl"
    assert results.save(str(path)) == len(results.everything) == len(path.read_text().splitlines())
    with pytest.raises(UsageError, match="the cases differ in mode, batch; name the axis to compare along"):
        results.compare()


def test_cases_that_differ_in_one_axis_are_compared_along_it(store: Store) -> None:
    results = mldyno.run("mlp", framework="fake", device=["cpu", "gpu"], mode="infer", repeats=1, store=store)
    assert [each.verdict for each in results.compare()] == ["faster"]


def test_a_data_frame_has_a_row_for_each_case(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    results = mldyno.run("mlp", framework="fake", mode="infer", batch=[8, 16], repeats=1, store=store)
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=lambda rows: rows))
    rows: list[dict[str, Any]] = results.to_pandas()
    assert [row["batch"] for row in rows] == [8, 16]
    assert rows[0]["step_low"] <= rows[0]["step"] <= rows[0]["step_high"]
    assert (rows[0]["status"], rows[0]["machine"]) == ("ok", "test bench")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MldynoError, match="pip install pandas"):
        results.to_pandas()


class Machine:
    """Time that passes only in steps and waits, so that the truth is known."""

    def __init__(self, cost: int) -> None:
        self.now, self.cost, self.waiting, self.waits = 0, cost, 0, 0

    def clock(self) -> int:
        self.now += 40
        return self.now

    def step(self) -> None:
        self.now += 1_000
        self.waiting += self.cost

    def sync(self) -> None:
        self.now += self.waiting
        self.waiting, self.waits = 0, self.waits + 1


def test_any_function_is_measured_and_what_it_waits_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(cost=2_000_000)
    monkeypatch.setattr(clock, "now", machine.clock)
    found = mldyno.measure(machine.step, machine.sync, budget=5.0)
    assert found.step is not None
    assert found.step.value == pytest.approx(0.002001, rel=0.001)
    assert found.first_step == pytest.approx(0.002001, rel=0.001)
    assert machine.waits > 20
    assert str(found).startswith("step: 2.00 ms a step")
    assert "<li>step: 2.00 ms" in found._repr_html_()


def test_two_functions_are_compared_and_a_hostile_name_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = Machine(cost=4_000_000), Machine(cost=2_000_000)
    monkeypatch.setattr(clock, "now", slow.clock)
    first = mldyno.measure(slow.step, slow.sync, name="<script>")
    monkeypatch.setattr(clock, "now", fast.clock)
    found = first.compare(mldyno.measure(fast.step, fast.sync))
    assert found is not None
    assert found.verdict == "faster"
    assert found.ratio == pytest.approx(2.0, rel=0.01)
    assert "<script>" not in first._repr_html_()
    assert "<script>" not in found._repr_html_()


def test_a_comparison_of_two_functions_reads_as_all_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = Machine(cost=4_000_000), Machine(cost=2_000_000)
    measured = []
    for machine, name in ((slow, "slow"), (fast, "fast")):
        monkeypatch.setattr(clock, "now", machine.clock)
        measured.append(mldyno.measure(machine.step, machine.sync, name=name))
    there, back = measured[0].compare(measured[1]), measured[1].compare(measured[0])
    for found, said in ((there, "fast is 2.00x (2.00-2.00) faster than slow"),
                        (back, "slow is 2.00x (2.00-2.00) slower than fast")):  # fmt: skip
        assert said in str(found)
        assert repr(found) == str(found) == str(Comparisons([found])), "as `compare` says it"  # type: ignore[list-item]


def test_limits_of_a_measurement_may_be_text_as_those_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(cost=2_000_000)
    monkeypatch.setattr(clock, "now", machine.clock)
    found = mldyno.measure(machine.step, machine.sync, target="1%", budget="5s")
    assert found.step is not None
    assert found.step.value == pytest.approx(0.002001, rel=0.001)
    with pytest.raises(UsageError, match="not a duration"):
        mldyno.measure(machine.step, machine.sync, budget="soon")


def test_what_can_not_be_measured_is_said_and_errors_are_the_callers() -> None:
    with pytest.raises(UsageError, match="measure takes a function"):
        mldyno.measure(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="budget"):
        mldyno.measure(lambda: None, budget=0.0)
    with pytest.raises(ZeroDivisionError):
        mldyno.measure(lambda: 1 / 0)


def test_what_did_not_succeed_is_not_called_the_same_records(store: Store, script: Script) -> None:
    script({"match": "*/bf16/*", "fail": "oom"}, {"step": 0.002})
    mldyno.run("mlp", framework="fake", device=["cpu"], precision=["fp32", "bf16"], mode="infer", store=store)
    with pytest.raises(MldynoError, match=r"'mlp/bf16' has no time to compare: oom \(.+\); measure it again"):
        mldyno.compare("mlp/bf16", "mlp/fp32", store=store)
