"""The observations of a check-up, as plain data; the findings interpret them.

What is unknown is None or an empty text. Quantities are in SI units, shares are fractions of 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mldyno.records import Device, Fact, Machine
from mldyno.units import Interval

Outcome = Literal["works", "wrong", "unsupported", "fallback", "crashed", "timeout", "failed"]
Verdict = Literal["quiet", "noisy", "very noisy"]


@dataclass(frozen=True)
class Gpu:
    """A GPU that the system sees, whether a framework can use it or not."""

    vendor: Literal["nvidia", "amd", "intel", "apple"]
    name: str = "unknown"
    uuid: str = ""


@dataclass(frozen=True)
class Facts:
    """Facts that decide whether a GPU can be used, and the state of the machine."""

    system: str = "unknown"
    version: str = ""  # of macOS, such as 14.5; else of the kernel
    arch: str = "unknown"
    translated: bool = False  # whether this Python is Intel code on an Apple chip
    container: str = ""
    virtualised: bool | None = None
    gpus: tuple[Gpu, ...] = ()
    nodes: tuple[str, ...] = ()  # files under /dev that lead to a GPU: nvidia0, kfd, dxg
    barred: tuple[str, ...] = ()  # those of them that this user may not open
    driver: str = ""
    driver_cuda: str = ""  # the newest CUDA that NVIDIA's driver supports
    driver_error: str = ""  # what the driver's own tool prints when it fails
    python: str = ""  # the version of this interpreter
    packages: dict[str, str] = field(default_factory=dict)  # versions of installed frameworks; none is imported
    env: dict[str, str] = field(default_factory=dict)
    cores: int | None = None
    cores_present: int | None = None  # of the machine, allowed or not
    niceness: int | None = None
    quota: float | None = None  # cores that the control group may use; None without a limit
    load: float | None = None
    memory: int | None = None
    available: int | None = None
    memory_waits: float | None = None  # share of the last minute in which some process waited for memory (Linux)
    memory_state: str = ""  # normal, warning or critical (macOS)
    swap_used: int | None = None
    power: str = "unknown"
    battery: float | None = None
    low_power: bool | None = None
    governor: str = ""
    scaling: str = ""  # the driver behind the governor of the CPU's clock
    preference: str = ""  # the preference of that driver, such as balance_performance
    speed_limit: float | None = None
    throttles: float | None = None  # how often cores were slowed down for heat during the check-up


@dataclass(frozen=True)
class Installed:
    """A framework as it is installed here, or why it does not start."""

    name: str
    error: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    threads: int | None = None
    devices: tuple[Device, ...] = ()
    support: dict[str, Fact] = field(default_factory=dict)

    @property
    def accelerators(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.name != "cpu")


@dataclass(frozen=True)
class Tried:
    """The outcome of one feature on one device, compared with the CPU."""

    framework: str
    device: str
    feature: str
    outcome: Outcome
    reason: str = ""
    error: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class Setting:
    """A setting of the environment that was tried: the time of a step in s, and its speed over that without it."""

    name: str  # as it is exported: OMP_WAIT_POLICY=PASSIVE
    step: float
    gain: Interval
    option: str = ""  # the same as an option of mldyno: --allocator steady


@dataclass(frozen=True)
class Trial:
    """A training step without and with settings, in live processes that took turns."""

    framework: str
    workload: str
    threads: int | None
    step: float
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class Noise:
    """The result of the noise test: how quiet the machine was while one core repeated the same work."""

    seconds: float
    verdict: Verdict
    variation: float  # standard deviation of the work's time over its mean
    drift: float = 0.0
    two_speeds: float | None = None  # how much slower the slower of two speeds is; None with one speed
    waiting: float | None = None  # share of the time that the work waited for its core
    stolen: float | None = None  # share of the machine's time that its host took
    detectable_paired: float | None = None  # smallest difference that a run of this length can detect: of paired cases
    detectable_separate: float | None = None  # and of separate runs


@dataclass(frozen=True)
class SensorState:
    """A sensor of energy or power: its scope and method, or why it can't be read and what would open it."""

    kind: str  # the source that has it: powercap, hwmon
    name: str
    scope: str
    method: str = ""
    device: str = ""
    period: float | None = None  # update period of a counter, in s
    rest: float | None = None  # mean power in W at rest
    work: float | None = None  # and with all cores busy
    error: str = ""  # what went wrong while it was watched
    reason: str = ""  # why it can't be read
    cure: str = ""  # what opens it
    price: str = ""  # what that reveals


@dataclass(frozen=True)
class StoreState:
    """The path of the store, and why it can't be read, if so."""

    path: str = ""
    error: str = ""


@dataclass(frozen=True)
class Checkup:
    """The whole check-up; None for parts that were skipped."""

    machine: Machine = field(default_factory=lambda: Machine("unknown"))
    facts: Facts = field(default_factory=Facts)
    frameworks: tuple[Installed, ...] = ()
    tried: tuple[Tried, ...] = ()
    free: float | None = None  # cores' worth of time that a thread on each core got
    threads: Trial | None = None  # with settings of threads
    allocators: Trial | None = None  # with other allocators of memory
    noise: Noise | None = None
    sensors: tuple[SensorState, ...] = ()
    store: StoreState = field(default_factory=StoreState)
