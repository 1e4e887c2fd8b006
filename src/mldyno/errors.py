"""The errors a user can cause, and what the command line does with each.

Rule: a message says what was wrong, what was expected and what to do next, in one line.
"""

from __future__ import annotations

from collections.abc import Iterable

OK, USER_ERROR, USAGE, NOT_ALL_OK = range(4)  # exit codes of every command


class MldynoError(Exception):
    """Something the user can mend; shown as one line, never as a traceback."""

    exit_code = USER_ERROR


class UsageError(MldynoError):
    """A word on the command line or a key in a suite that mldyno does not know."""

    exit_code = USAGE


class StoreError(MldynoError):
    """The store can't be read or written: locked, full, read-only, damaged or too new."""


class ImportFileError(MldynoError):
    """A file that `import` was given is not what it should be; the store was not touched."""


def unknown(kind: str, word: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not among the known ones, with the nearest of them."""
    import difflib

    names = list(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    meant = f" Did you mean '{near[0]}'?" if near else ""
    shown = ", ".join(names[:30]) + (", …" if len(names) > 30 else "")
    return UsageError(f"unknown {kind} '{word}'.{meant} Possible: {shown}.")
