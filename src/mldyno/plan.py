"""Expand workloads, suites and options to a Plan: every case, before anything runs.

A plan depends on the files of suites and workloads, and on the devices that a framework finds, for which the caller
passes a function. Nothing here writes a file or starts a process, unless a suite is trusted to name interpreters.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from mldyno import interpreters, plugins, sources, suites
from mldyno.axes import AXES, AXIS, NAMES, SIZES, WORK, Case, axis_named, unstated
from mldyno.errors import MldynoError, UsageError, unknown
from mldyno.masking import MASK, masked_line, masked_words
from mldyno.printable import printable
from mldyno.records import SCHEMA, upgraded_case
from mldyno.settings import OF_PLANS, Settings, parsed
from mldyno.sources import Source
from mldyno.suites import reader
from mldyno.suites.reader import ALL, Suite, Values

MOST_SIZES_PER_DOUBLING = 16
FEWEST_REPEATS, MOST_CHOSEN_REPEATS = 3, 30  # if the user gives none
BUDGET_PER_PROCESS_S = 20.0  # if the user gives none
PLAN_FORMAT = 4  # of the text of a plan; 1 had a budget for each process, 1 and 2 one command, 3 no sources
MOST_CASES = 10_000  # of a plan; three repeats of a second each take a working day
GPU = "gpu"  # the accelerator, whatever the framework calls it
Here = Callable[[str, str | None], Sequence[str]]  # returns the devices that a framework finds, in an interpreter
Devices = Callable[[Case], Sequence[str]]  # returns the devices that the word in a case means


@dataclass(frozen=True)
class Plan(Settings):
    """The cases of a run, with its settings; times in s.

    A budget is for all processes of a case, a timeout for each of them, a limit for the whole run. Without a timeout,
    the forecast of each case gives one; without repeats, a case gets as many processes as it needs, at least three.
    """

    cases: tuple[Case, ...]
    suite: str | None = None
    commands: tuple[tuple[str, ...], ...] = ()  # the words of the user's commands, one command for each case
    sources: tuple[Source, ...] = ()  # the sources of the user's own workloads

    @property
    def fewest_repeats(self) -> int:
        """The number of processes of each case, at least."""
        return self.repeats or FEWEST_REPEATS

    @property
    def most_repeats(self) -> int:
        """The number of processes of each case, at most: the run chooses how many."""
        return self.fewest_repeats if self.steps is not None else self.repeats or MOST_CHOSEN_REPEATS

    @property
    def real(self) -> bool:
        """Return whether any of its cases is computed, not simulated."""
        return any(not case.simulated for case in self.cases)

    @property
    def head_to_head(self) -> bool:
        """Return whether the user asks for a ratio: of two versions of a file, or of two commands."""
        return self.by == "workload"

    def command_of(self, case: Case) -> tuple[str, ...]:
        """Return the words of a case's command; empty if it is a workload."""
        return dict(zip(self.cases, self.commands, strict=False)).get(case, ())

    def text(self) -> str:
        """Return the plan as JSON, with the schema of its cases, without the secrets in its commands."""
        content = {**asdict(self), "commands": [masked_words(words) for words in self.commands]}
        return json.dumps({"schema": SCHEMA, "format": PLAN_FORMAT, **content}, sort_keys=True)

    def same_as(self, other: Plan) -> bool:
        """Return whether both plans measure the same, wherever the user's code is."""
        texts = {replace(plan, sources=tuple(source.without_paths for source in plan.sources)).text()
                 for plan in (self, other)}  # fmt: skip
        return len(texts) == 1

    @property
    def masked(self) -> bool:
        """Return whether words of its commands are masked, as in a plan read from its text."""
        return any(MASK in word for words in self.commands for word in words)


def from_text(text: str) -> Plan:
    """Return the plan that `Plan.text` wrote, in this version or an older one."""
    from mldyno.messages import Malformed

    try:
        plan = msgspec.convert(msgspec.to_builtins(_from_content(json.loads(text))), Plan)
        check_most({axis.name: tuple(getattr(case, axis.name) for case in plan.cases) for axis in AXES if axis.most})
        return _checked(plan)
    except (
        ValueError, TypeError, KeyError, AttributeError, RecursionError, Malformed, UsageError, msgspec.MsgspecError,
    ) as error:  # fmt: skip
        reason = f"the plan of a run can't be read ({error!r})"
        raise MldynoError(f"{reason}; its store is damaged, or not of mldyno.") from None


