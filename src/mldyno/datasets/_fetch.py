"""Fetch archives from mirrors, and put them in their place only if they are right.

Rules: what has arrived stays in a `.part` file next to the place, so that the next mirror, or the next run after a
kill, resumes there. A slow mirror is left for the next one, and asked again if no other is faster. Only a file of the
stated size and SHA-256 is taken. Certificates are verified.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import queue
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mldyno.datasets import Archive, DataSet, Progress, Tally, sync
from mldyno.errors import MldynoError, UsageError
from mldyno.files import regular
from mldyno.printable import printable, shortened
from mldyno.units import show_bytes

MIRROR_TIMEOUT_S = 10.0  # until a mirror has answered, and between two chunks of what it sends
PACE_WINDOW_S = 15.0  # over which the pace is taken
FIRST_PACE, LATER_PACE = 128 << 10, 4 << 10  # B/s that a mirror must keep up when it is asked first, and later
MOST_ATTEMPTS = 10  # times that the mirrors are asked, as long as more keeps coming
CHUNK_B = 1 << 18  # taken at a time at most
# Where systems keep certificates: macOS, Debian, Fedora, SUSE.
BUNDLES = (
    "/etc/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)  # fmt: skip


class MirrorFailed(Exception):
    """A mirror did not give the archive; `again` if it may give the rest when it is asked again."""

    def __init__(self, reason: str, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


def mirrors(data_set: DataSet) -> list[str]:
    """Return the addresses that hold the archives of a data set: the user's own first."""
    own = os.environ.get("MLDYNO_MIRROR")
    if not own:
        return list(data_set.mirrors)
    try:
        address = urllib.parse.urlsplit(own)
        known = address.scheme in ("http", "https") and bool(address.hostname) and own.isprintable()
    except ValueError:  # as of brackets that are not closed
        known = False
    if not known:
        raise UsageError(f"MLDYNO_MIRROR is '{own}'; write it as https://HOST/PATH.")
    return [f"{own.rstrip('/')}/{data_set.name}/", *data_set.mirrors]


def is_right(archive: Archive, path: Path) -> bool:
    """Return whether a file is there and is the archive, to the last bit."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", opener=regular) as file:
            if os.fstat(file.fileno()).st_size != archive.size:
                return False
            while chunk := file.read(CHUNK_B):
                digest.update(chunk)
    except FileNotFoundError:
        return False
    return digest.hexdigest() == archive.sha256


def left(archive: Archive, place: Path) -> int:
    """Return the B of an archive that are still missing."""
    return max(0, archive.size - _size(_part_of(place)))


def fetch(archive: Archive, place: Path, mirrors: Sequence[str], progress: Progress) -> None:
    """Fetch an archive to its place, from the mirrors that have it."""
    part, tally = _part_of(place), Tally(progress, f"fetching {archive.name}", archive.size)
    try:
        reasons = [] if is_right(archive, part) else _collect(archive, part, mirrors, tally)
        if not reasons and part.exists():
            sync(part)
    except OSError:
        part.unlink(missing_ok=True)  # half an archive must not keep the disk full
        raise
    if reasons or not part.exists():
        wrong = "is wrong where it lies, and " if place.exists() else ""
        raise MldynoError(
            f"{archive.name} {wrong}can't be fetched ({'; '.join(reasons) or 'no mirror holds it'}). "
            f"Go on with --data synthetic, or put it at {place}."
        )
    os.replace(part, place)
    sync(place.parent)


def _part_of(place: Path) -> Path:
    return place.with_name(f"{place.name}.part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _collect(archive: Archive, part: Path, mirrors: Sequence[str], tally: Tally) -> list[str]:
    """Complete a part, asking the mirrors again as long as more arrives; else return why each mirror failed."""
    failures: dict[str, MirrorFailed] = {}
    for attempt in range(MOST_ATTEMPTS):
        before = _size(part)
        for mirror in mirrors:
            if mirror in failures and not failures[mirror].again:
                continue
            try:
                _complete(archive, part, mirror, LATER_PACE if attempt else FIRST_PACE, tally)
            except MirrorFailed as failure:
                failures[mirror] = failure
            else:
                return []
        if _size(part) == before:
            break
    return [f"{urllib.parse.urlsplit(mirror).hostname}: {failure}" for mirror, failure in failures.items()]


def _complete(archive: Archive, part: Path, mirror: str, pace: int, tally: Tally) -> None:
    """Complete a part from one mirror."""
    if _size(part) >= archive.size:  # and wrong, or it would be in its place
        part.unlink()
    begin = _receive(archive, part, mirror, pace, tally)
    if is_right(archive, part):
        return
    size, fault = _size(part), f"another SHA-256 than {archive.sha256[:8]}…"
    if size != archive.size:
        fault = f"{'fewer' if size < archive.size else 'more'} than {archive.size:,} B"
    part.unlink()
    if not begin:
        raise MirrorFailed(f"gave a file with {fault}")
    _complete(archive, part, mirror, pace, tally)  # what was there before may have been wrong


def _receive(archive: Archive, part: Path, mirror: str, pace: int, tally: Tally) -> int:
    """Append what a mirror sends to a part; return the byte from which on it sent."""
    with _answer(mirror + archive.name, _size(part)) as answer:
        begin = _begin(answer, archive, _size(part))
        with open(part, "ab", opener=regular) as file:
            file.truncate(begin)
            size = begin
            for chunk in _chunks(answer, pace):
                file.write(chunk)
                size += len(chunk)
                tally.reach(size)
                if size > archive.size:
                    break
        stated = answer.headers.get("Content-Length") is not None or begin
    if stated and size < archive.size:
        raise MirrorFailed(f"broke off after {size:,} of {archive.size:,} B", again=True)
    return begin


def verifying() -> ssl.SSLContext:
    """Return a context that verifies certificates: by those that Python knows, or else by the system's."""
    known = ssl.get_default_verify_paths()
    bundle = next((path for path in BUNDLES if os.path.exists(path)), None)
    return ssl.create_default_context(cafile=None if known.cafile or known.capath else bundle)


