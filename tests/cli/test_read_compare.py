"""`mldyno compare`: before and after on this machine, what is new enough, and a line where there is nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.conftest import OWN_KEY
from tests.views.report.made_records import BENCH, record

from mldyno.records import Case, Run, Software, seal
from mldyno.store import Store
from mldyno.views.titles import case_on_device

Mldyno = Callable[..., tuple[int, str, str]]
CASE = Case("mlp", batch=128, mode="infer")
DAYS = ("2026-11-01", "2026-11-08", "2026-11-15")


@pytest.fixture
def runs(store: Store) -> list[str]:
    """The ids of three runs of one case, a week apart, each faster than the one before; the last with another torch."""
    ids = []
    for number, day in enumerate(DAYS):
        made = record(CASE, 0.008 / 2**number, replace(BENCH, name="test bench", key=OWN_KEY), wall_time=3.0)
        run = Run(f"{day.replace('-', '')}T120000-00000{number}")
        software = replace(made.software, versions={"torch": "2.14" if number == 2 else "2.13"})
        store.append([seal(replace(made, created=f"{day}T12:00:00.000Z", run=run, software=software))])
        ids.append(run.id)
    store.close()
    return ids


def test_the_runs_of_a_case_are_compared_with_the_oldest_and_each_says_when_it_was(
    mldyno: Mldyno, runs: list[str]
) -> None:
    code, out, _ = mldyno("compare", "mlp", "--by", "run")
    first, second = out.splitlines()
    assert code == 0
    assert first.startswith(f"{case_on_device(CASE)}: 2026-11-08 12:00 UTC (run {runs[1]}) is 2.0")
    assert f" faster than 2026-11-01 12:00 UTC (run {runs[0]}) [separate runs]" in first
    assert second.startswith(f"{case_on_device(CASE)}: 2026-11-15 12:00 UTC (run {runs[2]}) is 4.0")
    assert second.endswith("[separate runs; differing framework version]")


def test_as_data_a_comparison_names_both_runs_and_their_dates(mldyno: Mldyno, runs: list[str]) -> None:
    comparisons = json.loads(mldyno("compare", "mlp", "--by", "run", "--json")[1])["comparisons"]
    assert [(each["base_run"], each["other_run"]) for each in comparisons] == [(runs[0], runs[1]), (runs[0], runs[2])]
    assert {each["base_created"] for each in comparisons} == {"2026-11-01T12:00:00.000Z"}


def test_what_was_measured_before_a_moment_can_be_left_out(mldyno: Mldyno, runs: list[str]) -> None:
    out = mldyno("compare", "mlp", "--by", "run", "--since", "2026-11-05")[1]
    assert out.count("\n") == 1
    assert runs[0] not in out
    assert "test bench" in mldyno("table", "mlp", "--since", "2026-11-15")[1]
    assert "M1 Mac mini" not in mldyno("table", "mlp", "--since", "2026-11-15")[1]
    code, _, err = mldyno("table", "mlp", "--since", "2026-11-16")
    assert (code, err.partition(";")[0]) == (1, "mldyno: nothing recorded for 'mlp' since 2026-11-16 00:00:00 UTC")
    code, _, err = mldyno("compare", "mlp", "--by", "run", "--since", "soon")
    assert (code, err) == (2, "mldyno: 'soon' is not a time; write it as yesterday, 3d, 12h or 2026-11-01.\n")


def test_where_only_published_machines_could_be_compared_the_own_runs_are_pointed_at(
    mldyno: Mldyno, runs: list[str]
) -> None:
    code, out, _ = mldyno("compare", "mlp")
    assert code == 0
    assert "M1 Mac mini" in out
    assert out.splitlines()[-1] == (
        "this machine measured 'mlp' on one device only, but in several runs; "
        "compare these with: mldyno compare mlp --by run"
    )
    code, out, err = mldyno("compare", "this-machine")
    assert (code, out) == (1, "")
    assert err.endswith("compare these with: mldyno compare this-machine --by run\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compare", "this-machine", "--by", "precision"),
         "nothing to compare along precision in 'this-machine': no two cases that are ok differ only in precision; "
         "measure some with --precision A,B."),
        (("compare", "mlp", "--by", "run", "--since", "2026-11-10"),
         "nothing to compare along run in 'mlp': no case was ok in two runs; measure it once more."),
        (("table", "this-machine", "--by", "machine"),
         "nothing to compare along machine: no two cases that are ok differ only in machine; "
         "import what another has measured."),
    ],
)  # fmt: skip
def test_where_there_is_nothing_to_compare_along_an_axis_one_line_says_so(
    words: tuple[str, ...], said: str, mldyno: Mldyno, runs: list[str]
) -> None:
    assert mldyno(*words) == (1, "", f"mldyno: {said}\n")


def test_a_case_whose_workload_has_changed_is_not_the_same_case(mldyno: Mldyno, runs: list[str], store: Store) -> None:
    made = record(replace(CASE, version=2), 0.001, replace(BENCH, name="test bench", key=OWN_KEY))
    store.append([seal(replace(made, created="2026-11-16T12:00:00Z", run=Run("later"), software=Software()))])
    store.close()
    assert "later" not in mldyno("compare", "mlp", "--by", "run")[1]
