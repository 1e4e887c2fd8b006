"""Import each version of the user's code from its own tree of files. In the worker only.

Two versions of a repository can be measured side by side, each in its own tree. Python finds a package by `sys.path`,
PYTHONPATH, a .pth file or the finder of an editable install, which name one tree for both versions. `use` chooses the
tree: a module that the other finders locate in the other tree is imported from the same place in this one. A module
that is missing there is refused by name, and never imported from the other tree.

`Watch` notices what code reads besides its imports: code run by path, and settings. Only the process that describes a
source watches: nothing is timed there, and an audit hook can't be removed.
"""

from __future__ import annotations

import ast
import filecmp
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from types import ModuleType
from typing import Any

ENVIRONMENT = "MLDYNO_TREES"  # names both trees to processes that this one starts
PACKAGES = ("site-packages", "dist-packages")
LIBRARY = tuple(os.path.realpath(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib"))
OUR_OWN = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
MAPS = "/proc/self/maps"  # of Linux: the files that are mapped into this process

EACH_ALONE = "measure each version alone, in its own checkout"
COMPILED = f"is compiled, for one version only; {EACH_ALONE}"
MISSING = "is in the other version's tree only; put it into a second checkout, and name the file there with --against"

KINDS = (".py", ".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".gin", ".txt")  # of code and settings
LARGEST_SETTINGS_B = 1 << 20  # what is larger is data too
MOST_FILES = 100  # that a source may name: settings are read first, a data set of small files after them


class WrongTree(Exception):
    """A module is only in the other version's tree. Not an ImportError: code may take that for a missing package."""


@cache
def real(path: str) -> str:
    """Return a path without links."""
    return os.path.realpath(path)


def inside(path: str, root: str) -> bool:
    """Return whether a path without links is a folder, or lies in it."""
    return path == root or path.startswith(os.path.join(root, ""))


def root_of(folder: str) -> str:
    """Return the git work tree that a folder lies in; empty where there is none."""
    folder = real(folder)
    while not os.path.exists(os.path.join(folder, ".git")):
        if folder == (folder := os.path.dirname(folder)):
            return ""
    return folder


@cache
def installed(path: str, root: str) -> bool:
    """Return whether a file belongs to Python, to a package, or to an environment within the tree."""
    environments = [real(prefix) for prefix in (sys.prefix, sys.base_prefix)]
    within = [prefix for prefix in environments if inside(prefix, root) and prefix != root]
    return any(part in PACKAGES for part in path.split(os.sep)) or any(
        inside(path, folder) for folder in (OUR_OWN, *LIBRARY, *within)
    )


def file_of(module: Any) -> str:
    """Return the file or archive that a module was loaded from; empty where there is none."""
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    return existing(file) if isinstance(file, str) and os.path.isabs(file) else ""


@cache
def existing(path: str) -> str:
    """Return a file, or the archive that it lies in; empty where there is neither."""
    path = os.path.normpath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path if os.path.isfile(path) else ""


@cache
def own_file(path: str, root: str) -> str:
    """Return a path if it is the user's code in that tree, without links that stay within it; else an empty text."""
    there = next((each for each in (real(path), path) if path and root and inside(each, root)), "")
    return "" if not there or installed(there, root) else there


def file_in(name: str, root: str) -> str:
    """Return the file of a loaded module, if it is the user's code in that tree; else an empty text.

    What another package generates, such as a compiler's cache, belongs to that package, wherever it lies.
    """
    path = own_file(file_of(sys.modules.get(name)), root)
    package = file_of(sys.modules.get(name.partition(".")[0]))
    return "" if not path or (package and installed(real(package), root)) else path


def modules_in(*roots: str) -> dict[str, ModuleType]:
    """Return the user's loaded modules in these trees: Python code, and namespaces, which have no file."""

    def is_there(name: str, module: Any) -> bool:
        if file := file_of(module):
            return not compiled(file) and any(file_in(name, root) for root in roots)
        locations = vars(module).get("__path__", ()) if isinstance(module, ModuleType) else ()
        return any(isinstance(path, str) and own_file(path, root) for path in locations for root in roots)

    return {name: module for name, module in [*sys.modules.items()] if is_there(name, module)}


def compiled(path: str) -> bool:
    """Return whether a file is a compiled module."""
    return path.endswith(tuple(EXTENSION_SUFFIXES))


# -- the finder ------------------------------------------------------------------------------------


class Finder:
    """Finds modules as the other finders do, but those of the other tree in this one."""

    def __init__(self) -> None:
        self.own = self.other = ""
        self.refused: dict[str, str] = {}  # why modules were refused, by tree: code may have swallowed the error
        self.searching: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return where a module is; None leaves it to the other finders."""
        try:
            return self.search(name, path, target) if self.other else None
        except WrongTree as error:
            self.refused.setdefault(self.own, str(error))
            raise

    def search(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name in self.searching:  # another finder that asks all finders, as this one does
            return None
        if path is None:
            sys.path[:] = self.own_first(sys.path)
        else:
            path = self.own_first(path)
        self.searching.add(name)
        try:
            for finder in [finder for finder in sys.meta_path if finder is not self]:
                spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
                if spec is not None:
                    return self.moved(spec)
        finally:
            self.searching.discard(name)
        if path is not None and (spec := self.only_in_other(name, path)) is not None:
            self.moved(spec)
        return None

    def only_in_other(self, name: str, path: Iterable[str]) -> ModuleSpec | None:
        """Return a module that a package has in the other tree, and lacks in this one."""
        places = [own_file(os.path.abspath(folder), self.own) for folder in path if self.other]
        folders = [os.path.join(self.other, os.path.relpath(place, self.own)) for place in places if place]
        spec = PathFinder.find_spec(name, folders) if folders else None
        return spec if spec is not None and spec.has_location else None

    def own_first(self, path: Iterable[str]) -> list[str]:
        """Return the folders to search, with the counterpart in this tree before each folder of the other tree."""
        folders: list[str] = []
        for folder in path:
            same = self.counterpart(folder)
            folders += [same] if same and same not in folders and os.path.exists(same) else []
            folders.append(folder)
        return folders

    def counterpart(self, path: str) -> str:
        """Return the same place in this tree; empty where the path is not the user's code in the other one."""
        place = own_file(os.path.abspath(path), self.other)
        return os.path.normpath(os.path.join(self.own, os.path.relpath(place, self.other))) if place else ""

    def moved(self, spec: ModuleSpec) -> ModuleSpec:
        """Return the module as it is in this tree; raise WrongTree where it is not there."""
        locations = spec.submodule_search_locations
        if not spec.has_location or spec.origin is None:
            if locations is not None:
                spec.submodule_search_locations = self.own_locations(spec.name, locations)
            return spec
        same = self.counterpart(spec.origin)
        if not same:
            return spec
        shown = f"{spec.name} ({os.path.relpath(same, self.own)})"
        if compiled(spec.origin):
            raise WrongTree(f"{shown} {COMPILED}")
        if not os.path.isfile(same):
            raise WrongTree(f"{shown} {MISSING}")
        if type(spec.loader) not in (SourceFileLoader, SourcelessFileLoader):
            raise WrongTree(f"{shown} is loaded by a {type(spec.loader).__name__}; {EACH_ALONE}")
        folders = None if locations is None else [os.path.dirname(same)]
        there = importlib.util.spec_from_file_location(spec.name, same, submodule_search_locations=folders)
        assert there is not None
        return there

    def own_locations(self, name: str, locations: Iterable[str]) -> list[str]:
        """Return the folders of a namespace package, with the counterpart in this tree for each of the other tree."""
        folders = []
        for folder in locations:
            same = self.counterpart(folder) if os.path.exists(folder) else ""
            folders += [] if same and not os.path.isdir(same) else [same or folder]
        if not folders:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return list(dict.fromkeys(folders))


FINDER = Finder()


def use(tree: str, other: str) -> None:
    """Import code from one tree, and never from the other; where there is no other, from anywhere."""
    FINDER.own, FINDER.other = tree, other
    if not other:
        os.environ.pop(ENVIRONMENT, None)
        return
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
    os.environ[ENVIRONMENT] = os.pathsep.join((tree, other))
    listed = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    folders = [*(FINDER.counterpart(folder) or folder for folder in listed), *map(FINDER.counterpart, sys.path)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, folders)))


def use_trees_of_parent() -> None:
    """Import code as the worker does that started this process: from the same tree, and never from the other."""
    if trees := os.environ.get(ENVIRONMENT):
        use(*trees.split(os.pathsep))


def fault(tree: str, other: str) -> str:
    """Return what was loaded from the other tree, or refused, in words; empty where nothing was."""
    if not other:
        return ""
    if tree in FINDER.refused:
        return FINDER.refused[tree]
    for name in [*sys.modules]:
        if (path := file_in(name, other)) and not compiled(path):
            return f"{name} ({os.path.relpath(path, other)}) was loaded from the other version's tree; {EACH_ALONE}"
        for root in (tree, other):
            if (path := file_in(name, root)) and compiled(path):
                return f"{name} ({os.path.relpath(path, root)}) {COMPILED}"
    libraries = [os.path.relpath(path, root) for root in (tree, other) for path in libraries_in(root)]
    return f"{libraries[0]} {COMPILED}" if libraries else ""


def libraries_in(root: str) -> list[str]:
    """Return the files with machine code in a tree that this process has mapped (Linux)."""
    try:
        with open(MAPS, encoding="utf-8", errors="replace") as lines:
            parts = [line.rstrip("\n").split(maxsplit=5) for line in lines]
    except OSError:
        return []
    files = dict.fromkeys(part[5] for part in parts if len(part) == 6 and "x" in part[1])
    return [path for path in files if os.path.isabs(path) and own_file(path, root)]


# -- what code imports -----------------------------------------------------------------------------


def import_closure(files: dict[str, str], root: str) -> dict[str, str]:
    """Add the modules of a tree that some modules import, also within functions and through others; nothing is run.

    Both `files` and the result are names of modules by their files.
    """
    known, waiting = dict(files), list(files.items())
    while waiting:
        path, name = waiting.pop()
        for imported in _names_in(path, name):
            spec = _spec_of(imported, root)
            origin = "" if spec is None or not spec.has_location else existing(str(spec.origin))
            file = own_file(origin, root)
            if file and file not in known:
                known[file] = imported
                waiting.append((file, imported))
    return known


def _names_in(path: str, name: str) -> Iterator[str]:
    """Yield the names of modules, and of what is in them, that a Python file imports."""
    if not path.endswith(".py"):
        return
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return
    package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:  # beyond the top-level package, which fails at run time too
                continue
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _spec_of(name: str, root: str) -> ModuleSpec | None:
    """Return where a module is, if it and its packages are in the tree and can be found without running any."""
    path: Any = None
    spec = None
    parts = name.split(".")
    for place in range(1, len(parts) + 1):
        spec = _find(".".join(parts[:place]), path)
        path = None if spec is None else spec.submodule_search_locations
        if spec is None or (path is None and place < len(parts)) or not _in_tree(spec, root):
            return None
    return spec


def _in_tree(spec: ModuleSpec, root: str) -> bool:
    """Return whether a module lies in a tree, or is a namespace, which may have a part there."""
    if spec.has_location and spec.origin:
        return bool(own_file(spec.origin, root))
    return spec.submodule_search_locations is not None


def _find(name: str, path: Any) -> ModuleSpec | None:
    """Ask the finders of this process for a module, loaded or not."""
    if (loaded := getattr(sys.modules.get(name), "__spec__", None)) is not None:
        return loaded  # type: ignore[no-any-return]
    try:
        return FINDER.search(name, path)
    except Exception:  # a refusal matters only when the import runs
        return None


# -- what code reads besides its imports -----------------------------------------------------------


class Watch:
    """Note the files that this process opens while the context is entered, in order."""

    def __init__(self) -> None:
        self.read: dict[str, None] = {}
        self.written: set[str] = set()

    def __enter__(self) -> None:
        if not _HOOKED:
            sys.addaudithook(_noted)
            _HOOKED.append(True)
        _ENTERED.append(self)

    def __exit__(self, *_: object) -> None:
        _ENTERED.remove(self)

    def files_in(self, root: str) -> Iterator[str]:
        """Yield the code and settings in a tree that were read, but not what the code itself has written."""
        for path in [path for path in self.read if path not in self.written]:
            with suppress(ValueError):  # of a compiled file, its source counts
                path = importlib.util.source_from_cache(path) if path.endswith(".pyc") else path  # noqa: PLW2901
            if not path.endswith(KINDS) or not (file := own_file(path, root)) or not os.path.isfile(file):
                continue
            hidden = any(part.startswith(".") for part in os.path.relpath(file, root).split(os.sep))
            if not hidden and os.path.getsize(file) <= LARGEST_SETTINGS_B:
                yield file

    def names(self, tree: str, other: str, known: Container[str]) -> tuple[str, ...]:
        """Return the paths in a tree of files read there or in the other one, without those of known modules."""
        roots = [root for root in (tree, other) if root]
        read = [os.path.relpath(file, root) for root in roots for file in self.files_in(root)]
        files = {name: os.path.join(tree, name) for name in read}
        return tuple(name for name, path in files.items() if os.path.isfile(path) and path not in known)[:MOST_FILES]

    def fault(self, tree: str, other: str) -> str:
        """Return what was read from the other tree though this one has a different file, in words; empty if nothing."""
        for file in self.files_in(other) if other else ():
            name = os.path.relpath(file, other)
            same = os.path.join(tree, name)
            if os.path.isfile(same) and not filecmp.cmp(file, same, shallow=False):
                return (f"{name} was read from the other version's tree, where it differs; "
                        f"find it from __file__ on, or {EACH_ALONE}")  # fmt: skip
        return ""


_HOOKED: list[bool] = []
_ENTERED: list[Watch] = []


def _noted(event: str, arguments: tuple[Any, ...]) -> None:
    """Report opened files to the active watches, as an audit hook."""
    if event != "open" or not _ENTERED or not isinstance(arguments[0], str | bytes):
        return
    with suppress(OSError, ValueError):  # as where the working folder is gone
        path, mode, flags = os.path.abspath(os.fsdecode(arguments[0])), arguments[1], arguments[2]
        writes = bool(flags & (os.O_WRONLY | os.O_RDWR)) or bool(mode and not mode.startswith("r"))
        for watch in _ENTERED:
            if writes:
                watch.written.add(path)
            else:
                watch.read[path] = None
