"""ONNX files: a network with its weights, run as it is. In the worker only.

The inputs of the graph are fed with random numbers: floats are normal; integers lie below the rows of the table that
they index, where the graph shows one, else they are 0 or 1; masks are all ones. Where the file leaves a dimension open,
the first one is the batch. Others are a sequence, or the sides of an image; past keys and values are empty.

The file is read here, without its weights and with the standard library only: the runtimes show neither tables nor
weights, and the package `onnx` need not be installed with them.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mldyno.records import Case
from mldyno.sources import Source
from mldyno.values import IMAGE_DIMENSIONS
from mldyno.workloads import Recipe
from mldyno.workloads.user_models.code import check_unchanged, hash_files
from mldyno.workloads.user_models.recipes import BATCH, CHANNELS, IMAGE_SIDE, SEQ, NotUnderstood, items_of

STARTS = ""  # a file is described without a runtime
FRAMEWORKS = ("onnxruntime", "openvino")
PIXEL_VALUES = 256
TYPES = {1: "fp32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "text", 9: "bool",
         10: "fp16", 11: "fp64", 12: "uint32", 13: "uint64", 16: "bf16", 21: "uint4", 22: "int4"}  # fmt: skip
FLOATS = ("fp32", "fp16", "fp64", "bf16")
QUANTISED = ("uint8", "int8", "uint4", "int4")
NOT_FED = ("", "text", "bf16", "uint4", "int4")  # types of which NumPy makes no random arrays
PASSING_ON = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "DequantizeLinear")
"""Operators whose output has the values of their first input."""
GATHERS = ("Gather", "GatherBlockQuantized")
FEWEST_WEIGHTS = 2  # of a tensor that counts as weights: scalars are constants


@dataclass(frozen=True)
class Feed:
    """The shape, type and values of one input."""

    name: str
    type: str
    shape: tuple[int, ...]
    below: int | None = None  # random integers from 0 to less than this; None for normal numbers, 0 for ones only


@dataclass(frozen=True)
class OnnxFile:
    """The network of a recipe: a file, its parameters and the types of its weights."""

    path: str
    params: int
    weights_in: tuple[str, ...]

    @property
    def quantised(self) -> bool:
        """Return whether some weights are integers of few bits."""
        return any(kind in QUANTISED for kind in self.weights_in)


def describe(_: Any, source: Source) -> dict[str, Any]:
    """Return what a plan must know of a file."""
    graph = _graph_of(source)
    with_batch = any(
        shape and isinstance(shape[0], str) for shape in (_shape_of(entry, source) for entry in graph.inputs)
    )
    with_seq = any(_is_seq(entry, place) for entry in graph.inputs for place in range(len(entry.shape or ())))
    batch, seq = BATCH if with_batch else None, SEQ if with_seq else None
    first = feeds(graph, source, batch, seq)[0]
    return {"digest": digest_of(source, graph), "batch": batch, "seq": seq, "modes": ("infer",), "output": "tree",
            **items_of(first.shape, first.below is not None)}  # fmt: skip


def build(source: Source, _: Any, case: Case) -> Recipe:
    """Return the file and its feeds as a recipe; raise where the file has changed since the run began."""
    graph = _graph_of(source)
    check_unchanged(source, lambda: digest_of(source, graph))
    batch = feeds(graph, source, case.batch, case.seq)
    notes = {"weights_in": ", ".join(graph.weights_in)} if graph.weights_in else {}
    network = OnnxFile(source.place, graph.params, graph.weights_in)
    return Recipe(network, lambda: (batch, None), loss=_not_trained, optimiser=_not_trained, notes=notes)


def _not_trained(*_: Any) -> Any:
    raise NotUnderstood("a file is run, and not trained; take --mode infer")


def _graph_of(source: Source) -> Graph:
    """Read the file; raise with one line where it can't be run."""
    try:
        graph = read_graph(source.place)
    except Damaged as error:
        raise NotUnderstood(f"{source.title} can't be read: {error}; export it again, or copy it whole") from None
    except OSError as error:
        raise NotUnderstood(f"{source.title} can't be read: {error.strerror}") from None
    if not graph.inputs:
        raise NotUnderstood(f"{source.title} takes no inputs: there is nothing to measure")
    for name in sorted(graph.files):
        if os.path.isabs(name) or os.pardir in name.split("/"):
            raise NotUnderstood(f"{source.title} has weights in {name}, outside its folder; save it with all of them")
        if not os.path.isfile(os.path.join(os.path.dirname(source.place), name)):
            raise NotUnderstood(f"{source.title} has weights in {name}, which is not next to it; copy it there")
    return graph


def digest_of(source: Source, graph: Graph) -> str:
    """Return the SHA-256 of the file, and of the files next to it that hold its weights."""
    folder = os.path.dirname(source.place)
    return hash_files([source.place, *(os.path.join(folder, name) for name in sorted(graph.files))])


