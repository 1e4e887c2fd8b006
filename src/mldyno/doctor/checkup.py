"""The whole check-up, part by part: facts of the machine, features tried in workers, settings, noise.

A failure of a part is a result; only the user ends the check-up. What is unknown keeps its default in `Facts`. One
worker process tries one feature after the other, until one ends it or leaves it unusable. What the framework could
leave to the CPU is tried once more, with the setting that allows it.
"""

from __future__ import annotations

import math
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import psutil

from mldyno import interpreters, plugins
from mldyno import machine as machines
from mldyno.axes import COMMAND
from mldyno.doctor import noise, settings
from mldyno.doctor.findings import GIVES_NUMBERS
from mldyno.doctor.symptoms import Checkup, Facts, Gpu, Installed, Outcome, SensorState, StoreState, Trial, Tried
from mldyno.errors import MldynoError
from mldyno.hardware import Surroundings, system
from mldyno.messages import TryFeature
from mldyno.records import Case, Device, Machine, recorded_environment
from mldyno.runner.events import Interrupts
from mldyno.runner.probing import probe_frameworks, with_vendors
from mldyno.runner.remote_case import REST_S
from mldyno.stats.intervals import mean
from mldyno.store import Query, Store
from mldyno.system_queries import ask, attempt, read
from mldyno.timing import clock
from mldyno.timing.energy import Ticks, Watch, Watched
from mldyno.worker.client import Ended, WorkerProcess
from mldyno.worker.energy import WINDOW_S
from mldyno.worker.session import translated

NOISE_S = 60.0
START_S, COMPILE_S = 4.0, 25.0  # to start a framework, and to compile for the first time, on a slow machine
Progress = Callable[[str, float], None]
PACKAGES = (
    *interpreters.PACKAGES, "tensorflow-cpu", "tensorflow-macos", "tensorflow-rocm", "tensorflow-metal",
    "jax-cuda12-plugin", "jax-cuda13-plugin", "jax-rocm7-plugin", "jax-mps", "jax-metal", "onnxruntime-gpu",
)  # fmt: skip
NODES = ("nvidia[0-9]*", "kfd", "dxg", "dri/renderD*")
# Files and variables that show a container.
CONTAINERS = {"docker": "/.dockerenv", "podman": "/run/.containerenv", "kubernetes": "KUBERNETES_SERVICE_HOST"}
TITLES = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}
CLOCK = "/sys/devices/system/cpu/cpu0/cpufreq"
WORK_S = 2.0  # that sensors are watched for with all cores busy
MAC_PRESSURE = {"1": "normal", "2": "warning", "4": "critical"}
OUTCOME_OF_END: dict[str, Outcome] = {"timeout": "timeout", "oom": "failed"}
QUICK_LIMIT_S = 60.0  # features that may take longer are skipped in a quick look


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
        self.devices = sum(bool(feature_names(name, wanted.quick)) for name in wanted.frameworks)
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
            "energy": REST_S + WORK_S,
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
    gathered = gather_facts(machine, vendors)  # here Ctrl-C has its usual effect: a tool may hang for some s
    with interrupts:
        frameworks = _frameworks(wanted, vendors, parts)
        tried = _try_features(wanted, frameworks, parts)
        parts.begin("cores")
        free = clock.free_cores(gathered.cores) if gathered.cores else None
        devices = [device for framework in frameworks for device in framework.devices]
        parts.begin("energy")
        sensors = watch_sensors(devices, gathered.cores, parts.look)
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


def _try_features(wanted: Wanted, frameworks: Sequence[Installed], parts: Parts) -> tuple[Tried, ...]:
    tried: list[Tried] = []
    places = [
        (framework.name, device.name)
        for framework in frameworks if feature_names(framework.name, wanted.quick)
        for device in one_of_each_kind(framework.devices)
    ]  # fmt: skip
    parts.devices = len(places)
    for number, (framework, device) in enumerate(places):
        parts.begin("features", f"of {device}", number / len(places))
        tried += examine(parts.look, framework, device, feature_names(framework, wanted.quick))
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


def gather_facts(machine: Machine, vendors: machines.Vendors) -> Facts:
    """Return the facts of this machine; `machine` has some of them, and vendors are asked for their GPUs."""
    driver = attempt(lambda: vendors.nvidia_driver, None)
    unnamed = os.environ.get("container", "")  # noqa: SIM112 (so it is called)
    container = next((name for name, sign in CONTAINERS.items() if os.path.exists(sign) or sign in os.environ), unnamed)
    nodes: list[Path] = attempt(lambda: [path for name in NODES for path in sorted(Path("/dev").glob(name))], [])
    return Facts(
        system=machine.system, arch=machine.arch, virtualised=machine.virtualised, container=container,
        version=attempt(lambda: platform.mac_ver()[0] if sys.platform == "darwin" else platform.release(), ""),
        translated=attempt(translated, False), gpus=attempt(lambda: _gpus(machine, vendors), ()),
        nodes=tuple(str(node.relative_to("/dev")) for node in nodes),
        barred=tuple(str(node.relative_to("/dev")) for node in nodes if not os.access(node, os.R_OK | os.W_OK)),
        driver=driver.version if driver else "", driver_cuda=driver.cuda if driver else "",
        driver_error=driver.fault if driver else "",
        python=platform.python_version(), packages=installed(PACKAGES), env=recorded_environment(),
        cores=machine.cores, quota=attempt(machines.cores_allowed, None), cores_present=os.cpu_count(),
        niceness=attempt(lambda: os.getpriority(os.PRIO_PROCESS, 0), None),
        load=attempt(lambda: os.getloadavg()[0], None),
        memory=machine.memory, available=attempt(machines.available_memory, None),
        memory_waits=waiting_share(read("/proc/pressure/memory")),
        memory_state=MAC_PRESSURE.get(ask("sysctl", "-n", machines.PRESSURE), ""),
        swap_used=attempt(lambda: int(psutil.swap_memory().used), None),
        power=machine.power, battery=attempt(lambda: float(psutil.sensors_battery().percent) / 100, None),
        low_power=machine.low_power, governor=read(f"{CLOCK}/scaling_governor"),
        scaling=read(f"{CLOCK}/scaling_driver"), preference=read(f"{CLOCK}/energy_performance_preference"),
        speed_limit=attempt(system.speed_limit, None),
    )  # fmt: skip


