"""What a report is about: outcomes of some machines, published ones beside them, and what analysis says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mldyno.analysis.answers import Answers, Headline, compared_along, headlines
from mldyno.analysis.answers import answers as answers_of
from mldyno.analysis.comparisons import Comparison
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.rerun import rerun_commands, their_commands
from mldyno.analysis.tables import varying
from mldyno.axes import AXES
from mldyno.records import Case, Machine


@dataclass(frozen=True)
class Subject:
    """Measured outcomes, and published ones to stand beside them."""

    outcomes: Sequence[Outcome]
    published: Sequence[Outcome]
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
    def varied(self) -> list[str]:
        """The axes, machine among them, in which the outcomes differ."""
        return varying(self.outcomes)

    @cached_property
    def answers(self) -> Answers:
        """What the outcomes say."""
        return answers_of(self.outcomes)

    @cached_property
    def headlines(self) -> list[Headline]:
        """The means of all that can be compared."""
        return headlines(self.outcomes)

    @cached_property
    def devices(self) -> list[Comparison]:
        """Each device against the first one, in the same work."""
        return compared_along(self.outcomes, "device")

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

    def side(self, outcome: Outcome) -> str:
        """Where it ran: the device, and the machine where there are several."""
        device = outcome.case.device
        return f"{outcome.machine}, {device}" if len(self.machines) > 1 else device


def label(case: Case, axes: Sequence[str]) -> str:
    """A case by some of its axes, short, as it stands beside a bar: bf16 b16 s128 host."""
    values = ((axis, getattr(case, axis.name)) for axis in AXES if axis.name in axes and axis.kind != "work")
    return " ".join(axis.short(value) for axis, value in values if value not in (None, False))


def work_name(case: Case) -> str:
    """What is computed: bert-base training."""
    mode = {"train": " training", "infer": " inference", None: ""}[case.mode]
    return f"{case.workload}{mode}"


def full_label(case: Case, axes: Sequence[str]) -> str:
    """What is computed, and the case by some of its axes: bert-base train b16 s128."""
    return " ".join(filter(None, [case.workload, case.mode, label(case, axes)]))
