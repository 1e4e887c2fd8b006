"""Other interpreters: named by what they have, never by where they are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mldyno import api, interpreters
from mldyno.axes import AXIS
from mldyno.errors import UsageError
from mldyno.records import SCHEMA, Case, Machine, Record, Run
from mldyno.store import Store
from mldyno.store.codec import BadRecord, check
from mldyno.worker.client import Ended, WorkerProcess


def an_interpreter(path: Path, version: tuple[int, ...] = (3, 11, 7), **frameworks: str) -> str:
    """A program that answers as an interpreter of that version would, and otherwise is this one."""
    answer = json.dumps([list(version), frameworks])
    path.write_text(f'#!/bin/sh\nif [ "$1" = -I ]; then echo \'{answer}\'; else exec {sys.executable} "$@"; fi\n')
    path.chmod(0o755)
    return str(path)


def test_it_is_called_by_its_version_and_its_frameworks_and_not_by_its_path(tmp_path: Path) -> None:
    path = an_interpreter(tmp_path / "secret", jax="0.10.2", torch="2.13.0+cpu")
    name = interpreters.name_of(path)
    assert name == "3.11.7+jax0.10.2+torch2.13.0+cpu"
    assert interpreters.path_of(name) == path
    assert interpreters.name_of(name) == name, "a name stays as it is"


def test_in_the_cases_of_a_framework_only_that_is_in_its_name(tmp_path: Path) -> None:
    both, other = (an_interpreter(tmp_path / name, (3, 13, 1), **more) for name, more in
                   (("both", {"jax": "0.9", "torch": "2.9"}), ("other", {"jax": "0.9", "mlx": "0.3"})))  # fmt: skip
    names = [interpreters.name_of(path) for path in (both, other)]
    assert interpreters.name_for(names[0], "jax") == "3.13.1+jax0.9"
    assert interpreters.path_of("3.13.1+jax0.9") == both
    assert interpreters.name_for(names[1], "jax") == names[1], "else two would have one name"
    assert interpreters.name_for(names[0], "mlx") == "3.13.1"
    assert interpreters.name_for("3.99.1", "jax") == "3.99.1"


def test_this_interpreter_answers_for_itself() -> None:
    name = interpreters.name_of(sys.executable)
    assert name.startswith(".".join(map(str, sys.version_info[:3])))
    assert "torch2" in name


def test_one_that_is_missing_too_old_or_none_gets_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no interpreter '/nowhere/python'"):
        interpreters.name_of("/nowhere/python")
    with pytest.raises(UsageError, match=r"is Python 3\.8\.10; a worker needs 3\.10 or newer"):
        interpreters.name_of(an_interpreter(tmp_path / "old", (3, 8, 10)))
    with pytest.raises(UsageError, match="does not answer as an interpreter"):
        interpreters.name_of("/bin/true")


def test_a_worker_runs_in_the_interpreter_of_its_case(tmp_path: Path) -> None:
    name = interpreters.name_of(an_interpreter(tmp_path / "own", (3, 12, 1)))
    worker = WorkerProcess(case=Case("mlp", framework="fake", python=name))
    assert worker._interpreter() == str(tmp_path / "own")
    with pytest.raises(Ended, match="name its path with --python"):
        WorkerProcess(case=Case("mlp", framework="fake", python="3.99.9"))._interpreter()


def test_two_interpreters_are_measured_side_by_side_and_no_path_is_kept(tmp_path: Path) -> None:
    paths = [an_interpreter(tmp_path / name, (3, 12, minor)) for minor, name in enumerate(("one", "two"))]
    store = Store(tmp_path / "records.sqlite")
    results = api.run("mlp", framework="fake", mode="infer", python=paths, repeats=1, budget=0.5, store=store)
    assert {record.case.python for record in results.records} == {"3.12.0", "3.12.1"}
    assert all(str(tmp_path) not in record.text for record in results.records)
    (comparison,) = results.compare("python")
    assert comparison.how.startswith("paired, ")


def test_reading_a_value_starts_nothing_and_takes_names_only(tmp_path: Path) -> None:
    ran, tool = tmp_path / "ran", tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\ntouch {ran}\necho '[[3, 12, 9], {{}}]'\n")
    tool.chmod(0o755)
    for text in (str(tool), "python3", sys.executable, "3.12", "3.11.7/../x", "3.11.7\n", ""):
        with pytest.raises(UsageError, match="is not the name of an interpreter"):
            AXIS["python"].parse(text.replace("\n", "\nx"))
    with pytest.raises(UsageError, match="is not the name of an interpreter"):
        api.table(f"python={tool.name}", store=str(tmp_path / "records.sqlite"))
    assert AXIS["python"].parse("3.11.7+torch2.13.0") == "3.11.7+torch2.13.0"
    assert not ran.exists()


def test_a_record_names_an_interpreter_by_its_name_or_is_refused() -> None:
    for name in ("./x", "/usr/bin/python3", "python3", "3.11.7"):
        case = Case("mlp", python=name)
        record = Record(SCHEMA, "", "2026-01-01", "measured", Run("r"), case, "ok", "", Machine("m"))
        if name == "3.11.7":
            check(record)
        else:
            with pytest.raises(BadRecord, match="python must be the name of an interpreter"):
                check(record)
