"""Text that does no harm where it is shown: in a terminal, a page, a picture, a file of tables.

Rule: standard library only, and nothing of ours, so that every layer can use it.
"""

from __future__ import annotations

REPLACEMENT = "\ufffd"  # Unicode's own sign for a character that can't be shown


def printable(text: str) -> str:
    """The text on one line, of printable characters only: all spaces and breaks are ' ', the rest is '\ufffd'.

    Replaced are control characters, half surrogate pairs, what changes the direction of reading or has no width,
    and what is not assigned.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else REPLACEMENT for letter in text)