def _gpus(machine: Machine, vendors: machines.Vendors) -> tuple[Gpu, ...]:
    """Return the GPUs that the system sees, by the names of their vendors where known."""
    if machine.system == "Darwin":
        ours = machine.arch == "arm64" or translated()
        return (Gpu("apple", vendors.metal.title or f"GPU of {machine.cpu}"),) if ours else ()
    answered = [] if vendors.nvidia_driver.fault else vendors.nvidia_cards
    named = [Gpu("nvidia", card.title or "unknown", str(card.facts["uuid"])) for card in answered]
    on_bus = [Gpu(maker, f"{TITLES[maker]} {product}") for maker, product in machines.cards_on_bus()]
    return (*named, *(gpu for gpu in on_bus if not (named and gpu.vendor == "nvidia")))


def installed(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that are installed for this Python, without importing them."""
    versions = {}
    for name in names:
        with suppress(Exception):  # a broken installation counts as none
            versions[name] = metadata.version(name)
    return versions


def waiting_share(text: str) -> float | None:
    """Return the share of the last minute in which some process waited, from a file in /proc/pressure."""
    match = re.search(r"^some .*avg60=(\d+(?:\.\d+)?)", text, re.MULTILINE)
    return float(match.group(1)) / 100 if match else None


def watch_sensors(devices: Sequence[Device], cores: int | None, tell: Callable[[], None]) -> tuple[SensorState, ...]:
    """Return every sensor with its scope, method, period and power at rest and at work; or why it can't be read."""
    available = plugins.sensors(Surroundings(devices=devices))
    readable = [(kind, each) for kind, part in available.items() for each in part.sensors]
    ticks = [Ticks(sensor, clock.now, time.sleep) for _, sensor in readable]
    rest = work = [Watched(sensor) for _, sensor in readable]
    if ticks:
        tell()
        with Watch(ticks, WINDOW_S) as watch:
            time.sleep(REST_S)
        rest = watch.results
        with Watch(ticks, WINDOW_S) as watch:
            clock.shares(cores or 1, WORK_S)
        work = watch.results
    watched = [
        SensorState(kind, sensor.name, sensor.scope, sensor.method, sensor.device, each.period, _mean_power(before),
                   _mean_power(after), error="; ".join(dict.fromkeys([*before.lost, *after.lost])))
        for (kind, sensor), each, before, after in zip(readable, ticks, rest, work, strict=True)
    ]  # fmt: skip
    closed = [SensorState(kind, each.name, each.scope or "", reason=each.reason, cure=each.cure, price=each.price)
              for kind, part in available.items() for each in part.closed]  # fmt: skip
    return (*watched, *closed)


def _mean_power(watched: Watched) -> float | None:
    powers = [window.watts for window in watched.counted] or [
        watts for _, watts in watched.readings if math.isfinite(watts)
    ]
    return mean(powers) if powers else None


def feature_names(framework: str, quick: bool) -> list[str]:
    """Return the features of a framework to try."""
    limits = plugins.framework(framework).features
    return [name for name, limit in limits.items() if limit <= QUICK_LIMIT_S or not quick]


def one_of_each_kind(devices: Sequence[Device]) -> list[Device]:
    """Return the devices, of cards with one name only the first: they behave alike."""
    first: dict[tuple[str, str], Device] = {}
    for device in devices:
        first.setdefault((device.name.partition(":")[0], device.title), device)
    return list(first.values())


def examine(check: Callable[[], None], framework: str, device: str, wanted: Sequence[str]) -> list[Tried]:
    """Return the outcome of each feature on a device; the rest is skipped if the first gives no numbers."""
    fallback = plugins.framework(framework).fallback
    results: list[Tried] = []
    worker, with_fallback = WorkerProcess(check, dict.fromkeys(fallback)), WorkerProcess(check, fallback)
    try:
        for feature in wanted:
            tried = _try(worker, framework, device, feature)
            if tried.outcome == "unsupported" and any(name in tried.reason for name in fallback):
                worker.kill()
                again = _try(with_fallback, framework, device, feature)
                with_fallback.kill()
                if again.outcome in ("works", "fallback"):
                    settings = ", ".join(f"{name}={value}" for name, value in fallback.items())
                    reason = ", ".join(filter(None, [again.reason, f"only with {settings}"]))
                    tried = replace(again, outcome="fallback", reason=reason)
            results.append(tried)
            if results[0].outcome not in GIVES_NUMBERS:
                break
    finally:
        worker.kill()
        with_fallback.kill()
    return results


def _try(worker: WorkerProcess, framework: str, device: str, feature: str) -> Tried:
    """Try a feature in a worker, which is started where it does not run, and killed where it is not fit any more."""
    try:
        if not worker.running:
            worker.start()
        limit = plugins.framework(framework).features[feature]
        tried = worker.request(TryFeature(framework, device, feature), limit)
    except Ended as end:
        worker.kill()
        return Tried(framework, device, feature, OUTCOME_OF_END.get(end.status, "crashed"), end.reason)
    if not tried.fit:
        worker.kill()
    return Tried(framework, device, feature, tried.result, tried.reason, tried.error, tried.tolerance)
