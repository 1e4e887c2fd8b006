"""The server of a team: takes records, gives them back, and shows a site that another process builds.

Rules: every record is judged before it is stored, all of a request or none; what is acknowledged is on the disk. No
request computes statistics, and no page shows what is not judged with all others. Every wait has an end: for headers,
for a body, for who reads an answer. An error says nothing of this machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from mimetypes import guess_type
from pathlib import Path
from typing import Any, TypeVar

import click
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn import Server as Uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mldyno import __version__, submission
from mldyno.errors import MldynoError
from mldyno.printable import printable
from mldyno.store import transfer
from mldyno.team import MOST_B, PAGE, Item, PlaceError
from mldyno.team.client import PROTOCOL, encoded
from mldyno.team.table import Table
from mldyno.team.tokens import Tokens, Who

HEADERS_S, BODY_S, REQUEST_S = 10.0, 60.0, 300.0  # to wait for these at most
MOST_HEADERS_B = 16 << 10
MOST_CONNECTIONS = 256
PART_B = 64 << 10  # of a page that is sent at once
MOST_IDS = 100_000  # of one question
BUILD_INTERVAL_S = 60.0  # between the beginnings of two builds of the site
LOOK_INTERVAL_S = 2.0
SAFE = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}
AWAY = "records can't be stored or read here now; nothing was taken, try again later"
ID = re.compile("[0-9a-f]{6,32}")  # or its beginning
T = TypeVar("T")


@dataclass
class Site:
    """The folder of the site, and the process that builds it."""

    folder: Path
    source: dict[str, str]  # what the builder is told: where records are, and where to put them
    interval: float = BUILD_INTERVAL_S
    state: str = "not built yet"
    _built: tuple[int, int] | None = field(default=None, repr=False)
    _began: float = field(default=-1e9, repr=False)
    _builder: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _ended: bool = field(default=False, repr=False)

    async def keep(self, table: Table) -> None:
        """Build the site when there is anything new, at most once an interval; an old one stays until then."""
        while True:
            with suppress(MldynoError):
                tip = await run_in_threadpool(table.tip)
                if tip != self._built and time.monotonic() - self._began >= self.interval:
                    self._began = time.monotonic()
                    if await run_in_threadpool(self._build):
                        self._built = tip
            await asyncio.sleep(min(LOOK_INTERVAL_S, self.interval))

    def _build(self) -> bool:
        with subprocess.Popen(
            [sys.executable, "-m", "mldyno.team.publish"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as self._builder:  # fmt: skip
            if self._ended:
                self._builder.terminate()
            # not by its arguments, which ps shows
            _, said = self._builder.communicate(json.dumps(self.source).encode())
        if self._ended:
            return False
        lines = said.decode("utf-8", "replace").strip().splitlines()
        if self._builder.returncode != 0:
            self.state = "failed"
            log(f"the site was not built: {lines[-1] if lines else f'code {self._builder.returncode}'}")
            return False
        for line in lines:
            log(line)
        self.state = "built"
        return True

    def end(self) -> None:
        """End the process that builds, so that a server need not wait for it."""
        self._ended = True
        if self._builder is not None and self._builder.poll() is None:
            self._builder.terminate()


def log(line: str) -> None:
    """Print a line of the server's own on standard error."""
    click.echo(f"mldyno serve: {printable(line)}", err=True)


