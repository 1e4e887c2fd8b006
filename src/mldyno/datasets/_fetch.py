"""Fetch archives from mirrors, hash them on the way, and put them in their place only if they are right.

Rules: what has arrived stays in a `.part` file next to the place, so that the next mirror, or the next run after a
kill, resumes there. A slow mirror is left for the next one, and asked again if no other is faster.
Only a file of the stated size and SHA-256 is taken. Certificates are verified.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from mldyno.datasets import Progress, Tally, sync
from mldyno.errors import MldynoError, UsageError
from mldyno.files import regular
from mldyno.printable import printable, shortened
from mldyno.units import show_bytes

if TYPE_CHECKING:
    from mldyno.datasets import Archive, DataSet

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


class Part:
    """What has arrived of an archive, in a file next to its place."""

    def __init__(self, place: Path, archive: Archive) -> None:
        self.archive, self.path = archive, place.with_name(f"{place.name}.part")
        self.received = 0
        """B that came through the network, including those that were discarded."""

    def __enter__(self) -> Part:
        self._file = open(self.path, "a+b", opener=regular)
        self._file.seek(0)
        self._digest, self.size = _digest(self._file)
        if self.size > self.archive.size:
            self.restart()
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def is_right(self) -> bool:
        """Return whether it is the archive, to the last bit."""
        return self.size == self.archive.size and self._digest.hexdigest() == self.archive.sha256

    def add(self, chunk: bytes) -> None:
        """Append a chunk."""
        self._file.write(chunk)
        self._digest.update(chunk)
        self.size += len(chunk)
        self.received += len(chunk)

    def restart(self) -> None:
        """Discard what has arrived."""
        self._file.truncate(0)
        self._digest, self.size = hashlib.sha256(), 0

    def on_disk(self) -> None:
        """Wait until the disk has it."""
        self._file.flush()
        os.fsync(self._file.fileno())


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
    try:
        with open(path, "rb", opener=regular) as file:
            digest, size = _digest(file)
    except FileNotFoundError:
        return False
    return size == archive.size and digest.hexdigest() == archive.sha256


def left(archive: Archive, place: Path) -> int:
    """Return the B of an archive that are still missing."""
    part = Part(place, archive).path
    return max(0, archive.size - (part.stat().st_size if part.exists() else 0))


def fetch(archive: Archive, place: Path, mirrors: Sequence[str], progress: Progress) -> None:
    """Fetch an archive to its place, from the mirrors that have it."""
    part = Part(place, archive)
    try:
        with part:
            reasons = _collect(part, mirrors, Tally(progress, f"fetching {archive.name}", archive.size))
            part.on_disk()
    except OSError:
        with suppress(OSError):
            part.path.unlink()  # a full disk is not kept full by half an archive
        raise
    if not part.is_right():
        if not part.size:
            part.path.unlink()
        wrong = "is wrong where it lies, and " if place.exists() else ""
        raise MldynoError(
            f"{archive.name} {wrong}can't be fetched ({'; '.join(reasons) or 'no mirror holds it'}). "
            f"Go on with --data synthetic, or put it at {place}."
        )
    os.replace(part.path, place)
    sync(place.parent)


def _digest(file: BinaryIO) -> tuple[hashlib._Hash, int]:
    """Return the SHA-256 of the rest of a file, which can be continued, and its length in B."""
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(CHUNK_B):
        digest.update(chunk)
        size += len(chunk)
    return digest, size


def _collect(part: Part, mirrors: Sequence[str], tally: Tally) -> list[str]:
    """Try to complete a part, again as long as more arrives; return why mirrors failed."""
    failures: dict[str, MirrorFailed] = {}
    for number in range(MOST_ATTEMPTS):
        before = part.received
        for mirror in mirrors:
            if mirror in failures and not failures[mirror].again:
                continue
            try:
                _take(mirror + part.archive.name, part, LATER_PACE if number else FIRST_PACE, tally)
            except MirrorFailed as failure:
                failures[mirror] = failure
            else:
                return []
        if part.received == before:
            break
    return [f"{urllib.parse.urlsplit(mirror).hostname}: {failure}" for mirror, failure in failures.items()]


def _take(address: str, part: Part, pace: int, tally: Tally) -> None:
    """Complete a part from one mirror."""
    had, whole = part.size, part.archive.size
    if part.size < whole:
        with _answer(address, part.size) as answer:
            promised, had = _begin(answer, part), part.size
            for chunk in _chunks(answer, pace):
                part.add(chunk)
                tally.reach(part.size)
                if part.size > whole:
                    break
        if promised and part.size < whole:
            raise MirrorFailed(f"broke off after {part.size:,} of {whole:,} B", again=True)
    if part.is_right():
        return
    fault = f"another SHA-256 than {part.archive.sha256[:8]}…"
    if part.size != whole:
        fault = f"{'fewer' if part.size < whole else 'more'} than {whole:,} B"
    part.restart()
    if not had:
        raise MirrorFailed(f"gave a file with {fault}")
    _take(address, part, pace, tally)  # what was there before may have been wrong


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


def _begin(answer: http.client.HTTPResponse, part: Part) -> bool:
    """Check what a mirror is about to send; return whether it stated the length."""
    whole, promised = part.archive.size, answer.headers.get("Content-Length")
    if answer.status == http.HTTPStatus.PARTIAL_CONTENT:
        stretch = answer.headers.get("Content-Range")
        if stretch != f"bytes {part.size}-{whole - 1}/{whole}":
            raise MirrorFailed(_short(f"gave {stretch}, not the rest from byte {part.size:,} on"))
        return True
    if promised is not None and promised != str(whole):
        raise MirrorFailed(_short(f"has a file of {promised} B, not {whole} B"))
    part.restart()
    return promised is not None


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
