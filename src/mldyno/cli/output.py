"""Output of the command line, safe for any terminal whatever the source of the text.

Standard output and standard error pass a gate that lets only printable text and line breaks through, and in a window
wraps lines between words, unless they are data for programs. Only bars are styled. No other file writes past the gate.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import click

from mldyno.errors import MldynoError
from mldyno.printable import printable
from mldyno.views.window import NO_WINDOW, WIDEST, console, fitted, plain, width_of

_IN_ASCII = {"±": "+-", "µ": "u", "…": "...", "─": "-", "×": "x"}  # if an encoding lacks them; all else is `?`


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_IN_ASCII.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


codecs.register_error("mldyno-ascii", _in_ascii)


class ReaderGone(Exception):
    """The reader of standard output is gone, as `head` after its lines."""


class Styled:
    """A stream for styled text; a command ends if it can't write to one that is needed."""

    def __init__(self, ungated: Any, needed: bool) -> None:
        self.ungated, self.needed = ungated, needed
        self.encoding, self.errors = ungated.encoding or "utf-8", "mldyno-ascii"
        self.isatty, self.fileno = ungated.isatty, ungated.fileno
        self.end: Exception | None = None

    def write(self, text: str) -> int:
        self._try(self.ungated.write, text.encode(self.encoding, self.errors).decode(self.encoding))
        return len(text)

    def flush(self) -> None:
        self._try(self.ungated.flush)

    def _try(self, act: Callable[..., object], *arguments: str) -> None:
        try:
            act(*arguments)
        except OSError as error:
            with open(os.devnull, "wb") as nowhere:  # what the stream still holds must not fail again at the end
                os.dup2(nowhere.fileno(), self.fileno())
            reason = f"standard output: {error.strerror or error}; not all of it was written. Send it elsewhere."
            self.end = ReaderGone() if isinstance(error, BrokenPipeError) else MldynoError(reason)
        if self.needed and self.end is not None:  # each time, since Click tries streams and drops the error
            raise self.end


class Gate(Styled):
    """A stream for plain text of any origin; in a window its lines are wrapped, unless `whole` is set."""

    whole = False

    def write(self, text: str) -> int:
        width = NO_WINDOW if self.whole else width_of(self)
        return super().write("\n".join(fitted(printable(line), width) for line in text.split("\n")))


@contextmanager
def gated() -> Iterator[None]:
    """Send all output through the gate meanwhile."""
    if "_MLDYNO_COMPLETE" in os.environ:  # then Click writes bytes: printable names
        yield
        return
    with open(os.devnull, "w") as nowhere:  # in place of a stream that is missing
        out, err = Gate(sys.stdout or nowhere, needed=True), Gate(sys.stderr or nowhere, needed=False)
        with redirect_stdout(out), redirect_stderr(err):
            yield


@contextmanager
def whole_lines() -> Iterator[None]:
    """Do not wrap the lines of standard output meanwhile, even in a window: they are data for programs."""
    out: Any = sys.stdout
    out.whole = True
    try:
        yield
    finally:
        out.whole = False


def say(line: str) -> None:
    """Print a line on standard error, apart from the result."""
    click.echo(line, err=True)


def print_data(text: str) -> None:
    """Print data for programs: lines are not wrapped, even in a window."""
    with whole_lines():
        click.echo(text)


def print_json(content: Any) -> None:
    """Print one JSON document."""
    print_data(json.dumps(content, indent=1, allow_nan=False))


def on_terminal() -> bool:
    """Return whether a bar can be drawn on standard error."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not plain()


def new_bar() -> Any:
    """Return a bar on standard error with a description, a share and a detail; only `refresh` draws it."""
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Words(TextColumn):
        def render(self, task: Any) -> Text:
            return Text(printable(self.text_format.format(task=task)))

    class Bar(Progress):
        def say(self, line: str) -> None:
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
