"""Runs commands of `mldyno`, each in a process that is killed within a transaction: `python killed.py JOBS.json`.

A job is a list: a folder, the words of a command, which of its transactions, and where in it:
  begun      when it has the right to write
  N          after N steps of SQLite's machine
  filled     when all is done but the commit
  committing within the commit, when the file would grow, with its journal on the disk
  committed  when the commit is done
One process starts and loads everything once; each job is a fork of it. Prints how each ended: the signal's number.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

from mldyno import machine
from mldyno.cli import cli, main
from mldyno.store import layout

whole = layout.transaction


def die() -> None:
    """As the kernel ends a process, without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


def dying_in(number: int, place: str) -> None:
    """Let this process die in one of its transactions."""
    begun = 0

    @contextlib.contextmanager
    def transaction(connection: sqlite3.Connection) -> Iterator[None]:
        nonlocal begun
        begun += 1
        mine = begun == number
        if mine and place != "committing":
            connection.execute("PRAGMA cache_size = 1")  # so that much of it is in the file before it is complete
        with whole(connection):
            if mine and place == "begun":
                die()
            if mine and place.isdigit():
                connection.set_progress_handler(die, int(place))
            yield
            if mine and place == "filled":
                die()
            if mine and place == "committing":
                file = connection.execute("PRAGMA database_list").fetchone()[2]
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(file),) * 2)
        if mine and place == "committed":
            die()

    layout.transaction = transaction


def killed(folder: str, words: list[str], number: int, place: str) -> int:
    """Run a command in a process of its own until it dies; gives the signal, or 0."""
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        os.environ["MLDYNO_STORE"] = str(Path(folder) / "records.sqlite")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        dying_in(number, place)
        with open("said.txt", "w", encoding="utf-8") as said:
            sys.stdout = sys.stderr = said
            main(words)
    return os.waitpid(child, 0)[1] & 0x7F


if __name__ == "__main__":
    jobs = json.loads(Path(sys.argv[1]).read_text())
    for name in {words[0] for _, words, _, _ in jobs}:
        cli.get_command(None, name)  # type: ignore[arg-type]
    machine.describe()
    print(json.dumps([killed(*job) for job in jobs]))
