"""Batches and outputs as trees: tuples, lists and dictionaries of arrays, as loaders and models give them.

Rule: standard library only; whoever calls knows what its arrays are, and all else is a leaf too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def leaves(tree: Any) -> Iterator[Any]:
    """What a tree is made of, in order."""
    if isinstance(tree, Mapping):
        for part in tree.values():
            yield from leaves(part)
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of the same kind, with every leaf replaced."""
    if isinstance(tree, Mapping):
        image: Any = copy.copy(tree)  # of its own type, with whatever else it has
        for key in tree:
            image[key] = mapped(function, tree[key])
        return image
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(function, part) for part in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(mapped(function, part) for part in tree)
    return function(tree)
