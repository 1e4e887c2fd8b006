"""What a killed process has left behind: it is known by the name of its owner, and removed by the next one."""

from __future__ import annotations

import os
import re
import shutil
import socket
import zlib
from contextlib import suppress
from pathlib import Path

_NAME = re.compile(r"([0-9a-f]{8})-([0-9]+)-([0-9]+)")
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
    """Return what stands for all processes that share their numbers: a container may have its machine's name."""
    numbers = ""
    with suppress(OSError):
        numbers = os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32(f'{socket.gethostname()} {numbers}'.encode()):08x}"


def has_ended(name: str) -> bool:
    """Return whether the process with that name is known to have ended; one on another host is not."""
    import psutil

    match = _NAME.fullmatch(name)
    if match is None or match[1] != _host():
        return False
    try:
        return _name_of(int(match[2])) != name
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:  # another user's
        return False


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
