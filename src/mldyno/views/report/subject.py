"""The subject of a report: one machine, others to compare it with, and the analysis of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property

from mldyno import __version__
from mldyno.analysis.answers import Answers, Verdicts, headlines, verdicts
from mldyno.analysis.answers import answers as answers_of
from mldyno.analysis.comparisons import Comparison, Mean, alike, compared
from mldyno.analysis.fleet import Group
from mldyno.analysis.league import Division, league
from mldyno.analysis.outcomes import Outcome, outcomes, varying
from mldyno.analysis.rerun import measured_here
from mldyno.analysis.scores import Score, scores
from mldyno.records import Machine, Record
from mldyno.store import figures
from mldyno.units import count, show_bytes
from mldyno.views.drawing import SIDES
from mldyno.views.titles import ELSEWHERE, case_title

MOST_DEVICES = 3  # that are named in a line


def subject_of_records(
    records: Sequence[Record], context: Sequence[Record] = (), fleet: Sequence[Group] = ()
) -> Subject:
    """Return the subject of a report that is made now: these records, compared with those of `context`.

    `fleet` says what is known of nodes that were measured in one run.
    """
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    subject = subject_of(outcomes(records), outcomes([*context, *figures.newest()]), now, __version__)
    return replace(subject, fleet=fleet)


def subject_of(chosen: Sequence[Outcome], context: Sequence[Outcome], created: str, version: str) -> Subject:
    """Return the subject of a report: the machine last measured here, or else last of all, among all others."""
    here = [outcome for outcome in chosen if measured_here(outcome)] or chosen

    def created_at(outcome: Outcome) -> str:
        return outcome.records[-1].created

    machine = max(here, key=created_at).machine
    newest = {(outcome.machine, outcome.case): outcome for outcome in sorted(chosen, key=created_at)}
    current = [outcome for outcome in chosen if newest[outcome.machine, outcome.case] is outcome]
    own = [outcome for outcome in current if outcome.machine == machine]
    published = [outcome for outcome in context if outcome.published]
    others = [outcome for outcome in (*current, *context) if outcome.machine != machine and not outcome.published]
    return Subject(own, others, published, created, version)


@dataclass(frozen=True)
class Subject:
    """The outcomes of one machine, those of other machines that were measured too, and published ones."""

    outcomes: Sequence[Outcome]
    others: Sequence[Outcome]
    published: Sequence[Outcome]
    created: str  # when the report is made
    version: str  # the version of mldyno
    fleet: Sequence[Group] = ()  # nodes that were measured in one run, in each of its cases

    @property
    def machine(self) -> Machine:
        """The machine as last recorded, by the name that tables give it."""
        return replace(self.outcomes[-1].records[-1].machine, name=self.name)

    @property
    def name(self) -> str:
        return self.outcomes[0].machine

    @property
    def machines(self) -> list[str]:
        """The machine that the report is about, then the other measured machines in it."""
        return list(dict.fromkeys([self.name, *(outcome.machine for outcome in self.others)]))

    @cached_property
    def league(self) -> list[Division]:
        """This machine among all others in the same work."""
        return league(self.outcomes, [*self.others, *self.published])

    @cached_property
    def between_machines(self) -> list[Comparison]:
        """Other measured machines compared with this one in the catalogue's work: names of own work prove nothing."""
        every = (*self.outcomes, *self.others)
        good = [outcome for outcome in every if outcome.status == "ok" and not outcome.case.own_work]
        groups = [group for group in alike(good, "machine") if group[0].machine == self.name]
        return compared([(group[0], other) for group in groups for other in group[1:] if other.machine != self.name])

    @cached_property
    def scores(self) -> list[Score]:
        return scores(self.outcomes)

    @cached_property
    def varied(self) -> list[str]:
        return varying(self.outcomes)

    @cached_property
    def answers(self) -> Answers:
        return answers_of(self.outcomes)

    @cached_property
    def verdicts(self) -> Verdicts:
        """Answers about this machine from models, the clearest first."""
        said = verdicts([outcome for outcome in self.outcomes if not outcome.case.own_work], self.published)

        def clearest_first(means: Sequence[Mean]) -> tuple[Mean, ...]:
            return tuple(sorted(means, key=lambda mean: (not mean.conclusive, -mean.ratio)))

        return replace(said, devices=clearest_first(said.devices), precisions=clearest_first(said.precisions))

    @cached_property
    def headlines(self) -> list[Mean]:
        return headlines(self.outcomes)

    @property
    def fake(self) -> bool:
        return any(outcome.case.framework == "fake" for outcome in self.outcomes)

    @property
    def facts(self) -> str:
        """The machine's hardware and software in a line."""
        machine, known = self.machine, (outcome.records[0].software.versions for outcome in self.outcomes)
        software = {name: version for versions in known for name, version in versions.items()}
        titles = [device.title for device in machine.devices if device.name != "cpu" and device.title]
        parts = [machine.cpu, count(machine.cores, "core") if machine.cores else "",
                 "virtual machine" if machine.virtualised else "",
                 show_bytes(machine.memory) if machine.memory else "", *titles[:MOST_DEVICES],
                 f"{machine.system} {machine.arch}" if machine.system != "unknown" else "",
                 *(f"{name} {version}" for name, version in list(software.items())[:2])]  # fmt: skip
        facts = ", ".join(part for part in parts if part and part not in machine.name)
        return facts[:1].upper() + facts[1:]

    @cached_property
    def colours(self) -> dict[str, str]:
        """The colour of each device on which something succeeded."""
        devices = dict.fromkeys(outcome.case.device for outcome in self.outcomes if outcome.good)
        return {device: SIDES[place % len(SIDES)] for place, device in enumerate(devices)}

    def title(self, outcome: Outcome, *without: str) -> str:
        """Return the label of an outcome: with framework and device, where these vary."""
        case = outcome.case
        named = [axis for axis in ELSEWHERE if axis in self.varied and axis not in without]
        named = [axis for axis in named if axis != "framework" or not case.own_work]  # which has none
        return ", ".join([case_title(case, (*ELSEWHERE, *without)), *(getattr(case, axis) for axis in named)])
