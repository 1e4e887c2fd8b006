"""Open only regular files, whoever named them, so that no command waits forever.

A named pipe blocks until a writer comes, and a device never ends. What the shell has opened for us, as standard input
or by `<(…)`, is allowed: it is in folders of the system.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING

from mldyno.errors import MldynoError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_STEM = 40  # characters of a name that are in the name of a file
_OPENED_BY_THE_SHELL = ("/dev/fd/", "/dev/stdin", "/proc/")


def check_regular(path: Path | str, or_stream: bool = False) -> None:
    """Raise OSError if a path is not a regular file; with `or_stream`, what the shell opened is allowed."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except ValueError:
        raise OSError(errno.EINVAL, "a path can't hold a NUL; name another file") from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "this is a folder; name a file in it")
    if not stat.S_ISREG(mode) and not (or_stream and str(path).startswith(_OPENED_BY_THE_SHELL)):
        instead = ", or - for standard input" if or_stream else ""
        raise OSError(errno.EINVAL, f"this is a pipe or a device; name a regular file{instead}")


def regular(path: str, flags: int) -> int:
    """Open only regular files, as the `opener` of `open`, in a folder that others may write to; else raise OSError.

    What may be written is not reached through a link or under another name: that could be anybody's file.
    """
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if writes else 0), 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "this is a link; remove it", path) from None
        raise
    there = os.fstat(descriptor)
    if stat.S_ISREG(there.st_mode) and not (writes and there.st_nlink > 1):
        return descriptor
    os.close(descriptor)
    what = "this file has another name too" if stat.S_ISREG(there.st_mode) else "this is no regular file"
    raise OSError(errno.EINVAL, f"{what}; remove it", path)


def expanded(path: str) -> Path:
    """Return a path with its `~` expanded."""
    from pathlib import Path  # imported late: all commands with options import this module

    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"'{path}': that user has no home folder here; write the path without ~.") from None


def make_folder(path: str) -> str:
    """Make a folder where it is missing; return its path."""
    try:
        os.mkdir(path)
    except OSError as error:
        if os.path.isdir(path):
            return path
        raise MldynoError(f"{path}: {error.strerror or error}; name a folder, or a place for one.") from None
    return path


def file_stem(name: str, *parts: str) -> str:
    """Return a name for files: letters and digits of a name, and a hash of it and of the other parts."""
    import hashlib

    digest = hashlib.sha256("\0".join((name, *parts)).encode(errors="surrogatepass")).hexdigest()[:12]
    letters = re.sub("[^a-z0-9]+", "-", name.lower())[:LONGEST_STEM].strip("-")
    return f"{letters}-{digest}" if letters else digest