# -- feeds -----------------------------------------------------------------------------------------


def feeds(graph: Graph, source: Source, batch: int | None, seq: int | None) -> tuple[Feed, ...]:
    """Return the feed of each input at these sizes."""
    return tuple(_feed(graph, entry, source, batch or BATCH, seq or SEQ) for entry in graph.inputs)


def _feed(graph: Graph, entry: Input, source: Source, batch: int, seq: int) -> Feed:
    if entry.type in NOT_FED:
        kind = entry.type or "no tensor"
        raise NotUnderstood(f"{source.title}: its input {entry.name} is {kind}, of which mldyno makes no random ones")
    shape = tuple(_sizes(entry, source, batch, seq))
    if entry.type in FLOATS:
        return Feed(entry.name, entry.type, shape)
    if "mask" in entry.name or entry.type == "bool":
        return Feed(entry.name, entry.type, shape, below=0)  # nothing is masked
    image = entry.type == "uint8" and len(shape) == IMAGE_DIMENSIONS
    return Feed(entry.name, entry.type, shape, below=PIXEL_VALUES if image else graph.rows_behind(entry.name) or 2)


def _shape_of(entry: Input, source: Source) -> tuple[int | str, ...]:
    if entry.shape is None:
        raise NotUnderstood(f"{source.title}: its input {entry.name} has no shape; export it with one")
    return entry.shape


def _sizes(entry: Input, source: Source, batch: int, seq: int) -> Iterator[int]:
    for place, size in enumerate(_shape_of(entry, source)):
        if isinstance(size, int):
            yield size
        elif place == 0:
            yield batch
        elif _is_past(size):
            yield 0
        elif _is_seq(entry, place):
            yield seq
        else:
            yield CHANNELS if place == 1 else IMAGE_SIDE


def _is_past(size: str) -> bool:
    """Return whether a dimension counts past tokens, without the new ones."""
    return "past" in size and "+" not in size


def _is_seq(entry: Input, place: int) -> bool:
    """Return whether a dimension is the length of a sequence: any open one after the first, except in images."""
    size = (entry.shape or ())[place]
    image = len(entry.shape or ()) == IMAGE_DIMENSIONS and (entry.type in FLOATS or entry.type == "uint8")
    return place > 0 and isinstance(size, str) and not image and not _is_past(size)


# -- the graph -------------------------------------------------------------------------------------


class Damaged(ValueError):
    """It is no ONNX file, or only a part of one."""


@dataclass(frozen=True)
class Input:
    """One input of a graph: a dimension is a number, or the name of one that is chosen at run time."""

    name: str
    type: str
    shape: tuple[int | str, ...] | None  # None where the file does not even say how many dimensions there are


@dataclass
class Graph:
    """The inputs, nodes and weights of a graph."""

    inputs: list[Input] = field(default_factory=list)
    weights: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)  # type and shape of each
    nodes: list[tuple[str, list[str], list[str]]] = field(default_factory=list)  # operator, inputs and outputs of each
    files: set[str] = field(default_factory=set)  # files next to this one that hold weights

    @property
    def params(self) -> int:
        """Return how many numbers its weights have, without shapes and axes."""
        return sum(math.prod(shape) for kind, shape in self.weights.values() if _is_weight(kind, shape))

    @property
    def weights_in(self) -> tuple[str, ...]:
        return tuple(sorted({kind for kind, shape in self.weights.values() if _is_weight(kind, shape)}))

    def rows_behind(self, name: str) -> int | None:
        """Return the rows of the smallest table that an input indexes; None where no node shows one."""
        same = {name}
        origin: dict[str, str] = {}
        for operator, inputs, outputs in self.nodes:  # in the order in which they run
            if operator in PASSING_ON and inputs and outputs:
                origin[outputs[0]] = origin.get(inputs[0], inputs[0])
                same |= {outputs[0]} if inputs[0] in same else set()
        tables = [
            self.weights[table][1][0]
            for operator, inputs, _ in self.nodes
            if operator in GATHERS and len(inputs) > 1 and inputs[1] in same
            if (table := origin.get(inputs[0], inputs[0])) in self.weights and self.weights[table][1]
        ]
        return min(tables, default=None)


def _is_weight(kind: str, shape: tuple[int, ...]) -> bool:
    return (kind in FLOATS or kind in QUANTISED) and math.prod(shape) >= FEWEST_WEIGHTS


