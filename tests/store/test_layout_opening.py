"""Whatever a killed process left, a store can be read: the write that it was in is undone, in a copy if need be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.conftest import obey_permissions
from tests.store.test_sqlite import a_record

from mldyno.errors import StoreError
from mldyno.store import Query, Store, layout

DYING = """
import os, signal, sqlite3, sys

connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 5")  # so that some of it is in the file already
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE records SET body = 'half a record' || body")
os.kill(os.getpid(), signal.SIGKILL)
"""


READING = """
import sys
from mldyno.store import Query, Store

for path in sys.argv[1:]:
    print(len(list(Store(path).stream(Query(heads=False)))))
"""


@pytest.fixture
def half_written(store: Store) -> Path:
    """A store within which a process was killed."""
    store.append([a_record(batch=number) for number in range(1, 200)])
    store.close()
    subprocess.run([sys.executable, "-c", DYING, str(store.path)], check=False)
    return store.path


def test_a_reader_undoes_what_a_killed_process_left_half_written(half_written: Path) -> None:
    assert Path(f"{half_written}-journal").exists()
    assert [record.case.batch for record in Store(half_written).stream(Query(heads=False))] == list(range(1, 200))


def test_what_a_killed_process_left_is_undone_in_a_copy_where_it_can_not_be_written(half_written: Path) -> None:
    modes = {"file": (0o444, 0o644, 0o755), "folder": (0o644, 0o644, 0o555), "both": (0o444, 0o444, 0o555)}
    files = []
    for name, (of_file, of_journal, of_folder) in modes.items():
        folder = half_written.parent / name
        folder.mkdir()
        for suffix, mode in (("", of_file), ("-journal", of_journal)):
            Path(shutil.copy(f"{half_written}{suffix}", folder)).chmod(mode)
        files.append(folder / half_written.name)
        folder.chmod(of_folder)
    try:
        done = subprocess.run(
            [sys.executable, "-c", READING, *map(str, files)], capture_output=True, text=True, check=True,
            preexec_fn=obey_permissions,
        )  # fmt: skip
    finally:
        for file in files:
            file.parent.chmod(0o755)
    assert done.stdout.splitlines() == ["199", "199", "199"]
    assert files[0].read_bytes() == files[2].read_bytes() == half_written.read_bytes()


def test_what_can_not_even_be_copied_is_told(half_written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connected = layout._connected
    monkeypatch.setattr(layout, "_connected", lambda path, mode, *patience: connected(path, "ro"))

    def forbidden(*files: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shutil, "copyfile", forbidden)
    with pytest.raises(StoreError, match=r"killed while it wrote, and that can't be undone here \(Permission"):
        list(Store(half_written).stream(Query()))
