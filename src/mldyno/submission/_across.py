"""What speaks against records beside others: one key on two machines, one measurement under two names."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence

from mldyno.analysis import grouped
from mldyno.records import Machine, Record
from mldyno.stats.intervals import median
from mldyno.store import figures

CHIP = re.compile(
    r"\bM[1-9](?: ?(?:Pro|Max|Ultra))?\b|\b(?:RTX|GTX) ?(?:PRO )?(?:A?\d{3,4})(?: ?Ti| ?SUPER)*\b|\bMI\d{2,3}X?\b"
    r"|\b(?:T4|L4|L40S?|A10G?|A[34]0|[APV]100|H[12]00|G?B[123]00|A6000)\b|\bi[3579]\b|\bXeon\b|\bEPYC\b|\bRyzen\b|\bThreadripper\b|\bJetson\b",
    re.IGNORECASE,
)  # in the name of a machine: what it claims to be
SEVERAL = re.compile(r"\b\d+x(?=[A-Z])", re.IGNORECASE)  # before a chip: 8xH100
OWN_FORM = re.compile(r".*, (?P<cores>\d+) cores?, (?P<memory>\d+) GB")  # of a name that mldyno gives
MEMORY_VARIES = 0.05  # as a kernel or a driver takes more or less for itself
FEWEST = 4  # samples that can be known again
WINDOW = 12  # of them at one end
ALIKE = 2e-5  # by which a ratio of two samples may be off: they have six digits
BUCKET = 1e-4  # wide, in logarithms


def faults(records: Sequence[Record]) -> list[list[str]]:
    """What speaks against each of these records."""
    lines: list[list[str]] = [[] for _ in records]
    places = {id(record): place for place, record in enumerate(records)}
    for group in grouped(records, lambda record: record.machine.key or record.machine.name).values():
        for record, line in _hardware(group):
            lines[places[id(record)]].append(line)
    for record, line in _copies(records):
        lines[places[id(record)]].append(line)
    return lines


# -- machines --------------------------------------------------------------------------------------


def _hardware(records: Sequence[Record]) -> Iterator[tuple[Record, str]]:
    """Of one machine: other hardware than in an earlier record, and a name that claims other hardware."""
    records = sorted(records, key=lambda record: record.proof != "signed")
    first = records[0].machine
    titles: dict[tuple[str, str], str] = {}
    of_runs: dict[str, Machine] = {}
    words = _squeezed(" ".join({text for record in records for text in _parts(record.machine)}))
    for record in records:
        machine = record.machine
        if line := _differs(first, machine) or _differs(of_runs.setdefault(record.run.id, machine), machine):
            yield record, f"its key comes with other hardware: {line}; a key is of one machine only"
        for device in machine.devices:
            known = titles.setdefault((device.framework, device.name), device.title)
            if known != device.title:
                yield record, f"its key comes with other hardware: {device.title}, and {known} in another record"
        yield from ((record, line) for line in _claims(machine, words))


def _parts(machine: Machine) -> list[str]:
    return [machine.cpu, *(device.title for device in machine.devices)]


def _differs(one: Machine, other: Machine) -> str:
    """What of the hardware of two machines differs; empty where nothing does."""
    for name in ("system", "arch", "cpu", "cores"):
        if getattr(one, name) != getattr(other, name):
            return f"{name} {getattr(other, name)}, and {getattr(one, name)} in another record"
    if not math.isclose(one.memory or 0, other.memory or 0, rel_tol=MEMORY_VARIES):
        return f"memory of {other.memory} B, and {one.memory} in another record"
    return ""


def _claims(machine: Machine, words: str) -> Iterator[str]:
    """Chips, cores and memory that a name claims, and its machine has not."""
    chips = CHIP.findall(SEVERAL.sub("", _plain(machine.name)))
    for chip in chips:
        if _squeezed(chip) not in words:
            yield f"its machine is called '{machine.name}', and none of its parts is {chip}; give it another name"
            return
    if not chips and machine.name.casefold() in {name.casefold() for name in figures.machines()}:
        yield f"its machine is called '{machine.name}', as a published one; give it another name"
    form = OWN_FORM.fullmatch(" ".join(machine.name.split()))
    if form and machine.memory and (
        int(form["cores"]) != machine.cores or int(form["memory"]) != round(machine.memory / 2**30)
    ):  # fmt: skip
        yield f"its machine is called '{machine.name}', and has {machine.cores} cores and {machine.memory} B of memory"


def _squeezed(text: str) -> str:
    return "".join(_plain(text).casefold().split())


def _plain(text: str) -> str:
    """Return a text in plain letters, with a space for whatever else stands between words: M1_Max, RTX-4090."""
    return re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", text))


# -- samples ---------------------------------------------------------------------------------------


def _copies(records: Sequence[Record]) -> Iterator[tuple[Record, str]]:
    """Records whose samples are those of another one, times a constant, in whatever order, or but for one end."""
    buckets: dict[Hashable, list[tuple[list[float], Record]]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.proof != "signed"):
        values = _values(record)
        if len(values) < FEWEST or max(values) <= (1 + 10 * ALIKE) * min(values):
            continue
        shapes = [((kind, len(shape)), round(shape[1] / BUCKET), shape) for kind, shape in _shapes(values)]
        original = next(
            (theirs for kind, bucket, shape in shapes for near in (bucket - 1, bucket, bucket + 1)
             for other, theirs in buckets.get((kind, near), ()) if _alike(shape, other)), None,
        )  # fmt: skip
        if original is None:
            for kind, bucket, shape in shapes:
                buckets[kind, bucket].append((shape, record))
        elif _measurement(record) != _measurement(original):
            times = median(values) / median(_values(original))
            of = f"record {original.id[:10]} of {original.machine.name} ({original.case.id})"
            scaled = "" if math.isclose(times, 1, rel_tol=1e-3) else f", times {times:.3g}"
            yield record, f"its samples are those of {of}{scaled}; a measurement is submitted once"


def _values(record: Record) -> list[float]:
    return record.values("step_time") or record.values("step_time", "paired")


def _measurement(record: Record) -> tuple[object, ...]:
    """What is the same in two texts of one measurement, such as a record and its private copy."""
    run = record.run
    return record.machine.key, record.machine.name, record.case, run.id, run.repeat, run.process, run.pairing, run.group


def _shapes(values: Sequence[float]) -> Iterator[tuple[str, list[float]]]:
    """Samples without their scale: both ends, and all of them in order of size."""
    yield "start", _scaled(values[:WINDOW])
    yield "end", _scaled(values[-WINDOW:])
    if max(values) > 1.001 * min(values):
        yield "sorted", _scaled(sorted(values))


def _scaled(values: Iterable[float]) -> list[float]:
    first, *others = map(math.log, values)
    return [0.0, *(other - first for other in others)]


def _alike(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(abs(a - b) <= ALIKE for a, b in zip(one, other, strict=True))
