"""Targets of the user's own: a worker looks at each before anything is planned, so that no code of theirs runs here."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import replace

from mldyno import interpreters, sources
from mldyno.client.worker_process import Ended, WorkerProcess
from mldyno.errors import MldynoError, UsageError
from mldyno.messages import DescribeSource
from mldyno.sources import Source
from mldyno.units import show_seconds

LONGEST_LOOK_S = 300.0  # a large model may take a minute to build; code that never returns is ended
LONGEST_FETCH_S = 6 * 3600.0  # of a model with its weights, over a slow line
GIT_TIMEOUT_S = 120.0


def describe(source: Source, python: str | None = None, timeout: float | None = None) -> Source:
    """The source with all that a plan must know, as a worker finds it; in another interpreter, where one is named."""
    longest = timeout or (LONGEST_FETCH_S if source.download else LONGEST_LOOK_S)
    try:
        with WorkerProcess(python=python and interpreters.path_of(python)) as worker:
            described = worker.ask(DescribeSource(source), longest).source
    except Ended as end:
        if end.status == "timeout":
            late = f"{source.title} gave nothing within {show_seconds(longest)}"
            raise MldynoError(f"{late}; it must return a model, or be given more with --timeout.") from None
        raise MldynoError(f"{end.reason}.") from None
    return replace(described, place=source.place, folder=source.folder)


def earlier(source: Source, against: str) -> Source:
    """What a source is held against: another file, or itself at a revision of git.

    That revision lies in a working tree of its own, which is removed when this process ends.
    """
    if os.path.isfile(against) or sources.is_target(against):
        return sources.read(against)
    if source.kind not in ("file", "module"):
        raise UsageError(f"{source.title} has no revisions that mldyno knows; name another file with --against.")
    top = _git(source.folder, "rev-parse", "--show-toplevel")
    if _asked(source.folder, "rev-parse", "--verify", "--quiet", f"{against}^{{commit}}").returncode:
        raise UsageError(
            f"'{against}' is neither a file here nor a revision of {os.path.basename(top)}; write HEAD~1, or old.py."
        )
    folder = tempfile.mkdtemp(prefix="mldyno-")
    tree = os.path.join(folder, "tree")
    atexit.register(_remove, top, tree, folder)
    _git(top, "worktree", "prune")  # of those that a killed process has left
    _git(top, "worktree", "add", "--quiet", "--detach", tree, against)
    return _moved(source, top, tree, against)


def _remove(top: str, tree: str, folder: str) -> None:
    with contextlib.suppress(MldynoError):
        _asked(top, "worktree", "remove", "--force", tree)
    shutil.rmtree(folder, ignore_errors=True)


def _moved(source: Source, top: str, tree: str, revision: str) -> Source:
    """The source as it lies in another working tree."""
    top = os.path.realpath(top)

    def there(path: str) -> str:
        return os.path.normpath(os.path.join(tree, os.path.relpath(os.path.realpath(path), top)))

    if source.kind == "module":
        return replace(source, folder=there(source.folder))
    moved = replace(source, folder=there(source.folder), place=there(source.place))
    if not os.path.exists(moved.place):
        raise UsageError(f"{source.title} was not there yet at {revision}; name a later revision, or a file.")
    return moved


def _asked(folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "-C", folder, *words], capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise MldynoError("git is not installed; name an older file with --against old.py instead.") from None
    except subprocess.TimeoutExpired:
        raise MldynoError(f"git {words[0]} did not end within {show_seconds(GIT_TIMEOUT_S)}.") from None


def _git(folder: str, *words: str) -> str:
    """What git says; raises with its own words where it fails."""
    answer = _asked(folder, *words)
    if answer.returncode:
        said = (answer.stderr.strip().splitlines() or ["it failed"])[-1]
        raise MldynoError(f"git {words[0]}: {said}; name an older file with --against old.py instead.")
    return answer.stdout.strip()
