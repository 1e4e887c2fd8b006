"""Workloads of the user's own: where the code or the file of each lies, and what a worker found in it.

A target such as `my_model.py`, `my_model.py:build` or `package.module:build` is a source. It becomes a workload when a
worker has looked at it: its code runs there, never in the parent. The workload is named after the file, with the first
digits of a hash over the code, so that two versions of it are two workloads. Where the file lies, only this process and
its workers know.

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
DIGITS = 8  # of the hash, in a name
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
HUB = "hf:"
NOW = "now"  # what the version is called that lies in the working tree
VERSION = re.compile(rf"@[0-9a-f]{{{DIGITS}}}$")

Kind = Literal["file", "module", "hf", "onnx", "object"]


@dataclass(frozen=True)
class Source:
    """Where a workload of the user's own comes from; and, after a worker has looked at it, what it is."""

    kind: Kind
    place: str
    """The path of a file, the name of a module, or a model's."""
    function: str = ""
    """That gives the model and a batch; empty where there is no code."""
    folder: str = ""
    """From which its code imports."""
    root: str = ""
    """The work tree of git that its code lies in; empty where there is none, or before a worker has looked at it."""
    other: str = ""
    """The tree of the version that it is measured beside, from which nothing may be imported."""
    version: str = ""
    """What the user calls this version: `now`, or `HEAD~1`; empty where no other is beside it."""
    weights: bool = False
    """Whether a model of Hugging Face has its trained weights, or random ones."""
    download: bool = False
    """Whether what is missing of it may be fetched."""
    name: str = ""
    """Of the workload; empty before a worker has looked at it."""
    digest: str = ""
    """SHA-256 of its code and what that imports from its tree, or of the file."""
    built: str = ""
    """The same when the model is just built: a forward pass may have imported more."""
    framework: str = ""
    batch: int | None = None
    """That it has if nothing is said; None where it takes no batch size."""
    seq: int | None = None
    modes: tuple[str, ...] = ()
    item: str = "sample"
    items: int = 1
    """Of a step at the sizes that it has if nothing is said."""
    output: str = "tensor"
    """What the model gives: `tensor`, `tree` (of several), or `loss` among what it gives."""
    loss: tuple[str | int, ...] = ()
    """Where among what the model gives its loss is, if `output` is that."""
    loss_inputs: tuple[str | int, ...] = ()
    """Inputs that only the loss needs, by name or place: in inference they are left out."""
    untrained: str = ""
    """Why it can't be trained, and what to return instead; empty where it can."""
    decoded: int = 0
    """Tokens that a step in inference decodes after each text; 0 where it generates none."""
    dataset: bool = False
    """Whether its batches come from a data set of the user's own, from which a loader can read."""

    @property
    def title(self) -> str:
        """As the user wrote it, without its folder."""
        base = self.place if self.kind == "hf" and not os.path.isabs(self.place) else os.path.basename(self.place)
        base = HUB + base if self.kind == "hf" else base
        function = f":{self.function}" if self.kind == "module" or self.function not in ("", USUAL_FUNCTION) else ""
        return base + function

    @property
    def version_title(self) -> str:
        """The same, with the version: gpt.py (HEAD~1), or gpt.py (now)."""
        return self.title if self.version in ("", self.title) else f"{self.title} ({self.version})"

    @property
    def is_there(self) -> bool:
        """Return whether its file or folder exists; a model by its name is looked for later."""
        place = self.folder if self.kind == "module" else self.place
        return not os.path.isabs(place) or os.path.exists(place)

    @property
    def anywhere(self) -> Source:
        """The same, wherever it lies."""
        return replace(self, place="", folder="", root="", other="")

    def named(self, digest: str) -> str:
        """The name of the workload."""
        return name_of(f"{self.title}@{digest[:DIGITS]}")


def is_target(text: str) -> bool:
    """Whether a word on the command line or in a suite means a source."""
    path = text.rpartition(":")[0] if ".py:" in text else text
    return path.endswith((".py", ".onnx")) or text.startswith(HUB) or MODULE.fullmatch(text) is not None


def runs_code(text: str) -> bool:
    """Whether a target is code, which must be trusted before it is run."""
    return is_target(text) and not text.startswith(HUB) and not text.endswith(".onnx")


def family(name: str) -> str:
    """What all versions of a workload are called."""
    return VERSION.sub("", name)


def read(text: str, weights: bool = False, download: bool = False) -> Source:
    """The source that a target means; raises where there is none."""
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
        raise UsageError(f"there is no file '{path}' here; name one that exists, such as my_model.py.")
    if colon and not function.isidentifier():
        raise UsageError(f"'{function}' can't be a function of {path}; write {path}:{USUAL_FUNCTION}.")
    if place.endswith(".onnx"):
        return Source("onnx", place)
    return Source("file", place, function or USUAL_FUNCTION, os.path.dirname(place))


# -- names, and what was typed for them ------------------------------------------------------------

_TYPED: dict[str, str] = {}  # commands by the names of their workloads


def name_of(typed: str) -> str:
    """Return the name of a workload: with colons for slashes, which stand between the axes of an id."""
    return name_from(typed.replace("/", ":"))


def remember(name: str, command: str) -> None:
    """Note the command that a workload is, if that is its name."""
    if len(command) <= LONGEST_NAME and name_of(command) == name:
        _TYPED[name] = printable(command)


def as_typed(name: str) -> str:
    """Return a workload as the user typed it; a command whose slashes are not known by its name."""
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
