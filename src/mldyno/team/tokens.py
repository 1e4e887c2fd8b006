"""Who may push to a server: a file with a line for each token, its name, and its hash, never the token itself.

The file is read again when it was changed, so that a withdrawn token is refused from the next request on.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from mldyno.errors import MldynoError, UsageError
from mldyno.files import regular
from mldyno.temporary import atomic_file

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
ADMIN, MEMBER = "admin", "member"
_LINE = re.compile(rf"([0-9a-f]{{64}}) ({ADMIN}|{MEMBER}) ({NAME.pattern}) ([0-9TZ:-]{{1,30}})")


class Who(NamedTuple):
    """The name behind a token, and whether it may withdraw the records of others."""

    name: str
    admin: bool


class Tokens:
    """The tokens in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._known: dict[str, Who] = {}

    def who(self, token: str) -> Who | None:
        """Return who has a token; None where nobody has."""
        return self._read().get(_hash(token)) if token else None

    def names(self) -> list[str]:
        return [who.name for who in self._read().values()]

    def add(self, name: str, admin: bool = False) -> str:
        """Make a token for a name, and return it; it is stored nowhere."""
        if not NAME.fullmatch(name):
            raise UsageError(f"'{name}' can't be the name of a token; use at most 40 letters, digits, dots and dashes.")
        if name in self.names():
            how = f"mldyno serve --withdraw-token {name}"
            raise MldynoError(f"{self.path}: {name} has a token; withdraw it first: {how}")
        token = secrets.token_urlsafe(32)
        when = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._write([*self._lines(), f"{_hash(token)} {ADMIN if admin else MEMBER} {name} {when}"])
        return token

    def withdraw(self, name: str) -> None:
        lines = self._lines()
        left = [line for line in lines if line.split()[2] != name]
        if len(left) == len(lines):
            known = ", ".join(self.names()) or "none"
            raise MldynoError(f"{self.path}: no token has the name {name}; there are: {known}")
        self._write(left)

    def _write(self, lines: list[str]) -> None:
        before = os.umask(0o077)  # only its owner can read it
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(str(self.path)) as out:
                out.write("".join(f"{line}\n" for line in lines).encode())
        finally:
            os.umask(before)

    def _lines(self) -> list[str]:
        try:
            with open(self.path, encoding="ascii", errors="replace", opener=regular) as file:
                lines = [line for line in file.read(1 << 20).splitlines() if line.strip()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise MldynoError(f"{self.path}: {error.strerror or error}") from None
        for number, line in enumerate(lines, 1):
            if not _LINE.fullmatch(line):
                raise MldynoError(f"{self.path}: line {number} is not a token's: HASH {MEMBER} NAME DATE")
        return lines

    def _read(self) -> dict[str, Who]:
        state: tuple[int, ...] = ()
        with suppress(OSError):
            there = os.stat(self.path)
            state = (there.st_ino, there.st_mtime_ns, there.st_size)
        if state != self._seen:
            words = [line.split() for line in self._lines()]
            self._known = {hash_: Who(name, role == ADMIN) for hash_, role, name, _ in words}
            self._seen = state
        return self._known


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
