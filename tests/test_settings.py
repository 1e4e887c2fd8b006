"""One entry for each setting: options of commands, keywords of Python, keys of suites and fields of a plan."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

import mldyno
from mldyno import cli
from mldyno.axes import AXES
from mldyno.errors import MldynoError, UsageError
from mldyno.plan import Plan, expand
from mldyno.settings import IN_SUITES, OF_PLANS, SETTINGS, Settings, axes_and_settings, parsed
from mldyno.store import Store
from mldyno.suites.reader import KEYS


def options_of(name: str) -> dict[str, click.Parameter]:
    command = cli.cli.get_command(click.Context(cli.cli), name)
    assert command is not None
    return {str(parameter.name): parameter for parameter in command.params}


def test_every_axis_and_every_setting_is_an_option_of_run_by_the_name_of_its_keyword() -> None:
    options = options_of("run")
    keywords = {setting.keyword for setting in SETTINGS.values()} | {axis.name for axis in AXES[1:]}
    others = {"targets", "verbosity", "resume", "dry_run", "store", "as_json", "on"}
    assert options.keys() == keywords | others
    for setting in SETTINGS.values():
        assert f"--{setting.keyword.replace('_', '-')}" in options[setting.keyword].opts


def test_the_fields_of_a_plan_are_settings_and_what_it_measures() -> None:
    assert set(OF_PLANS) == {field.name for field in fields(Settings)}
    assert {field.name for field in fields(Plan)} - set(OF_PLANS) == {"cases", "suite", "commands", "sources"}
    assert set(SETTINGS) - set(OF_PLANS) == {"rendezvous", "against", "trust", "weights", "download"}


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("budget", "3s", 3.0), ("budget", 3, 3.0), ("timeout", "2m", 120.0), ("limit", 0.5, 0.5),
        ("target", "5%", 0.05), ("repeats", 3, 3), ("steps", 10, 10), ("energy", True, True), ("data", "real", "real"),
        ("by", "batch-size", "batch"), ("unchecked", "learned", ("learned",)), ("unchecked", ["agrees"], ("agrees",)),
        ("price", "0.80 EUR/h", "0.8 EUR/h"), ("price", "24 usd/day", "1 USD/h"),
    ],
)  # fmt: skip
def test_a_setting_is_read_as_it_is_typed_or_given_in_python(name: str, typed: Any, value: Any) -> None:
    assert parsed({name: typed, "steps": None} if name != "steps" else {name: typed}) == {name: value}
    assert parsed(parsed({name: typed})) == {name: value}, "reading it twice changes nothing"


@pytest.mark.parametrize(
    ("name", "typed", "message"),
    [
        ("repeats", 1001, "--repeats must be between 1 and 1,000."), ("repeats", 0, "must be between 1 and 1,000."),
        ("repeats", "3", "repeats must be a whole number."), ("steps", 2**53, "--steps must be between 1 and "),
        ("steps", True, "steps must be a whole number."), ("budget", True, "budget must be a number"),
        ("budget", "soon", "'soon' is not a duration"), ("target", "100%", "'100%' is 100 % or more"),
        ("data", "reel", "unknown data 'reel'. Did you mean 'real'"), ("by", "colour", "unknown axis 'colour'"),
        ("unchecked", "all", "unknown check 'all'"), ("energy", "yes", "energy must be true or false."),
        ("price", "0.8", "'0.8' is not a price; write it as '0.80 EUR/h'"), ("price", 3, "price must be a word."),
    ],
)  # fmt: skip
def test_what_a_setting_can_not_be_is_refused_everywhere(name: str, typed: Any, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parsed({name: typed})
    assert message in str(error.value)
    with pytest.raises(UsageError) as error:
        mldyno.run("mlp", framework="fake", **{SETTINGS[name].keyword: typed})
    assert message in str(error.value)


def test_keywords_are_parted_into_axes_and_settings_by_their_names() -> None:
    axes, settings = axes_and_settings(
        {"device": ["cpu"], "budget": "3s", "no_check": "learned", "batch": None, "trust": True}
    )
    assert axes == {"device": ["cpu"]}
    assert settings == {"budget": "3s", "unchecked": "learned", "trust": True}


def test_the_keys_of_a_suite_are_settings_and_its_values_are_overridden(tmp_path: Path) -> None:
    assert set(KEYS) - {"include", "cases", "exclude", "score"} == set(IN_SUITES)
    path = tmp_path / "own.toml"
    path.write_text("budget = '2s'\nrepeats = 2\ntarget = 0.05\n[[cases]]\nworkload = 'mlp'\n")
    plan = expand([str(path)], {}, {"repeats": 3})
    assert (plan.budget, plan.repeats, plan.target) == (2.0, 3, 0.05)


def test_a_command_and_a_run_to_resume_are_measured_from_python_too(store: Store) -> None:
    results = mldyno.run(command=["true"], steps=2, budget="1s", store=store)
    assert [record.case.workload for record in results.records] == ["true"]
    with pytest.raises(UsageError, match="a command is run as it is typed; omit mlp, --device before --"):
        mldyno.run("mlp", command=["true"], device="cpu", store=store)
    with pytest.raises(MldynoError, match="no unfinished run to resume"):
        mldyno.run(resume=True, store=store)
