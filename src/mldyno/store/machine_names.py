"""Which machine a user means by a few words: part of its name, words in any order, small typos."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher, get_close_matches

from mldyno.errors import UsageError

LEAST_LIKENESS = 0.75  # how much of a word must be right


def the_one_meant(text: str, names: Sequence[str]) -> str | None:
    """The machine that is meant; None where it can't be one; raises where it is not clear which."""
    matches = meant(text, names)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"'{text}' could be any of these machines: {'; '.join(matches)}.")
    near = nearest(text, names)
    if near and " " in text and not {"=", "/"} & set(text):  # several words are no filter
        raise UsageError(f"no machine is called '{text}'. Did you mean '{near}'? `mldyno list machines` lists all.")
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
        or (word.isalpha() and bool(get_close_matches(word, parts, n=1, cutoff=LEAST_LIKENESS)))
        for word in words
    )
