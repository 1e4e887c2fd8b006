"""Gathers the facts that findings need. Never raises: what can't be found out stays as it is in `Facts`."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from mldyno import machine as machines
from mldyno.analysis.symptoms import Facts, Gpu
from mldyno.meters import throttling
from mldyno.records import Machine
from mldyno.worker.opened import ENV_THAT_MATTERS, translated

T = TypeVar("T")

PACKAGES = ("torch", "tensorflow", "tensorflow-macos", "tensorflow-metal", "jax", "jax-metal", "mlx")
VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
DISPLAY, PROCESSING = "0x03", "0x12"  # classes of PCI devices
ARC = ("0x56", "0xe2", "0x0bd")  # Intel's cards; what is built into its older CPUs no framework can use
NODES = ("nvidia[0-9]*", "kfd", "dxg", "dri/renderD*")
CUDA_OF_DRIVER = ((580, "13.0"), (525, "12.0"), (450, "11.0"))  # what a driver of that series takes at least
CPU0 = "/sys/devices/system/cpu/cpu0/cpufreq"
MAC_PRESSURE = {"1": "normal", "2": "warning", "4": "critical"}


def gather(machine: Machine) -> Facts:
    """The facts of this machine, of which `machine` has some already."""
    said, failed = _known(_nvidia_smi, ("", ""))
    driver, cuda = driver_of(said or _read("/proc/driver/nvidia/version"))
    return Facts(
        system=machine.system,
        version=_known(_version, ""),
        arch=machine.arch,
        translated=_known(translated, False),
        container=_known(_container, ""),
        virtualised=machine.virtualised,
        gpus=_known(lambda: _gpus(machine), ()),
        nodes=_known(_nodes, ()),
        driver=driver,
        driver_cuda=cuda,
        driver_error=failed,
        packages=installed(PACKAGES),
        env={name: os.environ[name] for name in ENV_THAT_MATTERS if name in os.environ},
        cores=machine.cores,
        quota=_known(_quota, None),
        load=_known(lambda: os.getloadavg()[0], None),
        memory=machine.memory,
        available=_known(machines.available_memory, None),
        memory_waits=_known(lambda: waits(_read("/proc/pressure/memory")), None),
        memory_state=MAC_PRESSURE.get(_on_mac("sysctl", "-n", "kern.memorystatus_vm_pressure_level"), ""),
        swap_used=_known(_swap_used, None),
        power=machine.power,
        battery=_known(_battery, None),
        low_power=machine.low_power,
        governor=_read(f"{CPU0}/scaling_governor"),
        scaling=_read(f"{CPU0}/scaling_driver"),
        preference=_read(f"{CPU0}/energy_performance_preference"),
        speed_limit=_known(throttling.speed_limit, None),
    )


def _known(find: Callable[[], T], otherwise: T) -> T:
    try:
        return find()
    except Exception:
        return otherwise


def _read(path: str | Path) -> str:
    """A file of the system; empty where it is not there."""
    with suppress(OSError):
        return Path(path).read_text(errors="replace").strip()
    return ""


def _run(*command: str) -> tuple[int, str]:
    """Exit code and output of a system tool; empty where it is missing or slow."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=5, check=False)
        return done.returncode, (done.stdout or done.stderr).strip()
    return 1, ""


def _on_mac(*command: str) -> str:
    code, said = _run(*command) if sys.platform == "darwin" else (1, "")
    return said if code == 0 else ""


def _version() -> str:
    return platform.mac_ver()[0] if sys.platform == "darwin" else platform.release()


def _container() -> str:
    if os.path.exists("/.dockerenv"):
        return "docker"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    return os.environ.get("container", "")  # noqa: SIM112 (so it is called)


# -- GPUs ------------------------------------------------------------------------------------------


def _nvidia_smi() -> tuple[str, str]:
    """What the driver's tool prints; and what it complains of, where it is there and fails."""
    if shutil.which("nvidia-smi") is None:
        return "", ""
    code, said = _run("nvidia-smi")
    if code == 0:
        return said, ""
    return "", said.splitlines()[0] if said else "nvidia-smi gives no answer"


