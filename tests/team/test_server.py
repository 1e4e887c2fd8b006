"""The server: what it takes, from whom, and what it never does."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.faults.conftest import a_line as a_line  # noqa: PLC0414
from tests.faults.test_hostile_imports import BAD_FIGURES, BAD_LINES, edited
from tests.fuzz.mutations import mutated, seeds
from tests.submitted import HERE, MLP, good, lines_of
from tests.team.conftest import Running, items_of, records_of, running

from mldyno import submission
from mldyno.errors import StoreError
from mldyno.records import seal
from mldyno.store import transfer
from mldyno.team import MOST_B
from mldyno.team import server as module
from mldyno.team.server import Site, judged
from mldyno.team.table import File

CORPUS = sorted((Path(__file__).parent.parent / "fuzz" / "corpus").glob("*.jsonl"))
ENDPOINTS = [("GET", "/place"), ("POST", "/missing"), ("POST", "/records"), ("GET", "/records"), ("GET", "/pushed"),
             ("POST", "/withdraw")]  # fmt: skip


def nothing_taken(server: Running) -> bool:
    return server.table.tip() == (0, 0)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for tests in which nothing is taken."""
    folder = tmp_path_factory.mktemp("server")
    with File(folder / "team.sqlite") as table, running(table, folder) as made:
        yield made


def test_a_submission_is_taken_once_and_is_pending(server: Running) -> None:
    records = records_of(3)
    for new in (3, 0):
        answer = server.ask("POST", "/records", lines_of(records))
        assert (answer.status, answer.content) == (200, {"given": 3, "new": new})
    rows = server.ask("GET", "/pushed").content["pushed"]
    assert [(row["who"], row["state"]) for row in rows] == [("ada", "pending")] * 3
    assert server.ask("GET", "/records").body == b'{"numbers": [], "left": 0}\n', "what is pending is not given away"


def test_what_is_judged_is_given_as_it_was_written_with_its_signature(server: Running) -> None:
    records = records_of(3)
    server.ask("POST", "/records", lines_of(records))
    server.table.judge(2, [])
    header, *lines = server.ask("GET", "/records?after=0").body.decode().splitlines()
    assert json.loads(header) == {"numbers": [1, 2], "left": 0}
    assert lines == lines_of(records).splitlines()[:3]
    assert server.ask("GET", "/records?after=2").body == b'{"numbers": [], "left": 0}\n'


def test_all_are_taken_or_none_and_each_fault_is_named(server: Running) -> None:
    sound, *bad = records_of(3)
    bad = [seal(replace(record, provenance="imported")) for record in bad]
    answer = server.ask("POST", "/records", lines_of([sound, *bad]))
    assert answer.status == 422
    assert [id_ for id_, _ in answer.content["faults"]] == [record.id for record in bad]
    assert all("it is imported, not measured" in line for _, line in answer.content["faults"])
    assert "nothing was taken" in answer.content["error"]
    assert nothing_taken(server)


def test_a_record_is_judged_as_submit_check_does_but_for_the_signature(server: Running) -> None:
    slow = good(MLP, 0.01)
    slow = seal(replace(slow, facts={**slow.facts, "flops_per_step": 1.0}))
    (fault,) = submission.faults([[replace(slow, proof="signed")]])[0]
    assert server.ask("POST", "/records", slow.text + "\n").content["faults"] == [[slow.id, fault]]
    assert server.ask("POST", "/records", good().text).status == 200, "the token says who vouches for it"


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_record_that_import_refuses_is_refused(untouched: Running, a_line: str, name: str) -> None:
    edit, words = BAD_LINES[name]
    body = f"\n{edit(a_line)}\n".encode(errors="surrogatepass")
    answer = untouched.ask("POST", "/records", body)
    assert answer.status == 422
    assert words.removeprefix("line 2: ") in answer.content["faults"][0][1]
    assert all(str(line).isprintable() for _, line in answer.content["faults"])
    assert nothing_taken(untouched)


