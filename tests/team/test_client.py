"""A server as a place, from the side of who asks it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.team.conftest import Running, items_of, records_of

from mldyno import api
from mldyno.store import Store
from mldyno.team import PlaceError, client
from mldyno.team.client import Server, is_loopback


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1"])
def test_this_machine_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1.example", "localhost.example", "10.0.0.1", "::", "127.1", "x"])
def test_others_are_not(host: str) -> None:
    assert not is_loopback(host)


def test_a_token_is_sent_without_tls_only_if_that_is_asked_for() -> None:
    with pytest.raises(PlaceError, match="others can read the token on its way; use https://"):
        Server("http://bench.example", "a-token")
    Server("http://bench.example", "a-token", plain=True)
    Server("https://bench.example", "a-token")


@pytest.mark.parametrize("url", ["https://ada:secret@lab", "https://secret@lab"])
def test_a_password_in_the_address_of_a_server_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(PlaceError, match="must hold no password") as error:
        Server(url)
    assert "secret" not in str(error.value) or url.count(":") == 1


@pytest.mark.parametrize("url", ["https://", "https://lab:x", "https://lab:99999", "https://lab?x=1", "https://[::1"])
def test_an_address_that_is_none_is_one_line(url: str) -> None:
    with pytest.raises(PlaceError, match="is no address of a server"):
        Server(url)


def test_a_token_with_a_line_break_is_refused_and_not_repeated() -> None:
    with pytest.raises(PlaceError, match="the token holds what no token has") as error:
        Server("https://lab", "secret\r\nHost: x")
    assert "secret" not in str(error.value)


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], tuple[str, list[bytes]]]]:
    """A server that gives one answer to every request, and keeps what it was asked."""
    open_: list[socket.socket] = []
    threads = []

    def start(answer: bytes) -> tuple[str, list[bytes]]:
        listening = socket.create_server(("127.0.0.1", 0))
        open_.append(listening)
        asked: list[bytes] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    asked.append(connection.recv(1 << 16))
                    connection.sendall(answer)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}", asked

    yield start
    for listening in open_:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
    for thread in threads:
        thread.join()


def of(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def test_a_redirect_is_not_followed_and_the_token_goes_nowhere_else(
    answering: Callable[[bytes], tuple[str, list[bytes]]],
) -> None:
    other, asked = answering(of("200 OK", b"{}"))
    url, _ = answering(of("307 Temporary Redirect", b"", f"Location: {other}/place"))
    with pytest.raises(PlaceError, match="it sends elsewhere, which is not followed"):
        Server(url, "a-token").identity()
    assert asked == []


def test_no_proxy_gets_the_token(
    answering: Callable[[bytes], tuple[str, list[bytes]]], server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, asked = answering(of("200 OK", b"{}"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    with Server(server.url, server.token) as place:
        assert place.identity() == server.table.identity()
    assert asked == []


STRANGE = {
    "nothing": b"", "no HTTP": b"220 smtp.example ESMTP\r\n", "a page": of("200 OK", b"<html>"),
    "a list": of("200 OK", b"[]"), "another protocol": of("200 OK", b'{"protocol": 2, "identity": "x"}'),
    "no identity": of("200 OK", b'{"protocol": 1}'), "deep": of("200 OK", b"[" * 100_000),
    "an error in markup": of("502 Bad Gateway", b"<h1>\x1b[31m"), "an error of a list": of("500 X", b"[]"),
    "an error that steers": of("500 X", json.dumps({"error": "a\x1b[31m\nb"}).encode()),
    "a cut answer": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_answer_is_one_line(
    answering: Callable[[bytes], tuple[str, list[bytes]]], name: str, store: Store
) -> None:
    url, _ = answering(STRANGE[name])
    for act in (api.push, api.pull):
        with pytest.raises(PlaceError, match=r"^http://127.0.0.1:\d+: ") as error:
            act(url, store=store)
        assert str(error.value).isprintable()


def test_an_endless_answer_is_given_up(
    answering: Callable[[bytes], tuple[str, list[bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LONGEST_ANSWER_B", 1000)
    url, _ = answering(of("200 OK", b"x" * 5000))
    with pytest.raises(PlaceError, match="MiB long; is this mldyno serve"):
        Server(url).identity()


def test_a_server_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 0.05)
    refused = pytest.raises(PlaceError, match=r"no answer \(timed out\); repeat the command")
    with socket.create_server(("127.0.0.1", 0)) as listening, refused:
        Server(f"http://127.0.0.1:{listening.getsockname()[1]}").identity()


def test_a_connection_that_the_server_has_closed_is_opened_again(server: Running) -> None:
    with Server(server.url, server.token) as place:
        assert place.identity()
        assert place._connection is not None
        assert place._connection.sock is not None
        place._connection.sock.shutdown(socket.SHUT_RDWR)
        assert place.identity()


def test_a_batch_of_over_8_mib_goes_in_parts(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    items = items_of(records_of(9))
    monkeypatch.setattr(client, "MOST_B", 3 * (len(items[0].text) + len(items[0].proof)))
    with Server(server.url, server.token) as place:
        assert place.add(items) == 9
    assert len(server.table.page(0).items) == 9


def test_a_record_that_is_too_long_is_named(server: Running, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOST_B", 100)
    monkeypatch.setenv("MLDYNO_TOKEN", server.token)
    store.append(records_of(1))
    moved = api.push(server.url, store=store)
    assert (moved.new, moved.refused) == (0, 1)
    assert "is not taken" in moved.reasons[0]
