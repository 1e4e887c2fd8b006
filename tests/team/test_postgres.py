"""A database as a place: rights, errors without passwords, and numbers in the order of commits."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bench.labs import postgres
from tests.team.conftest import items_of, records_of

from mldyno import api
from mldyno.store import Query, Store
from mldyno.team import PlaceError, opened
from mldyno.team.postgres import Database, hide_password

GRANTS = """
GRANT USAGE ON SCHEMA mldyno TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA mldyno TO {role};
GRANT INSERT ON mldyno.proofs TO {role};
GRANT INSERT (id, machine, key, case_id, created, proof, body) ON mldyno.records TO {role};
"""  # as docs/how-to/share-results-in-a-team.md has them


@pytest.fixture
def owner(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def role(owner: psycopg.Connection[Any], name: str, grants: str) -> None:
    owner.execute(f"DROP ROLE IF EXISTS {name}".encode())
    owner.execute(f"CREATE ROLE {name} LOGIN".encode())
    owner.execute(grants.format(role=name).encode())


def left(owner: psycopg.Connection[Any], name: str) -> None:
    owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


def test_a_role_that_may_insert_and_select_is_enough(
    database: str, postgres_lab: postgres.Server, owner: psycopg.Connection[Any], store: Store
) -> None:
    Database(database, make=True).close()
    role(owner, "ada", GRANTS)
    url = postgres_lab.url(user="ada")
    store.append(records_of(2))
    assert api.push(url, store=store).new == 2
    assert [row.who for row in api.pushed(url)] == ["ada", "ada"]
    there = Store(store.path.with_name("there.sqlite"))
    assert api.pull(url, there).new == 2
    with psycopg.connect(url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("INSERT INTO mldyno.records (id, who, machine, key, case_id, created, proof, body)"
                           " VALUES ('x', 'bob', '', '', '', '', '', '')")  # fmt: skip
    with pytest.raises(PlaceError, match="this role may not do that"):
        api.withdraw(url, store.ids(Query(heads=False))[:1])
    owner.execute("GRANT INSERT (id, reason) ON mldyno.withdrawn TO ada")
    assert len(api.withdraw(url, store.ids(Query(heads=False))[:1])) == 1
    with opened(url) as place:
        assert len(place.page(0).items) == 1
    left(owner, "ada")


def test_a_role_that_may_only_read_pulls_and_is_told_why_it_can_not_push(
    database: str, postgres_lab: postgres.Server, owner: psycopg.Connection[Any], store: Store
) -> None:
    store.append(records_of(2))
    api.push(database, store=store)
    role(owner, "eve", "GRANT USAGE ON SCHEMA mldyno TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA mldyno TO {role}")
    url, there = postgres_lab.url(user="eve"), Store(store.path.with_name("there.sqlite"))
    assert api.pull(url, there).new == 2
    there.append(records_of(1, "another"))
    with pytest.raises(PlaceError, match=r"this role may not do that.*permission denied"):
        api.push(url, "another", there)
    left(owner, "eve")


def test_who_may_not_make_tables_is_told_so(
    database: str, postgres_lab: postgres.Server, owner: psycopg.Connection[Any], store: Store
) -> None:
    role(owner, "eve", "")
    store.append(records_of(1))
    with pytest.raises(PlaceError, match="this role may not do that"):
        api.push(postgres_lab.url(user="eve"), store=store)
    with pytest.raises(PlaceError, match="nothing was pushed there yet"):
        api.pull(database, store)
    left(owner, "eve")


def test_text_is_compressed_by_lz4(database: str, owner: psycopg.Connection[Any]) -> None:
    Database(database, make=True).close()
    row = owner.execute("SELECT attcompression FROM pg_attribute WHERE attrelid = 'mldyno.records'::regclass"
                        " AND attname = 'body'").fetchone()  # fmt: skip
    assert row == (b"l",) or row == ("l",)


def test_a_record_that_is_committed_late_has_a_later_number(database: str) -> None:
    """Of two writers one waits, so that whoever reads up to a number has read all before it."""
    items = items_of(records_of(2))
    with Database(database, make=True) as first, Database(database) as second:
        with first._writing() as cursor:
            cursor.execute("INSERT INTO mldyno.records (id, machine, key, case_id, created, proof, body)"
                           " VALUES ('early', '', '', '', '', '', '{}')")  # fmt: skip
            late = threading.Thread(target=second.add, args=(items,))
            late.start()
            late.join(0.3)
            assert late.is_alive(), "it waits for the first one's commit"
            assert second.page(0).items == []
        late.join()
        assert [item.id for item in second.page(0).items] == ["early", *(item.id for item in items)]


def test_two_first_pushes_at_once_make_the_tables_once(database: str) -> None:
    made: list[Database] = []
    threads = [threading.Thread(target=lambda: made.append(Database(database, make=True))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each.identity() for each in made}) == 1
    assert len(made) == 4
    for each in made:
        each.close()


REFUSED = "postgresql://ada:s3cr%2Fet-pw@127.0.0.1:9/results?sslpassword=other-pw"


def test_a_password_is_in_no_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "third-pw")
    for url in (REFUSED, REFUSED.replace("127.0.0.1:9", "[no"), REFUSED.replace("results?", "results?x=%zz&")):
        with pytest.raises(PlaceError) as error:
            api.push(url, store=store)
        for secret in ("s3cr", "et-pw", "other-pw", "third-pw"):
            assert secret not in str(error.value)
        assert "\n" not in str(error.value)


def test_a_password_of_the_command_line_is_overwritten_for_ps() -> None:
    code = (
        "import sys; from mldyno.team.postgres import hide_password; hide_password(sys.argv[1]);"
        "print(open('/proc/self/cmdline').read())"
    )
    done = subprocess.run([sys.executable, "-c", code, REFUSED], capture_output=True, text=True, check=True)
    assert "ada:***" in done.stdout
    assert not any(secret in done.stdout for secret in ("s3cr", "et-pw", "other-pw"))
    hide_password("postgresql://host/db")


def test_a_database_that_is_away_is_one_line_and_a_push_goes_on_when_it_is_back(
    database: str, postgres_lab: postgres.Server, store: Store
) -> None:
    store.append(records_of(3))
    with Database(database, make=True) as place:
        assert place.add(items_of(records_of(1))) == 1
        postgres_lab.kill()
        with pytest.raises(PlaceError, match="can't be reached, or was ended"):
            place.add(items_of(records_of(2)))
        with pytest.raises(PlaceError, match="can't be reached"):
            api.push(database, store=store)
        postgres_lab.start()
        assert place.add(items_of(records_of(2))) == 1, "by a new connection"
    assert api.push(database, store=store).new == 1


def test_a_full_disk_adds_nothing_and_says_so(database: str, owner: psycopg.Connection[Any], store: Store) -> None:
    store.append(records_of(2))
    Database(database, make=True).close()
    owner.execute("""CREATE FUNCTION mldyno.full() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$""")
    owner.execute("CREATE TRIGGER full_disk AFTER INSERT ON mldyno.records EXECUTE FUNCTION mldyno.full()")
    with pytest.raises(PlaceError, match="the disk is full there; nothing was added"):
        api.push(database, store=store)
    owner.execute("DROP TRIGGER full_disk ON mldyno.records")
    assert api.push(database, store=store).new == 2


def test_without_psycopg_it_is_said_what_to_install(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(PlaceError, match=r"pip install 'mldyno\[postgres\]'"):
        api.pull("postgresql://127.0.0.1:9/x", store)


def test_a_row_that_is_no_record_is_left_out_and_looked_at_again(
    database: str, owner: psycopg.Connection[Any], store: Store, tmp_path: Path
) -> None:
    records = records_of(3)
    with Database(database, make=True) as place:
        place.add(items_of(records[:1]))
        owner.execute("INSERT INTO mldyno.records (id, machine, key, case_id, created, proof, body)"
                      " VALUES ('x', '', '', '', '', '', '{\"schema\": 99}')")  # fmt: skip
        place.add(items_of(records[1:]))
        moved = api.pull(database, store)
        assert (moved.new, moved.refused) == (3, 1)
        assert "newer than this mldyno" in moved.reasons[0]
        again = api.pull(database, store)
        assert (again.total, again.new, again.refused) == (3, 0, 1), "after an update it can be read"
        owner.execute("UPDATE mldyno.records SET body = %s, id = %s WHERE id = 'x'",
                      (records_of(4)[3].text, records_of(4)[3].id))  # fmt: skip
        assert (api.pull(database, store).new, api.pull(database, store).total) == (1, 0)
