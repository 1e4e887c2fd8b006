"""Commands to a worker and its answers: one type for each, shared by both sides.

On the wire a message is one line of JSON: `do` or `is` and the type's name (`open_case`), `number`, and the type's
fields. An answer has the number of its command. Decoding any line gives a message whose every field has its type and is
finite, or raises Malformed; an answer's texts are printable. Standard library only.
"""

from __future__ import annotations

import functools
import json
import math
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Generic, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from mldyno.axes import LARGEST_WHOLE, Case
from mldyno.printable import printable_content
from mldyno.records import Checks, Device, Fact, Series, Software
from mldyno.sources import Source

FailedStatus = Literal["oom", "timeout", "failed", "unsupported", "wrong", "unsteady"]
FeatureResult = Literal["works", "fallback", "wrong", "unsupported", "failed"]
SHOWN = 60  # characters of a value that an error quotes


class Malformed(Exception):
    """A line that is no message, and why."""


# -- answers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """An answer of a worker."""


@dataclass(frozen=True)
class Progress(Answer):
    """The present time of a step in s; more will follow."""

    step: float


@dataclass(frozen=True)
class TaskRow(Answer):
    """A row of a task's results; more will follow."""

    row: dict[str, Any]


@dataclass(frozen=True)
class Failed(Answer):
    """The command failed: a status and a reason for the record."""

    status: FailedStatus
    reason: str
    fit: bool = True  # whether the process may be asked for more


@dataclass(frozen=True)
class FrameworkFacts:
    """A framework in its process; if it can't be started, an error and nothing else."""

    error: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    threads: int | None = None
    devices: tuple[Device, ...] = ()
    support: dict[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True)
class FrameworksProbed(Answer):
    """The interpreter's version, and each framework by its name."""

    python: str
    frameworks: dict[str, FrameworkFacts]


@dataclass(frozen=True)
class FeatureTried(Answer):
    """The outcome of a feature, the error of its numbers, and whether the process is fit for more."""

    result: FeatureResult
    reason: str
    error: float | None
    tolerance: float | None
    fit: bool


@dataclass(frozen=True)
class CaseForecasted(Answer):
    """Memory in B that a case needs, the device's matmul rate in 1/s, its memory in B; None if unknown."""

    memory: int | None
    rate: float | None
    device_memory: int | None


@dataclass(frozen=True)
class StepsTried(Answer):
    """The steps fit: the peak in B."""

    peak: int | None


@dataclass(frozen=True)
class CaseOpened(Answer):
    """A case is built and warm: the series of its first step and its warm-up, and why it is not steady, if so."""

    facts: dict[str, Fact]
    software: Software
    devices: tuple[Device, ...]
    series: tuple[Series, ...]
    unsteady: str


@dataclass(frozen=True)
class Measured(Answer):
    """Series and facts of a turn, of phases or of energy; of rounds, a series for each case, one value a round."""

    series: tuple[Series, ...]
    facts: dict[str, Fact]


@dataclass(frozen=True)
class CaseClosed(Answer):
    """The work was done: the results of checks and meters."""

    series: tuple[Series, ...]
    checks: Checks
    facts: dict[str, Fact]


@dataclass(frozen=True)
class SourceDescribed(Answer):
    """A user's workload, described."""

    source: Source


@dataclass(frozen=True)
class TaskDone(Answer):
    """A task has ended, and whether the process is fit for more."""

    fit: bool = True


# -- commands --------------------------------------------------------------------------------------


A = TypeVar("A", bound=Answer)


@dataclass(frozen=True)
class Command(Generic[A]):
    """A command to a worker, with the type of its answer; any command can be answered by `Failed`."""


@dataclass(frozen=True)
class ProbeFrameworks(Command[FrameworksProbed]):
    """Report versions, threads, devices and support of each."""

    frameworks: tuple[str, ...]


@dataclass(frozen=True)
class TryFeature(Command[FeatureTried]):
    """Compute with a feature on a device."""

    framework: str
    device: str
    feature: str


