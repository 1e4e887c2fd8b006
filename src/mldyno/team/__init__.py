"""One place for a team's records: a PostgreSQL database, or a server of ours; records are pushed there, and pulled.

Rules: a record is moved as the text that it was written as, and known by its hash, so that anything may be repeated.
What measures stays the local store. A password or a token is in no message and in no record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mldyno.errors import MldynoError
from mldyno.masking import MASK, masked

PAGE = 500  # records that are read at once
MOST_B = 8 << 20  # of one request
P = TypeVar("P", bound="Place")


class PlaceError(MldynoError):
    """A place can't be reached, read or written."""


class Withheld(MldynoError):
    """A place takes none of these records; `faults` has the id of each faulty one, with the reason."""

    def __init__(self, place: str, faults: Sequence[tuple[str, str]]) -> None:
        more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        super().__init__(f"{place} refuses a record: {faults[0][1]}{more}" if faults else f"{place} refuses them")
        self.faults = list(faults)


@dataclass(frozen=True)
class Item:
    """A record on its way: its text, and the signature of a batch that it is in, empty where there is none."""

    id: str
    text: str
    proof: str = ""
    number: int = 0  # in the place, in the order in which records were committed there


@dataclass(frozen=True)
class Page:
    """Some items after a number, and how many records are left behind the last of them."""

    items: list[Item]
    left: int


@dataclass(frozen=True)
class Pushed:
    """What is known of a pushed record: who pushed it, when, and whether it is pending, shown, withdrawn or refused."""

    id: str
    who: str
    when: str
    machine: str
    case: str
    state: str
    reason: str = ""


class Place(ABC):
    """Where a team's records are."""

    name: str
    """What messages call it, and where records that are pulled from it came from; without a password."""

    @abstractmethod
    def identity(self) -> str:
        """Return a random text that no other place has; raise where this is no place for records."""

    @abstractmethod
    def missing(self, ids: Collection[str]) -> set[str]:
        """Return those of the ids that the place does not know: withdrawn ones are known."""

    @abstractmethod
    def add(self, items: Sequence[Item]) -> int:
        """Add records, all or none, and return how many were new; raise Withheld where it refuses any."""

    @abstractmethod
    def page(self, after: int) -> Page:
        """Return the first records with a higher number, in order."""

    @abstractmethod
    def pushed(self, who: str = "", most: int = PAGE) -> list[Pushed]:
        """Return the newest records that were pushed, by one name or by anybody."""

    @abstractmethod
    def withdraw(self, ids: Collection[str]) -> list[str]:
        """Withdraw records that the asker pushed, or any where the asker is the admin; return their whole ids."""

    def close(self) -> None:  # noqa: B027
        """Give back what the place holds."""

    def __enter__(self: P) -> P:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def opened(url: str, token: str = "", plain: bool = False, make: bool = False) -> Place:
    """Open the place at a URL; with `plain`, by HTTP without TLS too; with `make`, make the tables of a database."""
    scheme = url.partition("://")[0].lower()
    if scheme in ("postgresql", "postgres"):
        from mldyno.team.postgres import Database

        return Database(url, make)
    if scheme in ("http", "https"):
        from mldyno.team.client import Server

        return Server(url, token, plain)
    raise PlaceError(f"'{shown(url)}' is no place for records; write postgresql://HOST/DATABASE or https://HOST")


def shown(url: str) -> str:
    """Return a URL without what could be a password: a name and a host remain."""
    before, separator, rest = url.partition("://")
    whole = rest if separator else before
    head, slash, tail = whole.partition("/")
    user, at, host = head.rpartition("@")
    if "@" in tail:  # a password with a slash in it
        user, at, (host, slash, tail) = f"{head.partition(':')[0]}:", "@", tail.rpartition("@")[2].partition("/")
    name = user.partition(":")[0] + (f":{MASK}" if ":" in user else "")
    tail = tail.partition("?")[0].partition("#")[0]
    return masked(f"{before + separator if separator else ''}{name}{at}{host.partition('?')[0]}{slash}{tail}")
