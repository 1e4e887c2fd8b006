"""Functions that share records in a team: pushes, pulls, what was pushed, withdrawals, and the server."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mldyno.errors import MldynoError, UsageError
from mldyno.store import Query, selection
from mldyno.store.query import OF_FLEET, latest
from mldyno.store.selection import AnyStore, Tell, opened, silent
from mldyno.team import Pushed
from mldyno.team import opened as place_at

if TYPE_CHECKING:
    from mldyno.team.exchange import Moved

TOKEN = "MLDYNO_TOKEN"
Progress = Callable[[int, int], None]


def push(
    url: str, what: str | None = None, store: AnyStore = None, private: bool = False, token_file: str | None = None,
    plain_http: bool = False, tell: Tell = silent, progress: Progress = lambda done, total: None,
) -> Moved:  # fmt: skip
    """Push the records that were measured here, or on hosts of a fleet, to the place at a URL; return what was moved.

    With `what`, only those that it means; it may name a machine or a file that they were imported from.
    """
    from mldyno.team import exchange

    opened_store = opened(store)
    pinned = selection.pinned_by(what, opened_store) if what is not None else {}
    query = Query(pinned, heads=False, provenances=("measured",), until=latest(), simulated=False)
    selection.tell_future(Query(pinned, heads=False), opened_store, tell)
    own = None if {"machine", "imported_from"} & pinned.keys() else [""]
    if own is not None:
        files = (file for files in opened_store.imported_files().values() for file in files)
        own += dict.fromkeys(file for file in files if file.startswith(OF_FLEET))
    origins = [{}] if own is None else [{"imported_from": file} for file in own]
    queries = [replace(query, equal={**pinned, **origin}) for origin in origins]
    with place_at(url, _token(token_file), plain_http, make=True) as place:
        return exchange.push(place, opened_store, queries, private, progress)


def pull(
    url: str, store: AnyStore = None, again: bool = False, token_file: str | None = None, plain_http: bool = False,
    progress: Progress = lambda done, total: None,
) -> Moved:  # fmt: skip
    """Take the records that are new in the place at a URL into the store; they count as imported."""
    from mldyno.team import exchange

    with place_at(url, _token(token_file), plain_http) as place:
        return exchange.pull(place, opened(store), again, progress)


def pushed(
    url: str, who: str = "", most: int = 100, token_file: str | None = None, plain_http: bool = False
) -> list[Pushed]:
    """Return the newest records that were pushed to a place, by one name or by anybody."""
    with place_at(url, _token(token_file), plain_http) as place:
        return place.pushed(who, most)


def withdraw(url: str, ids: Sequence[str], token_file: str | None = None, plain_http: bool = False) -> list[str]:
    """Withdraw records from a place: it shows them no more, and does not take them again; return their ids."""
    for id_ in ids:
        if len(id_) < 6 or set(id_) - set("0123456789abcdef"):
            raise UsageError(f"'{id_}' is no id of a record; `mldyno pushed URL` lists them.")
    with place_at(url, _token(token_file), plain_http) as place:
        return place.withdraw(ids)


def _token(file: str | None) -> str:
    """Return the token of a file, or of MLDYNO_TOKEN; none where neither is set."""
    if file is None:
        return os.environ.get(TOKEN, "").strip()
    try:
        with open(file, encoding="ascii", errors="replace") as source:
            token = source.read(1000).strip()
    except OSError as error:
        raise MldynoError(f"{file}: {error.strerror or error}") from None
    if not token:
        raise MldynoError(f"{file}: it holds no token")
    return token


def serve(
    store: str | None = None, listen: str = "127.0.0.1:8080", site: str | None = None, tokens: str | None = None,
    tell: Tell = silent,
) -> None:  # fmt: skip
    """Serve a place for a team's records until a signal ends it; `store` is a file, or the URL of a database."""
    try:
        from mldyno.team import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise MldynoError("a server needs Starlette and uvicorn; install them: pip install 'mldyno[server]'") from None
    from mldyno.team.client import is_loopback
    from mldyno.team.publish import table_at
    from mldyno.team.tokens import Tokens

    host, port = _address(listen)
    source, folder, token_file = _places(store, site, tokens)
    known = Tokens(token_file)
    if not known.names():
        tell("nobody can push yet: make a token with `mldyno serve --add-token NAME`")
    table = table_at(source)
    listening = _listening(host, port)
    shown = f"[{host}]" if ":" in host else host
    if not is_loopback(host):
        tell("without TLS others can read tokens on their way: let a reverse proxy listen, and this on 127.0.0.1")
    pages = server.Site(folder, {"source": source, "store": f"{folder}.sqlite", "folder": str(folder)})
    address = f"http://{shown}:{listening.getsockname()[1]}"
    serving = server.uvicorn_of(server.app_of(table, known, pages))
    try:
        ready = f"listening on {address}, pages in {folder}, tokens in {token_file}"
        serving.until_a_signal(listening, lambda: tell(ready))
        tell("ended")
    finally:
        table.close()


def add_token(name: str, admin: bool = False, store: str | None = None, tokens: str | None = None) -> str:
    """Make a token of a server for a name; return it."""
    from mldyno.team.tokens import Tokens

    return Tokens(_places(store, None, tokens)[2]).add(name, admin)


def withdraw_token(name: str, store: str | None = None, tokens: str | None = None) -> None:
    """Withdraw the token of a name: a running server refuses it from now on."""
    from mldyno.team.tokens import Tokens

    Tokens(_places(store, None, tokens)[2]).withdraw(name)


def _places(store: str | None, site: str | None, tokens: str | None) -> tuple[str, Path, Path]:
    """Return where a server has its records, its site and its tokens."""
    from mldyno.files import expanded
    from mldyno.keys import data_folder

    usual = data_folder() / "team"
    if store is not None and "://" in store:
        source, beside = store, usual / "records.sqlite"
    else:
        beside = usual / "records.sqlite" if store is None else expanded(store)
        source = str(beside)
    folder = beside.with_suffix(".site") if site is None else expanded(site)
    return source, folder, beside.with_suffix(".tokens") if tokens is None else expanded(tokens)


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"'{listen}' is no address; write HOST:PORT, such as 127.0.0.1:8080.")
    return host.strip("[]") or "127.0.0.1", int(port)


def _listening(host: str, port: int) -> socket.socket:
    try:
        ((family, _, _, _, address), *_) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while")[0]
        raise MldynoError(f"{host}:{port}: {reason}; name another address with --listen") from None
