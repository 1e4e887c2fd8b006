"""The line of a file that proves whose the records behind it are.

A submission begins with a signature of its machine's key, which anybody can verify; a rescue file with a code that
only the machine that wrote it can make. Both name the ids of the records, which are hashes of their content, so that
a file that was cut still proves what is left of it. Older versions refuse such a line as no record of theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mldyno import keys
from mldyno.records import MACHINE_KEY, Proof, Record, canonical
from mldyno.store.codec import BadRecord, parse

_START = b'{"proves":'  # as `canonical` begins both
_RESCUE = "rescue"


@dataclass(frozen=True)
class Proven:
    """Ids of records, and what proves whose they are."""

    ids: Collection[str] = ()
    by: Proof = ""
    key: str | None = None
    """Of the machine whose owner signed them."""
    of_rescue: bool = False
    """Whether it stands in a rescue file."""

    def of(self, record: Record) -> Proof:
        """Return what proves whose a record is."""
        if record.id not in self.ids or (self.by == "signed" and record.machine.key != self.key):
            return ""
        return self.by


NOTHING = Proven()


def signature(ids: Sequence[str]) -> str:
    """Return the first line of a submission."""
    public, signed = keys.sign(ids)
    return canonical({"proves": ids, "public": public, "signature": signed})


def rescue(ids: Sequence[str]) -> str:
    """Return the first line of a rescue file; it proves nothing where this machine can't keep a secret."""
    return canonical({"proves": ids, "rescued": keys.authenticate(_RESCUE, *sorted(ids))})


def is_proof(line: bytes) -> bool:
    """Return whether a line of a file is a proof."""
    return line.lstrip().startswith(_START)


def read(line: bytes) -> Proven:
    """Return what a line proves; raises where it is no proof, or a signature that is not valid."""
    content = parse(line)
    ids = content.pop("proves")
    if not isinstance(ids, list) or not all(isinstance(each, str) and MACHINE_KEY.fullmatch(each) for each in ids):
        raise BadRecord("a proof names the ids of records, and this does not")
    if not all(isinstance(value, str) and value.isascii() for value in content.values()):
        raise BadRecord("a proof has texts only, and this has not")
    if content.keys() == {"rescued"}:
        own = keys.is_authentic(content["rescued"], _RESCUE, *sorted(ids))
        return Proven(frozenset(ids), "own" if own else "", of_rescue=True)
    if content.keys() != {"public", "signature"}:
        raise BadRecord("a proof of another version; update mldyno, or take the line out")
    key = keys.signer(ids, content["public"], content["signature"])
    if key is None:
        raise BadRecord("its signature is not valid: it was changed after it was signed")
    return Proven(frozenset(ids), "signed", key)
