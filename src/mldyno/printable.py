"""Make text safe to show anywhere: in a terminal, a page, a picture, a table.

Rule: standard library only, and no other module of mldyno, so that every layer can use it.
"""

from __future__ import annotations

import shlex
from typing import Any

LONGEST_NAME, LONGEST_TEXT = 300, 10_000  # characters of a name, and of any text, in a record
_NUMBERS = {float, int}
REPLACEMENT = "\ufffd"  # Unicode's replacement character


def printable(text: str) -> str:
    """Return the text on one line, of printable characters only: white space becomes ' ', all else '\ufffd'.

    Not printable are control characters, half surrogate pairs, characters without width or that change the direction
    of reading, and unassigned ones.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else REPLACEMENT for letter in text)


def printable_content(content: Any) -> Any:
    """Make every text in JSON values printable, keys too, and no longer than a record allows."""
    if isinstance(content, str):
        return shortened(printable(content), LONGEST_TEXT)
    if isinstance(content, dict):
        return {printable(key): printable_content(value) for key, value in content.items()}
    if isinstance(content, list | tuple) and not _NUMBERS.issuperset(map(type, content)):
        return [printable_content(part) for part in content]
    return content  # samples, most of all: many, and no text


def shortened(text: str, most: int) -> str:
    """Shorten a text to at most `most` characters, with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def quoted(word: str) -> str:
    """Return a word as it is typed in a shell; one with an apostrophe in double quotes: "Ada's laptop"."""
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word)


def name_from(text: str) -> str:
    """Return a printable, short name for a record; a digest of the whole keeps long names distinct."""
    if len(text) <= LONGEST_NAME:
        return printable(text)
    import hashlib  # rarely needed, and slow to load

    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{shortened(printable(text), LONGEST_NAME - len(digest) - 1)} {digest}"