class Pages(StaticFiles):
    """The files of a site whose folder is exchanged now and then: each is opened once, and sent as it was then."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True, check_dir=False)
        self.config_checked = True  # there is no folder before the first build

    async def get_response(self, path: str, scope: Scope) -> Response:
        try:
            return await super().get_response(path, scope)
        except OSError:  # it was exchanged just now
            return await super().get_response(path, scope)

    def file_response(
        self, full_path: Any, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        with open(full_path, "rb") as page:
            content, opened = page.read(), os.fstat(page.fileno())
        known = {"ETag": f'"{opened.st_ino:x}-{opened.st_mtime_ns:x}-{opened.st_size:x}"', "Cache-Control": "no-cache"}
        parts = (content[place : place + PART_B] for place in range(0, len(content), PART_B))
        known["Content-Length"] = str(len(content))
        response = StreamingResponse(parts, status_code, known, guess_type(full_path)[0] or "text/plain")
        same = self.is_not_modified(response.headers, Headers(scope=scope))
        return NotModifiedResponse(response.headers) if same else response


def app_of(table: Table, tokens: Tokens, site: Site | None) -> ASGIApp:
    """Return the application over the tables of a place."""
    api = _Api(table, tokens, site)

    @asynccontextmanager
    async def builds(_: Starlette) -> AsyncIterator[None]:
        building = asyncio.create_task(site.keep(table)) if site else None
        try:
            yield
        finally:
            if building and site:
                site.end()
                building.cancel()
                with suppress(asyncio.CancelledError):
                    await building

    routes: list[Any] = [
        Route("/health", api.health),
        Route("/place", api.place),
        Route("/missing", api.missing, methods=["POST"]),
        Route("/records", api.take, methods=["POST"]),
        Route("/records", api.give, methods=["GET"]),
        Route("/pushed", api.pushed),
        Route("/withdraw", api.withdraw, methods=["POST"]),
    ]
    if site:
        routes.append(Mount("/", Pages(site.folder)))
    app = Starlette(routes=routes, lifespan=builds, exception_handlers={HTTPException: _plain, Exception: _hidden})
    return _Bounded(app)


class _Api:
    """What can be asked of a server."""

    def __init__(self, table: Table, tokens: Tokens, site: Site | None) -> None:
        self.table, self.tokens, self.site = table, tokens, site

    async def _of_table(self, act: Callable[..., T], *arguments: Any) -> T:
        try:
            return await run_in_threadpool(act, *arguments)
        except (MldynoError, sqlite3.Error) as error:
            log(str(error))
            full = "disk is full" in str(error)
            raise HTTPException(507 if full else 503, AWAY, headers={"Retry-After": "10"}) from None

    async def health(self, _: Request) -> Response:
        await self._of_table(self.table.identity)
        return JSONResponse({"status": "ok", "mldyno": __version__, "site": self.site.state if self.site else "none"})

    async def place(self, request: Request) -> Response:
        self._asker(request)
        identity = await self._of_table(self.table.identity)
        return JSONResponse({"identity": identity, "protocol": PROTOCOL, "mldyno": __version__})

    async def missing(self, request: Request) -> Response:
        self._asker(request)
        missing = await self._of_table(self.table.missing, await _ids(request))
        return JSONResponse({"missing": sorted(missing)})

    async def take(self, request: Request) -> Response:
        who = self._asker(request)
        body = await _body(request)
        items, faults = await run_in_threadpool(judged, body)
        if faults:
            return JSONResponse({"error": f"{faults[0][1]}; nothing was taken", "faults": faults}, 422)
        new = await self._of_table(self.table.add_of, who.name, items)
        return JSONResponse({"given": len(items), "new": new})

    async def give(self, request: Request) -> Response:
        self._asker(request)
        after = _number(request, "after", 0)
        until = await self._of_table(self.table.judged)
        page = await self._of_table(self.table.page_of, after, until)
        header = json.dumps({"numbers": [item.number for item in page.items], "left": page.left})
        return Response(header.encode() + b"\n" + encoded(page.items), media_type="application/x-ndjson")

    async def pushed(self, request: Request) -> Response:
        self._asker(request)
        who, most = request.query_params.get("who", ""), min(_number(request, "most", PAGE), MOST_IDS)
        rows = await self._of_table(self.table.pushed, who, most)
        return JSONResponse({"pushed": [asdict(row) for row in rows]})

    async def withdraw(self, request: Request) -> Response:
        who = self._asker(request)
        ids = await _ids(request)
        try:
            withdrawn = await run_in_threadpool(self.table.withdraw_of, who.name, ids, who.admin)
        except PlaceError as error:
            reason = str(error).removeprefix(f"{self.table.name}: ")
            raise HTTPException(409, f"{reason}; nothing was withdrawn") from None
        return JSONResponse({"withdrawn": withdrawn})

    def _asker(self, request: Request) -> Who:
        """Return who asks; raise where no valid token says so."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        try:
            who = self.tokens.who(token.strip()) if scheme.lower() == "bearer" else None
        except MldynoError as error:
            log(str(error))
            raise HTTPException(503, AWAY) from None
        if who is None:
            raise HTTPException(401, "no valid token", headers={"WWW-Authenticate": "Bearer", "Connection": "close"})
        return who


def judged(body: bytes) -> tuple[list[Item], list[tuple[str, str]]]:
    """Return the records of a request, each with the signature of its batch; and its faults, with ids where known.

    They are judged as `submit --check` judges a file; only that a token proves who vouches for them, not each machine's
    signature.
    """
    records, unreadable = transfer.received(body, "it")
    faults = [("", line) for line in unreadable]
    if not unreadable:
        (judgements,) = submission.judged([records], vouched=True)
        faults = [(record.id, f"record {record.id[:10]} ({record.case.id}): {fault}") for record, fault in judgements]
    proofs = [line.decode() for line in body.splitlines() if transfer.is_proof(line)] if not faults else []
    proof_of = {id_: proof.strip() for proof in proofs for id_ in transfer.proven_ids(proof)}
    return [
        Item(record.id, record.text, proof_of.get(record.id, "") if record.proof == "signed" else "")
        for record in records
    ], faults  # fmt: skip


