"""Archives come whole and right or not at all, whatever the mirrors do."""

from __future__ import annotations

import hashlib
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.datasets.mirrors import Handler, Mirror, honest, rest, send, wanted_file
from tests.datasets.tiny_set import FILES, tiny

from mldyno.datasets import Archive, _fetch
from mldyno.errors import MldynoError, UsageError

NAME = "train-images.gz"
FILE = FILES[NAME]
ARCHIVE = Archive(NAME, hashlib.sha256(FILE).hexdigest(), len(FILE))
Mirrors = Callable[..., Mirror]


def fetched(folder: Path, *mirrors: Mirror) -> list[tuple[str, int, int | None]]:
    """Fetch the archive, and give what progress was told of."""
    told: list[tuple[str, int, int | None]] = []
    _fetch.fetch(ARCHIVE, folder / NAME, [one.address for one in mirrors], lambda *words: told.append(words))
    assert (folder / NAME).read_bytes() == FILE
    assert [file.name for file in folder.iterdir()] == [NAME]
    return told


def refused(folder: Path, *mirrors: Mirror) -> str:
    """The line with which fetching fails; nothing lies at the archive's place then."""
    with pytest.raises(MldynoError) as error:
        _fetch.fetch(ARCHIVE, folder / NAME, [one.address for one in mirrors], lambda *_: None)
    assert not (folder / NAME).exists()
    assert "\n" not in str(error.value)
    assert "--data synthetic" in str(error.value)
    assert str(folder / NAME) in str(error.value)
    return str(error.value)


def missing(handler: Handler) -> None:
    send(handler, 404, {"Content-Length": "0"}, b"")


def apologising(handler: Handler) -> None:
    page = b"<!DOCTYPE html><title>Sorry</title>"
    send(handler, 200, {"Content-Length": str(len(page))}, page)


def apologising_at_no_stated_length(handler: Handler) -> None:
    send(handler, 200, {}, b"<!DOCTYPE html><title>Sorry</title>")


def falsifying(handler: Handler) -> None:
    whole = wanted_file(handler)
    send(handler, 200, {"Content-Length": str(len(whole))}, whole[:-1] + bytes((whole[-1] ^ 1,)))


def endless(handler: Handler) -> None:
    send(handler, 200, {}, b"")
    while True:
        handler.wfile.write(bytes(100_000))


