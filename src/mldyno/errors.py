"""The errors a user can cause, and what the command line does with each.

Rule: a message says what was wrong, what was expected and what to do next, in one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

OK, USER_ERROR, USAGE, NOT_ALL_OK = range(4)  # exit codes of every command


class MldynoError(Exception):
    """Something the user can mend; shown as one line, never as a traceback."""

    exit_code = USER_ERROR


class UsageError(MldynoError):
    """A word on the command line or a key in a suite that mldyno does not know."""

    exit_code = USAGE


class StoreError(MldynoError):
    """The store can't be read or written: locked, full, read-only, damaged or too new."""


class StoreLocked(StoreError):
    """Another process holds the store for longer than this one waits."""


class ImportFileError(MldynoError):
    """A file that `import` was given is not what it should be; the store was not touched."""


MOST_MEANT, MOST_LISTED = 3, 24  # names that may be meant; names beyond which the list of all would bury them


def unknown(kind: str, word: str, known: Iterable[str], meant: Sequence[str] = ()) -> UsageError:
    """The error for a name that is not among the known ones: with what is `meant`, or like it, or the list of all."""
    import difflib

    names = list(known)
    begins = [name for name in names if len(word) > 2 and name.startswith(word)]
    alike = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    near = list(meant or dict.fromkeys([*begins, *alike]))[:MOST_MEANT]
    quoted = [f"'{name}'" for name in near]
    question = f" Did you mean {' or '.join(filter(None, [', '.join(quoted[:-1]), quoted[-1]]))}?" if near else ""
    if meant or (near and len(names) > MOST_LISTED):
        return UsageError(f"unknown {kind} '{word}'.{question}")
    shown = ", ".join(names[:30]) + (", …" if len(names) > 30 else "")
    return UsageError(f"unknown {kind} '{word}'.{question} Possible: {shown}.")
