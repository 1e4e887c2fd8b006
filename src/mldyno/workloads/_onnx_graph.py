"""What an ONNX file says of itself: inputs, nodes, and the shapes of its weights, read without the weights.

The file is a message of protocol buffers (onnx.proto): fields, each with a number and a wire type. Those that matter
here are few, and what lies between them is skipped, so that a large file costs no memory.

Rule: standard library only, since a worker in any interpreter uses this.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
FIXED = {FIXED64: 8, FIXED32: 4}  # B
LONGEST_VARINT = 10  # B
MOST_FIELDS = 1_000_000  # of one message; a graph has as many nodes and weights as a model has layers, times ten
TYPES = {1: "fp32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "text", 9: "bool",
         10: "fp16", 11: "fp64", 12: "uint32", 13: "uint64", 16: "bf16", 21: "uint4", 22: "int4"}  # fmt: skip
FLOATS = ("fp32", "fp16", "fp64", "bf16")
SMALL_WHOLE = ("uint8", "int8", "uint4", "int4")  # of weights that were quantised
PASSING_ON = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "DequantizeLinear")
"""Nodes whose output has the values of their first input."""
GATHERS = ("Gather", "GatherBlockQuantized")
FEWEST_WEIGHTS = 2  # of a tensor that counts as some: scalars are constants


Span = tuple[int, int]
"""Where a message begins and ends in the file."""


class Damaged(ValueError):
    """It is no ONNX file, or not all of one."""


@dataclass(frozen=True)
class Input:
    """One input of a graph: a dimension is a number, or the name of one that is chosen when it runs."""

    name: str
    type: str
    shape: tuple[int | str, ...] | None
    """None where the file does not say even how many dimensions it has."""


@dataclass
class Graph:
    """What matters of a graph."""

    inputs: list[Input] = field(default_factory=list)
    weights: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """Type and shape of each."""
    nodes: list[tuple[str, list[str], list[str]]] = field(default_factory=list)
    """Operator, inputs and outputs of each."""
    files: set[str] = field(default_factory=set)
    """Beside the file, in which weights lie."""

    @property
    def params(self) -> int:
        """Numbers in its weights; those of shapes and axes do not count."""
        return sum(math.prod(shape) for kind, shape in self.weights.values() if _is_weight(kind, shape))

    @property
    def weights_in(self) -> tuple[str, ...]:
        """The types of its weights."""
        return tuple(sorted({kind for kind, shape in self.weights.values() if _is_weight(kind, shape)}))

    def rows_behind(self, name: str) -> int | None:
        """The rows of the smallest table from which an input takes some; None where no node shows one."""
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
    return (kind in FLOATS or kind in SMALL_WHOLE) and math.prod(shape) >= FEWEST_WEIGHTS


def read(path: str) -> Graph:
    """The graph of a file; raises Damaged where there is none."""
    with open(path, "rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise Damaged("it is empty") from None
        graph = Graph()
        with content:
            try:
                for part in _parts(content, (0, len(content)), 7):  # ModelProto.graph
                    _read_graph(content, part, graph)
            except (TypeError, LookupError):  # a number where bytes should be, or the other way round
                raise Damaged("it is no ONNX file") from None
    if not graph.nodes:
        raise Damaged("it has no graph")
    graph.inputs = [each for each in graph.inputs if each.name not in graph.weights]  # old files name weights there too
    return graph


def _read_graph(content: Any, part: Span, graph: Graph) -> None:
    """GraphProto: node 1, initializer 5, input 11; NodeProto: input 1, output 2, op_type 4."""
    for number, value in _fields(content, part):
        if number == 1:
            node = _gathered(content, value)
            inputs, outputs = ([_text(content, name) for name in node.get(side, ())] for side in (1, 2))
            graph.nodes.append((_text(content, node[4][0]), inputs, outputs))
        elif number == 5:
            _read_weight(content, value, graph)
        elif number == 11:
            graph.inputs.append(_input(content, value))


def _read_weight(content: Any, part: Span, graph: Graph) -> None:
    """TensorProto: dims 1, data_type 2, name 8, external_data 13."""
    tensor = _gathered(content, part)
    shape: list[int] = []
    for value in tensor.get(1, ()):
        shape += [value] if isinstance(value, int) else _packed(content, value)
    graph.weights[_text(content, tensor[8][0])] = (TYPES.get(tensor[2][0], ""), tuple(shape))
    for entry in tensor.get(13, ()):
        pair = _gathered(content, entry)
        if _text(content, pair[1][0]) == "location":
            graph.files.add(_text(content, pair[2][0]))


def _input(content: Any, part: Span) -> Input:
    """ValueInfoProto: name 1, type 2; TypeProto: tensor_type 1; its elem_type 1 and shape 2, of dim 1."""
    info = _gathered(content, part)
    name = _text(content, info[1][0])
    tensors = [tensor for kind in info.get(2, ()) for tensor in _parts(content, kind, 1)]
    if not tensors:
        return Input(name, "", None)
    tensor = _gathered(content, tensors[0])
    kind = TYPES.get(tensor[1][0], "")
    if 2 not in tensor:
        return Input(name, kind, None)
    return Input(name, kind, tuple(_dimension(content, dim) for dim in _parts(content, tensor[2][0], 1)))


def _dimension(content: Any, part: Span) -> int | str:
    """Dimension: dim_value 1, dim_param 2; some exporters write 0 or -1 for one that is chosen later."""
    dimension = _gathered(content, part)
    if 1 in dimension and 0 < dimension[1][0] < 1 << 63:
        return int(dimension[1][0])
    return _text(content, dimension[2][0]) if 2 in dimension else ""


# -- the wire --------------------------------------------------------------------------------------


def _fields(content: Any, part: Span) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: a whole number, or where its bytes begin and end."""
    start, end = part
    for _ in range(MOST_FIELDS):
        if start >= end:
            return
        key, start = _varint(content, start, end)
        number, kind = key >> 3, key & 7
        if not number:
            raise Damaged("it is no ONNX file")
        if kind == VARINT:
            value, start = _varint(content, start, end)
            yield number, value
            continue
        if kind not in (FIXED64, BYTES, FIXED32):
            raise Damaged("it is no ONNX file")
        size, start = _varint(content, start, end) if kind == BYTES else (FIXED[kind], start)
        if start + size > end:
            raise Damaged("it ends too early")
        yield number, (start, start + size)
        start += size
    raise Damaged(f"a part of it has over {MOST_FIELDS:,} fields")


def _varint(content: Any, start: int, end: int) -> tuple[int, int]:
    value = 0
    for place in range(start, min(end, start + LONGEST_VARINT)):
        value |= (content[place] & 0x7F) << 7 * (place - start)
        if content[place] < 0x80:
            return value, place + 1
    raise Damaged("it ends too early" if end < start + LONGEST_VARINT else "it is no ONNX file")


def _parts(content: Any, part: Span, wanted: int) -> Iterator[Span]:
    """Where the messages of one field begin and end."""
    for number, value in _fields(content, part):
        if number == wanted:
            start, end = value
            yield start, end


def _gathered(content: Any, part: Span) -> Mapping[int, list[Any]]:
    """All values of each field."""
    values: dict[int, list[Any]] = {}
    for number, value in _fields(content, part):
        values.setdefault(number, []).append(value)
    return values


def _packed(content: Any, part: Span) -> Iterator[int]:
    start, end = part
    while start < end:
        value, start = _varint(content, start, end)
        yield value


def _text(content: Any, part: Span) -> str:
    start, end = part
    return bytes(content[start:end]).decode(errors="replace")
