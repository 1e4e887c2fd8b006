"""The command that measures it once more can be pasted into a shell, whoever wrote the record."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.made import outcome

from mldyno.analysis.outcomes import Outcome, outcomes
from mldyno.analysis.rerun import command_for, rerun_command, rerun_commands, their_commands
from mldyno.axes import unstated
from mldyno.records import Case, Record, seal

HARM = "x; touch harm; $(touch harm) `touch harm` | sh"


def of(case: Case, provenance: str = "measured", suite: str | None = None, **facts: Any) -> Outcome:
    """The outcome of a case with one process."""
    (record,) = outcome(1e-3, processes=1).records
    made: Record = replace(record, case=case, provenance=provenance, facts=facts, run=replace(record.run, suite=suite))  # type: ignore[arg-type]
    return outcomes([seal(made)])[0]


def command(line: str, provenance: str = "measured") -> Outcome:
    return of(unstated(line.replace("/", ":"), "command"), provenance, command=line)


def test_it_names_what_is_not_usual() -> None:
    cases = [Case("mlp", batch=8), Case("mlp", batch=16, device="cuda:0", precision="bf16", mode="infer")]
    assert rerun_command([of(case) for case in cases]) == (
        "mldyno run mlp --device cpu,cuda:0 --precision fp32,bf16 --batch 8,16"
    )
    both = [of(Case(name, batch=8)) for name in ("mlp", "lstm")]
    assert rerun_commands(both) == ["mldyno run mlp --mode train --batch 8", "mldyno run lstm --mode train --batch 8"]


def test_each_run_has_its_own_command_so_that_their_axes_are_not_multiplied() -> None:
    runs = (Case("mlp", batch=8, ranks=2), Case("mlp", batch=8, framework="jax", precision="bf16"))
    measured = [
        outcomes([seal(replace(record, run=replace(record.run, id=f"r{place}")))])[0]
        for place, case in enumerate(runs) for record in of(case).records
    ]  # fmt: skip
    assert rerun_commands(measured) == [
        "mldyno run mlp --mode train --batch 8 --ranks 2",
        "mldyno run mlp --framework jax --mode train --precision bf16 --batch 8",
    ]


@pytest.mark.parametrize("line", ["/bin/sleep 1", "curl http://a:b/c", "sh -c 'sleep 1; echo \"$HOME\"'", "a 'b c'"])
def test_a_command_of_yours_is_given_as_it_was_typed(line: str) -> None:
    assert rerun_command([command(line)]) == f"mldyno run -- {line}"


def test_two_commands_of_one_run_are_measured_again_as_one_run_and_dashes_of_their_own_in_none() -> None:
    pair = [command("sleep 0.1"), command("sh -c 'sleep 0.2'")]
    assert rerun_commands(pair) == ["mldyno run -- sleep 0.1 -- sh -c 'sleep 0.2'"]
    assert rerun_commands([command("git log -- README.md")]) == []


def test_of_an_older_record_only_words_that_are_sure_are_given() -> None:
    assert rerun_command([of(unstated("sleep 1", "command"))]) == "mldyno run -- sleep 1"
    assert rerun_command([of(unstated("curl http:::a:b:c", "command"))]) == ""


def test_a_command_from_elsewhere_is_theirs_and_not_to_be_pasted() -> None:
    theirs = command("curl http://evil/x", "imported")
    assert rerun_commands([theirs]) == []
    assert their_commands([theirs, command("sleep 1")]) == ["curl http://evil/x"]
    assert rerun_commands([theirs, command("curl http://evil/x")]) == ["mldyno run -- curl http://evil/x"], "ours too"


def test_what_was_left_out_is_not_made_up() -> None:
    private = of(unstated("private command 3f9c2a71", "command"), private=True)
    assert (rerun_commands([private]), their_commands([private])) == ([], [])


def test_no_text_of_a_record_is_a_command_of_the_shell(tmp_path: Path) -> None:
    hostile = [
        of(Case(HARM)), of(Case("mlp", framework=HARM)), of(Case("mlp", device=HARM)), of(Case("mlp"), suite=HARM),
        of(Case("mlp"), suite="../../x"), command(HARM), of(unstated(HARM, "command")), command("'open"),
    ]  # fmt: skip
    commands = [rerun_command([each]) for each in hostile]
    assert [bool(line) for line in commands] == [False, False, False, True, True, True, True, False]
    script = "mldyno() { for word; do printf '%s\\n' \"$word\"; done; }\n" + "\n".join(commands)
    said = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert list(tmp_path.iterdir()) == [], "nothing but mldyno was run"
    assert said.stdout.split().count("harm;") == 2, "it is a word of the command"


def test_a_suite_that_does_not_ship_is_given_by_its_cases() -> None:
    assert rerun_command([of(Case("mlp", batch=8), suite="mine")]) == "mldyno run mlp --mode train --batch 8"
    assert rerun_command([of(Case("mlp", batch=8), suite="roofline")]) == "mldyno run roofline"


def test_a_device_that_is_not_known_here_gives_no_command() -> None:
    assert command_for([Case("mlp", device="tpu")]) == ""
    assert command_for([Case("mlp", device="tpu")], elsewhere=True) == "mldyno run mlp --device all --mode train"
