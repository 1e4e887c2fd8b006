"""Errors that a user can cause, with their exit codes.

Rule: a message says what was wrong, what was expected and what to do next, in one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

OK, USER_ERROR, USAGE, NOT_ALL_OK = range(4)  # exit codes of every command


class MldynoError(Exception):
    """An error that the user can fix; printed as one line, never as a traceback."""

    exit_code = USER_ERROR


class UsageError(MldynoError):
    """An unknown word on the command line, or key in a suite."""

    exit_code = USAGE


class StoreError(MldynoError):
    """The store can't be read or written: locked, full, read-only, damaged or too new."""


class StoreLocked(StoreError):
    """Another process has locked the store for longer than this one waits."""


class ImportFileError(MldynoError):
    """A file to import is not valid; the store was not changed."""


MOST_SUGGESTED = 3  # names
MOST_LISTED = 24  # known names; of more, only similar ones are suggested
MOST_SHOWN = 30  # known names in a list


def unknown(kind: str, word: str, known: Iterable[str], meant: Sequence[str] = ()) -> UsageError:
    """Return the error for an unknown name; suggest the names that are `meant`, or similar ones, or list all."""
    import difflib

    names = list(known)
    begins = [name for name in names if len(word) > 2 and name.startswith(word)]
    alike = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    near = list(meant or dict.fromkeys([*begins, *alike]))[:MOST_SUGGESTED]
    quoted = [f"'{name}'" for name in near]
    question = f" Did you mean {' or '.join(filter(None, [', '.join(quoted[:-1]), quoted[-1]]))}?" if near else ""
    if meant or (near and len(names) > MOST_LISTED):
        return UsageError(f"unknown {kind} '{word}'.{question}")
    shown = ", ".join(names[:MOST_SHOWN]) + (", …" if len(names) > MOST_SHOWN else "")
    return UsageError(f"unknown {kind} '{word}'.{question} Possible: {shown}.")
