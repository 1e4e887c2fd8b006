"""Flags and suites are expanded into cases before anything runs; what is wrong is said at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from mldyno import plan as plans
from mldyno import plugins, suites
from mldyno.errors import MldynoError, UsageError
from mldyno.plan import expand


def test_axes_multiply() -> None:
    plan = expand(["mlp"], {"mode": ["train", "infer"], "batch": ["8", "16"], "device": ["cpu", "mps"]})
    assert len(plan.cases) == 8
    assert len({case.id for case in plan.cases}) == 8


def test_a_workload_brings_its_own_sizes() -> None:
    assert {case.batch for case in expand(["mlp"], {}).cases} == {128}
    assert {case.seq for case in expand(["mlp"], {"seq": ["64"]}).cases} == {None}


def test_a_flag_overrides_what_a_suite_says() -> None:
    plan = expand(["quick"], {"batch": ["2"]}, {"budget": 1.0})
    assert {case.batch for case in plan.cases} == {2}
    assert plan.budget == 1.0
    assert plan.suite == "quick"


def test_the_same_case_named_twice_runs_once() -> None:
    assert len(expand(["mlp", "mlp"], {"mode": ["infer", "infer"]}).cases) == 1


def test_a_plan_survives_being_written_down() -> None:
    plan = expand(["quick"], {}, {"repeats": 3})
    assert plans.from_text(plan.text()) == plan
    assert plans.from_text(plan.text()).key == plan.key != expand(["quick"], {}).key


@pytest.mark.parametrize("name", suites.names())
def test_every_shipped_suite_expands_and_begins_with_what_it_is(name: str) -> None:
    assert expand([name], {}).cases
    assert suites.title(name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[cases]]\nworkload = 'mlp'\ncolour = 'red'", "unknown key in"),
        ("colour = 1\n[[cases]]\nworkload = 'mlp'", "unknown key in suite own.toml 'colour'"),
        ("[[cases]]\nbatch = 4", "needs a workload"),
        ("[[cases]]\nworkload = 'mpl'", "Did you mean 'mlp'"),
        ("[[cases]]\nworkload = 'mlp'\nbatch = 1.5", "a value or a list"),
        ("[[cases]]\nworkload = 'mlp'\nbatch = -4", "not a batch"),
        ("budget = '3 lightyears'\n[[cases]]\nworkload = 'mlp'", "not a duration"),
        ("repeats = 'many'\n[[cases]]\nworkload = 'mlp'", "whole number"),
        ("cases = 3", r"needs at least one \[\[cases\]\]"),
        ("not toml at all", "not TOML"),
    ],
)
def test_a_suite_with_a_mistake_is_refused_with_the_reason(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(MldynoError, match=said):
        expand([str(path)], {})


def test_a_suite_of_the_user_runs_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("# mine\ntarget = '5%'\n[[cases]]\nworkload = 'mlp'\nbatch = [1, 2]\ncompile = false\n")
    plan = expand([str(path)], {})
    assert plan.target == pytest.approx(0.05)
    assert len(plan.cases) == 4


def test_an_unknown_target_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="Did you mean 'resnet50'"):
        expand(["resnet5"], {})


def test_nothing_to_run_is_said() -> None:
    with pytest.raises(UsageError, match="name what to run"):
        expand([], {})


def test_members_of_a_kind_are_found_by_their_files_without_being_imported() -> None:
    assert {"mlp", "resnet50"} <= set(plugins.names("workloads"))
    assert not any(name.startswith(("-", "_")) for name in plugins.names("workloads"))
    assert plugins.about("frameworks", "torch")[1] == "torch"
    assert plugins.about("frameworks", "fake")[1] == ""
