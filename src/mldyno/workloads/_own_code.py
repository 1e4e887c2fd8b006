"""The user's code: loaded, called at the sizes of a case, and known by a hash. In the worker only.

Two versions of one file may be measured side by side in one process. Each has modules of its own, from its own tree:
those of one are put away while another one's are in use.
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
from dataclasses import replace
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads import _own_imports, _own_trees
from mldyno.workloads._own_calls import example_here

SIZES = {"batch": ("batch_size", "batch"), "seq": ("seq_len", "sequence_length", "seq")}
"""Sizes of a case, and what a function may call each."""
USUAL_SIZES = {"batch": 32, "seq": 128}  # where a function takes one, and has no default


class NotUnderstood(NotImplementedError):
    """The user's code can't be measured as it is; the message says why, and what would do."""


class Imports:
    """Modules and search path of one source's code, while another one's are in use."""

    def __init__(self, source: Source) -> None:
        self.source, self.path = source, [source.folder, *sys.path]
        self.modules: dict[str, ModuleType] = {}
        self.before: list[str] = []
        self.mark: object = None
        for name in _own_trees.modules_in(source.other):  # loaded before the first of them was asked for
            del sys.modules[name]

    def enter(self) -> None:
        """Let its code find them."""
        self.before, sys.path[:] = list(sys.path), self.path
        _own_trees.use(self.source.root, self.source.other)
        sys.modules.update(self.modules)
        self.mark = self.mark and _mark()

    def leave(self) -> None:
        """Put them away."""
        if self.mark != _mark():  # more was imported; else all are known
            self.modules = _own_trees.modules_in(tree_of(self.source), self.source.other)
            self.mark = True
        for name in self.modules:
            sys.modules.pop(name, None)
        self.path, sys.path[:] = list(sys.path), self.before


_FUNCTIONS: dict[str, Callable[..., Any]] = {}
_IMPORTS: dict[str, Imports] = {}
_IN_USE: list[Imports] = []  # whose modules can be imported now


def _mark() -> object:
    """What is another one when more modules were imported; looking at all of them takes a millisecond."""
    return len(sys.modules), next(reversed(sys.modules))


def put_in_use(source: Source) -> None:
    """Let the code of a source, and no other, be imported, until another one's is put in use."""
    if not source.folder:  # a model that lives in this process has imported all
        return
    imports = _IMPORTS.get(_key(source))
    if imports is not None and imports in _IN_USE:
        return
    while _IN_USE:
        _IN_USE.pop().leave()
    if imports is None:
        imports = _IMPORTS[_key(source)] = Imports(source)
    imports.enter()
    _IN_USE.append(imports)


def tree_of(source: Source) -> str:
    """The folder whose modules are code of the user's: the work tree of git, or where there is none, its own."""
    return source.root or _own_trees.real(source.folder)


def _key(source: Source) -> str:
    return "\0".join((source.folder, source.place, source.function, source.other))


def register_function(source: Source, function: Callable[..., Any]) -> None:
    """Let a source, whose model lives in this process, be built by a function."""
    _FUNCTIONS[_key(source)] = function


def function_of(source: Source) -> Callable[..., Any]:
    """The function that builds the model, from code that is loaded once."""
    key = _key(source)
    if key not in _FUNCTIONS:
        put_in_use(source)
        with told_in_a_line(source):
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


def located(source: Source) -> Source:
    """The source with the work tree that its code lies in, which has to be loaded for that."""
    if source.root:
        return source
    function_of(source)
    put_in_use(source)
    module = source.place if source.kind == "module" else os.path.splitext(os.path.basename(source.place))[0]
    file = _own_trees.file_of(sys.modules[module])
    root = _own_trees.root_of(os.path.dirname(file))
    if not _own_trees.own_file(_own_trees.real(file), root):
        return source
    _IMPORTS[_key(source)].source = source = replace(source, root=root)
    return source


