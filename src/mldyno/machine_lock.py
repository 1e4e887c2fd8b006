"""One measurer at a time on a machine: a lock that every user of it shares, outside of home folders.

Rule: the lock only avoids wrong figures; it never keeps anybody from measuring. The file is opened for reading only,
and nothing is ever written into it, so that what a stranger plants under its name can do no harm. The descriptor holds
the lock: a process that ends, however it does, frees it. The file stays: who removed it would let two in.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mldyno.errors import MldynoError
from mldyno.files import expanded
from mldyno.system_queries import ask, read

VARIABLE = "MLDYNO_LOCK"  # another file for the lock, or NONE for no lock
NONE = "none"
FOLDERS = ("/run/lock", "/tmp")  # not that of TMPDIR, which differs between users and jobs
READABLE = 0o444  # by everyone: a file is locked without writing to it
TRIES, PAUSE_S = 20, 0.05  # to open a file that another process is just making
POLL_S = 0.5  # while another process measures
HELD = "_LOCKED_BY_MLDYNO"  # for processes that the holder starts: they measure within its lock

Tell = Callable[[str], None]


class Busy(MldynoError):
    """Another process measures on this machine; `who` names it."""

    def __init__(self, who: str) -> None:
        super().__init__(f"{who} measures on this machine; wait for its end, or set {VARIABLE}={NONE}.")
        self.who = who


class Unlockable(Exception):
    """There is no file here that could be locked; the message says why."""


def place() -> Path | None:
    """Return the file of the lock; None where the user wants none, or no folder is safe to share."""
    named = os.environ.get(VARIABLE)
    if named:
        return None if named == NONE else expanded(named)
    for folder in FOLDERS:
        with suppress(OSError):
            there = os.stat(folder)
            # Everyone may make a file in it, and only its owner may remove that.
            if stat.S_ISDIR(there.st_mode) and there.st_uid == 0 and there.st_mode & 0o1777 == 0o1777:
                return Path(folder) / f"mldyno-{_boot()}.lock"
    return None


def _boot() -> str:
    """Return an identifier of the running kernel, which containers share and machines of one network folder do not."""
    text = ask("sysctl", "-n", "kern.bootsessionuuid") if sys.platform == "darwin" else ""
    return re.sub("[^0-9a-f]", "", (text or read("/proc/sys/kernel/random/boot_id")).lower())[:12] or "0"


@contextmanager
def held(
    tell: Tell = lambda line: None, wait: bool = True, needed: bool = True, pause: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold the lock of this machine, if it is needed; wait for another process that has it, or raise Busy.

    `tell` gets a line where it waits, or where no lock is possible. `pause` is called while it waits, and may raise.
    Within a process that holds it, and in processes that such a one starts, it is held already.
    """
    file = place() if needed and HELD not in os.environ else None
    descriptor = None
    if file is not None:
        try:
            descriptor = _locked(file, tell, wait, pause)
        except Unlockable as error:
            tell(f"runs of this machine may overlap: {error}; {VARIABLE} names another file, {NONE} is silent")
    if descriptor is None:
        yield
        return
    os.environ[HELD] = str(os.getpid())
    try:
        yield
    finally:
        del os.environ[HELD]
        os.close(descriptor)


def holder() -> str:
    """Return who measures on this machine now, other than this process; an empty text if no process does."""
    file = None if HELD in os.environ else place()
    if file is None or not os.path.lexists(file):
        return ""
    with suppress(Unlockable, OSError):
        descriptor = _opened(file)
        try:
            return "" if _try(descriptor) else _who(descriptor)
        finally:
            os.close(descriptor)
    return ""


def _locked(file: Path, tell: Tell, wait: bool, pause: Callable[[], None]) -> int:
    """Return a descriptor that holds the lock."""
    waiting = ""
    while True:
        descriptor = _opened(file)
        try:
            if _try(descriptor):
                with suppress(OSError):  # the file may have been removed while we waited
                    if os.path.samestat(os.fstat(descriptor), os.stat(file, follow_symlinks=False)):
                        return descriptor
            else:
                who = _who(descriptor)
                if not wait:
                    raise Busy(who)
                if who != waiting:
                    waiting = who
                    tell(f"waiting: {who} measures on this machine; {VARIABLE}={NONE} would measure beside it")
                pause()
                time.sleep(POLL_S)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _opened(file: Path) -> int:
    """Open the file for reading, or make it; raise Unlockable where something else has its name."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    reason = ""
    for _ in range(TRIES):
        try:
            descriptor = os.open(file, flags)
        except FileNotFoundError:
            reason = _make(file)
            if not reason:
                continue
        except PermissionError as error:  # another process may be making it
            reason = str(error.strerror)
        except OSError as error:
            raise Unlockable(f"{file}: {error.strerror}") from None
        else:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return descriptor
            os.close(descriptor)
            raise Unlockable(f"{file} is no regular file")
        time.sleep(PAUSE_S)
    raise Unlockable(f"{file}: {reason}")


def _make(file: Path) -> str:
    """Make the file, unless another process was first; return why it can't be made."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, READABLE)
    except FileExistsError:
        return ""
    except OSError as error:
        return str(error.strerror)
    try:
        os.fchmod(descriptor, READABLE)  # whatever the umask
    finally:
        os.close(descriptor)
    return ""


def _try(descriptor: int) -> bool:
    """Lock the file; return whether that worked. Raise Unlockable where its file system has no locks."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise Unlockable(f"it can't be locked ({error.strerror})") from None
    return True


def _who(descriptor: int) -> str:
    """Return the process that holds the lock, with its user, as Linux lists it; else just that there is one."""
    import psutil

    there = os.fstat(descriptor)
    where = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino}"
    for line in read("/proc/locks").splitlines():
        words = line.split()
        if "->" not in words and "FLOCK" in words and where in words:
            number = words[words.index(where) - 1]
            with suppress(psutil.Error, ValueError, KeyError):
                return f"process {number} of {psutil.Process(int(number)).username()}"
    return "another process"
