"""The content of a site: machines with their scores, and a ranking for each work that they did.

Published machines are among them. What is fake, or doubted by who published it, is ranked nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mldyno.analysis import grouped
from mldyno.analysis.estimates import Estimate
from mldyno.analysis.league import work
from mldyno.analysis.outcomes import Outcome, in_order, outcomes
from mldyno.analysis.scores import Score, scores
from mldyno.axes import DEVICE_KINDS, NAMES
from mldyno.axes import WORK as AXES_OF_WORK
from mldyno.files import file_stem
from mldyno.records import IMPORTED, Case, Record
from mldyno.store.figures import marks
from mldyno.store.query import stored_key, written_name
from mldyno.views.claims import WORK as WORDS
from mldyno.views.titles import place_title, shared_title, ways_title, workload_title

OTHER_KIND = "other"
Whose = tuple[str, bool]  # a machine as tables name it, and whether it is a published one
_IN_ORDER = tuple(dict.fromkeys(("device", *AXES_OF_WORK, *NAMES)))


@dataclass(frozen=True)
class Entry:
    """A machine of the site, or what was published of one."""

    name: str
    stem: str  # of the names of its files
    outcomes: tuple[Outcome, ...]
    scores: tuple[Score, ...]

    @property
    def published(self) -> bool:
        return self.outcomes[0].published

    @cached_property
    def newest(self) -> Record:
        records = (record for outcome in self.outcomes for record in outcome.records)
        return max(records, key=lambda record: record.created)

    @cached_property
    def devices(self) -> list[str]:
        """The devices on which something was measured, the CPU first."""
        return [device for (device,) in in_order({(outcome.case.device,) for outcome in self.outcomes})]

    @property
    def devices_seen(self) -> list[str]:
        """The devices that seem to exist: not those on which every case was unsupported."""
        return [name for name in self.devices if any(each.status != "unsupported" for each in self.on(name))]

    def on(self, device: str) -> list[Outcome]:
        """Return the outcomes of one device, in any framework."""
        return [outcome for outcome in self.outcomes if outcome.case.device == device]

    def best(self, device: str, mode: str) -> Score | None:
        """Return the highest score of a device in training or inference, in any framework."""
        fitting = [score for score in self.scores if (score.case.device, score.case.mode) == (device, mode)]
        return max(fitting, key=lambda score: score.value, default=None)


@dataclass(frozen=True)
class Ranking:
    """All results in one work, the fastest first."""

    workload: str  # what people call it
    title: str
    stem: str  # of the names of its files
    ranked: tuple[tuple[Entry, Outcome, Estimate], ...]  # with the time of a step

    @property
    def machines(self) -> int:
        return len({entry.stem for entry, _, _ in self.ranked})


@dataclass(frozen=True)
class Collection:
    """All machines, and all work."""

    entries: Sequence[Entry]
    rankings: Sequence[Ranking]

    @cached_property
    def in_order(self) -> list[tuple[Entry, str]]:
        """All devices of all machines, the highest score first, then what was only published."""

        def order(known: tuple[Entry, str]) -> tuple[bool, float, str]:
            entry, device = known
            best = max((score.value for score in entry.scores if score.case.device == device), default=0.0)
            return entry.published, -best, entry.name

        return sorted(((entry, device) for entry in self.entries for device in entry.devices_seen), key=order)

    @cached_property
    def _ranking_of(self) -> dict[tuple[object, ...], Ranking]:
        return {_work(ranking.ranked[0][1]): ranking for ranking in self.rankings}

    def ranking(self, outcome: Outcome) -> Ranking | None:
        return None if ranked_time(outcome) is None else self._ranking_of[_work(outcome)]


def whose(record: Record) -> Whose:
    """Return the machine of a record as the site distinguishes them."""
    return record.shown_machine, record.provenance == "published"


def shown_place(case: Case) -> str:
    """Return the device and the unusual ways of a case: cuda:0, compiled."""
    return ", ".join(filter(None, [place_title(case), ways_title(case)]))


def ranked_time(outcome: Outcome) -> Estimate | None:
    """Return the time of a step by which an outcome is ranked; None where it is not, as the user's own commands."""
    step = outcome.step
    unranked = outcome.case.own_work or marks(outcome.records[0])
    return None if step is None or step.value <= 0 or unranked else step


def kind_of(device: str) -> str:
    """Return the kind of a device for the site's filter."""
    kind = device.partition(":")[0]
    return kind if kind in DEVICE_KINDS else OTHER_KIND


def stems(records: Iterable[Record]) -> dict[Whose, str]:
    """Return the stem of each machine's file names, which does not depend on the other machines."""
    first: dict[Whose, Record] = {}
    for record in records:
        known = first.setdefault(whose(record), record)
        if record.machine.key and not known.machine.key:  # it was measured before machines had keys
            first[whose(record)] = record

    def stem(record: Record, published: bool) -> str:
        origin = IMPORTED if record.imported_from else ""
        return file_stem(written_name(record), stored_key(record), f"{published=}", origin)

    return {machine: stem(record, machine[1]) for machine, record in first.items()}


def collected(
    records: Sequence[Record], files: Mapping[Whose, str], done: Callable[[], None] = lambda: None
) -> Collection:
    """Return the machines of these records, by name; call `done` for each."""
    by_machine = grouped(outcomes(records), lambda outcome: whose(outcome.records[0]))
    names = _names(by_machine)
    entries = []
    for machine, unsorted in by_machine.items():
        own = _sorted(unsorted)
        known = (score for score in scores(own) if score.case.mode in WORDS and score.value > 0)
        entries.append(Entry(names[machine], files[machine], own, tuple(known)))
        done()
    entries.sort(key=lambda entry: (entry.published, entry.name))
    return Collection(entries, _rankings(entries))


def _sorted(own: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """Sort the outcomes of a machine by device, work, size and way."""
    keys = {id(outcome): tuple(getattr(outcome.case, name) for name in _IN_ORDER) for outcome in own}
    places = {key: place for place, key in enumerate(in_order(set(keys.values())))}
    return tuple(sorted(own, key=lambda outcome: (places[keys[id(outcome)]], outcome.records[0].created)))


def _names(machines: Iterable[Whose]) -> dict[Whose, str]:
    """Return the names of machines; that one was imported is said only where two names are equal."""
    short = {machine: machine[0].removesuffix(IMPORTED) for machine in machines}
    often = Counter(short.values())
    return {machine: name if often[name] == 1 else machine[0] for machine, name in short.items()}


def _work(outcome: Outcome) -> tuple[object, ...]:
    return *work(outcome), outcome.case.version


def _rankings(entries: Sequence[Entry]) -> list[Ranking]:
    """Return the rankings by workload; those with the most machines come first."""
    timed = [(entry, outcome, step) for entry in entries for outcome in entry.outcomes
             if (step := ranked_time(outcome)) is not None]  # fmt: skip
    rankings = []
    for key, group in grouped(timed, lambda each: _work(each[1])).items():
        case = group[0][1].case
        version = f", version {case.version}" if case.version != 1 else ""
        title = shared_title(case) + version
        ranked = sorted(group, key=lambda each: each[2].value)
        rankings.append(Ranking(workload_title(case.workload), title, file_stem(title, *map(str, key)), tuple(ranked)))
    return sorted(rankings, key=lambda ranking: (ranking.workload.casefold(), -ranking.machines, ranking.title))
