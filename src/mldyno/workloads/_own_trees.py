"""Which tree code of the user's is imported from. In the worker only.

Two versions of one repository may be measured beside each other, each in a tree of files. Python finds a package where
`sys.path`, PYTHONPATH, a .pth file or the finder of an editable install says, and that is one tree for both versions.
`use` says which tree is meant: every module that lies in the other one is then taken from the same place in this one.
What is not there is refused by name, and is never taken from the other tree.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import Any

ENVIRONMENT = "MLDYNO_TREES"  # by which processes that this one starts know both trees
PACKAGES = ("site-packages", "dist-packages")
LIBRARY = tuple(os.path.realpath(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib"))
OUR_OWN = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
MAPS = "/proc/self/maps"  # of Linux: the files that are mapped into this process


EACH_ALONE = "measure each version alone, in a checkout of its own"
COMPILED = f"is compiled, for one version only; {EACH_ALONE}"
MISSING = "is in the other version's tree only; put it into a second checkout, and name the file there with --against"


class WrongTree(Exception):
    """A module is only in the tree of the other version. No ImportError, which code may take for a missing package."""


@cache
def real(path: str) -> str:
    """A path without links."""
    return os.path.realpath(path)


def inside(path: str, root: str) -> bool:
    """Whether a path without links is a folder, or lies in it."""
    return path == root or path.startswith(os.path.join(root, ""))


def root_of(folder: str) -> str:
    """The work tree of git that a folder lies in; empty where there is none."""
    folder = real(folder)
    while not os.path.exists(os.path.join(folder, ".git")):
        if folder == (folder := os.path.dirname(folder)):
            return ""
    return folder


@cache
def installed(path: str, root: str) -> bool:
    """Whether a file is no code of the user's: of Python, of a package, or in the environment within a tree."""
    environments = [real(prefix) for prefix in (sys.prefix, sys.base_prefix)]
    within = [prefix for prefix in environments if inside(prefix, root) and prefix != root]
    return any(part in PACKAGES for part in path.split(os.sep)) or any(
        inside(path, folder) for folder in (OUR_OWN, *LIBRARY, *within)
    )


def file_of(module: Any) -> str:
    """The file that a module was loaded from, such as an archive; empty where there is none."""
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    return _existing(file) if isinstance(file, str) and os.path.isabs(file) else ""


@cache
def _existing(path: str) -> str:
    path = os.path.normpath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path if os.path.isfile(path) else ""


@cache
def own_file(path: str, root: str) -> str:
    """A file, if it is code of the user's in that tree: without links, where what they lead to is in it too."""
    there = next((each for each in (real(path), path) if path and root and inside(each, root)), "")
    return "" if not there or installed(there, root) else there


def file_in(name: str, root: str) -> str:
    """The file of a loaded module, if it is code of the user's in that tree.

    What another package generates, such as a compiler's cache, belongs to that package, wherever it lies.
    """
    path = own_file(file_of(sys.modules.get(name)), root)
    package = file_of(sys.modules.get(name.partition(".")[0]))
    return "" if not path or (package and installed(real(package), root)) else path


def modules_in(*roots: str) -> dict[str, ModuleType]:
    """The loaded modules of the user's in these trees: those of Python code, and namespaces, which have no file."""

    def is_there(name: str, module: Any) -> bool:
        if file := file_of(module):
            return not compiled(file) and any(file_in(name, root) for root in roots)
        locations = vars(module).get("__path__", ()) if isinstance(module, ModuleType) else ()
        return any(isinstance(path, str) and own_file(path, root) for path in locations for root in roots)

    return {name: module for name, module in [*sys.modules.items()] if is_there(name, module)}


def compiled(path: str) -> bool:
    """Whether a file is a compiled module."""
    return path.endswith(tuple(EXTENSION_SUFFIXES))


# -- the finder ------------------------------------------------------------------------------------


class Finder:
    """Finds modules as all other finders do, but those of the other tree in this one."""

    def __init__(self) -> None:
        self.own = self.other = ""
        self.refused: dict[str, str] = {}
        """Why modules were refused, by tree: code may have taken the error for a missing package."""
        self.searching: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Where a module is."""
        try:
            return self.search(name, path, target) if self.other else None
        except WrongTree as error:
            self.refused.setdefault(self.own, str(error))
            raise

    def search(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The same; what is refused is not noted."""
        if name in self.searching:  # another finder asks all others, as this one does
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
        """A module that a package of this tree lacks, where that of the other tree has it."""
        places = [own_file(os.path.abspath(folder), self.own) for folder in path if self.other]
        folders = [os.path.join(self.other, os.path.relpath(place, self.own)) for place in places if place]
        spec = PathFinder.find_spec(name, folders) if folders else None
        return spec if spec is not None and spec.has_location else None

    def own_first(self, path: Iterable[str]) -> list[str]:
        """Folders to search; before each of the other tree, the same of this one."""
        folders: list[str] = []
        for folder in path:
            same = self.counterpart(folder)
            folders += [same] if same and same not in folders and os.path.exists(same) else []
            folders.append(folder)
        return folders

    def counterpart(self, path: str) -> str:
        """The same place in this tree; empty for what is not in the other one, or no code of the user's."""
        place = own_file(os.path.abspath(path), self.other)
        return os.path.normpath(os.path.join(self.own, os.path.relpath(place, self.other))) if place else ""

    def moved(self, spec: ModuleSpec) -> ModuleSpec:
        """The module as it is in this tree; raises where it is not."""
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
        there = spec_from_file_location(spec.name, same, submodule_search_locations=folders)
        assert there is not None
        return there

    def own_locations(self, name: str, locations: Iterable[str]) -> list[str]:
        """The folders of a namespace package, those of the other tree as they are in this one."""
        folders = []
        for folder in locations:
            same = self.counterpart(folder) if os.path.exists(folder) else ""
            folders += [] if same and not os.path.isdir(same) else [same or folder]
        if not folders:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return list(dict.fromkeys(folders))


FINDER = Finder()


def use(tree: str, other: str) -> None:
    """Take code from one tree, and never from the other; where there is no other, from wherever it lies."""
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


def use_as_parent() -> None:
    """In a process that a worker has started: take code from the tree that is in use there."""
    if trees := os.environ.get(ENVIRONMENT):
        use(*trees.split(os.pathsep))


def fault(tree: str, other: str) -> str:
    """What is loaded from the other tree, or was refused, in words; empty where all is right."""
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
    """The files with machine code in a tree that this process has mapped (Linux)."""
    try:
        with open(MAPS, encoding="utf-8", errors="replace") as lines:
            parts = [line.rstrip("\n").split(maxsplit=5) for line in lines]
    except OSError:
        return []
    files = dict.fromkeys(each[5] for each in parts if len(each) == 6 and "x" in each[1])
    return [path for path in files if os.path.isabs(path) and own_file(path, root)]
