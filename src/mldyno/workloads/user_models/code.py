"""Load and call the user's code, and identify it by a hash. In the worker only.

Two versions of a file can be measured side by side in one process. Each has its own modules, from its own tree of
files: those of one version are taken out of `sys.modules` while the other runs.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads.user_models import version_trees
from mldyno.workloads.user_models.recipes import NotUnderstood, example
from mldyno.workloads.user_models.version_trees import Watch

SIZES = {"batch": ("batch_size", "batch"), "seq": ("seq_len", "sequence_length", "seq")}  # parameters that set each
CHUNK_B = 1 << 20  # of a file, read at a time
DEFAULT_SIZES = {"batch": 32, "seq": 128}  # for a parameter without a default


class UserCode:
    """The code of one source in this process: its function, and its modules and search path while other code runs."""

    def __init__(self, source: Source) -> None:
        self.source, self.active = source, False
        self.function: Callable[..., Any] | None = None
        self.last_model: Callable[[], Any] = lambda: None
        self.unchanged: set[str] = set()  # names of the workloads whose files were compared with what was described
        self.path: list[str] = []
        self.path_before: list[str] = []
        self.modules: dict[str, ModuleType] = {}
        self.modules_mark: object = None

    def activate(self) -> None:
        """Make its modules and search path the ones that imports find."""
        if not self.path:
            self.path = [self.source.folder, *sys.path]
            for name in version_trees.modules_in(self.source.other):  # imported before its own version was asked for
                del sys.modules[name]
        self.active = True
        self.path_before, sys.path[:] = list(sys.path), self.path
        version_trees.use(self.source.root, self.source.other)
        sys.modules.update(self.modules)
        self.modules_mark = self.modules_mark and _modules_mark()

    def deactivate(self) -> None:
        """Take them out again."""
        self.active = False
        if self.modules_mark != _modules_mark():  # more was imported
            self.modules = version_trees.modules_in(tree_of(self.source), self.source.other)
            self.modules_mark = True
        for name in self.modules:
            sys.modules.pop(name, None)
        self.path, sys.path[:] = list(sys.path), self.path_before


_LOADED: dict[tuple[str, ...], UserCode] = {}


def _modules_mark() -> object:
    """Return what changes when a module is imported; comparing all modules would take a millisecond."""
    return len(sys.modules), next(reversed(sys.modules))


def _code_of(source: Source) -> UserCode:
    key = (source.folder, source.place, source.function, source.other)
    return _LOADED.setdefault(key, UserCode(source))


def activate(source: Source) -> None:
    """Let imports find the code of this source, and of no other, until another one is activated."""
    if not source.folder:  # a model that lives in this process has imported all that it needs
        return
    code = _code_of(source)
    if code.active:
        return
    for other in _LOADED.values():
        if other.active:
            other.deactivate()
    code.activate()


def tree_of(source: Source) -> str:
    """Return the folder whose modules are the user's code: the git work tree, or else the file's folder."""
    return source.root or version_trees.real(source.folder)


# -- loading and calling ---------------------------------------------------------------------------


def register_function(source: Source, function: Callable[..., Any]) -> None:
    """Let a function of this process build the model of a source."""
    _code_of(source).function = function


def function_of(source: Source) -> Callable[..., Any]:
    """Return the function that builds the model; load its file once."""
    code = _code_of(source)
    if code.function is None:
        activate(source)
        with reporting_source_line(source):
            module = _module(source)
            function = getattr(module, source.function, None)
            if not callable(function):
                names = [name for name, value in vars(module).items() if inspect.isfunction(value)]
                there = f"it has {', '.join(names)}" if names else "it has none"
                raise NotUnderstood(f"{source.title} has no function {source.function} ({there}); add one: {example()}")
            code.function = function
    return code.function


def _module(source: Source) -> ModuleType:
    if source.kind == "module":
        return importlib.import_module(source.place)
    name = _module_name(source)
    spec = importlib.util.spec_from_file_location(name, source.place)
    if spec is None or spec.loader is None:
        raise NotUnderstood(f"{source.title} is no Python file; write one with: {example()}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _module_name(source: Source) -> str:
    return source.place if source.kind == "module" else Path(source.place).stem


def _parameters(function: Callable[..., Any]) -> dict[str, tuple[str, int | None]]:
    """Return the sizes that a function takes: the parameter and its default for each."""
    parameters = inspect.signature(function).parameters
    taken = {}
    for size, names in SIZES.items():
        name = next((name for name in names if name in parameters), None)
        if name is not None:
            default = parameters[name].default
            default = DEFAULT_SIZES[size] if default is inspect.Parameter.empty else default
            taken[size] = (name, default if type(default) is int and default > 0 else None)
    return taken


def default_sizes(source: Source) -> dict[str, int | None]:
    """Return the default of each size that the function of a source takes."""
    return {size: default for size, (_, default) in _parameters(function_of(source)).items()}


def call(source: Source, case: Case | None) -> Any:
    """Call the user's function at the sizes of a case, or at its default sizes."""
    function = function_of(source)
    taken = _parameters(function).items()
    sizes = {name: default if case is None else getattr(case, size) for size, (name, default) in taken}
    activate(source)
    with reporting_source_line(source) if case is None else nullcontext():
        return function(**{name: size for name, size in sizes.items() if size is not None})


# -- identity --------------------------------------------------------------------------------------


