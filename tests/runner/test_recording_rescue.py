"""What a store would not take comes back as measured here if this machine's secret proves that it wrote the file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from mldyno import api, keys
from mldyno.errors import ImportFileError, StoreError
from mldyno.plan import Plan
from mldyno.records import Record, seal
from mldyno.runner.recording import rescue
from mldyno.store import Query, Store, transfer
from mldyno.store.codec import decode

PLAN = api.make_plan(["mlp"], {"framework": ["fake"], "mode": ["infer"], "batch": [1, 2, 4]}, {"repeats": 1})


@pytest.fixture
def rescued(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of what a full disk did not take; the run is not finished."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    append = store.append
    taken: list[Record] = []

    def full(records: Iterable[Record]) -> int:
        if taken:
            raise StoreError("the disk is full")
        taken.extend(records)
        return append(taken)

    with monkeypatch.context() as patch:
        patch.setattr(store, "append", full)
        with pytest.raises(StoreError, match="bring it back with: mldyno import"):
            api.run_plan(PLAN, store)
    (path,) = tmp_path.glob("mldyno-rescued-*.jsonl")
    return path


def imported(store: Store) -> list[str]:
    return [record.imported_from for record in store.stream(Query(heads=False))]


def faster(text: str) -> str:
    """A record whose times are a tenth, with an id that fits."""
    record = decode(text)
    series = [replace(part, values=tuple(value / 10 for value in part.values)) for part in record.series]
    return seal(replace(record, series=tuple(series))).text


def test_a_rescue_file_comes_back_as_measured_here(rescued: Path, store: Store) -> None:
    lines: list[str] = []
    assert api.import_([str(rescued)], store, lines.append) == (1, 1)
    assert imported(store) == ["", ""]
    assert lines == []
    assert api.import_([str(rescued)], store) == (0, 1)


def test_an_export_of_an_interrupted_run_with_forged_times_is_imported(
    store: Store, cut_short: Callable[[Plan, int], None], tmp_path: Path
) -> None:
    """All that it takes to look like a rescue file is in every export: name, key and the id of the run."""
    cut_short(PLAN, 1)
    api.export(str(tmp_path / "mine.jsonl"), "jsonl", store=store)
    forged = tmp_path / "mldyno-rescued-forged.jsonl"
    forged.write_text(faster((tmp_path / "mine.jsonl").read_text()) + "\n")
    lines: list[str] = []
    api.import_([str(forged)], store, lines.append)
    assert imported(store) == ["", forged.name]
    (line,) = lines
    assert line.startswith("1 record of an unfinished run: no secret of this machine proves that it wrote them")


def test_a_proof_is_of_its_records_only(rescued: Path, store: Store) -> None:
    proof, text = rescued.read_text().splitlines()
    rescued.write_text(f"{proof}\n{faster(text)}\n")
    api.import_([str(rescued)], store)
    assert imported(store) == ["", rescued.name]
    invented = json.loads(proof) | {"proves": [decode(faster(text)).id]}
    rescued.write_text(f"{json.dumps(invented, separators=(',', ':'))}\n{faster(faster(text))}\n{faster(text)}\n")
    api.import_([str(rescued)], store)
    assert set(imported(store)) == {"", rescued.name}
    assert imported(store).count("") == 1


def test_a_rescue_file_of_another_machine_is_imported(
    rescued: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLDYNO_MACHINE_KEY", "ab" * 16)
    api.import_([str(rescued)], store)
    assert imported(store) == ["", rescued.name]


def test_a_signature_of_a_submission_does_not_make_it_measured_here(rescued: Path, store: Store) -> None:
    text = rescued.read_text().splitlines()[1]
    rescued.write_text(f"{transfer.signature([decode(text).id])}\n{text}\n")
    api.import_([str(rescued)], store)
    assert imported(store) == ["", rescued.name]


def test_without_a_key_nothing_is_proven_and_nothing_is_lost(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_short: Callable[[Plan, int], None]
) -> None:
    cut_short(PLAN, 1)
    (record,) = store.stream(Query(heads=False))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("MLDYNO_MACHINE_KEY")
    monkeypatch.setattr(keys, "data_folder", lambda: Path(os.devnull))
    assert "mldyno import" in rescue([record], store.path)
    other = Store(tmp_path / "other.sqlite")
    (path,) = tmp_path.glob("mldyno-rescued-*.jsonl")
    assert api.import_([str(path)], other) == (1, 1)
    assert imported(other) == [path.name]


def test_of_a_file_that_was_cut_all_that_is_whole_comes_back_and_it_is_said(
    rescued: Path, store: Store, tmp_path: Path
) -> None:
    text = rescued.read_text().splitlines()[1]
    other = decode(faster(text))
    path = tmp_path / "two.jsonl"
    ids = [decode(text).id, other.id]
    head = {"proves": ids, "rescued": keys.authenticate("rescue", *sorted(ids))}
    whole = f"{json.dumps(head, separators=(',', ':'))}\n{text}\n{other.text}"
    lines: list[str] = []
    path.write_text(whole[:-100])
    assert api.import_([str(path)], store, lines.append) == (1, 1)
    assert imported(store) == ["", ""]
    assert lines == [f"{path}: line 3 is cut off, as on a full disk; the records before it were taken"]
    path.write_text(f"{text}\n{other.text}"[:-100])
    with pytest.raises(ImportFileError, match="line 2: not JSON"):  # which says of itself that it is one
        api.import_([str(path)], store, lines.append)


def test_where_there_is_no_room_for_all_of_it_nothing_of_it_stays(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_short: Callable[[Plan, int], None]
) -> None:
    cut_short(PLAN, 1)
    (record,) = store.stream(Query(heads=False))
    full, home = tmp_path / "full", tmp_path / "home"
    full.mkdir()
    home.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(full))
    monkeypatch.chdir(home)
    sync = os.fsync

    def no_room(descriptor: int) -> None:
        if str(full) in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", no_room)
    assert str(home) in rescue([record], store.path)
    assert [path.stat().st_size for path in full.iterdir()] == [0]


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_or_a_pipe_that_others_put_there_is_not_written_to(
    rescued: Path, store: Store, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = decode(rescued.read_text().splitlines()[1])
    rescued.unlink()
    victim, here = tmp_path / "victim", tmp_path / "here"
    victim.write_text("mine")
    here.mkdir()
    monkeypatch.chdir(here)
    if kind == "link":
        rescued.symlink_to(victim)
    else:
        os.mkfifo(rescued)
    assert str(here / rescued.name) in rescue([record], store.path)
    assert victim.read_text() == "mine"
