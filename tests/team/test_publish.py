"""What a server shows: only what is judged with all others, built in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.submitted import HERE, MLP, THEIR_SECRET, good, key_of, lines_of
from tests.team.conftest import Running, items_of, records_of, running

from mldyno.records import Record, seal
from mldyno.store import Query, Store
from mldyno.team.publish import gather, judge, prepare
from mldyno.team.server import Site
from mldyno.team.table import File, Table

ALL = Query(heads=False)


def states(table: Table) -> dict[str, tuple[str, str]]:
    return {row.id: (row.state, row.reason) for row in table.pushed()}


def copied(record: Record) -> Record:
    """The same samples as those of another machine."""
    theirs = replace(HERE, name="their bench", key=key_of(THEIR_SECRET))
    return seal(replace(record, machine=theirs))


def test_what_is_sound_is_shown_after_it_was_compared_with_the_others(table: Table, store: Store) -> None:
    records = records_of(3)
    table.add_of("ada", items_of(records))
    gather(table, store)
    assert store.ids(ALL) == [], "it is pending"
    assert judge(table) == 0
    gather(table, store)
    assert sorted(store.ids(ALL)) == sorted(record.id for record in records)
    assert {record.proof for record in store.stream(ALL)} == {"signed"}
    assert {state for state, _ in states(table).values()} == {"shown"}


def test_a_copy_of_another_machines_record_is_refused_whenever_it_comes(table: Table, store: Store) -> None:
    original = good()
    table.add_of("ada", items_of([original]))
    judge(table)
    table.add_of("bob", items_of([copied(original)], signed=False))
    assert judge(table) == 1
    state, reason = states(table)[copied(original).id]
    assert state == "refused"
    assert "its samples are those of record" in reason
    gather(table, store)
    assert store.ids(ALL) == [original.id]


def test_the_signed_original_wins_over_a_copy_that_came_first(table: Table, store: Store) -> None:
    original = good()
    table.add_of("bob", items_of([copied(original)], signed=False))
    judge(table)
    gather(table, store)
    assert len(store.ids(ALL)) == 1
    table.add_of("ada", items_of([original]))
    assert judge(table) == 1
    gather(table, store)
    assert store.ids(ALL) == [original.id]


def test_a_key_with_other_hardware_is_refused(table: Table) -> None:
    table.add_of("ada", items_of([good()]))
    judge(table)
    other = good(replace(MLP, batch=64), 0.01, replace(HERE, cores=4))
    table.add_of("ada", items_of([other]))
    assert judge(table) == 1
    assert "its key comes with other hardware" in states(table)[other.id][1]


def test_what_a_database_holds_that_nobody_has_checked_is_never_shown(table: Table, store: Store) -> None:
    """Who may insert into a database passes no server."""
    sound = good()
    table.add_of("ada", items_of([sound]))
    with table._writing() as cursor:
        for id_, body in (("x", "{}"), ("0" * 32, records_of(2)[1].text), ("y", "no JSON")):
            cursor.execute(
                table._sql("INSERT INTO {records} (id, machine, key, case_id, created, proof, body)"
                           " VALUES (?, '', '', '', '', '', ?)"), (id_, body),
            )  # fmt: skip
    table.add_of("ada", items_of([seal(replace(sound, provenance="imported"))], signed=False))
    assert judge(table) == 4
    gather(table, store)
    assert store.ids(ALL) == [sound.id]
    assert states(table)["0" * 32] == ("refused", "it is another record than its row says")


def test_what_is_withdrawn_leaves_the_site(table: Table, store: Store) -> None:
    first, second = records_of(2)
    table.add_of("ada", items_of([first, second]))
    judge(table)
    gather(table, store)
    table.withdraw_of("ada", [first.id], admin=False)
    gather(table, store)
    assert store.ids(ALL) == [second.id]


def built(source: Path, folder: Path) -> str:
    """Build a site as a server does; returns all of its text."""
    asked = {"source": str(source), "store": str(folder.with_suffix(".sqlite")), "folder": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "mldyno.team.publish"], input=json.dumps(asked), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return "".join(path.read_text() for path in sorted(folder.rglob("*")) if path.is_file())


def test_a_page_never_shows_what_is_pending_or_withdrawn(tmp_path: Path) -> None:
    source, folder = tmp_path / "team.sqlite", tmp_path / "site"
    with File(source) as table:
        shown, later = (good(MLP, 0.01, replace(HERE, name=name)) for name in ("early bird", "late owl"))
        table.add_of("ada", items_of([shown]))
        text = built(source, folder)
        assert "early bird" in text
        table.add_of("ada", items_of([later]))
        table.withdraw_of("ada", [shown.id], admin=False)
        assert built(source, folder).count("early bird") == 0, "and the late one was judged by this build"


def test_a_server_builds_when_there_is_news_and_readers_always_find_a_page(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    source = {"source": str(tmp_path / "team.sqlite"), "store": f"{folder}.sqlite", "folder": str(folder)}
    site = Site(folder, source, interval=0.05)
    with File(tmp_path / "team.sqlite") as table, running(table, tmp_path, site) as server:
        deadline = time.monotonic() + 120

        def until(shows: Callable[[bytes], bool]) -> None:
            while not shows(server.ask("GET", "/", token="").body):
                assert time.monotonic() < deadline
                time.sleep(0.05)

        until(lambda page: b"<html" in page)
        misses: list[int] = []
        ended = threading.Event()

        def read() -> None:
            while not ended.is_set():
                misses.extend({server.ask("GET", "/", token="").status} - {200})

        reader = threading.Thread(target=read)
        reader.start()
        try:
            _news(server, until)
        finally:
            ended.set()
            reader.join()
        assert misses == []


def _news(server: Running, until: Callable[[Callable[[bytes], bool]], None]) -> None:
    """Push a record, and withdraw it when it is shown."""
    name = "early bird"
    server.ask("POST", "/records", lines_of([good(MLP, 0.01, replace(HERE, name=name))]))
    until(lambda page: name.encode() in page)
    server.ask("POST", "/withdraw", server.ask("GET", "/pushed").content["pushed"][0]["id"])
    until(lambda page: name.encode() not in page)


def test_two_builders_are_never_at_work_at_once_and_a_killed_one_leaves_the_old_site(tmp_path: Path) -> None:
    source, folder = tmp_path / "team.sqlite", tmp_path / "site"
    with File(source) as table:
        table.add_of("ada", items_of([good()]))
    before = built(source, folder)
    asked = {"source": str(source), "store": f"{folder}.sqlite", "folder": str(folder)}
    for wait in (0.3, 0.6):
        with subprocess.Popen([sys.executable, "-m", "mldyno.team.publish"], stdin=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True) as builder:  # fmt: skip
            assert builder.stdin
            builder.stdin.write(json.dumps(asked))
            builder.stdin.close()
            time.sleep(wait)
            builder.kill()
    assert "".join(path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()) == before
    assert built(source, folder) == before


def test_a_password_is_not_among_the_arguments_of_the_builder(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-m", "mldyno.team.publish"], stdin=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as builder:  # fmt: skip
        url = "postgresql://ada:s3cret@127.0.0.1:9/x"
        asked = {"source": url, "store": str(tmp_path / "s.sqlite"), "folder": str(tmp_path / "site")}
        assert "s3cret" not in Path(f"/proc/{builder.pid}/cmdline").read_text()
        _, said = builder.communicate(json.dumps(asked))
    assert builder.returncode == 1
    assert "s3cret" not in said
    assert "can't be reached" in said


def test_preparing_can_be_repeated(tmp_path: Path) -> None:
    with File(tmp_path / "team.sqlite") as table:
        table.add_of("ada", items_of(records_of(2)))
    said: list[str] = []
    for _ in range(2):
        prepare(str(tmp_path / "team.sqlite"), tmp_path / "site.sqlite", said.append)
    assert (len(Store(tmp_path / "site.sqlite").ids(ALL)), said) == (2, [])
