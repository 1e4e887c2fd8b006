"""The key of this machine: random, made once, kept in the user's data folder.

It says nothing of the machine but that it is not another one of the same name. It is never made from a host name or a
serial number, so that it can be passed on in records.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from mldyno.errors import UsageError
from mldyno.records import MACHINE_KEY


def key_path() -> Path:
    """Where the key is kept: one for each user of a machine, whatever store is used."""
    from platformdirs import user_data_dir

    return Path(user_data_dir("mldyno")) / "machine-key"


def own_key() -> str | None:
    """MLDYNO_MACHINE_KEY, or the key that is kept, made now if there is none; None where none can be kept."""
    named = os.environ.get("MLDYNO_MACHINE_KEY")
    if named:
        if not MACHINE_KEY.fullmatch(named):
            raise UsageError(f"MLDYNO_MACHINE_KEY must be 32 digits from 0 to 9 and a to f, and is '{named[:40]}'.")
        return named
    path = key_path()
    with suppress(OSError):
        return _read(path) or _make(path)
    return None


def _read(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
    return text if MACHINE_KEY.fullmatch(text) else None


def _make(path: Path) -> str | None:
    """Write a key beside its place and move it there whole; of two processes at once, both use the first one's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=".machine-key.")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as out:
            out.write(secrets.token_hex(16) + "\n")
        try:
            os.link(beside, path)  # which fails where another process was first
        except FileExistsError:
            if _read(path) is None:  # a file that holds no key
                os.replace(beside, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside)
    return _read(path)
