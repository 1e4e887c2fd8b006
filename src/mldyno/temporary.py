"""Files and folders that are written under a temporary name and moved into place when they are complete.

A temporary name holds the name of the process that owns it: what a killed process has left, a later one removes.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mldyno.errors import MldynoError
from mldyno.files import regular

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_NAME = re.compile(r"([0-9a-f]{8})-([0-9]+)-([0-9]+)")
_FORMER_NAME = re.compile(r"([0-9]+) ([0-9]+)")  # of earlier versions: without the host
_OWNED = re.compile(rf"\.?mldyno-({_NAME.pattern})-[^.]+(\.part)?")


def own_name() -> str:
    """Return a name that no other process ever has: the host, the process's number, and when it was started."""
    return _name_of(os.getpid())


def _name_of(pid: int) -> str:
    return f"{_host()}-{pid}-{started(pid)}"


def started(pid: int) -> int:
    """Return when a process was started, in 0.01 s; raise psutil.Error where there is none.

    On Linux it is counted from the boot: by the clock, a process would be another one when the clock is set.
    """
    import psutil

    process = psutil.Process(pid)
    with suppress(OSError, IndexError, ValueError):
        ticks = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19]
        return round(100 * int(ticks) / os.sysconf("SC_CLK_TCK"))
    return int(100 * process.create_time())


def _host() -> str:
    """Return an identifier of all processes that share their numbers: a container may have its machine's name."""
    numbers = ""
    with suppress(OSError):
        numbers = os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32(f'{socket.gethostname()} {numbers}'.encode()):08x}"


def has_ended(name: str) -> bool:
    """Return whether the process with that name is known to have ended; one on another host is not."""
    return _lives(name) is False


def is_alive(name: str) -> bool:
    """Return whether the process with that name is known to be alive; one on another host is not."""
    return _lives(name) is True


def is_elsewhere(name: str) -> bool:
    """Return whether a name is of a process on another host, or in a container, where numbers are others."""
    match = _NAME.fullmatch(name)
    return match is not None and match[1] != _host()


def _lives(name: str) -> bool | None:
    """Return whether the process with that name lives; None where that can't be seen from here."""
    import psutil

    name = _FORMER_NAME.sub(rf"{_host()}-\1-\2", name)
    match = _NAME.fullmatch(name)
    if match is None or match[1] != _host():
        return None
    try:
        return _name_of(int(match[2])) == name
    except psutil.NoSuchProcess:
        return False
    except (psutil.Error, OverflowError):  # another user's; a number that no process has
        return None


def remove_leftovers(folder: str) -> None:
    """Remove temporary files and folders of this user's processes that have ended."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _OWNED.fullmatch(entry.name)
            if match is None or not has_ended(match[1]):
                continue
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid != os.getuid():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)


@contextmanager
def atomic_file(path: str) -> Iterator[BinaryIO]:
    """Open a file that is moved into place when all of it is written; on any error nothing is left.

    A link stays, and its target is replaced. What is no file, such as a device or a pipe, is written into.
    """
    try:
        there = None
        with suppress(FileNotFoundError):
            there = os.stat(path)
        target = _written_into(path, there) if there is not None else None
        if target is not None:
            with os.fdopen(target, "wb") as out:
                yield out
            return
        place = os.path.realpath(path)
        part = _temporary_path(place)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as out:
                if there is not None:
                    os.fchmod(descriptor, stat.S_IMODE(there.st_mode))
                yield out
            os.replace(part, place)
        except BaseException:
            os.unlink(part)
            raise
    except OSError as error:
        raise MldynoError(f"{path}: {error.strerror or error}; nothing was written.") from None


@contextmanager
def atomic_folder(path: str, mark: str, title: str) -> Iterator[str]:
    """Make a folder that is moved into place when all of it is written; on any error nothing is left.

    The file `mark` gets the title and a list of all other files with their hashes. An existing folder is replaced if it
    is empty, or holds just what its own list says.
    """
    try:
        place = os.path.realpath(path)
        _check_replaceable(path, place, mark)
        part = _temporary_path(place)
        old = f"{part}.old"
        os.mkdir(part)
        try:
            yield part
            lines = [f"{_seal(os.path.join(part, name))}  {name}\n" for name in sorted(_within(part))]
            with open(os.path.join(part, mark), "w", encoding="utf-8", newline="\n") as out:
                out.writelines([title, "\n", *lines])
            _check_replaceable(path, place, mark)  # again: it may have taken a while
            if not (os.path.lexists(place) and _exchanged(part, place)):
                if os.path.lexists(place):
                    os.rename(place, old)
                os.rename(part, place)
        except BaseException:
            if os.path.lexists(old):
                os.rename(old, place)
            shutil.rmtree(part, ignore_errors=True)
            raise
        for rest in (old, part):  # what was there before
            shutil.rmtree(rest, ignore_errors=True)
    except OSError as error:
        raise MldynoError(f"{path}: {error.strerror or error}; nothing was written.") from None


def _exchanged(one: str, other: str) -> bool:
    """Exchange two folders at once, so that readers always find one of them; return False where the system can't."""
    import ctypes

    with suppress(OSError, AttributeError):  # macOS's C library has another name for it, others have none
        return not ctypes.CDLL(None).renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)
    return False


def _check_replaceable(path: str, place: str, mark: str) -> None:
    """Raise unless a folder is missing, empty, or holds just what the list in its file `mark` says."""
    listed: dict[str, str] = {}
    with suppress(OSError, ValueError), open(os.path.join(place, mark), encoding="utf-8", opener=regular) as lines:
        for line in lines:
            seal, _, name = line.rstrip("\n").partition("  ")
            listed[name] = seal
    for name in sorted(_within(place)) if os.path.lexists(place) else ():
        if os.path.basename(name) == ".DS_Store" or name == mark:
            continue
        if name not in listed:
            raise MldynoError(f"{path} holds {name}, which mldyno did not put there; name another folder.")
        if _seal(os.path.join(place, name)) != listed[name]:
            raise MldynoError(f"{path} holds {name}, which was changed since mldyno wrote it; name another folder.")


def _within(place: str) -> Iterator[str]:
    """Yield the path of each file and folder in a folder, at any depth, as seen from there."""
    for folder, folders, files in os.walk(place, onerror=_raise):
        yield from (os.path.relpath(os.path.join(folder, name), place) for name in (*folders, *files))


def _seal(path: str) -> str:
    """Return the hash of a file's bytes, or what else is there."""
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        return "folder" if stat.S_ISDIR(mode) else "neither file nor folder"
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _temporary_path(place: str) -> str:
    """Return a temporary path next to a place, and remove what killed processes left there."""
    folder = os.path.dirname(place)
    remove_leftovers(folder)
    return os.path.join(folder, f".mldyno-{own_name()}-{secrets.token_hex(8)}.part")


def _written_into(path: str, there: os.stat_result) -> int | None:
    """Return a descriptor of what must not be replaced: a device, a pipe, or the file behind our standard output."""
    for stream in (1, 2):
        with suppress(OSError):
            if os.path.samestat(there, os.fstat(stream)):
                return os.dup(stream)
    return None if stat.S_ISREG(there.st_mode) else os.open(path, os.O_WRONLY)


def _raise(error: OSError) -> None:
    raise error
