"""ONNX files: a network with its weights, run as it is. In the worker only.

The graph's own inputs are fed with random numbers: floats are normal, whole numbers lie below the rows of the table
that they choose from, where the graph shows one, else they are 0 or 1; masks are all ones. Where the file leaves a
dimension open, the first is the batch. Further ones are a sequence; of an image its sides, and of past keys and values
none are there yet.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mldyno.records import Case
from mldyno.sources import Source
from mldyno.workloads import Recipe, _onnx_graph
from mldyno.workloads._onnx_graph import FLOATS, SMALL_WHOLE, Graph, Input
from mldyno.workloads._own_code import NotUnderstood, check_unchanged

STARTS = ""  # a file is described without a runtime
FRAMEWORKS = ("onnxruntime", "openvino")
BATCH, SEQ = 8, 128  # if nothing is said
IMAGE_DIMENSIONS, IMAGE_SIDE, CHANNELS = 4, 224, 3
TOKEN_DIMENSIONS = 2
FED = ("fp32", "fp16", "fp64", "uint8", "int8", "uint16", "int16", "int32", "int64", "uint32", "uint64", "bool")
"""Types of which arrays can be made."""
BYTE = 256  # values of an image's point


@dataclass(frozen=True)
class Feed:
    """What one input is fed with."""

    name: str
    type: str
    shape: tuple[int, ...]
    below: int | None = None
    """Random whole numbers from 0 to less than this; None for normal ones, 0 for ones only."""


@dataclass(frozen=True)
class OnnxFile:
    """A file, and what matters of it."""

    path: str
    params: int
    weights_in: tuple[str, ...]

    @property
    def quantised(self) -> bool:
        """Whether some of its weights are whole numbers of few bits."""
        return any(kind in SMALL_WHOLE for kind in self.weights_in)


def describe(_: Any, source: Source) -> dict[str, Any]:
    """What a plan must know of a file."""
    graph = _graph(source)
    shapes = [shape_of(each, source) for each in graph.inputs]
    batched = any(shape and isinstance(shape[0], str) for shape in shapes)
    with_seq = any(_is_seq(each, place) for each in graph.inputs for place in range(len(each.shape or ())))
    batch, seq = BATCH if batched else None, SEQ if with_seq else None
    first = feeds(graph, source, batch, seq)[0]
    items, item = first.shape[0] if first.shape else 1, "sample"
    if first.below is not None and len(first.shape) == TOKEN_DIMENSIONS:
        items, item = items * first.shape[1], "token"
    elif len(first.shape) == IMAGE_DIMENSIONS:
        item = "image"
    return {"digest": digest_of(source, graph), "batch": batch, "seq": seq, "modes": ("infer",), "item": item,
            "items": max(1, items), "output": "tree"}  # fmt: skip


def build(source: Source, _: Any, case: Case) -> Recipe:
    """The file, and what it is fed with; as it was when the run began."""
    graph = _graph(source)
    check_unchanged(source, lambda: digest_of(source, graph))
    network = OnnxFile(source.place, graph.params, graph.weights_in)
    batch = feeds(graph, source, case.batch, case.seq)
    notes = {"weights_in": ", ".join(graph.weights_in)} if graph.weights_in else {}
    return Recipe(network, lambda: (batch, None), loss=_not_trained, optimiser=_not_trained, notes=notes)


def _not_trained(*_: Any) -> Any:
    raise NotUnderstood("a file is run, and not trained; take --mode infer")


def _graph(source: Source) -> Graph:
    """What the file says; raises with one line where it can't be run."""
    try:
        graph = _onnx_graph.read(source.place)
    except _onnx_graph.Damaged as error:
        raise NotUnderstood(f"{source.title} can't be read: {error}; export it again, or copy it whole") from None
    except OSError as error:
        raise NotUnderstood(f"{source.title} can't be read: {error.strerror}") from None
    if not graph.inputs:
        raise NotUnderstood(f"{source.title} takes no inputs: there is nothing to measure")
    for name in sorted(graph.files):
        if os.path.isabs(name) or os.pardir in name.split("/"):
            raise NotUnderstood(f"{source.title} has weights in {name}, outside its folder; save it with all of them")
        if not os.path.isfile(os.path.join(os.path.dirname(source.place), name)):
            raise NotUnderstood(f"{source.title} has weights in {name}, which does not lie beside it; copy it there")
    return graph


def digest_of(source: Source, graph: Graph) -> str:
    """SHA-256 of the file, and of those beside it in which its weights lie."""
    sha = hashlib.sha256()
    for path in (source.place, *(os.path.join(os.path.dirname(source.place), name) for name in sorted(graph.files))):
        with open(path, "rb") as file:
            while part := file.read(1 << 20):
                sha.update(part)
    return sha.hexdigest()


# -- what it is fed with ---------------------------------------------------------------------------


def feeds(graph: Graph, source: Source, batch: int | None, seq: int | None) -> tuple[Feed, ...]:
    """What each input is fed with at these sizes."""
    return tuple(_feed(graph, each, source, batch or BATCH, seq or SEQ) for each in graph.inputs)


def _feed(graph: Graph, each: Input, source: Source, batch: int, seq: int) -> Feed:
    if each.type not in FED:
        what = each.type or "no tensor"
        raise NotUnderstood(f"{source.title}: its input {each.name} is {what}, of which mldyno makes no random ones")
    shape = tuple(_sizes(each, source, batch, seq))
    if each.type in FLOATS:
        return Feed(each.name, each.type, shape)
    if "mask" in each.name or each.type == "bool":
        return Feed(each.name, each.type, shape, below=0)  # nothing is masked
    image = each.type == "uint8" and len(shape) == IMAGE_DIMENSIONS
    return Feed(each.name, each.type, shape, below=BYTE if image else graph.rows_behind(each.name) or 2)


def shape_of(each: Input, source: Source) -> tuple[int | str, ...]:
    """The dimensions of an input; raises where the file does not say how many there are."""
    if each.shape is None:
        raise NotUnderstood(f"{source.title}: its input {each.name} has no shape; export it with one")
    return each.shape


def _sizes(each: Input, source: Source, batch: int, seq: int) -> Iterator[int]:
    for place, size in enumerate(shape_of(each, source)):
        if isinstance(size, int):
            yield size
        elif place == 0:
            yield batch
        elif _is_past(size):
            yield 0
        elif _is_seq(each, place):
            yield seq
        else:
            yield CHANNELS if place == 1 else IMAGE_SIDE


def _is_past(size: str) -> bool:
    """Whether a dimension counts tokens that were there before, and not those with the new ones."""
    return "past" in size and "+" not in size


def _is_seq(each: Input, place: int) -> bool:
    """Whether a dimension is a sequence's length: any that is left open behind the first, but of images."""
    size = (each.shape or ())[place]
    image = len(each.shape or ()) == IMAGE_DIMENSIONS and (each.type in FLOATS or each.type == "uint8")
    return place > 0 and isinstance(size, str) and not image and not _is_past(size)
