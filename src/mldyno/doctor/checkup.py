"""The whole check-up, part by part. A failure of a part is a result; only the user ends the check-up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mldyno import machine as machines
from mldyno import plugins
from mldyno.axes import COMMAND
from mldyno.doctor import facts, features, noise, settings
from mldyno.doctor.symptoms import Checkup, Installed, StoreState, Trial, Tried
from mldyno.errors import MldynoError
from mldyno.hardware import system
from mldyno.records import Case
from mldyno.runner.events import Interrupts
from mldyno.runner.probing import probe_frameworks, with_vendors
from mldyno.runner.remote_case import REST_S
from mldyno.store import Query, Store
from mldyno.timing import clock

NOISE_S = 60.0
START_S, COMPILE_S = 4.0, 25.0  # to start a framework, and to compile for the first time, on a slow machine
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Wanted:
    """The scope of a check-up: its frameworks, the seconds of the noise test, and whether it is quick."""

    frameworks: tuple[str, ...]
    noise: float | None
    quick: bool
    store: str | None = None


def wanted(quick: bool, noise: float | None, framework: str | None, store: str | None) -> Wanted:
    """Return the scope from the options: by default every real framework, and noise unless it is quick."""
    if framework is not None:
        plugins.check("frameworks", framework)
    known = [plugins.framework(name) for name in plugins.names("frameworks") if name != COMMAND]
    real = [each for each in known if each.clock is None and not each.example]
    real.sort(key=lambda each: not each.features)  # of those without features to try, the ones that are installed
    usual = [each.name for each in real if each.features or plugins.installed(each.name)]
    frameworks = (framework,) if framework else tuple(usual)
    return Wanted(frameworks, noise if noise is not None or quick else NOISE_S, quick, store)


class Parts:
    """Report the current part and the time left, again and again; raise if the user interrupts."""

    def __init__(self, wanted: Wanted, interrupts: Interrupts, tell: Progress) -> None:
        self._wanted, self._interrupts, self._tell = wanted, interrupts, tell
        self._now, self._began = ("facts", 0.0), time.monotonic()
        self.start = START_S  # time in s to start a framework here
        # Devices whose features are tried; until they are known, one for each framework.
        self.devices = sum(bool(features.names(name, wanted.quick)) for name in wanted.frameworks)
        allocators = settings.of_allocators()
        # Settings of each kind that are tried, with the current one.
        self.ways = {"threads": 3, "allocators": 1 + len(allocators) if allocators else 0}

    def _seconds(self) -> dict[str, float]:
        """Return the expected time of each part in s."""
        wanted, start = self._wanted, self.start
        seconds = {
            "facts": 1.0 + start * len(wanted.frameworks),
            "features": self.devices * (start + (0.0 if wanted.quick else COMPILE_S)),
            "cores": clock.SPIN_S,
            "energy": REST_S + facts.WORK_S,
        }
        if not wanted.quick:
            per_process = start + settings.WARM_UP_S + settings.TURNS * settings.TURN_S
            seconds |= {kind: settings.SETS * ways * per_process for kind, ways in self.ways.items()}
        if wanted.noise:
            seconds["noise"] = wanted.noise
        return seconds

    def begin(self, part: str, detail: str = "", done: float = 0.0) -> None:
        """Begin a part, or a phase of it after a share of it is done."""
        seconds = self._seconds()
        later = list(seconds)[list(seconds).index(part) + 1 :]
        left = (1 - done) * seconds[part] + sum(seconds[name] for name in later)
        expected, spent = sum(seconds.values()) - left, time.monotonic() - self._began
        left *= max(1.0, spent / expected) if expected > 0 else 1.0  # on a busy machine all takes longer
        self._now = (f"{part} {detail}".strip(), left)
        self.look()

    def look(self) -> None:
        """Raise if the user has interrupted; else report progress."""
        self._interrupts.check()
        self._tell(*self._now)


def check_up(wanted: Wanted, tell: Progress = lambda part, left: None) -> Checkup:
    """Do a check-up; `tell` gets each part and the time left in s."""
    interrupts, vendors = Interrupts(), machines.Vendors()
    parts = Parts(wanted, interrupts, tell)
    parts.begin("facts")
    machine, throttled = machines.describe(), system.core_throttles()
    gathered = facts.gather(machine, vendors)  # here Ctrl-C has its usual effect: a tool may hang for some s
    with interrupts:
        frameworks = _frameworks(wanted, vendors, parts)
        tried = _tried(wanted, frameworks, parts)
        parts.begin("cores")
        free = clock.free_cores(gathered.cores) if gathered.cores else None
        devices = [device for framework in frameworks for device in framework.devices]
        parts.begin("energy")
        sensors = facts.watch_sensors(devices, gathered.cores, parts.look)
        runs = next((framework for framework in frameworks if not framework.error), None)
        threads = allocators = None
        if runs is not None and not wanted.quick:
            of_threads = settings.of_threads(runs.threads, free, gathered.env)
            threads = _trial(runs, Case("mlp", framework=runs.name, batch=settings.BATCH), of_threads, "threads", parts)
            of_allocators = settings.of_allocators()
            allocators = _trial(runs, Case("bert-tiny", framework=runs.name), of_allocators, "allocators", parts)
        noises = None
        if wanted.noise:
            parts.begin("noise")
            noises = noise.listen(wanted.noise, parts.look)
    after = system.core_throttles()
    if throttled is not None and after is not None:
        gathered = replace(gathered, throttles=max(0.0, after - throttled))
    store = _store_state(wanted.store)
    return Checkup(machine, gathered, frameworks, tried, free, threads, allocators, noises, sensors, store)


def _frameworks(wanted: Wanted, vendors: machines.Vendors, parts: Parts) -> tuple[Installed, ...]:
    """Probe each framework in its own process."""
    installed: list[Installed] = []
    for number, name in enumerate(wanted.frameworks):
        parts.begin("facts", f"of {name}", number / len(wanted.frameworks))
        began = time.monotonic()
        probed = with_vendors(probe_frameworks((name,), parts.look), vendors)
        installed += [Installed(name, **vars(facts)) for name, facts in probed.frameworks.items()]
        if all(framework.error for framework in installed[:-1]):  # settings are tried with the first that runs
            parts.start = time.monotonic() - began
    return tuple(installed)


def _tried(wanted: Wanted, frameworks: Sequence[Installed], parts: Parts) -> tuple[Tried, ...]:
    tried: list[Tried] = []
    places = [(framework.name, device.name) for framework in frameworks for device in features.kinds(framework.devices)
              if features.names(framework.name, wanted.quick)]  # fmt: skip
    parts.devices = len(places)
    for number, (framework, device) in enumerate(places):
        parts.begin("features", f"of {device}", number / len(places))
        tried += features.examine(parts.look, framework, device, features.names(framework, wanted.quick))
    return tuple(tried)


def _trial(runs: Installed, case: Case, envs: Mapping[str, settings.Env], kind: str, parts: Parts) -> Trial | None:
    """Time a case with the settings of one kind; None if there are none."""
    parts.ways[kind] = 1 + len(envs) if envs else 0

    def begin(number: int) -> None:
        parts.begin(kind, f"{number + 1} of {settings.SETS}", number / settings.SETS)

    return settings.measure(parts.look, case, runs.threads, envs, begin) if envs else None


def _store_state(name: str | None) -> StoreState:
    """Return the path of the store, and why it can't be read, if so."""
    path, error = name or "", ""
    try:
        store = Store(name)
        path = str(store.path)
        store.history(Query(heads=False), 1)
    except MldynoError as fault:
        error = str(fault)
    return StoreState(path, error)
