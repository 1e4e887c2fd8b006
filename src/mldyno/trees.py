"""Batches and outputs as trees of arrays: tuples, lists, dictionaries and dataclasses, as loaders and models use them.

Rule: standard library only. Arrays are known by their attributes; everything else is a leaf too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]  # the path to a leaf: keys of dictionaries, positions in tuples, names of fields

SPARSE = ("SparseTensor", "RaggedTensor", "BCOO", "BCSR", "COO", "CSR", "CSC")  # of TensorFlow, JAX and SciPy
SETTINGS = (type(None), bool, int, float, complex, str, bytes)  # types of leaves that all items of a batch share


def is_sparse(leaf: Any) -> bool:
    """Return whether a leaf is an array whose items can't be taken out: a sparse type or layout, or a nested tensor."""
    if type(leaf).__name__ in SPARSE or getattr(leaf, "is_nested", False):
        return True
    return str(getattr(leaf, "layout", "")).startswith("torch.sparse")


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an array of any framework, except a sparse one."""
    return not is_sparse(leaf) and hasattr(leaf, "dtype") and hasattr(leaf, "shape")


def is_floating(array: Any) -> bool:
    """Return whether an array has floating-point numbers; all frameworks name these types alike."""
    return "float" in str(array.dtype)


def each_array(change: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree with every array replaced."""
    if is_array(tree):  # as most are
        return change(tree)
    return mapped(lambda leaf: change(leaf) if is_array(leaf) else leaf, tree)


def _branches(tree: Any) -> list[tuple[Any, Any]] | None:
    """Return the branches of a tree, each with its key; None for a leaf."""
    if isinstance(tree, Mapping):
        return list(tree.items())
    if isinstance(tree, list | tuple):
        return list(enumerate(tree))
    if hasattr(type(tree), "__dataclass_fields__"):
        return [(name, getattr(tree, name, None)) for name in type(tree).__dataclass_fields__]
    return None


def paths(tree: Any, start: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the leaves of a tree in order, each with its path."""
    branches = _branches(tree)
    if branches is None:
        yield start, tree
    for key, part in branches or ():
        yield from paths(part, (*start, key))


def leaves(tree: Any) -> Iterator[Any]:
    """Return the leaves of a tree, in order."""
    return (leaf for _, leaf in paths(tree))


def at(tree: Any, path: Path) -> Any:
    """Return the part of a tree at a path; None if there is none."""
    for key in path:
        branches = _branches(tree)
        tree = dict(branches).get(key) if branches is not None else getattr(tree, str(key), None)
    return tree


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree of the same types, with every leaf replaced."""
    if isinstance(tree, Mapping):
        image: Any = copy.copy(tree)  # keeps its type, and its other attributes
        for key in tree:
            image[key] = mapped(function, tree[key])
        return image
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(function, part) for part in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(mapped(function, part) for part in tree)
    if (fields := _branches(tree)) is not None:
        image = copy.copy(tree)
        for name, part in fields:
            object.__setattr__(image, name, mapped(function, part))
        return image
    return function(tree)
