"""Copies of records to pass on without command lines and paths.

Rule: a record is never changed, and its id is the hash of its text. So where something is left out, the copy is a
record of its own, with its own id and the fact `private`; where nothing is, it is the record itself.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from mldyno.records import Record, seal
from mldyno.store.codec import decode_stored

PATH = "PATH"  # stands for each path
_QUOTED = re.compile(r"""(['"`])(?:~|\.{0,2}/|[A-Za-z]:\\)[^'"`]*\1""")
_BARE = re.compile(r"""(?<![\w/.~])(?:~[\w.-]*/|\.{0,2}/|[A-Za-z]:\\)[^\s'"`,;:()]+""")


def private_copy(record: Record) -> Record:
    """A record without command lines, names of loops and paths; the same one has the same name in every copy."""
    if record.fact("private"):
        return record
    case, facts, reason = record.case, dict(record.facts), record.reason
    if case.own_work:
        digest = hashlib.sha256(case.workload.encode()).hexdigest()[:12]
        case = replace(case, workload=f"private {'loop' if case.tracked else 'command'} {digest}")
        facts.pop("command", None)
        reason = reason.partition(": ")[0]  # what follows is the command's own last line
    copy = replace(
        record,
        case=case,
        reason=without_paths(reason),
        facts={name: without_paths(value) if isinstance(value, str) else value for name, value in facts.items()},
        software=replace(
            record.software, env={name: without_paths(value) for name, value in record.software.env.items()}
        ),
        warnings=tuple(
            replace(warning, message=without_paths(warning.message), hint=without_paths(warning.hint))
            for warning in record.warnings
        ),
    )
    return record if copy == record else seal(replace(copy, facts={**copy.facts, "private": True}))


def private_text(text: str) -> str:
    """The same for a record that is given as the text that it is stored as."""
    return private_copy(decode_stored(text)).text


def without_paths(text: str) -> str:
    """A text with a word in place of each path."""
    return _BARE.sub(PATH, _QUOTED.sub(PATH, text))
