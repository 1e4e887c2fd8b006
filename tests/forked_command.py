"""The command `mldyno` in a process forked from this one, which has imported its modules: most of what a start costs.

It is a process like any other: a session, pipes, an exit code, and signals that end it. Only its environment in `/proc`
is this process's.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from mldyno import cli
from mldyno.cli import explore, measure, read, share  # noqa: F401 (imported before the fork)

MOST_FILES = 4096  # that this process has open
IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")  # when it starts
USUAL = ("SIGTERM", "SIGHUP", "SIGALRM")
QUIET_WARNINGS = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


def run(words: Sequence[str], environment: Mapping[str, str], before: Callable[[], object] = lambda: None) -> NoReturn:
    """Be the command from here on: to be called in a process that was just forked, once its streams are there.

    `preexec_fn` of `Popen` is such a place: what is to be executed afterwards is not reached.
    """
    code = 1
    try:
        gc.freeze()
        os.closerange(3, MOST_FILES)  # the pipe by which Popen waits for a program among them
        _begin(environment)
        before()
        cli.main(words)
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _begin(environment: Mapping[str, str]) -> None:
    """Be as a process that has just been started: streams, environment, signals, warnings; nothing is remembered."""
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    stream = partial(open, encoding="utf-8", closefd=False)
    sys.stdin, sys.stdout = stream(0), stream(1, "w")
    sys.stderr = stream(2, "w", errors="backslashreplace", buffering=1)
    sys.excepthook = sys.__excepthook__
    for name in USUAL:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    for name in IGNORED_BY_PYTHON:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    atexit._clear()
    warnings.resetwarnings()
    for category in QUIET_WARNINGS:
        warnings.simplefilter("ignore", category)
    warnings.showwarning = _show_warning
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "mldyno":
            for value in [*vars(module).values()]:
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()


def _show_warning(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))
