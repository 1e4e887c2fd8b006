"""Cases in sentences and titles: BERT-base, inference, batch 16, 128 tokens. Tables have ids."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache

from mldyno import plugins
from mldyno.analysis.league import WORK
from mldyno.axes import AXES, AXIS, NAMES, Case
from mldyno.sources import as_typed

_ORDER = ("work", "size", "way")
_IN_ORDER = sorted((axis for axis in AXES if axis.name != "workload"), key=lambda axis: _ORDER.index(axis.kind))
ELSEWHERE = ("framework", "device")  # axes that the sentence or the chart around a title names


def workload_title(name: str) -> str:
    """Return the title of a workload in the catalogue, or what the user typed."""
    return _catalogue_title(name) or as_typed(name)


@cache
def _catalogue_title(name: str) -> str:
    return plugins.workload(name).title if name in plugins.names("workloads") else ""


def case_name(case: Case) -> str:
    """Return the id of a case with its workload as it was typed; a command is its words alone."""
    return as_typed(case.workload) + ("" if case.own_command else case.id.removeprefix(case.workload))


def case_without(case: Case, *axes: str) -> str:
    """Return a case's id without these axes."""
    return replace(case, **dict.fromkeys(axes)).id  # type: ignore[arg-type]


def work_title(case: Case) -> str:
    """Return workload and mode: BERT-base, training."""
    return case_title(case, [axis.name for axis in _IN_ORDER if axis.kind != "work"])


def case_title(case: Case, without: Collection[str] = ELSEWHERE) -> str:
    """Return work, sizes and unusual ways of a case: BERT-base, training, batch 16, bf16."""
    axes = [axis for axis in _IN_ORDER if axis.name not in without and getattr(case, axis.name) is not None]
    unusual = [axis for axis in axes if axis.kind != "way" or getattr(case, axis.name) != axis.default]
    work = [] if "workload" in without else [workload_title(case.workload)]
    return ", ".join([*work, *(axis.say(getattr(case, axis.name)) for axis in unusual)])


def shared_title(case: Case) -> str:
    """Return the work that a ranking is about, by the axes of published figures: MLP, inference, batch 128."""
    return case_title(case, [name for name in NAMES if name not in WORK])


def ways_title(case: Case) -> str:
    """Return what is unusual about a case on the remaining axes: compiled, 1 CPU thread."""
    ways = [axis for axis in AXES if axis.name not in (*WORK, *ELSEWHERE) and getattr(case, axis.name) != axis.default]
    return ", ".join(axis.say(getattr(case, axis.name)) for axis in ways)


def place_title(case: Case) -> str:
    """Return the device, and the framework where it is not the usual one: cpu, jax."""
    usual = case.own_work or case.framework == AXIS["framework"].default
    return case.device if usual else f"{case.device}, {case.framework}"


def kind_title(case: Case) -> str:
    """Return the kind of work as a heading: Training, Inference, Your own commands."""
    if case.own_work:
        return "Your own commands" if case.own_command else "Your own loops"
    return AXIS["mode"].say(case.mode).capitalize() if case.mode else "Other work"


def case_on_device(case: Case, *without: str) -> str:
    """Return a case as a sentence begins with it: BERT-base, training, batch 16 on cuda:0; a command by its words."""
    if case.own_command:
        return case_name(case)
    device = "" if "device" in without else f" on {case.device}"
    title = (case_title(case, ("device", *without)) + device).strip()
    return title[:1].upper() + title[1:] if "workload" in without else title
