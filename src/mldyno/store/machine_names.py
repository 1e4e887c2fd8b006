"""What machines are called where several have one name; and which one a user means by a few words.

A user names part of a machine's name, words in any order, with small typos.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher, get_close_matches
from typing import NamedTuple

from mldyno.errors import UsageError
from mldyno.keys import present
from mldyno.records import IMPORTED, Record

FEWEST_DIGITS = 4  # of a key that tell two machines of one name apart
LEAST_LIKENESS = 0.75  # how much of a word must be right


SIGNED = "*"  # behind a key, where the owner of that key signed what was imported


class Identity(NamedTuple):
    """What tells machines apart. `key` is empty where it is not known.

    What was imported without a signature is of another machine than what its owner signed, whatever key it bears.
    """

    name: str
    key: str
    imported: bool


def told_apart(machines: Collection[Identity]) -> dict[Identity, str]:
    """The name of each, with the first digits of its key where others have that name too.

    What was measured into a store without a key, as by older versions, is of the machine that has the name; what was
    imported without one is of a machine of its own. The key that this machine had before it had a secret is its own.
    """
    rivals: dict[tuple[str, bool], set[str]] = {}
    for name, key, imported in machines:
        rivals.setdefault((name, imported), set()).update([key] if key or imported else [])
    names = {}
    for alike, known in rivals.items():
        own = {key: key if alike[1] or len(known) == 1 else present(key) for key in known}
        keys = set(own.values())
        digits = _digits({key.removesuffix(SIGNED) for key in keys})
        for key in {*known, ""}:
            doubt = "?" if own.get(key, key) + SIGNED in keys else ""
            tag = f" [{own[key].removesuffix(SIGNED)[:digits]}{doubt}]" if key and len(keys) > 1 else ""
            names[Identity(alike[0], key, alike[1])] = alike[0] + tag
    return {machine: names[machine] for machine in machines}


def _digits(keys: Collection[str]) -> int:
    """How many digits of these keys tell each from the others."""
    digits = FEWEST_DIGITS
    while len({key[:digits] for key in keys}) < len(keys):
        digits += 1
    return digits


def shown(machine: Identity, names: Mapping[Identity, str]) -> str:
    """A machine as tables name it, by the names that tell it from others."""
    return names.get(machine, machine.name) + (IMPORTED if machine.imported else "")


def identity_of(record: Record) -> Identity:
    """The machine of a record."""
    return Identity(record.machine.name, stored_key(record), bool(record.imported_from))


def stored_key(record: Record) -> str:
    """The key of a record's machine, as a store keeps it."""
    return (record.machine.key or "") + (SIGNED if record.imported_from and record.proof == "signed" else "")


def written_name(record: Record) -> str:
    """The name of its machine as the record was written, whatever tells it from others here."""
    return str(json.loads(record.text)["machine"]["name"])


def with_names(records: Iterable[Record], names: Mapping[Identity, str]) -> Iterator[Record]:
    """Records whose machines have the names that tell them apart; texts and ids stay as they are."""
    for record in records:
        name = names.get(identity_of(record), record.machine.name)
        yield record if name == record.machine.name else replace(record, machine=replace(record.machine, name=name))


def the_one_meant(text: str, names: Sequence[str]) -> str | None:
    """The machine that is meant; None where there is none; raises where it is not clear which."""
    matches = meant(text, names)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"'{text}' could be any of these machines: {'; '.join(matches)}.")
    return None


def meant(text: str, names: Sequence[str]) -> list[str]:
    """The names that fit in the closest way in which any of them does."""
    words = text.casefold().split()
    if not words:
        return []
    for fits in (_is, _is_part_of, _has_words_in, _has_nearly):
        matches = [name for name in names if fits(words, name.casefold())]
        if matches:
            return matches
    return []


def nearest(text: str, names: Sequence[str]) -> str | None:
    """Return the name that has most of the words, and is most alike; None where none has half of them."""
    folded = text.casefold()

    def score(name: str) -> tuple[int, float]:
        words = sum(_has_nearly([word], name.casefold()) for word in folded.split())
        return words, SequenceMatcher(None, folded, name.casefold()).ratio()

    best = max(names, key=score, default=None)
    return best if best is not None and 2 * score(best)[0] >= len(folded.split()) else None


def _is(words: list[str], name: str) -> bool:
    return " ".join(words) == " ".join(name.split())


def _is_part_of(words: list[str], name: str) -> bool:
    return " ".join(words) in name


def _has_words_in(words: list[str], name: str) -> bool:
    return all(any(word in part for part in name.split()) for word in words)


def _has_nearly(words: list[str], name: str) -> bool:
    """Whether each word is there, or one much like it; a number is another machine if a digit is wrong."""
    parts = name.split()
    return all(
        any(word in part for part in parts)
        or (word.isalpha() and bool(get_close_matches(word, parts, n=1, cutoff=LEAST_LIKENESS)))
        for word in words
    )
