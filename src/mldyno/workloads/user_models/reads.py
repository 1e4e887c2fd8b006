"""Notice what the user's code reads besides its imports: code run by path, and settings. In the worker only.

Only the process that describes a source watches: nothing is timed there, and an audit hook can't be removed.
"""

from __future__ import annotations

import filecmp
import importlib.util
import os
import sys
from collections.abc import Container, Iterator
from contextlib import suppress
from typing import Any

from mldyno.workloads.user_models import version_trees

KINDS = (".py", ".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".gin", ".txt")
"""Endings of code and settings; data has others, and is not part of a version."""
LARGEST_SETTINGS_B = 1 << 20  # what is larger is data too
MOST_FILES = 100  # that a source may name: settings are read first, a data set of small files after them


class Watch:
    """Note the files that this process opens while the context is entered, in order."""

    def __init__(self) -> None:
        self.read: dict[str, None] = {}
        self.written: set[str] = set()

    def __enter__(self) -> None:
        if not _HOOKED:
            sys.addaudithook(_noted)
            _HOOKED.append(True)
        _ENTERED.append(self)

    def __exit__(self, *_: object) -> None:
        _ENTERED.remove(self)

    def note(self, path: str, writes: bool) -> None:
        """Note a file that is opened."""
        if writes:
            self.written.add(path)
        else:
            self.read[path] = None

    def files_in(self, root: str) -> Iterator[str]:
        """Yield the code and settings in a tree that were read, but not what the code itself has written."""
        for path in [_source_of(path) for path in self.read if path not in self.written]:
            if not path.endswith(KINDS) or not (file := version_trees.own_file(path, root)) or not os.path.isfile(file):
                continue
            hidden = any(part.startswith(".") for part in os.path.relpath(file, root).split(os.sep))
            if not hidden and os.path.getsize(file) <= LARGEST_SETTINGS_B:
                yield file

    def names(self, tree: str, other: str, known: Container[str]) -> tuple[str, ...]:
        """Return the paths in a tree of files read there or in the other one, without those of known modules."""
        roots = [root for root in (tree, other) if root]
        read = [os.path.relpath(file, root) for root in roots for file in self.files_in(root)]
        files = {name: os.path.join(tree, name) for name in read}
        return tuple(name for name, path in files.items() if os.path.isfile(path) and path not in known)[:MOST_FILES]

    def fault(self, tree: str, other: str) -> str:
        """Return what was read from the other tree though this one has a different file, in words; empty if nothing."""
        for file in self.files_in(other) if other else ():
            name = os.path.relpath(file, other)
            same = os.path.join(tree, name)
            if os.path.isfile(same) and not filecmp.cmp(file, same, shallow=False):
                return (f"{name} was read from the other version's tree, where it differs; "
                        f"find it from __file__ on, or {version_trees.EACH_ALONE}")  # fmt: skip
        return ""


def _source_of(path: str) -> str:
    """Return the source file of a compiled one; else the file itself."""
    with suppress(ValueError):
        return importlib.util.source_from_cache(path) if path.endswith(".pyc") else path
    return path


_HOOKED: list[bool] = []
_ENTERED: list[Watch] = []


def _noted(event: str, arguments: tuple[Any, ...]) -> None:
    """Report opened files to the active watches, as an audit hook."""
    if event != "open" or not _ENTERED or not isinstance(arguments[0], str | bytes):
        return
    with suppress(OSError, ValueError):  # as where the working folder is gone
        path, mode, flags = os.path.abspath(os.fsdecode(arguments[0])), arguments[1], arguments[2]
        writes = bool(flags & (os.O_WRONLY | os.O_RDWR)) or bool(mode and not mode.startswith("r"))
        for watch in _ENTERED:
            watch.note(path, writes)
