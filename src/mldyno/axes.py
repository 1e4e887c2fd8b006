"""The axes of a case: each is a field of `Case` with an entry that holds all about it.

Ids, options, plans, suites, filters, CSV, the command to measure it again, headlines and labels follow from the
entries; a test holds the table in docs/reference.md to them.

Rules: standard library only, since a worker in any interpreter uses this. An id has the work first, then the other
axes in the order of the fields. The default of a new axis is what all cases did before, and does not show in ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from mldyno.errors import UsageError, unknown

Mode = Literal["train", "infer"]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16", "fp64"]
Placement = Literal["device", "host", "roundtrip", "loader"]
Layout = Literal["contiguous", "channels-last"]
Allocator = Literal["system", "steady", "jemalloc", "tcmalloc"]
Scaling = Literal["weak", "strong"]
Parallel = Literal["ddp", "fsdp"]
Kind = Literal["work", "size", "way"]

PRECISIONS: tuple[str, ...] = get_args(Precision)
DEVICE_KINDS: tuple[str, ...] = ("cpu", "gpu", "mps", "cuda", "xpu")
FAKE = "fake"  # the framework that computes nothing
COMMAND, TRACKED = "command", "tracked"  # in place of a framework: a user's own command, a user's own loop
INTERPRETER_NAME = re.compile(r"3\.[0-9]+\.[0-9][0-9A-Za-z.+-]*")  # as `interpreters.name_of` returns it
LARGEST_WHOLE = 2**53  # whole numbers in a record stay exact in any JSON reader


@dataclass(frozen=True)
class Need:
    """A condition on another axis, without which an axis means nothing."""

    axis: str
    met: Callable[[Any], bool]
    refusal: str = ""  # why an axis is refused if no case meets the need, and what to do; if empty, it is ignored
    implied: Any = None  # the value of the other axis in a plan, if none is given and the workload has it


@dataclass(frozen=True)
class Axis:
    """One direction in which cases vary."""

    help: str
    kind: Kind = "way"  # what is computed (work), how much of it (size), or how it is computed (way)
    values: tuple[str, ...] = ()  # all values, if they are a closed list of words
    read: Callable[[Axis, str], Any] | None = None  # read a value that is not one of `values` from a text
    words: Mapping[str, str] = field(default_factory=dict)  # synonyms of values
    aliases: tuple[str, ...] = ()  # other names of the axis
    prefix: str = ""  # prefix of a value in an id; a flag is its prefix alone
    older_prefixes: tuple[str, ...] = ()  # prefixes in ids of earlier versions, which filters still accept
    in_every_id: bool = False  # whether ids contain the default too
    planned: tuple[Any, ...] = ()  # values in a plan if none are given; if empty, the default
    own_process: bool = False  # whether cases with different values need separate processes
    plugins: str = ""  # kind of plugin whose names are the values
    smallest: int = 1  # smallest size of a sweep
    least: int = 1  # smallest number allowed
    most: int | None = None  # largest number in a plan; records and filters may have more
    needs: tuple[Need, ...] = ()  # if one is not met, a plan leaves the axis at its default
    phrase: str | Mapping[str, str] = "{}"  # how titles put a value: a pattern, or a phrase for each value
    name: str = ""
    default: Any = None
    optional: bool = False  # whether a case may leave it None

    def parse(self, text: str) -> Any:
        """Return the value of what a user typed."""
        text = self.words.get(text.strip(), text.strip())
        if self.read is not None:
            return self.read(self, text)
        if self.values and text not in self.values:
            raise unknown(self.name, text, self.values)
        return text

    def show(self, value: Any) -> str:
        """Return a value as it is typed after the option: 16, fp32, yes."""
        return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)

    def short(self, value: Any) -> str:
        """Return a value as in an id or next to a bar: b16, fp32, compile."""
        if isinstance(value, bool):
            return self.prefix if value else f"no-{self.prefix}"
        return f"{self.prefix}{value}"

    def say(self, value: Any) -> str:
        """Return a value as in a title: batch 16, 128 tokens, inference."""
        shown = f"{value:,}" if type(value) is int else self.show(value)
        if not isinstance(self.phrase, str):
            return self.phrase.get(shown, shown)
        return self.phrase.format(shown).removesuffix("s" if shown == "1" else "")

    def bare(self, word: str, plugin_names: Collection[str] = ()) -> Any:
        """Return the value that a word of an id means on this axis, or None."""
        word = self.words.get(word, word)
        if word in (*self.values, *plugin_names) and not self.prefix:
            return word
        if self.read is interpreter and INTERPRETER_NAME.fullmatch(word):
            return word
        if self.read is device_name and word.partition(":")[0] in DEVICE_KINDS:
            return self.parse(word)
        if self.read is yes_or_no and word in (self.prefix, f"no-{self.prefix}"):
            return word == self.prefix
        for prefix in filter(None, (self.prefix, *self.older_prefixes)):
            rest = word.removeprefix(prefix)
            if rest != word and (rest in self.values or (self.number and rest.isascii() and rest.isdecimal())):
                return self.parse(rest)
        return None

    def applies(self, case: Case) -> bool:
        """Return whether the axis means anything for a case."""
        return all(need.met(getattr(case, need.axis)) for need in self.needs)

    @property
    def number(self) -> bool:
        return self.read is whole_number

    @property
    def options(self) -> tuple[str, ...]:
        """Return its options, its own name first."""
        return tuple(f"--{word}" for word in (self.name.replace("_", "-"), *self.aliases))


def whole_number(axis: Axis, text: str) -> int:
    """Read a whole number, no smaller than the axis allows."""
    if not (text.isascii() and text.isdecimal() and len(text) < 17 and axis.least <= int(text) < LARGEST_WHOLE):
        name, example = axis.name.replace("_", " "), 16 if axis.least else 2
        raise UsageError(f"invalid {name} '{text[:40]}'; write a whole number such as {example}.")
    return int(text)


def yes_or_no(axis: Axis, text: str) -> bool:
    """Read a flag."""
    words = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
    if text.lower() not in words:
        raise unknown(axis.name, text, words)
    return words[text.lower()]


def device_name(axis: Axis, text: str) -> str:
    """Return the canonical name of a device: cuda always has a number, other kinds only from the second device on."""
    kind, colon, number = text.partition(":")
    numbered = number.isascii() and number.isdecimal() and len(number) < 5
    if kind not in DEVICE_KINDS or (colon and not numbered):
        raise unknown(axis.name, text, (*DEVICE_KINDS, "cuda:0", "all"))
    index = int(number or 0)
    return f"{kind}:{index}" if index or kind == "cuda" else kind


def interpreter(axis: Axis, text: str) -> str:
    """Read the name of an interpreter; paths are resolved only where a user gives them, by `interpreters.name_of`."""
    if not INTERPRETER_NAME.fullmatch(text):
        raise UsageError(f"'{text[:40]}' is not the name of an interpreter; write it as a case does: 3.11.7+jax0.10.2.")
    return text


def _axis(help: str, **entry: Any) -> dict[str, Axis]:  # as the options call it
    return {"axis": Axis(help, **entry)}


LOADER = Need(
    "placement", "loader".__eq__, "is about batches from a data set on disk; write --placement loader.", "loader"
)
LOADER_WORKERS = Need(
    "loader_workers", bool, "counts what each loader worker holds ready; give --loader-workers 1 or more too."
)


@dataclass(frozen=True)
class Case:
    """One point to measure; None means unstated (published rows) or the framework's own default."""

    workload: str = field(metadata=_axis("what is computed", kind="work", plugins="workloads", in_every_id=True))
    version: int = 1
    framework: str = field(default="torch", metadata=_axis(
        "torch, tensorflow, jax, mlx, onnxruntime, openvino; fake", plugins="frameworks", own_process=True,
        in_every_id=True))  # fmt: skip
    device: str = field(default="cpu", metadata=_axis(
        "cpu, mps, cuda:0, xpu, gpu (the accelerator), all", read=device_name, in_every_id=True))  # fmt: skip
    mode: Mode | None = field(default="train", metadata=_axis(
        "train, infer", kind="work", values=get_args(Mode), words={"training": "train", "inference": "infer"},
        planned=get_args(Mode), in_every_id=True, phrase={"train": "training", "infer": "inference"}))  # fmt: skip
    precision: Precision | None = field(default="fp32", metadata=_axis(
        ", ".join(PRECISIONS), values=PRECISIONS, in_every_id=True))  # fmt: skip
    batch: int | None = field(default=None, metadata=_axis(
        "items per step", kind="size", read=whole_number, prefix="b", phrase="batch {}",
        aliases=("batch-size", "batch_size")))  # fmt: skip
    seq: int | None = field(default=None, metadata=_axis(
        "tokens per item", kind="size", read=whole_number, prefix="s", aliases=("seq-len", "sequence_length"),
        smallest=8, phrase="{} tokens"))  # fmt: skip
    placement: Placement | None = field(default="device", metadata=_axis(
        "device, host (copied in each step), roundtrip (and back), loader", values=get_args(Placement),
        in_every_id=True,
        phrase={"host": "copied in", "roundtrip": "copied in and back", "loader": "from a data set"}))  # fmt: skip
    ranks: int | None = field(default=1, metadata=_axis(
        "processes that train together", read=whole_number, most=4096, prefix="r", older_prefixes=("w",),
        aliases=("workers",), own_process=True, phrase="{} ranks"))  # fmt: skip
    compile: bool = field(default=False, metadata=_axis(
        "yes, no: compile the model first", read=yes_or_no, prefix="compile",
        phrase={"yes": "compiled", "no": "not compiled"}))  # fmt: skip
    threads: int | None = field(default=None, metadata=_axis(
        "CPU threads of the framework", read=whole_number, most=4096, prefix="t", own_process=True,
        phrase="{} CPU threads"))  # fmt: skip
    layout: Layout = field(default="contiguous", metadata=_axis(
        "contiguous, channels-last: memory format of images", values=get_args(Layout)))  # fmt: skip
    allocator: Allocator = field(default="system", metadata=_axis(
        "system, steady (glibc's, set to keep freed memory), jemalloc, tcmalloc", values=get_args(Allocator),
        own_process=True, phrase="{} allocator"))  # fmt: skip
    scaling: Scaling = field(default="weak", metadata=_axis(
        "weak, strong: a batch for each rank, or one that they share", values=get_args(Scaling), own_process=True,
        needs=(Need("ranks", lambda ranks: (ranks or 1) > 1),),  # one has the batch to itself
        phrase={"weak": "a batch for each rank", "strong": "one batch for all ranks"}))  # fmt: skip
    parallel: Parallel | None = field(default=None, metadata=_axis(
        "ddp, fsdp: how ranks train together (ddp)", values=get_args(Parallel), own_process=True))  # fmt: skip
    nodes: int = field(default=1, metadata=_axis(
        "machines that share the ranks", read=whole_number, most=1024, prefix="n", own_process=True,
        phrase="{} nodes"))  # fmt: skip
    python: str | None = field(default=None, metadata=_axis(
        "paths of other interpreters, whose frameworks are measured", read=interpreter, own_process=True,
        phrase="Python {}"))  # fmt: skip
    loader_workers: int = field(default=0, metadata=_axis(
        "processes that load batches ahead (PyTorch's num_workers); implies placement loader",
        read=whole_number, most=1024, least=0, prefix="lw", aliases=("num-workers", "num_workers"), own_process=True,
        needs=(LOADER,), phrase="{} loader workers"))  # fmt: skip
    prefetch: int | None = field(default=None, metadata=_axis(
        "batches that each loader worker holds ready (2)", read=whole_number, most=1024, prefix="prefetch",
        aliases=("prefetch-factor", "prefetch_factor"), own_process=True, needs=(LOADER, LOADER_WORKERS),
        phrase="prefetch {}"))  # fmt: skip
    pin_memory: bool = field(default=False, metadata=_axis(
        "yes, no: the loader's batches are in page-locked memory, for copies to an accelerator", read=yes_or_no,
        prefix="pinned", needs=(LOADER,), phrase={"yes": "pinned memory", "no": "pageable memory"}))  # fmt: skip

    @property
    def loads_ahead(self) -> bool:
        """Return whether loader workers run ahead of the steps, also while the case waits."""
        return self.loader_workers > 0 and self.framework != "command"

    @property
    def sets_loader(self) -> bool:
        """Return whether it sets an axis that needs placement loader."""
        return any(LOADER in axis.needs and getattr(self, axis.name) != axis.default for axis in AXES)

    @property
    def simulated(self) -> bool:
        """Return whether it is simulated: the fake framework computes nothing, and its times are not real."""
        return self.framework == FAKE

    @property
    def in_ranks(self) -> bool:
        """Return whether it runs in ranks, even if only one."""
        return (self.ranks or 1) > 1 or self.nodes > 1 or self.parallel is not None

    @property
    def own_command(self) -> bool:
        """Return whether it is a user's command, with its words as the workload; published figures have a mode."""
        return self.framework == COMMAND and self.mode is None

    @property
    def tracked(self) -> bool:
        return self.framework == TRACKED

    @property
    def own_work(self) -> bool:
        """Return whether its workload is a user's command or loop."""
        return self.own_command or self.tracked

    @property
    def id(self) -> str:
        """Return the readable id, such as bert-base/train/torch/mps/fp32/b16/s128/host."""
        values = ((axis, getattr(self, axis.name)) for axis in _IN_ID)
        parts = [axis.short(value) for axis, value in values
                 if value is not None and (value != axis.default or axis.in_every_id)]  # fmt: skip
        if self.version != 1:
            parts[0] += f"@{self.version}"
        return "/".join(parts)


