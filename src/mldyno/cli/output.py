"""All that the command line prints: it does no harm to a terminal, wherever its words came from.

Standard output and standard error pass a gate that lets printable text and line breaks through, and nothing else. In a
window it breaks lines that are too wide between words; a pipe gets them whole, and so does whatever a program may read.
A disk that is full, a reader that has gone and an encoding that lacks a character are met here too. Only bars are
styled; their texts are made printable first. Rule: no other file writes past the gate.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from mldyno.errors import MldynoError
from mldyno.printable import printable
from mldyno.views.window import NO_WINDOW, WIDEST, console, fitted, plain, width_of

_IN_ASCII = {
    "±": "+-",
    "µ": "u",
    "…": "...",
    "─": "-",
    "×": "x",
}  # where an encoding lacks them; all else is a question mark


def _spelled(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_IN_ASCII.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


codecs.register_error("mldyno-spelled", _spelled)


class NobodyReads(Exception):
    """Whoever read standard output has gone, as `head` does."""


class Styled:
    """A stream to which styled text is written; what its encoding lacks is replaced.

    Standard output is what was asked for: without it a command ends. What goes to standard error may be lost.
    """

    def __init__(self, ungated: Any, needed: bool) -> None:
        self.ungated, self.needed = ungated, needed
        self.encoding, self.errors = ungated.encoding or "utf-8", "mldyno-spelled"
        self.isatty, self.fileno = ungated.isatty, ungated.fileno
        self.end: Exception | None = None

    def write(self, text: str) -> int:
        """Pass text on."""
        self._try(self.ungated.write, text.encode(self.encoding, self.errors).decode(self.encoding))
        return len(text)

    def flush(self) -> None:
        """Have all of it written now."""
        self._try(self.ungated.flush)

    def _try(self, act: Callable[..., object], *arguments: str) -> None:
        try:
            act(*arguments)
        except OSError as error:
            with open(os.devnull, "wb") as nowhere:  # what is still in the stream must not fail again at the end
                os.dup2(nowhere.fileno(), self.fileno())
            reason = f"standard output: {error.strerror or error}; not all of it was written. Send it elsewhere."
            self.end = NobodyReads() if isinstance(error, BrokenPipeError) else MldynoError(reason)
        if self.needed and self.end is not None:  # again each time, since Click tries streams and forgets the error
            raise self.end


class Gate(Styled):
    """A stream to which plain text is written, whoever it came from; in a window its lines fit.

    `whole` leaves them as they are.
    """

    whole = False

    def write(self, text: str) -> int:
        """Pass on what is printable, in the same lines, or in lines that fit."""
        width = NO_WINDOW if self.whole else width_of(self)
        return super().write("\n".join(fitted(printable(line), width) for line in text.split("\n")))


@contextmanager
def gated() -> Iterator[None]:
    """Whatever is printed meanwhile passes the gate."""
    if "_MLDYNO_COMPLETE" in os.environ:  # then Click writes bytes: names that are printable
        yield
        return
    with open(os.devnull, "w") as nowhere:  # for streams that there are not
        out, err = Gate(sys.stdout or nowhere, needed=True), Gate(sys.stderr or nowhere, needed=False)
        with redirect_stdout(out), redirect_stderr(err):
            yield


@contextmanager
def whole_lines() -> Iterator[None]:
    """What goes to standard output meanwhile may be read by a program: its lines stay whole, in a window too."""
    out: Any = sys.stdout
    out.whole = True
    try:
        yield
    finally:
        out.whole = False


def on_terminal() -> bool:
    """Whether a bar can be drawn on standard error."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not plain()


def new_bar() -> Any:
    """A bar on standard error with a description, a share and a detail; it is drawn only when asked to.

    In a narrow window the description gives way first, then the bar; the detail stays.
    """
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Words(TextColumn):
        def render(self, task: Any) -> Text:
            return Text(printable(self.text_format.format(task=task)))

    class Bar(Progress):
        def say(self, line: str) -> None:
            """A line that stays above the bar."""
            self.console.print(Text(printable(line)))

    stream: Any = Styled(getattr(sys.stderr, "ungated", sys.stderr), needed=False)
    above = console(stream, width=min(width_of(stream), WIDEST), height=25)  # not by $COLUMNS, of any length
    yielding = Column(ratio=1, no_wrap=True, overflow="ellipsis", min_width=6)
    return Bar(
        Words("{task.description}", table_column=yielding),
        BarColumn(bar_width=max(4, min(24, above.width // 6))),
        Words("{task.fields[detail]}", table_column=Column(no_wrap=True)),
        console=above, auto_refresh=False, transient=True, expand=True,
        redirect_stdout=False, redirect_stderr=False,  # else what is printed meanwhile would go past the gate
    )  # fmt: skip
