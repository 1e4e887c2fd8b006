"""Sources: the files, modules and names of the user's models, and what a worker found in them.

A target such as `my_model.py`, `my_model.py:build` or `package.module:build` is a source. It becomes a workload when a
worker has described it: its code runs there, never in the parent. The workload is named after the file, with the first
digits of a hash of the code, so that two versions are two workloads. Only this process and its workers know the path.

Rule: standard library only, since a worker in any interpreter uses this.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import Literal

from mldyno.errors import UsageError
from mldyno.printable import LONGEST_NAME, name_from, printable

USUAL_FUNCTION = "build"
HASH_DIGITS = 8  # in a name
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
HUB = "hf:"
NOW = "now"  # the version in the working tree
VERSION = re.compile(rf"@[0-9a-f]{{{HASH_DIGITS}}}$")

Kind = Literal["file", "module", "hf", "onnx", "object"]


@dataclass(frozen=True)
class Source:
    """Where a model of the user's comes from; and, after a worker has described it, what it is."""

    kind: Kind
    place: str  # the path of a file, or the name of a module or a model
    function: str = ""  # returns the model and a batch; empty where there is no code
    folder: str = ""  # its code imports from here
    root: str = ""  # the git work tree of its code; empty where there is none, or before a worker has described it
    other: str = ""  # the tree of the version that it is compared with; nothing may be imported from there
    read: tuple[str, ...] = ()  # code that it runs by path, and settings that it reads, as paths in its tree
    version: str = ""  # the user's name of this version: `now`, or `HEAD~1`; empty where it is compared with no other
    weights: bool = False  # whether a Hugging Face model has its trained weights, or random ones
    download: bool = False  # whether missing files may be downloaded
    name: str = ""  # the name of the workload; empty before a worker has described it
    digest: str = ""  # SHA-256 of its code and of what that imports and reads from its tree, or of the file
    built: str = ""  # the same right after the model was built: a forward pass may import more
    framework: str = ""
    batch: int | None = None  # the default batch size; None where it takes none
    seq: int | None = None
    modes: tuple[str, ...] = ()
    item: str = "sample"
    items: int = 1  # of a step at the default sizes
    output: str = "tensor"  # what the model returns: a `tensor`, a `tree` of several, or its own `loss` among them
    loss: tuple[str | int, ...] = ()  # the path to the model's own loss among its outputs
    loss_inputs: tuple[str | int, ...] = ()  # inputs that only the loss needs: inference leaves them out
    untrained: str = ""  # why it can't be trained, and what to return instead; empty where it can
    decoded: int = 0  # tokens that a step in inference decodes after each prompt; 0 where it generates none
    dataset: bool = False  # whether its batches come from the user's own data set, which a loader can read

    @property
    def title(self) -> str:
        """Return the target as the user typed it, without its folder."""
        base = self.place if self.kind == "hf" and not os.path.isabs(self.place) else os.path.basename(self.place)
        base = HUB + base if self.kind == "hf" else base
        function = f":{self.function}" if self.kind == "module" or self.function not in ("", USUAL_FUNCTION) else ""
        return base + function

    @property
    def version_title(self) -> str:
        """Return the title with the version: gpt.py (HEAD~1), or gpt.py (now)."""
        return self.title if self.version in ("", self.title) else f"{self.title} ({self.version})"

    @property
    def is_there(self) -> bool:
        """Return whether its file or folder exists; a model's name is resolved later."""
        place = self.folder if self.kind == "module" else self.place
        return not os.path.isabs(place) or os.path.exists(place)

    @property
    def without_paths(self) -> Source:
        """Return the same source without its paths."""
        return replace(self, place="", folder="", root="", other="")

    def named(self, digest: str) -> str:
        """Return the name of the workload."""
        return name_of(f"{self.title}@{digest[:HASH_DIGITS]}")


def is_target(text: str) -> bool:
    """Return whether a word on the command line or in a suite is a source."""
    path = text.rpartition(":")[0] if ".py:" in text else text
    return path.endswith((".py", ".onnx")) or text.startswith(HUB) or MODULE.fullmatch(text) is not None


def runs_code(text: str) -> bool:
    """Return whether a target is code, which must be trusted before it runs."""
    return is_target(text) and not text.startswith(HUB) and not text.endswith(".onnx")


def family(name: str) -> str:
    """Return the name that all versions of a workload share."""
    return VERSION.sub("", name)


def read(text: str, weights: bool = False, download: bool = False) -> Source:
    """Return the source that a target names; raise where there is none."""
    if text.startswith(HUB):
        place = text.removeprefix(HUB)
        if not place:
            raise UsageError("name the model behind hf:, such as hf:bert-base-uncased, or its folder.")
        folder = os.path.expanduser(place)
        if os.path.isdir(folder):
            place = os.path.abspath(folder)
        elif place.startswith((".", "/", "~")) or place.count("/") > 1:
            raise UsageError(f"there is no folder '{place}' here; name one that exists, or a model: hf:gpt2.")
        return Source("hf", place, weights=weights, download=download)
    if weights or download:
        raise UsageError(f"--weights and --download are for models of Hugging Face, such as hf:gpt2; {text} is none.")
    if ".py:" not in text and MODULE.fullmatch(text):
        module, _, function = text.partition(":")
        return Source("module", module, function, os.getcwd())
    path, colon, function = text.rpartition(":") if ".py:" in text else (text, "", "")
    place = os.path.abspath(os.path.expanduser(path))
    if not os.path.isfile(place):
        raise UsageError(f"there is no file '{path}' here; name one that exists.")
    if colon and not function.isidentifier():
        raise UsageError(f"'{function}' can't be a function of {path}; write {path}:{USUAL_FUNCTION}.")
    if place.endswith(".onnx"):
        return Source("onnx", place)
    return Source("file", place, function or USUAL_FUNCTION, os.path.dirname(place))


# -- names, and what the user typed -----------------------------------------------------------------

_TYPED: dict[str, str] = {}  # commands by the names of their workloads


def name_of(typed: str) -> str:
    """Return the name of a workload: with colons for slashes, which separate the axes in an id."""
    return name_from(typed.replace("/", ":"))


def remember(name: str, command: str) -> None:
    """Remember the command behind a workload's name, if it matches."""
    if len(command) <= LONGEST_NAME and name_of(command) == name:
        _TYPED[name] = printable(command)


def as_typed(name: str) -> str:
    """Return a workload as the user typed it; a command that is not remembered by its name."""
    if name.startswith(HUB):
        return HUB + name.removeprefix(HUB).replace(":", "/")
    return _TYPED.get(name, name)


# -- the sources that this process knows -----------------------------------------------------------

_KNOWN: dict[str, Source] = {}  # by the workload's name, and by what the user typed for it


def register(source: Source, word: str = "") -> None:
    """Make a source known in this process by its workload's name, and by the user's word for it."""
    _KNOWN[source.name] = source
    if word:
        _KNOWN[word] = source


def known(word: str) -> Source | None:
    """Return the source of a workload, by its name or by the user's word for it."""
    return _KNOWN.get(word)


def of_workloads(names: set[str]) -> tuple[Source, ...]:
    """Return the sources of those workloads that are the user's."""
    return tuple(_KNOWN[name] for name in sorted(names) if name in _KNOWN)
