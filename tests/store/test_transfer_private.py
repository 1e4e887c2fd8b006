"""A private copy has no command line and no path; it is a record of its own, and says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mldyno.axes import unstated
from mldyno.records import SCHEMA, Case, Machine, Record, Run, Software, Warning_, seal
from mldyno.store.codec import decode
from mldyno.store.transfer import private_copy, private_text, without_paths


def made(case: Case, **changed: object) -> Record:
    whole = Record(SCHEMA, "", "2026-01-01T00:00:00Z", "measured", Run("r"), case, "ok", "", Machine("m"))
    return seal(replace(whole, **changed))  # type: ignore[arg-type]


COMMAND = made(
    unstated("python :home:me:train.py", "command"),
    status="failed",
    reason="the command ended with exit code 7: no file /home/me/data",
    facts={"command": "python /home/me/train.py", "steps": 3},
    software=Software(env={"LD_PRELOAD": "/home/me/lib.so", "OMP_NUM_THREADS": "2"}),
    warnings=(Warning_("x", "see '/home/me/a b'", "look into ~/logs/x"),),
)


def test_a_copy_has_neither_command_line_nor_path_and_says_so() -> None:
    copy = private_copy(COMMAND)
    assert "home" not in copy.text
    assert "train.py" not in copy.text
    assert copy.case.workload.startswith("private command ")
    assert copy.reason == "the command ended with exit code 7"
    assert copy.facts == {"steps": 3, "private": True}
    assert copy.software.env == {"LD_PRELOAD": "PATH", "OMP_NUM_THREADS": "2"}


def test_a_copy_is_a_sound_record_of_its_own() -> None:
    copy = private_copy(COMMAND)
    assert copy.id != COMMAND.id
    assert decode(copy.text) == copy
    assert private_copy(copy) == copy, "nothing is left to leave out"
    assert private_text(COMMAND.text) == copy.text


def test_the_same_command_keeps_one_name_and_another_has_another() -> None:
    names = [private_copy(made(unstated(line, "command"))).case.workload for line in ("a", "b", "a")]
    assert names[0] == names[2] != names[1]


def test_a_record_with_nothing_to_leave_out_stays_what_it_is() -> None:
    record = made(Case("mlp"), facts={"item": "sample"})
    assert private_copy(record) is record


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("can't open /home/me/x.bin: no", "can't open PATH: no"),
        ("in ~/x, ~me/y and ../z", "in PATH, PATH and PATH"),
        (r"C:\Users\me\x failed", "PATH failed"),
        ("'/a b/c' is gone", "PATH is gone"),
        ("1.5 GB/s, 3/4, mlp/train/cpu, and/or", "1.5 GB/s, 3/4, mlp/train/cpu, and/or"),
    ],
)
def test_only_paths_are_replaced(text: str, shown: str) -> None:
    assert without_paths(text) == shown
