"""Have a worker describe the user's models before anything is planned, so that none of their code runs here."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
from dataclasses import replace

from mldyno import interpreters
from mldyno.errors import MldynoError, UsageError
from mldyno.messages import DescribeSource
from mldyno.sources import Source
from mldyno.temporary import own_name, remove_leftovers
from mldyno.units import show_seconds
from mldyno.worker.client import Ended, WorkerProcess

DESCRIBE_TIMEOUT_S = 300.0  # a large model may take a minute to build
DOWNLOAD_TIMEOUT_S = 6 * 3600.0  # of a model with its weights, over a slow connection
GIT_TIMEOUT_S = 120.0
FEWEST_COMMON_PARTS = 2  # of two paths, a folder and a file, that make them copies of one folder
IGNORED_BY_GIT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")  # set within a hook


NAME_A_FILE = "name an older file with --against old.py instead."


def describe(source: Source, python: str | None = None, timeout: float | None = None) -> Source:
    """Have a worker describe a source; in another interpreter, where one is named."""
    longest = timeout or (DOWNLOAD_TIMEOUT_S if source.download else DESCRIBE_TIMEOUT_S)
    try:
        with WorkerProcess(python=python and interpreters.path_of(python)) as worker:
            described = worker.request(DescribeSource(source), longest).source
    except Ended as end:
        if end.status == "timeout":
            late = f"{source.title} gave nothing within {show_seconds(longest)}"
            raise MldynoError(f"{late}; it must return a model, or be given more with --timeout.") from None
        raise MldynoError(f"{end.reason}.") from None
    return replace(described, place=source.place, folder=source.folder)


def separate_trees(source: Source, against: Source) -> tuple[Source, Source]:
    """Return a source and the file that it is compared with; two copies of one folder are each a tree.

    The trees are what remains of the two paths without their common end, which is a folder and a file at least.
    """
    if source.kind != "file" or against.kind != "file":
        return source, against
    paths = [os.path.realpath(each.place).split(os.sep) for each in (source, against)]
    pairs = zip(*map(reversed, paths), strict=False)
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    if common < FEWEST_COMMON_PARTS or paths[0] == paths[1]:
        return source, against
    root, other = (os.sep.join(parts[:-common]) for parts in paths)
    return replace(source, root=root, other=other), replace(against, root=other, other=root)


def at_revision(source: Source, revision: str) -> Source:
    """Return a source as it was at a git revision, in a new work tree that is removed when this process ends."""
    if source.kind not in ("file", "module"):
        raise UsageError(f"{source.title} has no revisions that mldyno knows; name another file with --against.")
    top = source.root
    if not top:
        raise UsageError(f"{source.title} is not in a git repository; {NAME_A_FILE}")
    if _run_git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").returncode:
        repository = os.path.basename(top)
        raise UsageError(
            f"'{revision}' is neither a file here nor a revision of {repository}; write HEAD~1, or old.py."
        )
    folder = os.path.realpath(tempfile.mkdtemp(prefix=f"mldyno-{own_name()}-"))
    tree = os.path.join(folder, "tree")

    @atexit.register
    def remove() -> None:
        with contextlib.suppress(MldynoError):
            _run_git(top, "worktree", "remove", "--force", tree)
        shutil.rmtree(folder, ignore_errors=True)

    remove_leftovers(tempfile.gettempdir())
    # First forget the trees that a killed process left behind.
    for words in (("worktree", "prune"), ("worktree", "add", "--quiet", "--detach", tree, revision)):
        answer = _run_git(top, *words)
        if answer.returncode:
            message = (answer.stderr.strip().splitlines() or ["it failed"])[-1]
            raise MldynoError(f"git worktree: {message}; {NAME_A_FILE}")
    return _moved(source, tree, revision)


def _moved(source: Source, tree: str, revision: str) -> Source:
    """Return the source as it is in another work tree."""
    folder = os.path.realpath(source.folder)
    if os.path.commonpath((folder, source.root)) == source.root:  # else a module is imported from elsewhere
        folder = os.path.normpath(os.path.join(tree, os.path.relpath(folder, source.root)))
    moved = replace(source, folder=folder, root=tree, other=source.root, version=revision)
    if source.kind == "module":
        return moved
    moved = replace(moved, place=os.path.join(folder, os.path.basename(source.place)))
    if not os.path.exists(moved.place):
        raise UsageError(f"{source.title} was not there yet at {revision}; name a later revision, or a file.")
    return moved


def _run_git(folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "-C", folder, *words], capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False,
            env=_git_environment(folder, words[0]),
        )  # fmt: skip
    except FileNotFoundError:
        raise MldynoError(f"git is not installed; {NAME_A_FILE}") from None
    except subprocess.TimeoutExpired:
        raise MldynoError(f"git {words[0]} did not end within {show_seconds(GIT_TIMEOUT_S)}.") from None


def _git_environment(folder: str, command: str) -> dict[str, str]:
    """Return an environment in which git runs no program that the repository's configuration names.

    Those are hooks, a file-system monitor, checkout filters, and what fetches missing objects.
    """
    settings = {"core.hooksPath": os.devnull, "core.fsmonitor": "false"}
    if command == "worktree":
        for name in _own_filters(folder):
            settings |= {f"filter.{name}.smudge": "", f"filter.{name}.process": "", f"filter.{name}.required": "false"}
    environment = {name: value for name, value in os.environ.items() if name not in IGNORED_BY_GIT}
    count = environment.get("GIT_CONFIG_COUNT", "")
    given = int(count) if count.isdecimal() and len(count) < 5 else 0  # git refuses any other
    for number, (name, value) in enumerate(settings.items(), given):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return environment | {"GIT_CONFIG_COUNT": str(given + len(settings)), "GIT_ALLOW_PROTOCOL": ""}


def _own_filters(folder: str) -> set[str]:
    """Return the names of the filters for which the repository's own configuration names programs."""
    words = ("config", "--includes", "--show-scope", "--name-only", "--null", "--get-regexp", r"^filter\.")
    parts = _run_git(folder, *words).stdout.split("\0")
    own = {name for scope, name in zip(parts[::2], parts[1::2], strict=False) if scope in ("local", "worktree")}
    return {name.partition(".")[2].rpartition(".")[0] for name in own}