def driver_of(text: str) -> tuple[str, str]:
    """NVIDIA's driver and the CUDA it takes, from nvidia-smi's heading or the kernel's own file."""
    driver = re.search(r"(?:Driver Version:|Kernel Module(?: for \S+)?)\s+(\d+[\d.]*)", text)
    cuda = re.search(r"CUDA Version\s*:\s*(\d+[\d.]*)", text)
    if driver is None:
        return "", cuda.group(1) if cuda else ""
    series = int(driver.group(1).split(".")[0])
    by_series = next((taken for since, taken in CUDA_OF_DRIVER if series >= since), "")
    return driver.group(1), cuda.group(1) if cuda else by_series


def _gpus(machine: Machine) -> tuple[Gpu, ...]:
    if machine.system == "Darwin":
        ours = machine.arch == "arm64" or _known(translated, False)
        return (Gpu("apple", f"GPU of {machine.cpu}"),) if ours else ()
    named = listed(_run("nvidia-smi", "-L")[1]) if shutil.which("nvidia-smi") else ()
    cards = _cards(Path("/sys/bus/pci/devices"))
    return (*named, *(one for one in cards if not (named and one.vendor == "nvidia")))


def listed(text: str) -> tuple[Gpu, ...]:
    """NVIDIA's GPUs as `nvidia-smi -L` lists them: GPU 0: Tesla T4 (UUID: GPU-…)."""
    lines = re.findall(r"^GPU \d+: (.+?) \(UUID: (GPU-[^)]+)\)", text, re.MULTILINE)
    return tuple(Gpu("nvidia", name, uuid) for name, uuid in lines)


def _cards(folder: Path) -> tuple[Gpu, ...]:
    """Graphics cards and accelerators on the PCI bus, whether they have a driver or not."""
    found = []
    for one in sorted(folder.glob("*")):
        kind, vendor, device = (_read(one / name) for name in ("class", "vendor", "device"))
        known = VENDORS.get(vendor)
        if known is None or not kind.startswith((DISPLAY, PROCESSING)):
            continue
        if known != "intel" or device.startswith(ARC):
            found.append(Gpu(known, f"{known.upper() if known == 'amd' else known.capitalize()} {device}"))  # type: ignore[arg-type]
    return tuple(found)


def _nodes() -> tuple[str, ...]:
    return tuple(str(path.relative_to("/dev")) for name in NODES for path in sorted(Path("/dev").glob(name)))


def installed(names: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are installed for this Python; none is imported."""
    found = {}
    for name in names:
        with suppress(Exception):  # a broken installation is as good as none
            found[name] = metadata.version(name)
    return found


# -- CPU, memory, power ----------------------------------------------------------------------------


def _quota() -> float | None:
    """Cores that this control group may use, the tightest on its way to the root; None where there is no limit."""
    place = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2].strip("/")
    folders = [Path("/sys/fs/cgroup"), *(Path("/sys/fs/cgroup") / one for one in _ways(place))]
    found = [limit for folder in folders if (limit := cores_of(_read(folder / "cpu.max"))) is not None]
    older = Path("/sys/fs/cgroup/cpu")
    pair = f"{_read(older / 'cpu.cfs_quota_us')} {_read(older / 'cpu.cfs_period_us')}"
    found += [limit for limit in (cores_of(pair),) if limit is not None]
    return min(found, default=None)


def _ways(place: str) -> list[str]:
    parts = place.split("/") if place else []
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def cores_of(text: str) -> float | None:
    """Cores from a quota and its period, such as `150000 100000`; None for `max`, -1 and anything else."""
    words = text.split()
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
        return int(words[0]) / int(words[1])
    return None


def waits(text: str) -> float | None:
    """The share of the last minute in which some process waited, from one of the files in /proc/pressure."""
    found = re.search(r"^some .*avg60=([\d.]+)", text, re.MULTILINE)
    return float(found.group(1)) / 100 if found else None


def _swap_used() -> int:
    import psutil

    return int(psutil.swap_memory().used)


def _battery() -> float | None:
    import psutil

    battery = psutil.sensors_battery()
    return None if battery is None else float(battery.percent) / 100
