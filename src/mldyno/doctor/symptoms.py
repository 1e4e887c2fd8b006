"""What a check-up sees of a machine, as plain data: what it means is said by the findings.

What is not known is None, or an empty word. Quantities are in SI units, shares are fractions of 1.
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
    """A GPU that the system sees, whatever a framework can do with it."""

    vendor: Literal["nvidia", "amd", "intel", "apple"]
    name: str = "unknown"
    uuid: str = ""


@dataclass(frozen=True)
class Facts:
    """What decides whether a GPU can be used, and what state the machine is in."""

    system: str = "unknown"
    version: str = ""
    """Of the system: 14.5 on a Mac, the kernel's elsewhere."""
    arch: str = "unknown"
    translated: bool = False
    """Whether this Python is Intel code on an Apple chip."""
    container: str = ""
    virtualised: bool | None = None
    gpus: tuple[Gpu, ...] = ()
    nodes: tuple[str, ...] = ()
    """Files under /dev by which a program reaches a GPU: nvidia0, kfd, dxg."""
    barred: tuple[str, ...] = ()
    """Those of them that this user may not open."""
    driver: str = ""
    driver_cuda: str = ""
    """NVIDIA's driver, and the newest CUDA that it can take."""
    driver_error: str = ""
    """What the driver's own tool says where it fails."""
    packages: dict[str, str] = field(default_factory=dict)
    """Frameworks that are installed, and their versions; none was imported."""
    env: dict[str, str] = field(default_factory=dict)
    cores: int | None = None
    quota: float | None = None
    """Cores that the control group may use; None where it has no limit."""
    load: float | None = None
    memory: int | None = None
    available: int | None = None
    memory_waits: float | None = None
    """Share of the last minute in which some process waited for memory (Linux)."""
    memory_state: str = ""
    """normal, warning or critical (macOS)."""
    swap_used: int | None = None
    power: str = "unknown"
    battery: float | None = None
    low_power: bool | None = None
    governor: str = ""
    scaling: str = ""
    """What sets the CPU's clock: the governor, and the driver behind it."""
    preference: str = ""
    """What the clock's driver is told to prefer, such as balance_performance."""
    speed_limit: float | None = None
    throttles: float | None = None
    """Times that cores were slowed down for heat during the check-up."""


@dataclass(frozen=True)
class Installed:
    """A framework as it is installed here, or why it can't be started."""

    name: str
    error: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    threads: int | None = None
    devices: tuple[Device, ...] = ()
    support: dict[str, Fact] = field(default_factory=dict)

    @property
    def accelerators(self) -> tuple[Device, ...]:
        """The devices that are more than the CPU."""
        return tuple(device for device in self.devices if device.name != "cpu")


@dataclass(frozen=True)
class Tried:
    """What became of one feature on one device, beside the CPU's numbers."""

    framework: str
    device: str
    feature: str
    outcome: Outcome
    reason: str = ""
    error: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class Setting:
    """A setting of the environment that was tried: time of a step in s, and how many times as fast as without it."""

    name: str
    """As it is exported: OMP_WAIT_POLICY=PASSIVE."""
    step: float
    ratio: float
    low: float
    high: float
    option: str = ""
    """The same as an option of mldyno: --allocator steady."""

    @property
    def gain(self) -> Interval:
        return Interval(self.ratio, self.low, self.high)


@dataclass(frozen=True)
class Trial:
    """A training step as it is, and with other settings, in processes that took turns."""

    framework: str
    workload: str
    threads: int | None
    step: float
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class Noise:
    """How quiet the machine was while one core did the same work over and over."""

    seconds: float
    verdict: Verdict
    variation: float
    """Standard deviation of the work's time over its mean."""
    drift: float = 0.0
    two_speeds: float | None = None
    """By how much the slower of two speeds is slower; None where there is one."""
    waiting: float | None = None
    """Share of the time that the work waited for its core."""
    stolen: float | None = None
    """Share of the machine's time that its host took."""
    detectable_paired: float | None = None
    detectable_separate: float | None = None
    """Smallest difference that a run of this length can show: of paired cases, and of separate runs."""


@dataclass(frozen=True)
class SensorSeen:
    """A sensor of energy or power: what it sees and how it tells, or why it can't be read and what would open it."""

    kind: str
    """The file that found it: powercap, hwmon."""
    name: str
    scope: str
    method: str = ""
    device: str = ""
    period: float | None = None
    """How often a counter is renewed, in s."""
    rest: float | None = None
    work: float | None = None
    """Mean power in W, at rest and while all cores work."""
    error: str = ""
    """What went wrong while it was watched."""
    reason: str = ""
    cure: str = ""
    price: str = ""
    """Why it is closed, what opens it, and what that gives away."""


@dataclass(frozen=True)
class Kept:
    """The store: its path, and why it can't be read."""

    path: str = ""
    error: str = ""


@dataclass(frozen=True)
class Checkup:
    """All that was seen; None where it was not looked at."""

    machine: Machine = field(default_factory=lambda: Machine("unknown"))
    facts: Facts = field(default_factory=Facts)
    frameworks: tuple[Installed, ...] = ()
    tried: tuple[Tried, ...] = ()
    free: float | None = None
    """Cores' worth of time that a thread on each core really got."""
    threads: Trial | None = None
    """With settings of threads."""
    allocators: Trial | None = None
    """With other allocators of memory."""
    noise: Noise | None = None
    sensors: tuple[SensorSeen, ...] = ()
    store: Kept = field(default_factory=Kept)