def _from_content(content: dict[str, Any]) -> Plan:
    from mldyno.messages import read_part

    schema, text_format = content.pop("schema", 1), content.pop("format", 1)
    if text_format == 1:
        content["budget"] *= content["repeats"]
    if text_format < 3:
        content["commands"] = [words for words in (content.pop("command"),) if words]
    content["sources"] = tuple(read_part(Source, source, "source") for source in content.get("sources", ()))
    content["unchecked"] = tuple(content.get("unchecked", ()))
    cases = tuple(upgraded_case(schema, case) for case in content["cases"])
    _remember(cases, content["commands"])
    suite = suites.RENAMED.get(content["suite"], content["suite"])
    return Plan(**{**content, "cases": cases, "suite": suite, "commands": tuple(map(tuple, content["commands"]))})


def for_command(words: Sequence[str], settings: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan that times a command as a whole, or several with `--` between them, interleaved.

    One repeat is enough, since each step is a new process.
    """
    commands = split_commands(words)
    cases = tuple(unstated(name_of(command), "command") for command in commands)
    _remember(cases, commands)
    if len(set(cases)) < len(cases):
        raise UsageError("a command is given twice, or two differ only in secrets; give commands that differ.")
    by = {"by": "workload"} if len(cases) > 1 else {}
    return _checked(Plan(cases, commands=commands, **_budgeted({"repeats": 1, **by, **parsed(settings)})))


def _remember(cases: Sequence[Case], commands: Sequence[Sequence[str]]) -> None:
    """Remember the commands of cases as the user typed them."""
    for case, words in zip(cases, commands, strict=False):
        sources.remember(case.workload, masked_line(words))


def split_commands(words: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Split words at each `--` into commands."""
    ends = [-1, *(place for place, word in enumerate(words) if word == "--"), len(words)]
    return tuple(tuple(words[before + 1 : end]) for before, end in itertools.pairwise(ends))


def name_of(words: Sequence[str]) -> str:
    """Return the workload name of a command: without secrets, with colons instead of slashes, which ids can't have."""
    return sources.name_of(masked_line(words))


def expand(
    targets: Sequence[str], axes: Mapping[str, Sequence[str]], settings: Mapping[str, Any] | None = None,
    here: Here = lambda framework, python: ("cpu",), trust: bool = False,
) -> Plan:  # fmt: skip
    """Return the plan for workloads and suites on axes; axes and settings given here override those of suites.

    `here` returns the devices that a framework finds; it is called only for devices `all` and `gpu`. `trust` lets a
    suite name interpreters by their paths, which are then started.
    """
    if not targets:
        raise UsageError("name what to run: a workload or a suite, for example: mldyno run mlp")
    given_axes = {axis_named(name): values for name, values in axes.items() if values}
    chosen = {name: tuple(reader.value_of(name, value) for value in values) for name, values in given_axes.items()}
    cases, from_suites, suite = list[Case](), dict[str, Any](), None
    for target in targets:
        if suites.is_suite(target):
            content = reader.read(target, trust)
            suite = printable(Path(content.file).stem)
            from_suites |= content.settings
            cases += _of_suite(content, chosen, partial(_present, here))
        elif plugins.is_known("workloads", target):
            combined: Values = {"workload": (target,), **chosen}
            _check_modes(combined)
            _check_count(_combinations(combined))
            cases += _cases(combined, partial(_present, here))
        else:
            raise _unknown_target(target, given_axes)
        _check_count(len(cases))
    if "seq" in chosen and not any(case.seq for case in cases):
        raise UsageError(f"no sequences in {', '.join(targets)}; omit --seq.")
    if "batch" in chosen and not all(case.batch for case in cases):
        of_code = all(sources.runs_code(target) for target in targets if sources.is_target(target))
        why = "a function of yours takes it as batch_size" if of_code else "its first dimension is fixed in the file"
        raise UsageError(f"no batch to choose in {', '.join(targets)}: {why}.")
    _check_needs(chosen, cases)
    own = sources.of_workloads({case.workload for case in cases})
    settings_of_all = _budgeted({**from_suites, **parsed(settings)})
    return _checked(Plan(tuple(dict.fromkeys(cases)), suite=suite, sources=own, **settings_of_all))


def _unknown_target(target: str, axes: Mapping[str, Sequence[str]]) -> UsageError:
    """Return the error for an unknown target: a value of an axis without its comma, or a misspelled name."""
    for name, values in {**axes, "batch": axes.get("batch", ())}.items():
        if target.isdecimal() if AXIS[name].number else AXIS[name].bare(target) is not None:
            given = f"{AXIS[name].options[0]} {','.join([*values, target])}"
            return UsageError(f"'{target}' is no workload; separate the values of an axis with commas: {given}.")
    return unknown("workload or suite", target, [*suites.names(), *plugins.names("workloads")])


def sweep(
    workload: str, axes: Mapping[str, Sequence[str]], over: str, ends: tuple[str | None, str | None] = (None, None),
    per_doubling: int = 1, settings: Mapping[str, Any] | None = None,
    here: Here = lambda framework, python: ("cpu",),
) -> Plan:  # fmt: skip
    """Return the plan that compares two ways to do a workload over sizes; `ends` are the smallest and the largest size.

    Exactly one axis has two values. The default sizes go from 1 item or 8 tokens up to the workload's own.
    """
    over = axis_named(over)
    if over not in SIZES:
        raise UsageError(f"a sweep goes over {' or '.join(SIZES)}, not over {over}; write --over batch.")
    plugins.check("workloads", workload)
    own = getattr(plugins.workload(workload), over)
    if not own:
        other = next((name for name in SIZES if getattr(plugins.workload(workload), name, None)), "")
        what = {"seq": "sequence", "batch": "batch size"}[over]
        raise UsageError(
            f"{workload} has no {what}, its size is the {other}; write --over {other}."
            if other
            else f"{workload} takes no {what}; its function needs a parameter such as batch_size=32 for a sweep."
        )
    if axes.get(over):
        raise UsageError(f"a sweep over {over} chooses its sizes; write --from and --to instead of --{over}.")
    if not 0 < per_doubling <= MOST_SIZES_PER_DOUBLING:
        raise UsageError(f"--per-doubling must lie between 1 and {MOST_SIZES_PER_DOUBLING}.")
    first, last = (
        usual if end is None else AXIS[over].parse(end)
        for end, usual in zip(ends, (min(AXIS[over].smallest, own), own), strict=True)
    )
    if first >= last:
        source = "" if ends[1] is not None else f" (the {over} of {workload}, since no --to is given)"
        raise UsageError(f"--from {first} is not less than --to {last}{source}; a sweep needs two sizes at least.")
    sizes = [str(size) for size in geometric(first, last, per_doubling)]
    plan = expand([workload], {**axes, over: sizes}, settings, here)
    if not axes.get("device") and not _varied(plan.cases, over):
        framework, python = plan.cases[0].framework, plan.cases[0].python
        if python is None and not plugins.installed(framework):
            raise MldynoError(f"{framework} is not installed for this Python; pip install 'mldyno[{framework}]'.")
        names = here(framework, python)
        accelerators = [name for name in names if name != "cpu"]
        if not accelerators:
            raise MldynoError(
                f"crossover compares two devices, and {framework} sees only {', '.join(names)} here; "
                "give another option two values, such as --precision fp32,bf16. `mldyno doctor` says what it finds."
            )
        plan = expand([workload], {**axes, "device": ["cpu", accelerators[0]], over: sizes}, settings, here)
    axis = _compared(plan.cases, over)
    if axis == "device":
        check_present(plan.cases, here)
    return replace(plan, by=axis)


def check_present(cases: Sequence[Case], here: Here) -> None:
    """Raise if a device is not here: a comparison needs both."""
    for framework, device, python in dict.fromkeys((case.framework, case.device, case.python) for case in cases):
        if device != "cpu" and device not in (names := here(framework, python)):
            raise absent(device, framework, names)


def geometric(first: int, last: int, per_doubling: int) -> list[int]:
    """Return whole sizes from first to last in geometric progression, `per_doubling` of them for each doubling."""
    count = math.ceil(per_doubling * math.log2(last / first))
    sizes = {min(last, round(first * 2 ** (number / per_doubling))) for number in range(count)}
    return sorted(sizes | {last})


def _varied(cases: Sequence[Case], over: str) -> dict[str, list[Any]]:
    """Return the axes apart from mode and size in which the cases of a sweep differ, with their values."""
    names = [name for name in NAMES if name not in ("mode", over)]
    values = {name: list(dict.fromkeys(getattr(case, name) for case in cases)) for name in names}
    return {name: listed for name, listed in values.items() if len(listed) > 1}


def _compared(cases: Sequence[Case], over: str) -> str:
    """Return the axis along which a sweep compares; raise unless only one axis varies, with two values."""
    values = _varied(cases, over)
    varied = list(values)
    if not varied:
        raise UsageError("crossover compares two settings: give one option two values, such as --device cpu,gpu.")
    if len(varied) > 1 or varied[0] in WORK:
        raise UsageError(
            f"a crossover is between two ways to do the same work, along one axis; {' and '.join(varied)} "
            f"{'have' if len(varied) > 1 else 'has'} several values: give one axis two, such as --device cpu,gpu."
        )
    if len(values[varied[0]]) > 2:
        listed = ", ".join(map(str, values[varied[0]]))
        raise UsageError(f"a crossover is between two; {varied[0]} has {len(values[varied[0]])} values: {listed}.")
    return varied[0]


def _budgeted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Add a budget if none is given, for the fewest processes of a case."""
    return {"budget": BUDGET_PER_PROCESS_S * (settings.get("repeats") or FEWEST_REPEATS), **settings}


def _checked(plan: Plan) -> Plan:
    """Return the plan; raise if a setting is invalid, or does not fit its cases."""
    parsed({name: getattr(plan, name) for name in OF_PLANS})
    if plan.unchecked and not plan.sources:
        raise UsageError("--no-check is for models of your own; those of the catalogue are always checked.")
    return plan


def absent(device: str, framework: str, names: Sequence[str]) -> MldynoError:
    """Return the error for a device that a framework does not find."""
    return MldynoError(
        f"no device '{device}' here; {framework} sees {', '.join(names)}. `mldyno doctor` says what it finds."
    )


def _present(here: Here, case: Case) -> Sequence[str]:
    """Return the devices that the word in a case means: `all`, `gpu`, or one device."""
    if case.device not in (ALL, GPU):
        return (case.device,)
    names = here(case.framework, case.python)
    if case.device == GPU:
        names = [name for name in names if name != "cpu"][:1]
    if not names:
        raise MldynoError("no accelerator found, only the CPU; `mldyno doctor` says what each framework sees.")
    return names


def _of_suite(suite: Suite, chosen: Values, devices: Devices) -> list[Case]:
    """Return the cases of a suite on the chosen axes; check the suite itself too, without these axes and devices."""
    for axes in ({}, chosen):
        _check_count(_combinations_of_suite(suite, axes))
    _check_excludes(suite)
    cases = _included(suite, chosen, devices)
    if not cases:
        also = " and the axes on the command line" if chosen else ""
        raise UsageError(f"suite {suite.file}: its [[exclude]] tables{also} leave no case to run.")
    return cases


def _included(suite: Suite, chosen: Values, devices: Devices) -> list[Case]:
    """Return the cases of a suite without excluded ones; those of included suites come first."""
    cases = [case for included in suite.included for case in _included(included, chosen, devices)]
    cases += [case for axes in suite.cases for case in _cases({**axes, **chosen}, devices)]
    return [case for case in cases if not any(_has(case, axes) for axes in suite.excluded)]


def _has(case: Case, axes: Values) -> bool:
    return all(getattr(case, name) in values for name, values in axes.items())


def _check_excludes(suite: Suite) -> list[Case]:
    """Return the cases as written; raise if a suite excludes what it does not have, which is a typo."""
    cases = [case for included in suite.included for case in _check_excludes(included)]
    for axes in suite.cases:
        _check_modes(axes)
        of_table = _cases(axes, lambda case: (case.device,))
        _check_needs(axes, of_table)
        cases += of_table
    for axes in suite.excluded:
        for name, values in axes.items():
            known = dict.fromkeys(getattr(case, name) for case in cases)
            any_device = name == "device" and (ALL in known or GPU in known)
            strange = [value for value in values if value not in known and not any_device]
            if strange:
                words = [str(value) for value in known if value is not None]
                raise unknown(f"{name} in [[exclude]] of suite {suite.file}", str(strange[0]), words)
        wider = {name: (*values, ALL, GPU) if name == "device" else values for name, values in axes.items()}
        if not any(_has(case, wider) for case in cases):
            excluded = ", ".join(f"{name} {' or '.join(map(str, values))}" for name, values in axes.items())
            raise UsageError(f"suite {suite.file}: an [[exclude]] drops nothing: no case has {excluded} at once.")
    return cases


def _check_modes(axes: Values) -> None:
    """Raise if a workload does not have a mode that is asked for."""
    for workload in (plugins.workload(name) for name in axes["workload"] if name != ALL):
        if any(mode not in workload.modes for mode in axes.get("mode", ())):
            if workload.untrained:
                raise UsageError(f"{workload.title} can only be measured in inference: {workload.untrained}.")
            raise UsageError(f"{workload.name} can only be measured in mode {' or '.join(workload.modes)}.")


def _check_needs(axes: Values, cases: Sequence[Case]) -> None:
    """Raise if a value of an axis is asked for, and no case meets the needs of that axis."""
    asked = [AXIS[name] for name, values in axes.items() if any(value != AXIS[name].default for value in values)]
    for axis in asked:
        for need in axis.needs:
            if not need.refusal or any(need.met(getattr(case, need.axis)) for case in cases):
                continue
            refusal = need.refusal
            if need.implied is not None and need.axis not in axes:  # no workload has the implied value
                names = ", ".join(dict.fromkeys(case.workload for case in cases))
                refusal = f"{refusal.partition(';')[0]}; there is no data set for {names}."
            raise UsageError(f"{axis.options[0]} {refusal}")


def _check_count(cases: int) -> None:
    """Raise if a plan has too many cases."""
    if cases > MOST_CASES:
        raise UsageError(f"{cases:,} cases are over {MOST_CASES:,}; the lists of all axes multiply: shorten some.")


def _combinations_of_suite(suite: Suite, chosen: Values) -> int:
    included = sum(_combinations_of_suite(other, chosen) for other in suite.included)
    return included + sum(_combinations({**axes, **chosen}) for axes in suite.cases)


def _combinations(axes: Values) -> int:
    """Count the combinations of the axes' values without building them."""
    return math.prod(map(len, _values(axes).values()))


def _values(axes: Values) -> dict[str, tuple[Any, ...]]:
    """Return the values of every axis: those given, or else the defaults of a plan."""
    values = {axis.name: axis.planned for axis in AXES[1:]} | dict(axes)
    if ALL in values["workload"]:
        values["workload"] = tuple(plugins.names("workloads"))
    return values


def _cases(axes: Values, devices: Devices) -> list[Case]:
    """Return all valid combinations of the axes' values, with the workload's defaults for axes not given."""
    values = _values(axes)
    check_most(values)
    cases = []
    for combination in itertools.product(*values.values()):
        case = Case(**dict(zip(values, combination, strict=True)))
        workload = plugins.workload(case.workload)
        if "framework" not in axes and case.framework not in workload.frameworks:
            case = replace(case, framework=workload.frameworks[0])
        if "placement" not in axes:
            implied = [need.implied for name in axes for need in AXIS[name].needs if need.axis == "placement"]
            placement: Any = implied[0] if implied and workload.loads else workload.placement
            case = replace(case, placement=placement)
        case = replace(case, **{axis.name: axis.default for axis in AXES if not axis.applies(case)})
        plugins.check("frameworks", case.framework)
        if case.python is not None:
            case = replace(case, python=interpreters.name_for(case.python, case.framework))
        if case.mode not in workload.modes or (case.mode == "infer" and "mode" not in axes and (case.ranks or 1) > 1):
            continue
        if (case.ranks or 1) % case.nodes:
            raise UsageError(f"{case.ranks} ranks can't be spread over {case.nodes} nodes evenly; give --ranks too.")
        own_sizes = {name: getattr(workload, name) for name in SIZES if hasattr(workload, name)}
        sizes = {name: (getattr(case, name) or own) if own else None for name, own in own_sizes.items()}
        case = replace(case, workload=workload.name, version=workload.version, **sizes)  # type: ignore[arg-type]
        cases += [replace(case, device=name) for name in devices(case)]
    return cases


def check_most(values: Values) -> None:
    """Raise if a plan has more ranks, workers or threads than a machine can have."""
    for axis in (AXIS[name] for name in values):
        largest = max((value for value in values[axis.name] if value is not None), default=0) if axis.most else 0
        if largest > (axis.most or 0):
            raise UsageError(f"{largest:,} {axis.name.replace('_', ' ')} are over {axis.most:,}; ask for fewer.")