@contextmanager
def _answer(address: str, begin: int) -> Iterator[http.client.HTTPResponse]:
    """Yield a mirror's response to a request for a file from a byte on.

    The request is made in a thread, since looking up a name and trying all of its addresses can take minutes.
    """
    answers: queue.Queue[http.client.HTTPResponse | Exception] = queue.Queue()
    late = threading.Event()

    def ask() -> None:
        try:
            wish = {"User-Agent": "mldyno", **({"Range": f"bytes={begin}-"} if begin else {})}
            verified = urllib.request.HTTPSHandler(context=verifying())
            request = urllib.request.Request(address, headers=wish)
            answer = urllib.request.build_opener(verified).open(request, timeout=MIRROR_TIMEOUT_S)
        except Exception as error:
            answers.put(error)
        else:
            answers.put(answer)
            if late.is_set():
                answer.close()

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=MIRROR_TIMEOUT_S)
    except queue.Empty:
        late.set()
        raise MirrorFailed(_reason(TimeoutError())) from None
    if isinstance(answer, Exception):
        raise MirrorFailed(_reason(answer)) from None
    with answer:
        yield answer


def _begin(answer: http.client.HTTPResponse, archive: Archive, wanted: int) -> int:
    """Return the byte from which on a mirror is about to send: the wanted one, or the first; raise if neither."""
    whole, stated = archive.size, answer.headers.get("Content-Length")
    if answer.status == http.HTTPStatus.PARTIAL_CONTENT:
        range_sent = answer.headers.get("Content-Range")
        if range_sent != f"bytes {wanted}-{whole - 1}/{whole}":
            raise MirrorFailed(_short(f"gave {range_sent}, not the rest from byte {wanted:,} on"))
        return wanted
    if stated is not None and stated != str(whole):
        raise MirrorFailed(_short(f"has a file of {stated} B, not {whole} B"))
    return 0


def _chunks(answer: http.client.HTTPResponse, pace: int) -> Iterator[bytes]:
    """Yield what a mirror sends; raise where it is slower than `pace` in B/s."""
    since, count = time.monotonic(), 0
    while True:
        try:
            chunk = answer.read1(CHUNK_B)
        except (OSError, http.client.HTTPException) as error:
            raise MirrorFailed(_reason(error), again=True) from None
        if not chunk:
            return
        yield chunk
        count += len(chunk)
        passed = time.monotonic() - since
        if passed >= PACE_WINDOW_S:
            if count < pace * passed:
                raise MirrorFailed(f"slower than {show_bytes(pace)}/s", again=True)
            since, count = time.monotonic(), 0


def _reason(error: BaseException) -> str:
    """Return what went wrong with a mirror, in few words."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return _short(f"HTTP {error.code} {error.reason}")
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, Exception):
        return _reason(error.reason)
    if isinstance(error, TimeoutError):
        return f"nothing in {MIRROR_TIMEOUT_S:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate can't be verified; on a Mac, run Install Certificates.command of your Python"
    return _short(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def _short(text: str) -> str:
    """Return a short line that a terminal can show, whatever a mirror put into it."""
    return shortened(printable(text), 100)
