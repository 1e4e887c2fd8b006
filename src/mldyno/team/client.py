"""A server of ours as a place: `mldyno serve`, by HTTPS, or by HTTP on this machine.

Rules: the token goes to the address that the user names and to no other: no redirect is followed, and no proxy is used.
Without TLS only loopback is asked, unless the user wants it otherwise. Answers are limited in time and length.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from mldyno.printable import printable
from mldyno.team import MOST_B, Item, Page, Place, PlaceError, Pushed, Withheld, shown

PROTOCOL = 1
TIMEOUT_S = 120.0
LONGEST_ANSWER_B = 64 << 20
LONGEST_REASON = 300  # characters


class Server(Place):
    """A server at an address, asked on one connection."""

    def __init__(self, url: str, token: str = "", plain: bool = False) -> None:
        self.name = shown(url)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise PlaceError(f"'{self.name}' is no address of a server; write https://HOST") from None
        if parts.username is not None or parts.password is not None:
            raise PlaceError(f"{self.name}: an address must hold no password; set MLDYNO_TOKEN, or --token-file FILE")
        if not parts.hostname or parts.query or parts.fragment:
            raise PlaceError(f"'{self.name}' is no address of a server; write https://HOST")
        if parts.scheme == "http" and not plain and not is_loopback(parts.hostname):
            raise PlaceError(
                f"{self.name}: without TLS others can read the token on its way; use https://, or allow that with "
                "--plain-http"
            )
        self.name = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, port
        self._path, self._token = quote(parts.path.rstrip("/"), safe="/%"), token
        if token and not (token.isascii() and token.isprintable() and " " not in token):
            raise PlaceError("the token holds what no token has, such as a space or a line break; get it again")
        self._connection: http.client.HTTPConnection | None = None

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            if self._secure:
                context = ssl.create_default_context()
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=TIMEOUT_S, context=context
                )
            else:
                self._connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return self._connection

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Ask once more on a new connection where an old one was closed meanwhile: every request may be repeated."""
        for fresh in (self._connection is None, True):
            try:
                return self._asked(method, path, body)
            except (http.client.HTTPException, OSError) as error:
                self.close()
                if fresh or isinstance(error, TimeoutError):
                    reason = printable(str(getattr(error, "strerror", None) or error) or type(error).__name__)
                    reason = reason[:LONGEST_REASON]
                    raise PlaceError(f"{self.name}: no answer ({reason}); repeat the command") from None
        raise AssertionError

    def _asked(self, method: str, path: str, body: bytes | None) -> bytes:
        connection = self._connected()
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        if body is not None:
            headers["Content-Type"] = "application/x-ndjson"
        connection.request(method, self._path + path, body, headers)
        answer = connection.getresponse()
        content = answer.read(LONGEST_ANSWER_B + 1)
        if len(content) > LONGEST_ANSWER_B:
            self.close()
            limit = LONGEST_ANSWER_B >> 20
            raise PlaceError(f"{self.name}: the answer is over {limit} MiB long; is this mldyno serve?")
        if answer.status != 200:
            self.close()
            self._refuse(answer.status, content)
        return content

    def _refuse(self, status: int, content: bytes) -> None:
        said: dict[str, Any] = {}
        with suppress(ValueError, RecursionError):
            said = json.loads(content)
        said = said if isinstance(said, dict) else {}
        faults = said.get("faults")
        if status == 422 and isinstance(faults, list):
            raise Withheld(self.name, [(str(fault[0]), _line(fault[1])) for fault in faults
                                       if isinstance(fault, list) and len(fault) == 2])  # fmt: skip
        if 300 <= status < 400:
            raise PlaceError(f"{self.name}: it sends elsewhere, which is not followed; name the address itself")
        if status == 401:
            how = "is not valid there" if self._token else "is missing: set MLDYNO_TOKEN, or --token-file FILE"
            make = "mldyno serve --add-token NAME"
            raise PlaceError(f"{self.name}: the token {how}; who runs the server makes one with: {make}")
        reason = _line(said.get("error", "")) or f"HTTP status {status}"
        raise PlaceError(f"{self.name}: {reason}")

    def _content(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        try:
            content = json.loads(self._ask(method, path, body))
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise PlaceError(f"{self.name}: the answer is not one of mldyno serve; check the address")
        return content

    def identity(self) -> str:
        content = self._content("GET", "/place")
        if content.get("protocol", 0) != PROTOCOL or not isinstance(content.get("identity"), str):
            raise PlaceError(f"{self.name}: the server speaks another protocol; update mldyno here or there")
        return str(content["identity"])

    def missing(self, ids: Collection[str]) -> set[str]:
        given = set(ids)
        content = self._content("POST", "/missing", "\n".join(sorted(given)).encode())
        missing = content.get("missing")
        return given & set(map(str, missing)) if isinstance(missing, list) else given

    def add(self, items: Sequence[Item]) -> int:
        body = encoded(items)
        if len(body) > MOST_B:
            if len(items) == 1:
                raise Withheld(self.name, [(items[0].id, f"a record of over {MOST_B >> 20} MiB is not taken")])
            half = len(items) // 2
            return self.add(items[:half]) + self.add(items[half:])
        return int(self._content("POST", "/records", body).get("new", 0))

    def page(self, after: int) -> Page:
        first, _, rest = self._ask("GET", f"/records?{urlencode({'after': after})}").partition(b"\n")
        try:
            header = json.loads(first)
            numbers, left = [int(number) for number in header["numbers"]], int(header["left"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise PlaceError(f"{self.name}: the answer is not one of mldyno serve; check the address") from None
        return Page(_decoded(rest, numbers), left)

    def pushed(self, who: str = "", most: int = 500) -> list[Pushed]:
        content = self._content("GET", f"/pushed?{urlencode({'who': who, 'most': most})}")
        rows = content.get("pushed")
        fields = tuple(Pushed.__dataclass_fields__)
        return [Pushed(**{name: _line(row.get(name, "")) for name in fields})
                for row in (rows if isinstance(rows, list) else ()) if isinstance(row, dict)]  # fmt: skip

    def withdraw(self, ids: Collection[str]) -> list[str]:
        content = self._content("POST", "/withdraw", "\n".join(ids).encode())
        withdrawn = content.get("withdrawn")
        return list(map(str, withdrawn)) if isinstance(withdrawn, list) else []

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _line(text: object) -> str:
    return printable(" ".join(str(text).split()))[:LONGEST_REASON]


def is_loopback(host: str) -> bool:
    """Return whether an address is of this machine alone; names other than localhost are looked up nowhere."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def encoded(items: Sequence[Item]) -> bytes:
    """Return items as lines: a signature before the first record of its batch."""
    lines, proof = [], ""
    for item in items:
        if item.proof and item.proof != proof:
            lines.append(item.proof)
            proof = item.proof
        lines.append(item.text)
    return "".join(f"{line}\n" for line in lines).encode()


def _decoded(lines: bytes, numbers: Sequence[int]) -> list[Item]:
    """Return the items in lines; whose id is not in its text has none, and is refused where it is read."""
    from mldyno.store import transfer

    items: list[Item] = []
    proof, left = "", iter(numbers)
    for line in lines.splitlines():
        if transfer.is_proof(line):
            proof = line.decode("utf-8", "replace")
            continue
        number = next(left, None)
        if number is None:
            break
        items.append(Item("", line.decode("utf-8", "replace"), proof, number))
    return items