def breaking_off(handler: Handler) -> None:
    status, headers, body = rest(handler)
    send(handler, status, headers, body[: len(body) // 2])


def stalling(handler: Handler) -> None:
    breaking_off(handler)
    handler.wfile.flush()
    handler.server.mirror.released.wait(30)


def silent(handler: Handler) -> None:
    handler.server.mirror.released.wait(30)


def dawdling(handler: Handler) -> None:
    """Never silent for long, and never done with its headers."""
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nServer: ")
    while not handler.server.mirror.released.wait(0.05):
        handler.wfile.write(b"a")


def trickling(handler: Handler) -> None:
    status, headers, body = rest(handler)
    send(handler, status, headers, b"")
    for at in range(len(body)):
        handler.wfile.write(body[at : at + 1])
        time.sleep(0.005)


def knowing_no_ranges(handler: Handler) -> None:
    whole = wanted_file(handler)
    send(handler, 200, {"Content-Length": str(len(whole))}, whole)


def giving_another_stretch(handler: Handler) -> None:
    whole = wanted_file(handler)
    send(handler, 206, {"Content-Range": f"bytes 0-{len(whole) - 1}/{len(whole)}"}, whole)


def swearing(handler: Handler) -> None:
    handler.send_response(500, "Oh\x1b[2J")
    handler.end_headers()


@pytest.fixture
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fetch, "MIRROR_TIMEOUT_S", 1.0)
    monkeypatch.setattr(_fetch, "PACE_WINDOW_S", 0.2)


def test_an_archive_comes_from_the_first_mirror_and_progress_is_told_to_the_end(
    tmp_path: Path, mirror: Mirrors
) -> None:
    first, second = mirror(), mirror()
    told = fetched(tmp_path, first, second)
    assert first.asked == [(f"/{NAME}", None)]
    assert second.asked == []
    assert told[-1] == (f"fetching {NAME}", len(FILE), len(FILE))


@pytest.mark.parametrize(
    ("manner", "reason"),
    [
        (missing, "HTTP 404"),
        (apologising, "has a file of 35 B"),
        (apologising_at_no_stated_length, "gave a file with fewer than"),
        (falsifying, "gave a file with another SHA-256"),
        (endless, "gave a file with more than"),
        (swearing, "HTTP 500 Oh\ufffd[2J"),
    ],
)
def test_a_mirror_that_has_not_the_archive_is_left_for_the_next(
    tmp_path: Path, mirror: Mirrors, manner: Callable[[Handler], None], reason: str
) -> None:
    assert f"127.0.0.1: {reason}" in refused(tmp_path, mirror(manner))
    assert list(tmp_path.iterdir()) == []
    bad = mirror(manner)
    fetched(tmp_path, bad, mirror())
    assert len(bad.asked) == 1


def test_a_mirror_that_is_not_there_is_left_for_the_next(tmp_path: Path, mirror: Mirrors) -> None:
    dead = mirror()
    dead.end()
    assert "127.0.0.1: Connection refused" in refused(tmp_path, dead)
    fetched(tmp_path, dead, mirror())


def test_without_any_mirror_nothing_is_put_in_place(tmp_path: Path) -> None:
    assert "no mirror holds it" in refused(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("in_haste")
@pytest.mark.parametrize("manner", [silent, dawdling])
def test_a_mirror_that_does_not_answer_is_left_for_the_next(
    tmp_path: Path, mirror: Mirrors, manner: Callable[[Handler], None]
) -> None:
    assert "nothing in 1 s" in refused(tmp_path, mirror(manner))
    fetched(tmp_path, mirror(manner), mirror())


@pytest.mark.usefixtures("in_haste")
@pytest.mark.parametrize("manner", [breaking_off, stalling, trickling])
def test_the_next_mirror_goes_on_where_one_stopped(
    tmp_path: Path, mirror: Mirrors, manner: Callable[[Handler], None]
) -> None:
    second = mirror()
    fetched(tmp_path, mirror(manner), second)
    ((_, stretch),) = second.asked
    assert stretch is not None
    assert 0 < int(stretch.removeprefix("bytes=").removesuffix("-")) < len(FILE)


def test_a_mirror_that_breaks_off_again_and_again_is_asked_again_as_long_as_more_comes(
    tmp_path: Path, mirror: Mirrors
) -> None:
    remaining = []

    def in_quarters(handler: Handler) -> None:
        status, headers, body = rest(handler)
        remaining.append(len(body))
        send(handler, status, headers, body[: len(FILE) // 4 + 1])

    fetched(tmp_path, mirror(in_quarters))
    assert len(remaining) == 4
    only = mirror(breaking_off)
    (tmp_path / NAME).unlink()
    assert "broke off after" in refused(tmp_path, only)
    assert len(only.asked) == _fetch.MOST_ATTEMPTS


@pytest.mark.usefixtures("in_haste")
def test_a_slow_mirror_is_asked_again_when_no_other_was_better(
    tmp_path: Path, mirror: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    manners = iter([trickling, honest])

    def slow_at_first(handler: Handler) -> None:
        next(manners)(handler)

    slow = mirror(slow_at_first)
    fetched(tmp_path, slow, mirror(missing))
    assert len(slow.asked) == 2
    monkeypatch.setattr(_fetch, "MOST_ATTEMPTS", 2)
    (tmp_path / NAME).unlink()
    assert "slower than 4.00 KiB/s" in refused(tmp_path, mirror(trickling))


@pytest.mark.parametrize("manner", [honest, knowing_no_ranges])
def test_what_an_earlier_run_left_is_carried_on_or_begun_anew(
    tmp_path: Path, mirror: Mirrors, manner: Callable[[Handler], None]
) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(FILE[:1000])
    one = mirror(manner)
    fetched(tmp_path, one)
    assert one.asked == [(f"/{NAME}", "bytes=1000-")]


@pytest.mark.parametrize("size", [1000, len(FILE), len(FILE) + 1])
def test_what_an_earlier_run_left_is_thrown_away_if_it_was_wrong(tmp_path: Path, mirror: Mirrors, size: int) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(bytes(size))
    one = mirror()
    fetched(tmp_path, one)
    assert one.asked[-1] == (f"/{NAME}", None)


def test_what_an_earlier_run_left_complete_is_not_fetched_again(tmp_path: Path, mirror: Mirrors) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(FILE)
    one = mirror()
    fetched(tmp_path, one)
    assert one.asked == []


def test_a_mirror_that_gives_another_stretch_than_asked_for_is_left_for_the_next(
    tmp_path: Path, mirror: Mirrors
) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(FILE[:1000])
    assert "not the rest from byte 1,000 on" in refused(tmp_path, mirror(giving_another_stretch))
    fetched(tmp_path, mirror(giving_another_stretch), mirror())


def test_a_mirror_whose_certificate_nobody_vouches_for_is_refused(tmp_path: Path, mirror: Mirrors) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    one = mirror()
    one.server.socket = context.wrap_socket(one.server.socket, server_side=True)
    one.address = one.address.replace("http:", "https:")
    folder = tmp_path / "archives"
    folder.mkdir()
    assert "its certificate can't be verified" in refused(folder, one)
    assert one.asked == []


def test_a_python_that_came_without_certificates_uses_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile=None: asked.append(cafile))
    (tmp_path / "bundle.pem").touch()
    monkeypatch.setattr(_fetch, "BUNDLES", ("/there/is/none.pem", str(tmp_path / "bundle.pem")))
    _fetch.verifying()
    nothing = SimpleNamespace(cafile=None, capath=None)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nothing)
    _fetch.verifying()
    assert asked == [None, str(tmp_path / "bundle.pem")]


def test_the_users_own_mirror_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    data_set = tiny("https://built-in.example/")
    assert _fetch.mirrors(data_set) == ["https://built-in.example/"]
    monkeypatch.setenv("MLDYNO_MIRROR", "http://own.example/data")
    assert _fetch.mirrors(data_set) == ["http://own.example/data/tiny/", "https://built-in.example/"]
    monkeypatch.setenv("MLDYNO_MIRROR", "own.example")
    with pytest.raises(UsageError, match=r"MLDYNO_MIRROR is 'own\.example'; write it as https://"):
        _fetch.mirrors(data_set)