def digest_of(source: Source) -> str:
    """SHA-256 of the code, and of all that it has imported from its tree so far, or may import within a function."""
    put_in_use(source)
    tree = tree_of(source)
    files = {file: name for name in [*sys.modules] if (file := _own_trees.file_in(name, tree))}
    if source.kind == "file":
        files[source.place] = os.path.splitext(os.path.basename(source.place))[0]
    start = source.root if source.kind == "module" and source.root else _own_trees.real(source.folder)
    sha = hashlib.sha256()
    named = {os.path.relpath(path, start): path for path in _own_imports.closure(files, tree)}
    if source.kind == "file":
        named = {name: path for name, path in named.items() if not os.path.samefile(path, source.place)}
        named[os.path.basename(source.place)] = source.place
    for name, path in sorted(named.items()):
        with open(path, "rb") as code:
            content = code.read()
        sha.update(f"{name} {len(content)}\n".encode() + content)
    return sha.hexdigest()


_UNCHANGED: set[str] = set()


def check_unchanged(source: Source, digest: Callable[[], str]) -> None:
    """Raise where a source is not what it was when the run began; it is looked at once in a process."""
    if source.name not in _UNCHANGED:
        if digest() not in (source.built, source.digest):
            raise NotUnderstood(f"{source.title} was changed since the run began; run it again")
        _UNCHANGED.add(source.name)


@contextmanager
def told_in_a_line(source: Source) -> Iterator[None]:
    """What goes wrong in the user's code is told with its line."""
    try:
        yield
    except NotUnderstood:
        raise
    except _own_trees.WrongTree as error:
        raise NotUnderstood(f"{source.version_title}: {error}") from None
    except SystemExit as end:
        raise NotUnderstood(f"{source.title} called exit({end.code}) instead of giving a model") from None
    except ModuleNotFoundError as error:
        raise NotUnderstood(f"{_where(source, error)}: {error}; {_cure(source, error)}") from error
    except MemoryError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise NotUnderstood(f"{_where(source, error)}: {type(error).__name__}: {first}") from error


def _cure(source: Source, error: ModuleNotFoundError) -> str:
    """What would let a missing module be found: it may lie where the user stands, or at the top of the work tree."""
    missing = str(error.name).partition(".")[0]
    root = "" if source.other else _own_trees.root_of(source.folder)
    for folder in dict.fromkeys((os.getcwd(), root, os.path.join(root, "src") if root else "")):
        if not folder or not any(os.path.exists(os.path.join(folder, missing + end)) for end in ("", ".py")):
            continue
        place = os.path.relpath(_own_trees.real(source.place), _own_trees.real(folder))
        module = os.path.splitext(place)[0].replace(os.sep, ".")
        here, shown = folder == os.getcwd(), os.path.relpath(folder)
        if here and source.kind == "file" and all(part.isidentifier() for part in module.split(".")):
            return f"it is in this folder; write {module}:{source.function}, which imports from here"
        return f"it is in {'this folder' if here else shown}; set PYTHONPATH={os.path.relpath(folder)}"
    return "install it for this Python, or name another one with --python"


def _where(source: Source, error: BaseException) -> str:
    """The user's own line in which an error came up."""
    lines = traceback.extract_tb(error.__traceback__)
    roots = [os.path.join(folder, "") for folder in (source.folder, source.root) if folder]
    own = [frame for frame in lines if os.path.abspath(frame.filename).startswith(tuple(roots))]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{os.path.basename(error.filename)}, line {error.lineno}"
    return f"{os.path.basename(own[-1].filename)}, line {own[-1].lineno}" if own else source.title


def tree_fault(source: Source) -> str:
    """What its code has loaded that is not of its own tree, in words; empty where all is."""
    words = _own_trees.fault(tree_of(source), source.other)
    return f"{source.version_title}: {words}" if words else ""


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
    put_in_use(source)
    with faults:
        return function(**{word: size for word, size in sizes.items() if size is not None})