def located(source: Source) -> Source:
    """Return the source with the git work tree of its code, which must be loaded for that."""
    if source.root:
        return source
    function_of(source)
    activate(source)
    file = version_trees.file_of(sys.modules[_module_name(source)])
    root = version_trees.root_of(os.path.dirname(file))
    if not version_trees.own_file(version_trees.real(file), root):
        return source
    _code_of(source).source = source = replace(source, root=root)
    return source


def imported_files(source: Source) -> dict[str, str]:
    """Return the modules of its tree that its code has imported so far: their names, by file."""
    activate(source)
    tree = tree_of(source)
    files = {file: name for name in [*sys.modules] if (file := version_trees.file_in(name, tree))}
    if source.kind == "file":
        files[source.place] = _module_name(source)
    return files


def with_reads(source: Source, watch: Watch) -> Source:
    """Return the source with what its code read in its tree, besides the modules that it imports."""
    tree = tree_of(source)
    if words := watch.fault(tree, source.other):
        raise NotUnderstood(f"{source.version_title}: {words}")
    modules = {version_trees.real(file) for file in version_trees.import_closure(imported_files(source), tree)}
    return replace(source, read=watch.names(tree, source.other, modules))


def digest_of(source: Source, imported: dict[str, str] | None = None) -> str:
    """Return the SHA-256 of the code, of what it reads and imports from its tree, and of what it may import.

    `imported` are the modules that count as imported; by default those of now.
    """
    activate(source)
    tree = tree_of(source)
    read = {path: Path(path).stem for name in source.read if os.path.isfile(path := os.path.join(tree, name))}
    files = {**read, **(imported_files(source) if imported is None else imported)}
    start = source.root if source.kind == "module" and source.root else version_trees.real(source.folder)
    named = {os.path.relpath(path, start): path for path in version_trees.import_closure(files, tree)}
    if source.kind == "file":
        named = {name: path for name, path in named.items() if not os.path.samefile(path, source.place)}
        named[os.path.basename(source.place)] = source.place
    sha = hashlib.sha256()
    for name, path in sorted(named.items()):
        with open(path, "rb") as code:
            content = code.read()
        sha.update(f"{name} {len(content)}\n".encode() + content)
    return sha.hexdigest()


def hash_files(paths: Iterable[str]) -> str:
    """Return the SHA-256 of some files, one after the other."""
    sha = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while part := file.read(CHUNK_B):
                sha.update(part)
    return sha.hexdigest()


def check_unchanged(source: Source, digest: Callable[[], str]) -> None:
    """Raise where the files of a source have changed since the run began; look once per process."""
    unchanged = _code_of(source).unchanged
    if source.name not in unchanged:
        if digest() not in (source.built, source.digest):
            raise NotUnderstood(f"{source.title} was changed since the run began; run it again")
        unchanged.add(source.name)


def check_fresh(source: Source, model: Any) -> None:
    """Raise where a source returns the same model object again: it carries what the last case did to it."""
    code = _code_of(source)
    if code.last_model() is model and not inspect.isfunction(model):
        raise NotUnderstood(f"{source.title} gives one and the same model each time; make it within the function")
    with suppress(TypeError):  # some objects can't be referred to weakly
        code.last_model = weakref.ref(model)


def tree_fault(source: Source) -> str:
    """Return which module was not imported from the source's own tree, in words; empty where all were."""
    words = version_trees.fault(tree_of(source), source.other)
    return f"{source.version_title}: {words}" if words else ""


# -- errors in the user's code ---------------------------------------------------------------------


@contextmanager
def reporting_source_line(source: Source) -> Iterator[None]:
    """Turn an error in the user's code into NotUnderstood, with the line that raised it."""
    try:
        yield
    except (NotUnderstood, MemoryError):
        raise
    except version_trees.WrongTree as error:
        raise NotUnderstood(f"{source.version_title}: {error}") from None
    except SystemExit as end:
        raise NotUnderstood(f"{source.title} called exit({end.code}) instead of giving a model") from None
    except ModuleNotFoundError as error:
        raise NotUnderstood(f"{_line_of(source, error)}: {error}; {_cure(source, error)}") from error
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise NotUnderstood(f"{_line_of(source, error)}: {type(error).__name__}: {first}") from error


def _cure(source: Source, error: ModuleNotFoundError) -> str:
    """Return what would let a missing module be found: it may lie in this folder, or at the top of the work tree."""
    missing = str(error.name).partition(".")[0]
    root = "" if source.other else version_trees.root_of(source.folder)
    for folder in dict.fromkeys((os.getcwd(), root, os.path.join(root, "src") if root else "")):
        if not folder or not any(os.path.exists(os.path.join(folder, missing + end)) for end in ("", ".py")):
            continue
        place = os.path.relpath(version_trees.real(source.place), version_trees.real(folder))
        module = os.path.splitext(place)[0].replace(os.sep, ".")
        here, shown = folder == os.getcwd(), os.path.relpath(folder)
        if here and source.kind == "file" and all(part.isidentifier() for part in module.split(".")):
            return f"it is in this folder; write {module}:{source.function}, which imports from here"
        return f"it is in {'this folder' if here else shown}; set PYTHONPATH={shown}"
    return "install it for this Python, or name another one with --python"


def _line_of(source: Source, error: BaseException) -> str:
    """Return the file and line of the user's code that raised an error."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{os.path.basename(error.filename)}, line {error.lineno}"
    roots = [os.path.join(folder, "") for folder in (source.folder, source.root) if folder]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if os.path.abspath(frame.filename).startswith(tuple(roots))]
    return f"{os.path.basename(own[-1].filename)}, line {own[-1].lineno}" if own else source.title