async def _body(request: Request) -> bytes:
    """Return the body of a request, which has an end in length and in time."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise HTTPException(415, "a packed body is not taken; send JSON lines")
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()) or int(length[:20]) > MOST_B:
        raise HTTPException(413, f"a body of over {MOST_B >> 20} MiB is not taken", headers={"Connection": "close"})
    parts, size = [], 0

    async def read() -> bytes:
        nonlocal size
        async for part in request.stream():
            size += len(part)
            if size > MOST_B:
                raise HTTPException(
                    413, f"a body of over {MOST_B >> 20} MiB is not taken", headers={"Connection": "close"}
                )
            parts.append(part)
        return b"".join(parts)

    try:
        return await asyncio.wait_for(read(), BODY_S)
    except asyncio.TimeoutError:
        raise HTTPException(408, f"the body took over {BODY_S:.0f} s", headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise HTTPException(400, "the body is cut off") from None


async def _ids(request: Request) -> list[str]:
    words = (await _body(request)).decode("ascii", "replace").split()
    if len(words) > MOST_IDS or not all(map(ID.fullmatch, words)):
        raise HTTPException(400, f"give ids of records, one in each line, at most {MOST_IDS:,}")
    return words


def _number(request: Request, name: str, usual: int) -> int:
    text = request.query_params.get(name, str(usual))
    if not (text.isascii() and text.isdecimal()) or len(text) > 15:
        raise HTTPException(400, f"{name} must be a whole number")
    return int(text)


async def _plain(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=dict(error.headers or {}))


async def _hidden(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": "something went wrong in the server; its log says what"}, 500)


class _Bounded:
    """Adds headers to every answer, and ends a request that takes too long, such as one that nobody reads."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                names = {name.lower() for name, _ in message["headers"]}
                more = [(name.lower().encode(), value.encode()) for name, value in SAFE.items()]
                message["headers"] = [*message["headers"], *(pair for pair in more if pair[0] not in names)]
            await send(message)

        answer: Awaitable[None] = self.app(scope, receive, sending)
        try:
            await asyncio.wait_for(answer, REQUEST_S)
        except asyncio.TimeoutError:
            if not begun:
                await PlainTextResponse("it took too long", 503)(scope, receive, send)


class Impatient(H11Protocol):
    """Ends a connection whose headers do not come in time, or whose answer is not read in time."""

    _deadline: asyncio.TimerHandle | None = None
    _last: asyncio.TimerHandle | None = None
    _current: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:  # no request is going on: its headers are on their way
            self._wait_for_headers()
        else:
            self._wait_no_more()
        if self.cycle is not self._current and not self.transport.is_closing():  # another request has begun
            self._current = self.cycle
            self._cancel_last()
            self._last = self.loop.call_later(REQUEST_S + 1, self.transport.abort)  # also with an answer that is unread

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        self._cancel_last()
        super().connection_lost(exc)

    def _wait_for_headers(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(HEADERS_S, self._too_late)

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cancel_last(self) -> None:
        if self._last is not None:
            self._last.cancel()
            self._last = None

    def _too_late(self) -> None:
        self._deadline = None
        self.transport.close()


class Serving(Uvicorn):
    """A server that ends tidily at the first signal, whenever that comes, and at once at the second."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `until_a_signal`."""
        yield

    def until_a_signal(self, listening: socket.socket, ready: Callable[[], None]) -> None:
        """Serve; `ready` is called when signals are heeded."""

        def end(*_: object) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True

        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            ready()
            self.run(sockets=[listening])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def uvicorn_of(app: ASGIApp) -> Serving:
    """Return a server of HTTP/1.1 with limits, which writes no log."""
    settings = Config(
        app, http=Impatient, ws="none", loop="asyncio", lifespan="on", log_config=None, access_log=False,
        server_header=False, proxy_headers=False, timeout_keep_alive=15, timeout_graceful_shutdown=10,
        limit_concurrency=MOST_CONNECTIONS, h11_max_incomplete_event_size=MOST_HEADERS_B,
    )  # fmt: skip
    return Serving(settings)