@dataclass(frozen=True)
class ForecastCase(Command[CaseForecasted]):
    """Estimate what a case needs."""

    case: Case
    source: Source | None = None  # of the workload, if it is a model of the user's


@dataclass(frozen=True)
class TrySteps(Command[StepsTried]):
    """Run that many steps of a case, on the CPU within `limit` B."""

    case: Case
    steps: int
    limit: int | None
    source: Source | None = None


@dataclass(frozen=True)
class DataSource:
    """Where the data set of a case is."""

    name: str
    source: str
    folder: str


@dataclass(frozen=True)
class OpenCase(Command[CaseOpened]):
    """Build a case, take its first step, let it work for `load` s, warm it up for at most `warmup` s.

    Later commands name it by its key.
    """

    key: int
    case: Case
    warmup: float
    data: DataSource | None = None
    command: tuple[str, ...] = ()
    load: float = 0.0
    source: Source | None = None


@dataclass(frozen=True)
class MeasureTurn(Command[Measured]):
    """Measure a case for that many s, or that many steps."""

    key: int
    seconds: float
    steps: int | None = None


@dataclass(frozen=True)
class TimePhases(Command[Measured]):
    """Time the phases of a case's step, each by itself."""

    key: int
    seconds: float


@dataclass(frozen=True)
class MeasureEnergy(Command[Measured]):
    """Measure a case's energy for that many s, or until it is known to the target; and idle power before and after."""

    key: int
    seconds: float
    target: float = 0.0
    rest: float = 0.0


@dataclass(frozen=True)
class MeasureRounds(Command[Measured]):
    """Measure rounds of a block of each case for that many s, at least `fewest` rounds."""

    keys: tuple[int, ...]
    seconds: float
    fewest: int
    seed: float


@dataclass(frozen=True)
class CloseCase(Command[CaseClosed]):
    """Check the work of a case, and read its meters; `prove`: show by numbers what it computes.

    `unchecked` are checks that the user turned off.
    """

    key: int
    prove: bool = False
    unchecked: tuple[str, ...] = ()


@dataclass(frozen=True)
class DescribeSource(Command[SourceDescribed]):
    """Load the user's code or file, and describe it."""

    source: Source


@dataclass(frozen=True)
class RunTask(Command[TaskDone]):
    """Run a task of a module that has a table of them, `TASKS`."""

    module: str
    task: str
    framework: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainEndToEnd(Command[Answer]):
    """Train a case for that many epochs, from its data set, in a separate process, which answers by its exit code."""

    case: Case
    epochs: int
    data: DataSource


# -- lines -----------------------------------------------------------------------------------------


def wire_name(kind: type) -> str:
    """Return what a type is called in a line: `open_case` for OpenCase."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


COMMANDS: Mapping[str, type[Command[Any]]] = {wire_name(kind): kind for kind in Command.__subclasses__()}
ANSWERS: Mapping[str, type[Answer]] = {wire_name(kind): kind for kind in Answer.__subclasses__()}


def encode(message: Command[Any] | Answer, number: int) -> bytes:
    """Return the message as a line; samples are not copied."""
    word = "do" if isinstance(message, Command) else "is"
    content = {word: wire_name(type(message)), "number": number, **vars(message)}
    return json.dumps(content, default=vars).encode() + b"\n"


def answer_to(command: Command[A]) -> type[A]:
    """Return the type of the answer that ends a command."""
    (base,) = vars(type(command))["__orig_bases__"]
    return cast(type[A], get_args(base)[0])


def decode_command(line: bytes | str) -> tuple[Command[Any], int]:
    """Return the command that a line holds, and its number."""
    return decode(line, "do", COMMANDS)


def decode(line: bytes | str, word: str = "is", kinds: Mapping[str, type[Any]] = ANSWERS) -> tuple[Any, int]:
    """Return the answer that a line holds, and the number of its command; or another kind of message."""
    try:
        content = json.loads(line)
        if kinds is ANSWERS:  # while a command goes to the worker as the user typed it
            content = printable_content(content)
        if not isinstance(content, dict) or not isinstance(content.get(word), str):
            raise Malformed(f"no '{word}' in {line[:SHOWN]!r}")
        kind = kinds.get(content.pop(word))
        if kind is None:
            raise Malformed(f"its kind is not known: {line[:SHOWN]!r}")
        number = _checked(int, content.pop("number", 0), "number")
        return read_part(kind, content, wire_name(kind)), number
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{type(error).__name__} in {line[:SHOWN]!r}") from None


def read_part(kind: type, content: Any, place: str) -> Any:
    """Return a message, or a part of one, from JSON's own values; ignore keys that a later version may have added."""
    if not isinstance(content, dict):
        raise _wrong(content, place, kind.__name__)
    hints, values = _hints(kind), {}
    for part in fields(kind):
        if part.name in content:
            values[part.name] = _checked(hints[part.name], content[part.name], f"{place}.{part.name}")
        elif part.default is MISSING and part.default_factory is MISSING:
            raise Malformed(f"{place} lacks '{part.name}'")
    return kind(**values)