AXES: tuple[Axis, ...] = tuple(
    replace(entry.metadata["axis"], name=entry.name, default=entry.default, optional="None" in str(entry.type),
            planned=entry.metadata["axis"].planned or (entry.default,))
    for entry in fields(Case) if "axis" in entry.metadata
)  # fmt: skip
_IN_ID = sorted(AXES, key=lambda axis: axis.kind != "work")
AXIS: dict[str, Axis] = {
    name: axis for axis in AXES for name in (axis.name, axis.name.replace("_", "-"), *axis.aliases)
}
NAMES = tuple(axis.name for axis in AXES)
SIZES = tuple(axis.name for axis in AXES if axis.kind == "size")
WORK = tuple(axis.name for axis in AXES if axis.kind != "way")  # what is computed, and how much of it
WAYS = tuple(axis.name for axis in AXES if axis.kind == "way")


def axis_named(word: str, columns: tuple[str, ...] = ()) -> str:
    """Return the name of an axis that a user typed, or one of `columns`."""
    if word in columns:
        return word
    if word not in AXIS:
        raise unknown("axis", word, (*columns, *NAMES))
    return AXIS[word].name


def unstated(workload: str, framework: str) -> Case:
    """Return a case with every other axis None, such as a command."""
    nothing: dict[str, Any] = {axis.name: None for axis in AXES if axis.optional}
    return Case(workload, framework=framework, **nothing)