def read_graph(path: str) -> Graph:
    """Return the graph of a file; raise Damaged where there is none."""
    with open(path, "rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise Damaged("it is empty") from None
        with content:
            graphs = _decode(content, (0, len(content)), "Model", iter(range(MOST_FIELDS)))["graph"]
    graph = Graph()
    try:
        for part in graphs:
            graph.nodes += [(node["op_type"][0], node["input"], node["output"]) for node in part["node"]]
            for tensor in part["initializer"]:
                graph.weights[tensor["name"][0]] = (TYPES.get(tensor["data_type"][0], ""), tuple(tensor["dims"]))
                entries = tensor["external_data"]
                graph.files |= {entry["value"][0] for entry in entries if entry["key"][0] == "location"}
            graph.inputs += [_input(value) for value in part["input"]]
    except IndexError:
        raise Damaged("it is no ONNX file") from None
    if not graph.nodes:
        raise Damaged("it has no graph")
    graph.inputs = [
        entry for entry in graph.inputs if entry.name not in graph.weights
    ]  # old files name weights there too
    return graph


def _input(value: Message) -> Input:
    name = value["name"][0]
    tensors = [tensor for kind in value["type"] for tensor in kind["tensor_type"]]
    if not tensors:
        return Input(name, "", None)
    kind = TYPES.get(tensors[0]["elem_type"][0], "")
    if not tensors[0]["shape"]:
        return Input(name, kind, None)
    return Input(name, kind, tuple(map(_dimension, tensors[0]["shape"][0]["dim"])))


def _dimension(dimension: Message) -> int | str:
    """Return a size, or the name of one that is open; some exporters write 0 or -1 for that."""
    size = next(iter(dimension["dim_value"]), 0)
    return int(size) if 0 < size < 1 << 63 else "".join(dimension["dim_param"][:1])


# -- protocol buffers ------------------------------------------------------------------------------

Message = dict[str, list[Any]]  # the values of each field, by its name
Span = tuple[int, int]  # where a message begins and ends in the file

# The fields of onnx.proto that are read, by message and number: name and type; all others are skipped.
FIELDS = {
    "Model": {7: ("graph", "Graph")},
    "Graph": {1: ("node", "Node"), 5: ("initializer", "Tensor"), 11: ("input", "ValueInfo")},
    "Node": {1: ("input", "text"), 2: ("output", "text"), 4: ("op_type", "text")},
    "Tensor": {1: ("dims", "number"), 2: ("data_type", "number"), 8: ("name", "text"), 13: ("external_data", "Entry")},
    "Entry": {1: ("key", "text"), 2: ("value", "text")},
    "ValueInfo": {1: ("name", "text"), 2: ("type", "Type")},
    "Type": {1: ("tensor_type", "TensorType")},
    "TensorType": {1: ("elem_type", "number"), 2: ("shape", "Shape")},
    "Shape": {1: ("dim", "Dimension")},
    "Dimension": {1: ("dim_value", "number"), 2: ("dim_param", "text")},
}
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
FIXED = {FIXED64: 8, FIXED32: 4}  # B
LONGEST_VARINT = 10  # B
MOST_FIELDS = 500_000  # of a file that are looked at, with packed numbers; a graph has some eight for each node


def _decode(content: Any, span: Span, kind: str, left: Iterator[int]) -> Message:
    """Return a message; `left` counts the fields of the file that may still be looked at, in messages of any depth."""
    fields = FIELDS[kind]
    message: Message = {name: [] for name, _ in fields.values()}
    for number, value in _fields_in(content, span, left):
        if number not in fields:
            continue
        name, part = fields[number]
        if part == "number":
            message[name] += [value] if isinstance(value, int) else _packed(content, value, left)
        elif isinstance(value, int):
            raise Damaged("it is no ONNX file")
        elif part == "text":
            message[name].append(bytes(content[slice(*value)]).decode(errors="replace"))
        else:
            message[name].append(_decode(content, value, part, left))
    return message


def _fields_in(content: Any, span: Span, left: Iterator[int]) -> Iterator[tuple[int, int | Span]]:
    """Yield the number and value of each field: an integer, or where its bytes begin and end."""
    start, end = span
    while start < end:
        _count(left)
        key, start = _varint(content, start, end)
        number, kind = key >> 3, key & 7
        if not number or kind not in (VARINT, FIXED64, BYTES, FIXED32):
            raise Damaged("it is no ONNX file")
        if kind == VARINT:
            value, start = _varint(content, start, end)
            yield number, value
            continue
        size, start = _varint(content, start, end) if kind == BYTES else (FIXED[kind], start)
        if start + size > end:
            raise Damaged("it ends too early")
        yield number, (start, start + size)
        start += size


def _count(left: Iterator[int]) -> None:
    if next(left, None) is None:
        raise Damaged(f"it has over {MOST_FIELDS:,} fields")


def _varint(content: Any, start: int, end: int) -> tuple[int, int]:
    value = 0
    for place in range(start, min(end, start + LONGEST_VARINT)):
        value |= (content[place] & 0x7F) << 7 * (place - start)
        if content[place] < 0x80:
            return value, place + 1
    raise Damaged("it ends too early" if end < start + LONGEST_VARINT else "it is no ONNX file")


def _packed(content: Any, span: Span, left: Iterator[int]) -> Iterator[int]:
    start, end = span
    while start < end:
        _count(left)
        value, start = _varint(content, start, end)
        yield value
