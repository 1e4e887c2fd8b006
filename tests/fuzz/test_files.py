"""Every reading command reads every hostile file, and starts nothing; `make fuzz-files` tries 10,000 more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.fuzz import strange_files
from tests.fuzz.mutations import KEPT, seeds

ROOT = Path(__file__).parents[2]
READING = ("compare", "completion", "export", "history", "import", "list", "remove", "report", "run", "show", "submit",
           "table")  # fmt: skip


def read(*options: str) -> str:
    """What `make fuzz-files` says, in a process that hears what it starts itself."""
    command = [sys.executable, "-m", "tests.fuzz.files", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"{name} " in done.stdout for name in READING), done.stdout
    return done.stdout


def test_no_reading_command_starts_a_program_or_loads_code_that_a_hostile_file_names() -> None:
    assert "0 strange files, 0 faults" in read("--known", "--files", "0", "--seed", "1")


def test_strange_files_of_every_kind_start_nothing_fail_nowhere_inside_and_take_no_five_seconds() -> None:
    assert "60 strange files, 0 faults" in read("--files", "60", "--seed", "1")


ACTS = (
    "subprocess.run(['true'])", "os.system('true')", "os.posix_spawn('/bin/true', ['x'], {})",
    "socket.socket().bind(('127.0.0.1', 0))", "exec(compile('1', FOLDER + '/x.py', 'exec'))",
    "ctypes.CDLL('libc.so.6')", "open('named-by-a-file/x.jsonl').read()", "1 / 0",
    "print('Traceback', file=sys.stderr)",
)  # fmt: skip


@pytest.mark.parametrize("act", ACTS)
def test_what_must_not_happen_is_heard(act: str, tmp_path: Path) -> None:
    (tmp_path / strange_files.UNTOUCHED).mkdir()
    (tmp_path / strange_files.UNTOUCHED / "x.jsonl").touch()
    program = f"""
import ctypes, os, socket, subprocess, sys
from pathlib import Path
from mldyno.cli import read
from tests.fuzz import watched
FOLDER = {str(tmp_path)!r}
def act(**options):
    {act}
read.history.callback = act
faults = watched.run(("history",), Path(FOLDER), untouched={strange_files.UNTOUCHED!r}).faults
sys.exit(0 if faults else 1)
"""
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_a_seed_gives_the_same_file_every_time(tmp_path: Path) -> None:
    records = seeds()
    rows = [["a", "b"], ["c", "d"]]
    page = (KEPT.parent / "report.html").read_bytes()
    store = KEPT.parent / "store.sqlite"
    around = strange_files.Surroundings(tmp_path, records, rows, page, store, tmp_path)
    texts = []
    for number, seed in enumerate((3, 3, 4)):
        kind = strange_files.strange(seed, around, tmp_path / str(number))
        texts.append((kind, (tmp_path / str(number)).read_bytes()))
    assert texts[0] == texts[1] != texts[2]