FILES = {
    "an empty one": b"", "empty lines": b"\n" * 5, "endless empty lines": b"\n" * 5000, "NULs": bytes(1000),
    "bytes": bytes(range(256)) * 64, "SQLite": b"SQLite format 3\0" + bytes(5000), "UTF-16": "{}\n".encode("utf-16"),
    "a page": b"<html>", "not UTF-8": b'{"a":"\xff"}\n', "deep": b"[" * 200_000, "a proof alone": b'{"proves":[]}',
    **{name: text.encode() for name, (text, _) in BAD_FIGURES.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_holds_no_records_is_refused(untouched: Running, name: str) -> None:
    answer = untouched.ask("POST", "/records", FILES[name])
    assert (answer.status, nothing_taken(untouched)) == (422, True)


def test_no_strange_record_makes_it_fail_inside(server: Running, tmp_path: Path) -> None:
    """What import refuses is refused, and what it takes is judged."""
    originals = seeds()
    bodies = [mutated(seed, originals).encode(errors="surrogatepass") for seed in range(100)]
    for body in [*bodies, *(path.read_bytes() for path in CORPUS)]:
        path = tmp_path / "strange.jsonl"
        path.write_bytes(body)
        answer = server.ask("POST", "/records", body)
        assert answer.status in (200, 422)
        assert answer.status == 422 or not transfer.examined(str(path))[1]


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
@pytest.mark.parametrize("token", ["", "wrong", "ada", "x" * 5000, "é"], ids=["none", "wrong", "name", "long", "odd"])
def test_nobody_gets_in_without_a_valid_token(untouched: Running, method: str, path: str, token: str) -> None:
    given = token.encode().decode("latin-1")
    answer = untouched.ask(method, path, lines_of(records_of(1)) if method == "POST" else None, token=given)
    assert (answer.status, nothing_taken(untouched)) == (401, True)
    assert answer.content == {"error": "no valid token"}


def test_a_withdrawn_token_is_refused_at_once(server: Running) -> None:
    assert server.ask("GET", "/place").status == 200
    server.tokens.withdraw("ada")
    assert server.ask("GET", "/place").status == 401
    assert server.ask("POST", "/records", lines_of(records_of(1))).status == 401
    assert nothing_taken(server)


def test_other_ways_to_give_a_token_are_none(server: Running) -> None:
    for headers in ({"Authorization": f"Basic {server.token}"}, {"Cookie": f"token={server.token}"}):
        assert server.ask("GET", "/place", token="", **headers).status == 401
    assert server.ask("GET", f"/place?token={server.token}", token="").status == 401


def test_only_ones_own_records_can_be_withdrawn_but_by_an_admin(server: Running) -> None:
    records = records_of(3)
    server.ask("POST", "/records", lines_of(records))
    bob, admin = server.tokens.add("bob"), server.tokens.add("boss", admin=True)
    answer = server.ask("POST", "/withdraw", records[0].id, token=bob)
    assert (answer.status, "ada pushed record" in answer.content["error"]) == (409, True)
    for token, record in ((server.token, records[0]), (admin, records[1])):
        assert server.ask("POST", "/withdraw", record.id[:8], token=token).content == {"withdrawn": [record.id]}
    assert server.ask("POST", "/records", lines_of(records)).content == {"given": 3, "new": 0}, "nor taken again"


# -- limits ---------------------------------------------------------------------------------------


def test_a_body_of_over_8_mib_is_not_read(server: Running) -> None:
    answer = server.ask("POST", "/records", b"", Content_Length=str(MOST_B + 1))
    assert answer.status == 413
    assert server.ask("POST", "/records", b"", Content_Length="9" * 400).status in (400, 413)
    assert nothing_taken(server)


def test_a_body_without_a_length_is_cut_at_8_mib(server: Running) -> None:
    record = records_of(1)[0].text.encode() + b"\n"

    def parts() -> Iterator[bytes]:
        for _ in range(MOST_B // len(record) + 100):
            yield record

    with suppress(BrokenPipeError, ConnectionResetError):  # it does not wait for the rest
        assert server.ask("POST", "/records", parts()).status == 413
    assert nothing_taken(server)


def test_just_below_8_mib_is_taken(server: Running) -> None:
    record = good()
    body = lines_of([record]).encode()
    body += b" " * (MOST_B - len(body))
    assert server.ask("POST", "/records", body).content == {"given": 1, "new": 1}


def test_a_packed_body_is_refused(server: Running) -> None:
    assert server.ask("POST", "/records", b"x", Content_Encoding="gzip").status == 415


@pytest.mark.parametrize("body", ["x", "../x", "0" * 5, "0" * 33, "é" * 8, "'; DROP TABLE records", "%" * 32, "_" * 32])
def test_what_is_no_id_is_refused(untouched: Running, body: str) -> None:
    assert untouched.ask("POST", "/missing", body.encode()).status == 400
    assert untouched.ask("POST", "/withdraw", body.encode()).status == 400


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=1.5", "after=" + "9" * 99, "after=%D9%A3", "after="])
def test_what_is_no_number_is_refused(untouched: Running, query: str) -> None:
    assert untouched.ask("GET", f"/records?{query}").status == 400


def conversation(server: Running, *parts: bytes, pause: float = 0.0) -> bytes:
    """Send parts with pauses, and return what comes until the server closes."""
    said = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            while more := connection.recv(65536):
                said += more
        except ConnectionError:
            pass
    return said


def test_a_client_that_sends_no_headers_or_slow_ones_is_cut_off(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEADERS_S", 0.2)
    assert conversation(server) == b""
    slow = [b"GET /health HTTP/1.1\r\n", *(f"X-{n}: x\r\n".encode() for n in range(20))]
    assert conversation(server, *slow, pause=0.05) == b""
    assert server.ask("GET", "/health").status == 200


def test_a_second_request_on_a_connection_has_no_more_time(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEADERS_S", 0.2)
    said = conversation(server, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /hea", pause=0.1)
    assert said.count(b"HTTP/1.1 200") == 1


def test_a_slow_body_is_given_up(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_S", 0.2)
    head = f"POST /records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\nContent-Length: 1000\r\n\r\n"
    said = conversation(server, head.encode(), b"{")
    assert b"408" in said.splitlines()[0]
    assert nothing_taken(server)


def test_a_body_that_is_cut_off_is_not_taken(server: Running) -> None:
    body = lines_of(records_of(3)).encode()
    head = f"POST /records HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode() + body[:-10])
    assert server.ask("GET", "/health").status == 200
    assert nothing_taken(server)


def test_an_answer_that_nobody_reads_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_S", 0.3)
    (tmp_path / "site").mkdir()
    with open(tmp_path / "site" / "big.txt", "wb") as big:
        big.truncate(64 << 20)
    with File(tmp_path / "team.sqlite") as table, running(table, tmp_path, quiet_site(tmp_path)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(b"GET /big.txt HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(0.6)
            got = 0
            while more := connection.recv(1 << 20):
                got += len(more)
        assert got < 64 << 20


def test_headers_have_a_length(server: Running) -> None:
    said = conversation(server, b"GET /health HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n")
    assert b" 400 " in said.splitlines()[0]


def test_more_connections_than_can_be_served_are_told_so(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(module.MOST_CONNECTIONS)]
    try:
        assert server.ask("GET", "/health").status == 503
    finally:
        for connection in held:
            connection.close()
    deadline = time.monotonic() + 10
    while server.ask("GET", "/health").status != 200:
        assert time.monotonic() < deadline


# -- pages ----------------------------------------------------------------------------------------


def quiet_site(folder: Path) -> Site:
    """A site that is there, and is never built."""
    site = Site(folder / "site", {}, interval=1e9)
    site._began = 1e18
    return site


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("a page")
    (tmp_path / "secret").write_text("a secret")
    (tmp_path / "site" / "link").symlink_to(tmp_path / "secret")
    with File(tmp_path / "team.sqlite") as table, running(table, tmp_path, quiet_site(tmp_path)) as server:
        yield server


def test_pages_need_no_token_and_say_what_browsers_must_not_do(pages: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", pages.port)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"a page")
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert answer.getheader("Server") is None
    connection.request("GET", "/", headers={"If-None-Match": str(answer.getheader("ETag"))})
    assert connection.getresponse().status == 304
    connection.close()


@pytest.mark.parametrize(
    "path",
    ["/../secret", "/%2e%2e/secret", "/..%2fsecret", "/x/../../secret", "//secret", "/..\\secret", "/%00", "/link",
     "/index.html%00.txt", "/../team.sqlite", "/../tokens", "//etc/passwd", "/%2fetc/passwd", "/.%2e/tokens"],
)  # fmt: skip
def test_no_path_leads_out_of_the_folder(pages: Running, path: str) -> None:
    answer = pages.ask("GET", path, token="")
    assert answer.status in (400, 404, 405)
    assert b"secret" not in answer.body


def test_a_page_takes_nothing(pages: Running) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert pages.ask(method, "/index.html", b"x").status == 405
    assert (pages.tokens.path.parent / "site" / "index.html").read_text() == "a page"


# -- what can be away -----------------------------------------------------------------------------


def test_where_records_can_not_be_stored_nothing_is_said_to_be_taken(
    server: Running, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*words: object) -> int:
        raise StoreError("store /home/ada/team.sqlite: the disk is full; make room")

    monkeypatch.setattr(File, "add_of", broken)
    answer = server.ask("POST", "/records", lines_of(records_of(1)))
    assert (answer.status, "nothing was taken" in answer.content["error"]) == (507, True)
    assert b"/home/ada" not in answer.body, "what is wrong is said on the server's own standard error"
    assert "/home/ada" in capfd.readouterr().err


def test_an_error_inside_says_nothing_to_strangers(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*words: object) -> None:
        raise RuntimeError("in /home/ada/secret")

    monkeypatch.setattr(File, "identity", broken)
    answer = server.ask("GET", "/place")
    assert (answer.status, b"/home/ada" in answer.body) == (500, False)


def test_health_says_whether_records_can_be_read(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = server.ask("GET", "/health", token="")
    assert (answer.status, answer.content["status"]) == (200, "ok")

    def away(*words: object) -> None:
        raise StoreError("away")

    monkeypatch.setattr(File, "identity", away)
    assert server.ask("GET", "/health", token="").status == 503


def test_the_signature_of_a_batch_goes_with_each_of_its_records() -> None:
    records = records_of(3)
    items, faults = judged((lines_of(records[:2]) + records[2].text).encode())
    assert faults == []
    assert [item.proof for item in items] == [items_of(records[:2])[0].proof] * 2 + [""]


def test_a_signature_of_another_machine_is_a_fault(server: Running, a_line: str) -> None:
    first, other = records_of(1)[0], edited(a_line, "case", "batch", value=3)
    broken = lines_of([first]).replace('"signature":"', '"signature":"0')
    assert server.ask("POST", "/records", broken).status == 422
    assert server.ask("POST", "/records", lines_of([first]) + other).status == 422
    assert nothing_taken(server)
    assert HERE
