"""The user's code: loaded, called at the sizes of a case, and known by a hash. In the worker only.

Two versions of one file may be measured side by side in one process. Each has modules of its own: those of its folder
are put away while another one's are in use.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads._own_calls import example_here

INSTALLED = ("site-packages", "dist-packages")  # folders of what is no code of the user's own
OUR_OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
SIZES = {"batch": ("batch_size", "batch"), "seq": ("seq_len", "sequence_length", "seq")}
"""Sizes of a case, and what a function may call each."""
USUAL_SIZES = {"batch": 32, "seq": 128}  # where a function takes one, and has no default


class NotUnderstood(NotImplementedError):
    """The user's code can't be measured as it is; the message says why, and what would do."""


_FUNCTIONS: dict[str, Callable[..., Any]] = {}
_PUT_AWAY: dict[str, dict[str, ModuleType]] = {}  # modules of each source, while another one's are in use
_IN_USE: list[Source] = []  # the one whose modules can be imported now


def _key(source: Source) -> str:
    return f"{source.folder} {source.place} {source.function}"


def register_function(source: Source, function: Callable[..., Any]) -> None:
    """Let a source, whose model lives in this process, be built by a function."""
    _FUNCTIONS[_key(source)] = function


def function_of(source: Source) -> Callable[..., Any]:
    """The function that builds the model, from code that is loaded once."""
    key = _key(source)
    if key not in _FUNCTIONS:
        with _imports_of(source), told_in_a_line(source):
            module = _module(source)
            function = getattr(module, source.function, None)
            if not callable(function):
                names = [name for name, value in vars(module).items() if inspect.isfunction(value)]
                there = f"it has {', '.join(names)}" if names else "it has none"
                raise NotUnderstood(
                    f"{source.title} has no function {source.function} ({there}); add one: {example_here()}"
                )
            _FUNCTIONS[key] = function
    return _FUNCTIONS[key]


def _module(source: Source) -> ModuleType:
    if source.kind == "module":
        return importlib.import_module(source.place)
    name = os.path.splitext(os.path.basename(source.place))[0]
    spec = importlib.util.spec_from_file_location(name, source.place)
    if spec is None or spec.loader is None:
        raise NotUnderstood(f"{source.title} is no Python file; write one with: {example_here()}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _imports_of(source: Source) -> Iterator[None]:
    """Let code import from its folder. It may do so later too, unless code of another source is in this process."""
    if not source.folder:  # a model that lives in this process has imported all
        yield
        return
    if _IN_USE and _key(_IN_USE[0]) != _key(source):
        _put_away(_IN_USE[0])
    if not _IN_USE:
        sys.modules.update(_PUT_AWAY.get(_key(source), {}))
        sys.path.insert(0, source.folder)
        _IN_USE.append(source)
    _PUT_AWAY[_key(source)] = {}
    try:
        yield
    finally:
        if len(_PUT_AWAY) > 1:
            _put_away(source)


def _put_away(source: Source) -> None:
    sys.path.remove(source.folder)
    own = {name: module for name, module in sys.modules.items() if _file_in(module, source.folder)}
    for name in own:
        del sys.modules[name]
    _PUT_AWAY[_key(source)] = own
    _IN_USE.clear()


def _file_in(module: Any, folder: str) -> str:
    """The file of a module, if it is of the user's own in that folder."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py") or not os.path.isabs(file):
        return ""
    path = os.path.normpath(file)
    installed = path.startswith(OUR_OWN) or any(part in path.split(os.sep) for part in INSTALLED)
    return path if path.startswith(os.path.join(folder, "")) and not installed else ""


def digest_of(source: Source) -> str:
    """SHA-256 of the code, and of all modules of its folder that it has imported so far."""
    modules = _PUT_AWAY.get(_key(source)) or sys.modules
    files = {_file_in(module, source.folder) for module in modules.values()} - {""}
    files |= {source.place} if source.kind == "file" else set()
    sha = hashlib.sha256()
    for path in sorted(files):
        with open(path, "rb") as file:
            content = file.read()
        name = os.path.basename(path) if path == source.place else os.path.relpath(path, source.folder)
        sha.update(f"{name} {len(content)}\n".encode() + content)
    return sha.hexdigest()


_UNCHANGED: set[str] = set()


def check_unchanged(source: Source, digest: Callable[[], str]) -> None:
    """Raise where a source is not what it was when the run began; it is looked at once in a process."""
    if source.name not in _UNCHANGED:
        if digest() != source.digest:
            raise NotUnderstood(f"{source.title} was changed since the run began; run it again")
        _UNCHANGED.add(source.name)


@contextmanager
def told_in_a_line(source: Source) -> Iterator[None]:
    """What goes wrong in the user's code is told with its line."""
    try:
        yield
    except NotUnderstood:
        raise
    except SystemExit as end:
        raise NotUnderstood(f"{source.title} called exit({end.code}) instead of giving a model") from None
    except ModuleNotFoundError as error:
        raise NotUnderstood(
            f"{_where(source, error)}: {error}; install it for this Python, or name another one with --python"
        ) from error
    except MemoryError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise NotUnderstood(f"{_where(source, error)}: {type(error).__name__}: {first}") from error


def _where(source: Source, error: BaseException) -> str:
    """The user's own line in which an error came up."""
    lines = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in lines if os.path.abspath(frame.filename).startswith(os.path.join(source.folder, ""))]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{os.path.basename(error.filename)}, line {error.lineno}"
    return f"{os.path.basename(own[-1].filename)}, line {own[-1].lineno}" if own else source.title


def sizes_of(function: Callable[..., Any]) -> dict[str, tuple[str, int | None]]:
    """The sizes that a function takes: what it calls each, and what it has if nothing is said."""
    parameters = inspect.signature(function).parameters
    taken = {}
    for size, words in SIZES.items():
        word = next((word for word in words if word in parameters), None)
        if word is not None:
            default = parameters[word].default
            default = USUAL_SIZES[size] if default is inspect.Parameter.empty else default
            taken[size] = (word, default if type(default) is int and default > 0 else None)
    return taken


def returned(source: Source, case: Case | None) -> Any:
    """What the user's function gives for a case, or for the sizes that it has if nothing is said."""
    function = function_of(source)
    taken = sizes_of(function).items()
    sizes = {word: usual if case is None else getattr(case, size) for size, (word, usual) in taken}
    faults = told_in_a_line(source) if case is None else nullcontext()
    with _imports_of(source), faults:
        return function(**{word: size for word, size in sizes.items() if size is not None})
