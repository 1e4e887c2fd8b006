"""Records that the store would not take, in a file elsewhere until they can be imported."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mldyno.errors import StoreError
from mldyno.files import regular
from mldyno.records import Record
from mldyno.store import proofs
from mldyno.store.sqlite import default_path


def rescue(records: Sequence[Record], store: Path | None) -> str:
    """Write records of one run to a file of their own; return the words that say where it is.

    `store` is the file that would not take them; None where it has no path.
    """
    if not records:
        return ""
    lines = [proofs.rescue([record.id for record in records]), *(record.text for record in records)]
    text = "".join(f"{line}\n" for line in lines)
    bring_back = f"bring it back with: mldyno import{_option(store)}"
    for folder in (tempfile.gettempdir, os.getcwd, Path.home):
        try:
            target = Path(folder()) / f"mldyno-rescued-{records[0].run.id}.jsonl"
            _append(target, text)
        except (OSError, RuntimeError):  # a folder that is gone, a user without a home
            continue
        return f"What was measured last is in {target}; {bring_back} {shlex.quote(str(target))}"
    sys.stderr.write(text)
    return f"What was measured last stands above; save it to a file and {bring_back} FILE"


def _append(target: Path, text: str) -> None:
    """Write a text behind what a file holds; where there is no room for all of it, nothing of it stays.

    Others may have put a link or a pipe of that name into a shared folder: neither is written to.
    """
    with open(target, "ab", opener=regular) as out:
        before = out.tell()
        try:
            out.write(text.encode())
            out.flush()
            os.fsync(out.fileno())
        except OSError:
            with suppress(OSError):
                os.ftruncate(out.fileno(), before)
            raise


def _option(store: Path | None) -> str:
    """The option that names the store, where it is not the one that is used without."""
    with suppress(StoreError):
        if store in (None, default_path()):
            return ""
    return f" --store {shlex.quote(str(store))}"
