"""What a report is about: outcomes of some machines, others beside them, and what analysis says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mldyno.analysis.answers import Answers, Headline, Verdicts, headlines, verdicts
from mldyno.analysis.answers import answers as answers_of
from mldyno.analysis.comparisons import Mean
from mldyno.analysis.league import Division, league
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.rerun import measured_here, rerun_commands, their_commands
from mldyno.analysis.scores import Score, scores
from mldyno.analysis.tables import varying
from mldyno.records import Machine
from mldyno.units import count, show_bytes
from mldyno.views.drawing import SIDES
from mldyno.views.titles import ELSEWHERE, case_title

MOST_DEVICES = 3  # that are named in a line


@dataclass(frozen=True)
class Subject:
    """Measured outcomes, and those of other machines to stand beside them: published ones, imported ones."""

    outcomes: Sequence[Outcome]
    beside: Sequence[Outcome]
    created: str
    """When the report is made."""
    version: str
    """Of mldyno."""

    @cached_property
    def machines(self) -> list[Machine]:
        """The machines, by name, as they were last seen."""
        last = {outcome.machine: outcome.records[-1].machine for outcome in self.outcomes}
        return [replace(machine, name=name) for name, machine in last.items()]

    @cached_property
    def own(self) -> list[Outcome]:
        """Those that were measured here; where all came from elsewhere, those of the first machine."""
        here = [outcome for outcome in self.outcomes if measured_here(outcome)]
        return here or [outcome for outcome in self.outcomes if outcome.machine == self.outcomes[0].machine]

    @cached_property
    def league(self) -> list[Division]:
        """These machines among all others in the same work."""
        own = {id(outcome) for outcome in self.own}
        return league(self.own, [*(each for each in self.outcomes if id(each) not in own), *self.beside])

    @cached_property
    def scores(self) -> list[Score]:
        """The scores of all machines and devices that have one."""
        return scores(self.outcomes)

    @cached_property
    def varied(self) -> list[str]:
        """The axes, machine among them, in which the outcomes differ."""
        return varying(self.outcomes)

    @cached_property
    def answers(self) -> Answers:
        """What the outcomes say of single cases."""
        return answers_of(self.outcomes)

    @cached_property
    def verdicts(self) -> Verdicts:
        """What they say of this machine, the clearest first; nothing where there are several."""
        if len({outcome.machine for outcome in self.own}) > 1:
            return Verdicts()
        said = verdicts(self.own, [outcome for outcome in self.beside if outcome.published])
        devices, precisions = (tuple(sorted(means, key=_clearest)) for means in (said.devices, said.precisions))
        return replace(said, devices=devices, precisions=precisions)

    @cached_property
    def headlines(self) -> list[Headline]:
        """The means of all that can be compared."""
        return headlines(self.outcomes)

    @cached_property
    def commands(self) -> list[str]:
        """The commands that run all this again."""
        return rerun_commands(self.outcomes)

    @cached_property
    def their_commands(self) -> list[str]:
        """The command lines that others have timed."""
        return their_commands(self.outcomes)

    @property
    def fake(self) -> bool:
        """Whether any of it comes from the fake framework."""
        return any(outcome.case.framework == "fake" for outcome in self.outcomes)

    @property
    def name(self) -> str:
        """The machine, or the machines, in a title."""
        names = [machine.name for machine in self.machines]
        return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} other machines"

    @property
    def facts(self) -> str:
        """What the machine is, in a line; of several only their number."""
        if len(self.machines) > 1:
            return count(len(self.machines), "machine")
        machine, software = self.machines[0], self.outcomes[0].records[0].software.versions
        titles = [device.title for device in machine.devices if device.name != "cpu" and device.title]
        parts = [machine.cpu, count(machine.cores, "core") if machine.cores else "",
                 "virtual machine" if machine.virtualised else "",
                 show_bytes(machine.memory) if machine.memory else "", *titles[:MOST_DEVICES],
                 f"{machine.system} {machine.arch}" if machine.system != "unknown" else "",
                 *(f"{name} {version}" for name, version in list(software.items())[:2])]  # fmt: skip
        facts = ", ".join(part for part in parts if part and part not in machine.name)
        return facts[:1].upper() + facts[1:]

    def side(self, outcome: Outcome) -> str:
        """Where it ran: the device, and the machine where there are several."""
        device = outcome.case.device
        return f"{outcome.machine}, {device}" if len(self.machines) > 1 else device

    @cached_property
    def colours(self) -> dict[str, str]:
        """The colour of each side, in the order in which they come."""
        sides = dict.fromkeys(map(self.side, self.outcomes))
        return {side: SIDES[place % len(SIDES)] for place, side in enumerate(sides)}

    def title(self, outcome: Outcome, *without: str) -> str:
        """What an outcome is about, as it stands beside its marks: with its device and machine, where these vary."""
        shown = case_title(outcome.case, (*ELSEWHERE, *without))
        framework = [outcome.case.framework] if "framework" in self.varied and "framework" not in without else []
        device = [self.side(outcome)] if "device" in self.varied and "device" not in without else []
        if not device and len(self.machines) > 1 and "machine" not in without:
            device = [outcome.machine]
        return ", ".join([shown, *framework, *device])


def _clearest(mean: Mean) -> tuple[bool, float]:
    return mean.verdict == "inconclusive", -mean.ratio