_hints = functools.cache(get_type_hints)


def _checked(hint: Any, value: Any, place: str) -> Any:
    """Return the value, if it has the type; raise Malformed."""
    origin = get_origin(hint)
    if origin in _READERS:
        return _READERS[origin](get_args(hint), value, place)
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        return read_part(hint, value, place)
    if not (hint is Any or type(value) is hint or (hint is float and type(value) is int)):
        raise _wrong(value, place, _named(hint))
    return _plain(value, place)


def _union(hints: tuple[Any, ...], value: Any, place: str) -> Any:
    for hint in hints:
        try:
            return _checked(hint, value, place)
        except Malformed:
            continue
    _plain(value, place)  # a number that is not finite is reported as such
    raise _wrong(value, place, " or ".join(map(_named, hints)))


def _literal(words: tuple[Any, ...], value: Any, place: str) -> Any:
    if value not in words:
        raise _wrong(value, place, f"one of {', '.join(map(str, words))}")
    return value


def _tuple(hints: tuple[Any, ...], value: Any, place: str) -> Any:
    if not isinstance(value, list):
        raise _wrong(value, place, "a list")
    if hints[0] is float and {float, int}.issuperset(map(type, value)) and _all_finite(value):
        return tuple(value)  # samples: many, and all alike
    return tuple(_checked(hints[0], part, f"{place}[{index}]") for index, part in enumerate(value))


def _dict(hints: tuple[Any, ...], value: Any, place: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(value, place, "an object")
    return {key: _checked(hints[1], part, f"{place}.{key}") for key, part in value.items()}


_READERS: Mapping[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    Union: _union, types.UnionType: _union, Literal: _literal, tuple: _tuple, dict: _dict,
}  # fmt: skip


def _named(hint: Any) -> str:
    return "null" if hint is type(None) else str(getattr(hint, "__name__", hint))


def _all_finite(values: list[float]) -> bool:
    try:
        return all(map(math.isfinite, values))
    except OverflowError:  # a whole number that no float can hold
        return False


def _plain(value: Any, place: str) -> Any:
    """Return JSON's own values, if all of their numbers are finite and exact in any reader."""
    if isinstance(value, float) and not math.isfinite(value):
        raise Malformed(f"{place} is not finite: {value}")
    if type(value) is int and abs(value) > LARGEST_WHOLE:
        raise _wrong(value, place, "a whole number up to 2**53")
    if isinstance(value, dict):
        return {key: _plain(part, f"{place}.{key}") for key, part in value.items()}
    return [_plain(part, place) for part in value] if isinstance(value, list) else value


def _wrong(value: Any, place: str, wanted: str) -> Malformed:
    try:
        shown = json.dumps(value)[:SHOWN]
    except (ValueError, RecursionError):  # a whole number of too many digits
        shown = type(value).__name__
    return Malformed(f"{place} must be {wanted}, not {shown}")
