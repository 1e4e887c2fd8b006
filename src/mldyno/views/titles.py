"""Cases as people call them, for sentences and titles: BERT-base, inference, batch 16, 128 tokens. Tables have ids."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from mldyno import plugins
from mldyno.axes import AXES, Case

_ORDER = ("work", "size", "way")
_IN_ORDER = sorted((axis for axis in AXES if axis.name != "workload"), key=lambda axis: _ORDER.index(axis.kind))
ELSEWHERE = ("framework", "device")  # what the sentence or the chart around a title says


@cache
def workload_title(name: str) -> str:
    """What a workload is called; one that is not in the catalogue by its name."""
    return plugins.workload(name).title if name in plugins.names("workloads") else name


def work_title(case: Case) -> str:
    """What is computed: BERT-base, training."""
    return case_title(case, [axis.name for axis in _IN_ORDER if axis.kind != "work"])


def case_title(case: Case, without: Collection[str] = ELSEWHERE) -> str:
    """What is computed, how much of it, and in which ways other than the usual: BERT-base, training, batch 16, bf16."""
    axes = [axis for axis in _IN_ORDER if axis.name not in without and getattr(case, axis.name) is not None]
    unusual = [axis for axis in axes if axis.kind != "way" or getattr(case, axis.name) != axis.default]
    return ", ".join([workload_title(case.workload), *(axis.say(getattr(case, axis.name)) for axis in unusual)])


def case_on_device(case: Case, *without: str) -> str:
    """A case as a sentence about it begins: BERT-base, training, batch 16 on cuda:0; a command by its words."""
    if case.own_command:
        return case.workload
    device = "" if "device" in without else f" on {case.device}"
    return case_title(case, ("device", *without)) + device
