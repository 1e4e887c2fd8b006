"""Text for a terminal window: fitted to its width, broken between words; or plain, for screen readers.

Plain is `mldyno --plain`, or MLDYNO_PLAIN=1: no line is redrawn, there are no rules and no bars, and each fact has a
line instead of a column.
Rule: few imports, since everything that is printed passes here; rich only where something is drawn.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

DEFAULT_WIDTH = 80  # columns of a terminal that does not report any
WIDEST = 10_000  # columns that a terminal may report
NO_WINDOW = sys.maxsize  # columns, where a line may have any length
# What precedes the text of a line: spaces; then a bullet, a number, a note's mark, or a name with a gap behind it.
_BEFORE_TEXT = r" *(?:- |\d+\. |\[\d+\] |\S.*?  +)?"  # compiled when used: most output needs none of these
_WORDS = r" *[^ ]+(?: %[^ ]*)?"  # each with the spaces before it; a number and its % stay together
_PATH_PARTS = r"[^/]*/|[^/]+"


def plain() -> bool:
    """Return whether lines of words are wanted, and nothing else."""
    return bool(os.environ.get("MLDYNO_PLAIN"))


def width_of(stream: Any) -> int:
    """Return the columns of the window that a stream writes to; unlimited where it writes elsewhere."""
    if stream is None or not stream.isatty():
        return NO_WINDOW
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and len(columns) < 20 and 0 < int(columns) <= WIDEST:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_WIDTH
    except (OSError, ValueError):
        return DEFAULT_WIDTH


def console(stream: Any, **options: Any) -> Any:
    """Return a console of rich that writes to a stream; in a Jupyter kernel rich would display instead."""
    from rich.console import Console

    return Console(file=stream, force_jupyter=False, **options)


def window_width() -> int:
    """Return the columns of the window that standard output goes to."""
    return width_of(sys.stdout)


def fitted(line: str, width: int) -> str:
    """Break a line between words, and ids behind slashes; what follows hangs below the start of its text."""
    if len(line) <= width:
        return line
    before = re.match(_BEFORE_TEXT, line)
    spaces, start = len(line) - len(line.lstrip()), before.end() if before else 0
    hang = start if spaces < start <= width // 2 else spaces + 2
    lines = [""]
    for word in re.findall(_WORDS, line):
        for part in [word] if hang + len(word.lstrip()) <= width else re.findall(_PATH_PARTS, word):
            if lines[-1].strip() and len(lines[-1]) + len(part) > width:
                lines.append(" " * hang + part.lstrip())
            else:
                lines[-1] += part
    return "\n".join(lines)
