"""Mirrors on this machine that behave as they are told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.datasets.tiny_set import FILES


class Handler(BaseHTTPRequestHandler):
    """Answers as its server's mirror says."""

    server: Server

    def do_GET(self) -> None:
        self.server.mirror.asked.append((self.path, self.headers.get("Range")))
        with suppress(ConnectionError):
            self.server.mirror.manner(self)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    mirror: Mirror


Manner = Callable[[Handler], None]


class Mirror:
    """A mirror with the tiny set's archives. Its manner says how it answers; what it was asked is kept."""

    def __init__(self, manner: Manner) -> None:
        self.manner = manner
        self.asked: list[tuple[str, str | None]] = []
        self.released = threading.Event()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.mirror = self
        self.address = f"http://127.0.0.1:{self.server.server_port}/"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def end(self) -> None:
        self.released.set()
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


def wanted_file(handler: Handler) -> bytes:
    return FILES[handler.path.rpartition("/")[2]]


def send(handler: Handler, status: int, headers: dict[str, str], body: bytes) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def rest(handler: Handler) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an honest answer, which knows ranges."""
    whole, stretch = wanted_file(handler), handler.headers.get("Range")
    begin = int(stretch.removeprefix("bytes=").removesuffix("-")) if stretch else 0
    headers = {"Content-Length": str(len(whole) - begin)}
    if begin:
        headers["Content-Range"] = f"bytes {begin}-{len(whole) - 1}/{len(whole)}"
    return (206 if begin else 200), headers, whole[begin:]


def honest(handler: Handler) -> None:
    send(handler, *rest(handler))
