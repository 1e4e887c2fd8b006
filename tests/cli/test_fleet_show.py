"""`mldyno fleet show` from records of several machines in one run, as a fleet leaves them; and prices."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mldyno import api
from mldyno.errors import MldynoError, UsageError
from mldyno.records import Record, seal
from mldyno.store import Query, Store
from mldyno.store.codec import with_origin

Mldyno = Callable[..., tuple[int, str, str]]
RUN, AGAIN = "20260101T000000-aaaaaa", "20260102T000000-bbbbbb"
Meet = Callable[..., None]


@pytest.fixture
def meet(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Meet:
    """Measure on nodes node0, node1 and so on, whose steps take these times in s, under one run."""

    def measure(run: str, *steps: float, fail: str = "", **options: Any) -> None:
        for number, step in enumerate(steps):
            monkeypatch.setenv("MLDYNO_MACHINE", f"node{number}")
            monkeypatch.setenv("MLDYNO_MACHINE_KEY", f"{number:032x}")
            monkeypatch.setenv(
                "MLDYNO_FAKE", json.dumps([{"step": step, "noise": 0.002} | ({"fail": fail} if fail else {})])
            )
            own = Store(tmp_path / f"{run}-{number}.sqlite")
            plan = api.make_plan(["mlp"], {"framework": "fake", "mode": "infer"}, {"repeats": 3, **options})
            api.run_plan(plan, own, resume=run)
            records = [shifted(record, place) for place, record in enumerate(own.select(Query({"run": run})))]
            store.append([with_origin(record, f"fleet:node{number}") for record in records])
        monkeypatch.delenv("MLDYNO_FAKE")

    return measure


def shifted(record: Record, place: int) -> Record:
    """Return a process that differs a little from the one before, as real ones do."""
    factor = 1 + 0.002 * (place % 3 - 1)
    series = tuple(replace(each, values=tuple(factor * value for value in each.values))
                   if each.metric == "step_time" else each for each in record.series)  # fmt: skip
    return seal(replace(record, series=series))


def test_the_slow_node_of_the_newest_run_awaits_another_one_which_confirms_it(meet: Meet, mldyno: Mldyno) -> None:
    meet(RUN, 0.0105, 0.01, 0.01, 0.01)
    code, out, _ = mldyno("fleet", "show")
    assert code == 0
    assert "node0 looks slower than the 3 others by 5.0 %" in out
    assert "mldyno run mlp --framework fake --mode infer --batch 128 --on HOSTS" in out
    meet(AGAIN, 0.0105, 0.01, 0.01, 0.01)
    _, out, _ = mldyno("fleet", "show")
    assert "node0 is slower than the 3 others by 5.0 %" in out
    assert "confirmed" in out
    assert out.splitlines()[-1] == "Such a call is wrong in at most 5 of 100 fleets."


def test_a_run_can_be_named_and_is_shown_as_data(meet: Meet, mldyno: Mldyno) -> None:
    meet(RUN, 0.0105, 0.01, 0.01, 0.01)
    meet(AGAIN, 0.01, 0.01, 0.01, 0.01)
    _, out, _ = mldyno("fleet", "show", RUN, "--json")
    data = json.loads(out)
    assert data["run"] == RUN
    states = {each["node"]: each["state"] for each in data["groups"][0]["nodes"]}
    assert states["node0"] == "not confirmed"
    _, out, _ = mldyno("fleet", "show", "--json")
    assert json.loads(out)["run"] == AGAIN


def test_the_command_that_measures_again_has_the_hosts_of_the_run(meet: Meet, store: Store) -> None:
    meet(RUN, 0.0105, 0.01, 0.01)
    text = json.dumps({"fleet": 1, "on": "/home/me/my lab.toml", "request": {}})
    store.begin_run(RUN, "2026-01-01T00:00:00Z", "", text)
    assert api.fleet_show(store=store).again.endswith("--on '/home/me/my lab.toml'")


def test_a_run_in_which_every_node_failed_says_so(meet: Meet, store: Store) -> None:
    meet(RUN, 0.01, 0.01, fail="oom")
    assert str(api.fleet_show(store=store)).startswith(f"no node of run {RUN} has a time of a step")


def test_without_a_fleet_one_line_says_how_to_measure_one(mldyno: Mldyno, fake_run: Callable[..., object]) -> None:
    fake_run()
    code, _, err = mldyno("fleet", "show")
    assert code == 1
    assert err.strip() == "mldyno: no run has several machines yet; measure some with: mldyno run quick --on HOSTS"


def test_a_run_of_one_machine_is_refused_with_the_newest_of_several(meet: Meet, store: Store) -> None:
    meet(RUN, 0.01, 0.01, 0.01)
    with pytest.raises(MldynoError, match=f"'nothing' is no run on several machines; the newest one is {RUN}"):
        api.fleet_show("nothing", store)


def test_the_report_has_a_chart_of_all_nodes_and_their_table(meet: Meet, store: Store, tmp_path: Path) -> None:
    meet(RUN, 0.0105, 0.01, 0.01, 0.01)
    meet(AGAIN, 0.0105, 0.01, 0.01, 0.01)
    (path,) = api.report(str(tmp_path / "report.html"), store=store)
    page = Path(path).read_text()
    assert "Which node is slow?" in page
    assert "node0 is slow: MLP, inference" in page
    pictures = api.report(str(tmp_path / "pictures"), form="svg", store=store)
    assert "nodes-0.svg" in {Path(each).name for each in pictures}


# -- prices ----------------------------------------------------------------------------------------


def test_a_price_becomes_facts_and_prices_of_steps_and_items_have_the_interval_of_the_time(
    store: Store, script: Callable[..., None], mldyno: Mldyno
) -> None:
    script({"match": "*", "step": 0.0036, "noise": 0.01})
    code, _, _ = mldyno(
        "run", "mlp", "--framework", "fake", "--mode", "infer", "--batch", "8", "--price", "1 EUR/h", "-q"
    )
    assert code == 0
    record = store.select(Query({}, provenances=("measured",)))[0]
    assert (record.fact("price_per_hour"), record.fact("currency")) == (1.0, "EUR")
    table = api.table("mlp", value="price_per_million_steps", store=store)
    (cell,) = table.cells.values()
    step = cell.outcome.step
    assert cell.figure is not None
    assert step is not None
    assert cell.figure.value == pytest.approx(1.0, rel=0.05)
    assert cell.figure.unit == "EUR"
    assert cell.figure.half_width == pytest.approx((step.half_width or 0) * 1e6 / 3600)
    _, out, _ = mldyno("table", "mlp", "--value", "price_per_million_items")
    assert "price of a million items" in out
    assert " EUR ±" in out
    _, out, _ = mldyno("show", "mlp")
    assert " EUR" in next(line for line in out.splitlines() if line.startswith("price"))
    assert "per million samples, at 1 EUR/h" in out


def test_tokens_have_a_price_where_they_are_the_items(store: Store) -> None:
    for workload in ("mlp", "gpt2"):
        api.run(workload, framework="fake", mode="infer", price="2 USD/h", repeats=1, store=store)
    table = api.table(value="price_per_million_tokens", store=store)
    assert {cell.outcome.case.workload for cell in table.cells.values()} == {"gpt2"}


@pytest.mark.parametrize(
    ("text", "per_hour"), [("0.80 EUR/h", "0.8 EUR/h"), ("24 usd/day", "1 USD/h"), (" 1CHF / min ", "60 CHF/h")]
)
def test_a_price_is_read_as_it_is_written(text: str, per_hour: str) -> None:
    plan = api.make_plan(["mlp"], {"framework": "fake"}, {"price": text})
    assert plan.price == per_hour


@pytest.mark.parametrize(
    "text", ["0.8", "EUR 0.8/h", "0.8 €/h", "0.8 EUR", "0 EUR/h", "-1 EUR/h", "nan EUR/h", "1e3 EUR/h", ""]
)
def test_a_bad_price_gets_one_clear_line(text: str) -> None:
    with pytest.raises(UsageError, match="is not a price"):
        api.make_plan(["mlp"], {"framework": "fake"}, {"price": text})


def test_without_a_price_the_table_says_how_to_state_one(fake_run: Callable[..., object], store: Store) -> None:
    fake_run()
    with pytest.raises(MldynoError, match="none of these records has a price of its machine; state it"):
        api.table("mlp", value="price_per_million_steps", store=store)


def test_prices_in_two_currencies_stand_beside_each_other_each_with_its_own_and_in_two_tables_of_the_report(
    meet: Meet, store: Store, tmp_path: Path
) -> None:
    meet(RUN, 0.01, price="1 EUR/h")
    meet(AGAIN, 0.01, 0.01, price="1 USD/h")
    text = api.table(value="price_per_million_steps", rows=["machine"], cols=["device"], store=store)
    assert "EUR" not in str(text)
    newest = store.select(Query({"run": AGAIN}))
    store.remove([record.id for record in newest if record.machine.name.startswith("node0")], lambda owner: False)
    laid = api.table(value="price_per_million_steps", rows=["machine"], cols=["device"], store=store)
    for form in ("terminal", "markdown", "csv", "latex"):
        shown = laid.to(form)
        assert "EUR" in shown, form
        assert "USD" in shown, form
    (path,) = api.report(str(tmp_path / "report.html"), store=store)
    page = Path(path).read_text()
    assert "Prices in EUR" in page
    assert "Prices in USD" in page


def test_processes_with_several_prices_have_none(meet: Meet, store: Store) -> None:
    meet(RUN, 0.01, price="1 EUR/h")
    records = store.select(Query({"run": RUN}))
    other = seal(replace(records[0], facts={**records[0].facts, "price_per_hour": 2.0}))
    from mldyno.analysis.outcomes import Outcome

    assert Outcome((*records, other)).figure("price_per_million_steps") is None
    assert Outcome(tuple(records)).figure("price_per_million_steps") is not None
