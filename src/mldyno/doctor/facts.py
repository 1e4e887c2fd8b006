"""Gather the facts that findings need. Nothing here raises: what is unknown keeps its default in `Facts`."""

from __future__ import annotations

import math
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import psutil

from mldyno import interpreters, plugins
from mldyno import machine as machines
from mldyno.doctor.symptoms import Facts, Gpu, SensorState
from mldyno.hardware import Surroundings, system
from mldyno.records import Device, Machine, recorded_environment
from mldyno.runner.remote_case import REST_S
from mldyno.stats.intervals import mean
from mldyno.system_queries import ask, attempt, read
from mldyno.timing import clock
from mldyno.timing.energy import Ticks, Watch, Watched
from mldyno.worker.energy import WINDOW_S
from mldyno.worker.session import translated

PACKAGES = (*interpreters.PACKAGES, "tensorflow-macos", "tensorflow-metal", "jax-metal")
NODES = ("nvidia[0-9]*", "kfd", "dxg", "dri/renderD*")
# Files and variables that show a container.
CONTAINERS = {"docker": "/.dockerenv", "podman": "/run/.containerenv", "kubernetes": "KUBERNETES_SERVICE_HOST"}
TITLES = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}
CLOCK = "/sys/devices/system/cpu/cpu0/cpufreq"
WORK_S = 2.0  # that sensors are watched for with all cores busy
MAC_PRESSURE = {"1": "normal", "2": "warning", "4": "critical"}


def gather(machine: Machine, vendors: machines.Vendors) -> Facts:
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
        packages=installed(PACKAGES), env=recorded_environment(),
        cores=machine.cores, quota=attempt(machines.cores_allowed, None),
        load=attempt(lambda: os.getloadavg()[0], None),
        memory=machine.memory, available=attempt(machines.available_memory, None),
        memory_waits=waits(read("/proc/pressure/memory")),
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


def waits(text: str) -> float | None:
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
