"""Entry of a worker: make this very mldyno importable, guard the channel, and listen.

With the argument `end-to-end` and a command: train a case as a separate process instead. With `launch`, the number of
ranks and of nodes: start this script as ranks that train together, with the remaining arguments. Only the first rank
listens, and the others follow it.

Run by path: nothing but the package `mldyno` itself becomes importable, so the interpreter's own
packages are the ones that count.
"""

import contextlib
import importlib.util
import os
import signal
import sys

END_TO_END, LAUNCH = "end-to-end", "launch"
MOST_DESCRIPTORS = 256  # that a process which has just started may have open


def _own_package() -> None:
    """Make `mldyno` importable from where this file lies, and none of its neighbours."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != os.path.join(folder, "worker")]
    spec = importlib.util.spec_from_file_location(
        "mldyno", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["mldyno"] = package
    spec.loader.exec_module(package)


def _free_standard_streams() -> None:
    """Read nothing from standard input; send what libraries print to standard error."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)


def die_with_parent() -> None:
    """Linux: be killed with the parent, even if a library never releases the interpreter's lock."""
    parent = os.getppid()
    _prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def guarded(commands: int) -> int:
    """Return where to read the commands from: elsewhere than on Linux, a process that passes them on.

    When the parent is gone, it kills this process and all that it started, even if a library never releases the
    interpreter's lock. It is forked before anything else is imported, and sleeps in a read.
    """
    if sys.platform == "linux" or not hasattr(os, "fork"):
        return commands
    worker, leads = os.getpid(), os.getpgrp() == os.getpid()
    passed_on, end = os.pipe()
    if os.fork():
        os.close(end)
        os.close(commands)
        return passed_on
    for descriptor in {*range(MOST_DESCRIPTORS)} - {commands, end}:  # the worker's death must close its answers
        with contextlib.suppress(OSError):
            os.close(descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # the worker has ended by itself
        while data := os.read(commands, 1 << 16):
            while data:
                data = data[os.write(end, data) :]
    if leads:
        os.killpg(worker, signal.SIGKILL)
    if os.getppid() == worker:
        os.kill(worker, signal.SIGKILL)
    os._exit(1)


def adopt_orphans() -> None:
    """Linux: become the parent of detached processes that this one started, so that they are found and ended."""
    _prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(Exception):
            import ctypes

            ctypes.CDLL(None).prctl(option, value)


def launch_words(ranks: int, nodes: int) -> list[str]:
    """Return the arguments of this script with which it starts ranks."""
    return [LAUNCH, str(ranks), str(nodes)]


if __name__ == "__mp_main__":  # a process of a loader, where these are not forked: it needs this very mldyno too
    _own_package()
    from mldyno.workloads.user_models.version_trees import use_trees_of_parent

    use_trees_of_parent()
if __name__ == "__main__":
    _own_package()
    from mldyno.rendezvous import RANKED

    if sys.argv[1:2] == [LAUNCH]:
        from mldyno.worker.launch import launch

        sys.exit(launch(int(sys.argv[2]), int(sys.argv[3]), [sys.argv[0], *sys.argv[4:]]))
    end_to_end, framework = sys.argv[1:2] == [END_TO_END], os.environ.get(RANKED)
    commands, answers = os.dup(0), os.dup(1)  # the channel to the parent, for this worker alone
    _free_standard_streams()
    if not end_to_end and (not framework or os.environ.get("RANK") == "0"):
        from mldyno.worker.listen import listen

        listen(guarded(commands), answers)
    os.close(commands)
    os.close(answers)
    die_with_parent()
    if end_to_end:
        from mldyno.messages import TrainEndToEnd, decode_command
        from mldyno.worker.listen import train

        training, _ = decode_command(sys.argv[2])
        assert isinstance(training, TrainEndToEnd)
        sys.exit(train(training))
    from mldyno.worker.listen import follow

    follow(str(framework))
