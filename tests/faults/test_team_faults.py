"""A place for a team's records under kill -9, full disks and cut lines: what was acknowledged is there."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from bench.labs import postgres
from tests.submitted import HERE, MLP, good
from tests.team.conftest import database as database  # noqa: PLC0414
from tests.team.conftest import items_of, records_of

from mldyno import api
from mldyno.records import Record, seal
from mldyno.store import Query, Store
from mldyno.team import Item, Place, PlaceError
from mldyno.team.client import Server
from mldyno.team.postgres import Database
from mldyno.team.table import File
from mldyno.team.tokens import Tokens

WRITERS = 8
ALL = Query(heads=False)


def many(count: int) -> list[Record]:
    """Different records, made quickly."""
    whole = good(MLP, 0.01)
    return [seal(replace(whole, run=replace(whole.run, repeat=number))) for number in range(count)]


@contextmanager
def served(folder: Path, store: str, **limits: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server in a process of its own; its address, and the process."""

    def limit() -> None:
        for size in limits.values():
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    tokens, site = str(folder / "tokens"), str(folder / "site")
    words = ["serve", "--store", store, "--listen", "127.0.0.1:0", "--tokens", tokens, "--site", site]
    process = subprocess.Popen(
        [sys.executable, "-m", "mldyno", *words], stderr=subprocess.PIPE, text=True, preexec_fn=limit,  # noqa: PLW1509
        start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stderr
        line = process.stderr.readline()
        assert "listening on " in line, line + process.stderr.read()
        yield line.split("listening on ")[1].split(",")[0], process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with the builder of its site
        process.communicate()


class Writers:
    """Threads that push one record after the other until the place is gone, and note what was acknowledged."""

    def __init__(self, records: list[Record], place: Callable[[], Place]) -> None:
        self.acknowledged: list[str] = []
        self._left = iter(items_of(records, signed=False))
        self._lock = threading.Lock()
        self._place = place
        self._threads = [threading.Thread(target=self._write) for _ in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def _next(self) -> Item | None:
        with self._lock:
            return next(self._left, None)

    def _write(self) -> None:
        with suppress(PlaceError), self._place() as place:
            while item := self._next():
                assert place.add([item]) == 1
                self.acknowledged.append(item.id)

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def join(self) -> list[str]:
        for thread in self._threads:
            thread.join()
        return self.acknowledged


def test_a_server_that_is_killed_under_eight_writers_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    store = tmp_path / "team.sqlite"
    token = Tokens(tmp_path / "tokens").add("ada")
    records, acknowledged = records_of(600), list[str]()  # no copies, which would be refused
    for round_ in range(3):
        with served(tmp_path, str(store)) as (url, process):
            writers = Writers(records[round_ * 200 : round_ * 200 + 200], lambda url=url: Server(url, token))  # type: ignore[misc]
            writers.wait_for(30 + 20 * round_)
            process.kill()
            acknowledged += writers.join()
        with File(store) as table:
            there = [row.id for row in table.pushed(most=1000)]
            assert set(acknowledged) <= set(there)
            assert len(there) == len(set(there))
    assert len(acknowledged) >= 150


def _everything(place: Place) -> Iterator[Item]:
    after = 0
    while items := place.page(after).items:
        yield from items
        after = items[-1].number


def test_a_database_that_is_killed_under_eight_writers_loses_nothing_that_it_acknowledged(
    database: str, postgres_lab: postgres.Server
) -> None:
    Database(database, make=True).close()
    writers = Writers(many(2000), lambda: Database(database))
    writers.wait_for(200)
    postgres_lab.kill()
    acknowledged = writers.join()
    postgres_lab.start()
    with Database(database) as place:
        items = list(_everything(place))
        assert set(acknowledged) <= {item.id for item in items}
        assert len({item.number for item in items}) == len(items)


def test_a_reader_beside_eight_writers_misses_none(database: str) -> None:
    """Pages are read while records are committed, in any order of their beginnings."""
    Database(database, make=True).close()
    writers = Writers(many(400), lambda: Database(database))
    seen: list[str] = []
    with Database(database) as place:
        after = 0
        while len(writers.acknowledged) < 400:
            for item in place.page(after).items:
                seen.append(item.id)
                after = item.number
        writers.join()
        seen += [item.id for item in place.page(after).items]
    assert sorted(seen) == sorted(writers.acknowledged)


def test_a_server_whose_database_is_away_says_so_and_goes_on_when_it_is_back(
    database: str, postgres_lab: postgres.Server, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLDYNO_TOKEN", Tokens(tmp_path / "tokens").add("ada"))
    store.append(records_of(2))
    with served(tmp_path, database) as (url, _):
        postgres_lab.kill()
        with pytest.raises(PlaceError, match="can't be stored or read here now; nothing was taken"):
            api.push(url, store=store)
        postgres_lab.start()
        assert api.push(url, store=store).new == 2


def test_a_full_disk_of_the_server_takes_nothing_and_loses_nothing(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLDYNO_TOKEN", Tokens(tmp_path / "tokens").add("ada"))
    place = str(tmp_path / "team.sqlite")
    store.append(records_of(300))
    with served(tmp_path, place, size=400_000) as (url, _):
        with pytest.raises(PlaceError, match="nothing was taken"):
            api.push(url, store=store)
        with pytest.raises(PlaceError, match="nothing was taken"):
            api.push(url, store=store)
    with File(place) as table:
        before = [item.id for item in _everything(table)]
    with served(tmp_path, place) as (url, _):
        moved = api.push(url, store=store)
        assert (moved.known, moved.new) == (len(before), 300 - len(before))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_push_that_is_ended_is_repeated_without_loss(database: str, store: Store, number: signal.Signals) -> None:
    store.append(many(1200))
    words = [sys.executable, "-m", "mldyno", "push", database]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as push:
        deadline = time.monotonic() + 60
        while _count(database) == 0:
            assert time.monotonic() < deadline
            assert push.poll() is None
        push.send_signal(number)
        _, said = push.communicate()
    assert push.returncode == (-number if number == signal.SIGKILL else 3), said
    assert number == signal.SIGKILL or len(said.strip().splitlines()) == 1
    between = _count(database)
    moved = api.push(database, store=store)
    assert (moved.known, moved.new) == (between, 1200 - between)


def _count(database: str) -> int:
    with suppress(PlaceError), Database(database) as place:
        return place.tip()[0] and sum(1 for _ in _everything(place))
    return 0


def test_an_answer_that_is_lost_on_its_way_does_no_harm(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are there, and who pushed them does not know it."""
    token = Tokens(tmp_path / "tokens").add("ada")
    monkeypatch.setenv("MLDYNO_TOKEN", token)
    store.append(records_of(3))
    with served(tmp_path, str(tmp_path / "team.sqlite")) as (url, _), lossy(url) as through:
        with pytest.raises(PlaceError, match="no answer"):
            api.push(through, store=store)
        moved = api.push(url, store=store)
        assert (moved.known, moved.new) == (3, 0)


@contextmanager
def lossy(url: str) -> Iterator[str]:
    """A line to a server that is cut when records have been taken, before the answer comes back."""
    port = int(url.rpartition(":")[2])
    listening = socket.create_server(("127.0.0.1", 0))

    def carry() -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            with near, socket.create_connection(("127.0.0.1", port)) as far, suppress(OSError):
                taken = False
                while True:
                    for side in select.select([near, far], [], [], 30)[0]:
                        said = side.recv(1 << 20)
                        taken = taken or b"POST /records" in said
                        if not said or (side is far and taken):
                            raise OSError
                        (far if side is near else near).sendall(said)

    carrier = threading.Thread(target=carry)
    carrier.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        carrier.join()


def test_a_writer_that_was_stopped_holds_up_the_others_for_a_while_only(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP, or a cut cable, within a transaction: the database ends it."""
    monkeypatch.setattr("mldyno.team.postgres.SETTINGS", "SET idle_in_transaction_session_timeout = '300ms'")
    with Database(database, make=True) as stopped, Database(database) as other:

        def stop() -> None:
            with stopped._writing() as cursor:
                assert other.add(items_of([good(MLP, 0.01, HERE)])) == 1
                cursor.execute("SELECT 1")

        with pytest.raises(PlaceError, match="this process was stopped for too long"):
            stop()
