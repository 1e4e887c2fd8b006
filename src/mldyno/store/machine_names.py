"""Which machine a user means by a few words: part of its name, words in any order, small typos."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher, get_close_matches

ALIKE = 0.75  # how much of a word must be right


def meant(text: str, names: Sequence[str]) -> list[str]:
    """The names that fit in the closest way in which any of them does."""
    words = text.casefold().split()
    if not words:
        return []
    for fits in (_is, _is_part_of, _has_words_in, _has_nearly):
        found = [name for name in names if fits(words, name.casefold())]
        if found:
            return found
    return []


def nearest(text: str, names: Sequence[str]) -> str | None:
    """The name that has most of the words, and is most alike; None where none has any."""
    folded = text.casefold()

    def score(name: str) -> tuple[int, float]:
        words = sum(_has_nearly([word], name.casefold()) for word in folded.split())
        return words, SequenceMatcher(None, folded, name.casefold()).ratio()

    best = max(names, key=score, default=None)
    return best if best is not None and score(best)[0] else None


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
        or (word.isalpha() and bool(get_close_matches(word, parts, n=1, cutoff=ALIKE)))
        for word in words
    )
