"""Places for records: a server's file, a database, a server in this process; and what is pushed to them."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from bench.labs import postgres
from tests.submitted import HERE, MLP, good

from mldyno.records import Record
from mldyno.store import transfer
from mldyno.team import Item
from mldyno.team.postgres import Database
from mldyno.team.server import Site, app_of, uvicorn_of
from mldyno.team.table import File, Table
from mldyno.team.tokens import Tokens


def records_of(count: int, name: str = "test bench") -> list[Record]:
    """Records of one case that nothing speaks against."""
    return [good(MLP, 0.01, replace(HERE, name=name), round_=number) for number in range(count)]


def items_of(records: list[Record], signed: bool = True) -> list[Item]:
    proof = transfer.signature([record.id for record in records]) if signed else ""
    return [Item(record.id, record.text, proof) for record in records]


@pytest.fixture
def database(postgres_lab: postgres.Server) -> str:
    """The URL of an empty database, of whose tables we are the owner."""
    with psycopg.connect(postgres_lab.url(), autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS mldyno CASCADE")
    return postgres_lab.url()


@pytest.fixture(params=["file", "database"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    """The tables of a place, in both dialects."""
    made: Table
    if request.param == "file":
        made = File(tmp_path / "team.sqlite")
    else:
        made = Database(request.getfixturevalue("database"), make=True)
    with made:
        yield made


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    @property
    def content(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Running:
    """A server in this process."""

    url: str
    table: Table
    tokens: Tokens
    token: str

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        who = self.token if token is None else token
        given = {"Authorization": f"Bearer {who}", **{name.replace("_", "-"): text for name, text in headers.items()}}
        try:
            connection.request(method, path, body, {name: text for name, text in given.items() if text != "Bearer "})
            answer = connection.getresponse()
            return Answer(answer.status, answer.read())
        finally:
            connection.close()


@contextmanager
def running(table: Table, folder: Path, site: Site | None = None) -> Iterator[Running]:
    """Serve the tables until the end of the block."""
    tokens = Tokens(folder / "tokens")
    token = tokens.add("ada")
    uvicorn = uvicorn_of(app_of(table, tokens, site))
    uvicorn.config.port = 0
    thread = threading.Thread(target=uvicorn.run)
    thread.start()
    while not uvicorn.started:
        assert thread.is_alive()
        time.sleep(0.005)
    (listening,) = uvicorn.servers[0].sockets
    try:
        yield Running(f"http://127.0.0.1:{listening.getsockname()[1]}", table, tokens, token)
    finally:
        uvicorn.should_exit = uvicorn.force_exit = True
        thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    """A server over a file, without pages."""
    with File(tmp_path / "team.sqlite") as table, running(table, tmp_path) as made:
        yield made


Serve = Callable[..., Running]
