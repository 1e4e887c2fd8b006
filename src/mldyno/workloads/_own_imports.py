"""What code of the user's imports, also where that is done within a function. In the worker only; nothing is run."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from typing import Any

from mldyno.workloads import _own_trees


def closure(files: dict[str, str], root: str) -> dict[str, str]:
    """The modules of a tree that some may import, directly or by others; their names by file, as of those given."""
    known, waiting = dict(files), list(files.items())
    while waiting:
        path, name = waiting.pop()
        for imported in _names_in(path, name):
            spec = _spec_of(imported, root)
            file = "" if spec is None or not spec.has_location else _own_trees.own_file(str(spec.origin), root)
            if file and file not in known:
                known[file] = imported
                waiting.append((file, imported))
    return known


def _names_in(path: str, name: str) -> Iterator[str]:
    """The names of modules, or what is in them, that a file of Python imports."""
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
            except ImportError:  # beyond the top, which fails when it is run too
                continue
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _spec_of(name: str, root: str) -> ModuleSpec | None:
    """Where a module is, if it and all packages around it can be found without running any, and are in the tree."""
    path: Any = None
    spec = None
    parts = name.split(".")
    for place in range(1, len(parts) + 1):
        spec = _found(".".join(parts[:place]), path)
        path = None if spec is None else spec.submodule_search_locations
        if spec is None or (path is None and place < len(parts)) or not _in_tree(spec, root):
            return None
    return spec


def _in_tree(spec: ModuleSpec, root: str) -> bool:
    """Whether a module lies in a tree, or is a namespace, which may have a part there."""
    if spec.has_location and spec.origin:
        return bool(_own_trees.own_file(spec.origin, root))
    return spec.submodule_search_locations is not None


def _found(name: str, path: Any) -> ModuleSpec | None:
    """What the finders of this process say of a module, that is loaded or not."""
    if (loaded := getattr(sys.modules.get(name), "__spec__", None)) is not None:
        return loaded  # type: ignore[no-any-return]
    try:
        return _own_trees.FINDER.search(name, path)
    except Exception:  # what is refused matters only where it is run
        return None
