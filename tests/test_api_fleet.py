"""Runs on hosts, over `local`: a real conductor, a real pipe, a real remote runner."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mldyno
from mldyno import api, keys
from mldyno.errors import MldynoError, UsageError
from mldyno.fleet.conductor import FleetListener, Member, Times
from mldyno.records import Record
from mldyno.store import Query, Store

FAKE: dict[str, Any] = {"framework": "fake", "mode": "infer"}


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def likeness(record: Record) -> dict[str, Any]:
    """A record without what differs from one process to the next."""
    content = json.loads(record.text)
    for name in ("id", "created", "run", "series", "warnings"):
        del content[name]
    content["facts"] = sorted(content["facts"])
    for device in content["machine"]["devices"]:
        device["facts"] = sorted(device["facts"])
    return dict(content)


def test_a_run_on_local_makes_the_same_records_as_one_without(store: Store) -> None:
    here = api.run("mlp", repeats=2, store=store, **FAKE)
    there = mldyno.run("mlp", repeats=2, on="local", store=store, **FAKE)
    assert [likeness(record) for record in there.records] == [likeness(record) for record in here.records]
    assert {record.imported_from for record in there.everything} == {""}
    assert there.run != here.run
    assert there.all_ok


def test_records_of_a_host_are_marked_with_where_they_came_from_and_not_as_measured_here(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host by ssh: here a program of that name that runs the words on this machine."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ssh").write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    (tools / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    lab = tmp_path / "lab.toml"
    lab.write_text(f'[hosts.box]\nssh = "me@box"\npython = "{sys.executable}"\n')
    results = api.run("mlp", repeats=1, on=str(lab), store=store, **FAKE)
    (record,) = results.records
    assert (record.imported_from, record.machine.name, results.all_ok) == ("fleet:box", "box", True)
    assert store.select(Query({"run": results.run, "imported_from": ""})) == []


class Cut(FleetListener):
    """Ends the run, as Ctrl-C does, when so many records are here."""

    def __init__(self, most: int) -> None:
        self.left = most

    def kept(self, member: Member, record: Record) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_run_that_was_interrupted_goes_on_where_it_was(store: Store) -> None:
    cut = api.run_on("local", "mlp", repeats=12, store=store, listener=Cut(3), **FAKE)
    assert [member.state for member in cut.hosts] == ["interrupted"]
    assert not cut.all_ok
    before = {record.id for record in cut.records}
    assert 3 <= len(before) < 12
    with pytest.raises(MldynoError, match="no unfinished run"):
        api.run_on("local", "mlp", repeats=11, resume=True, store=store, **FAKE)
    whole = api.run_on("local", resume=True, store=store)
    assert (whole.run, whole.all_ok) == (cut.run, True)
    assert before < {record.id for record in whole.records}
    assert [record.run.repeat for record in whole.records] == list(range(12))
    with pytest.raises(MldynoError, match="no unfinished run"):
        api.run_on("local", resume=True, store=store)


def test_what_an_earlier_run_left_on_a_host_is_fetched_at_the_next_contact(store: Store) -> None:
    cut = api.run_on("local", "mlp", repeats=12, store=store, listener=Cut(3), **FAKE)
    lost = [record.id for record in cut.records][:2]
    store.remove(lost, lambda owner: False)  # as if the line had been cut before they were sent
    api.run_on("local", "mlp", repeats=1, store=store, **FAKE)
    assert {*lost} < set(store.ids(Query({"run": cut.run, "imported_from": ""}, heads=False)))


def test_an_unfinished_run_on_hosts_is_no_run_to_resume_here(store: Store) -> None:
    api.run_on("local", "mlp", repeats=12, store=store, listener=Cut(2), **FAKE)
    with pytest.raises(MldynoError, match="no unfinished run to resume"):
        api.run(resume=True, store=store)


def test_a_run_of_hosts_that_another_machine_began_needs_trust(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    api.run_on("local", "mlp", repeats=12, store=store, listener=Cut(2), **FAKE)
    monkeypatch.setenv(keys.VARIABLE, "f" * 32)
    with pytest.raises(UsageError, match="nothing proves that this machine began run"):
        api.run_on("local", resume=True, store=store)


def test_what_the_store_keeps_of_a_run_has_no_secret(store: Store, tmp_path: Path) -> None:
    lab = tmp_path / "lab.toml"
    lab.write_text('[hosts.here]\nlocal = ""\nenv = {TOKEN = "hunter2"}')
    words = ["sh", "-c", "sleep 9", "--password=hunter3"]
    cut = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT))
    cut.start()
    results = api.run_on(str(lab), command=words, store=store, times=Times(tidy=10.0))
    cut.join()
    assert not results.all_ok
    stored = sqlite3.connect(store.path).execute("SELECT plan FROM runs").fetchall()
    assert "hunter" not in str(stored)
    with pytest.raises(MldynoError, match="secrets were not kept"):
        api.run_on(str(lab), resume=True, store=store)


def test_hosts_show_what_they_would_run_and_for_how_long() -> None:
    (host,) = api.dry_run_on("local", "mlp", device="all", **FAKE)
    assert [each.case.split("/")[3] for each in host.expected] == ["cpu", "gpu"]
    assert all(each.seconds > 0 for each in host.expected)


@pytest.mark.parametrize(
    ("targets", "options", "reason"),
    [
        (("mlq",), {}, "unknown workload"),
        ((), {}, "name what to run"),
        (("mlp",), {"nodes": 2}, "--nodes and --on exclude each other"),
        (("model.onnx",), {}, "is not text"),
        (("missing.py",), {}, "missing.py"),
        (("mlp",), {"precision": "fp7"}, "fp7"),
        (("mlp",), {"budget": "soon"}, "soon"),
    ],
)
def test_what_no_host_could_do_is_refused_before_any_is_asked(
    targets: Sequence[str], options: dict[str, Any], reason: str, store: Store
) -> None:
    with pytest.raises(MldynoError, match=reason):
        api.run_on("ssh:nowhere.invalid", *targets, store=store, **options)
    assert not store.path.exists()


def test_files_of_the_user_are_sent_by_their_names(tmp_path: Path) -> None:
    from mldyno.api.fleet import request_for

    (tmp_path / "model.py").write_text("def build(): ...\n")
    request = request_for([f"{tmp_path}/model.py:build", "mlp"], None, {})
    assert (request.targets, request.files) == (("model.py:build", "mlp"), {"model.py": "def build(): ...\n"})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.py").write_text("def other(): ...\n")
    with pytest.raises(UsageError, match=r"two files are called model\.py"):
        request_for([str(tmp_path / "model.py"), str(tmp_path / "other" / "model.py")], None, {})


def test_an_engine_s_limit_of_time_is_never_below_what_the_user_allows() -> None:
    from mldyno.api.fleet import longest, request_for

    short, long = (request_for(["mlp"], None, {"budget": budget}) for budget in ("10s", "10m"))
    assert longest(short) < longest(long)
    assert longest(replace(short, options={"limit": "1h"})) > 3600.0
