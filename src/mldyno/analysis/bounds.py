"""What limits a case: computing, memory, the host or copies; and why that is thought so.

Each is a share: of the device's rate in matmuls, of its rate in copies, of the step's time that copies
to and from the device take, or that the device waits for the host. The largest names the bound, where it is large.
A model that works in caches can move more bytes a second than memory gives; its share is given as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from mldyno.analysis.conditions import CLEAR_SHARE
from mldyno.analysis.estimates import step_time
from mldyno.analysis.outcomes import Outcome
from mldyno.records import Record
from mldyno.units import show_percent, show_seconds

WAITING_SHARE = 0.5  # of a step, from which on copies or data are what it consists of
LOADING_SHARE = 0.9  # of what a loader's workers can load, from which on steps wait for them
SHORT_KERNEL = 20e-6  # s: on average, below which issuing kernels is most of the work


@dataclass(frozen=True)
class Bound:
    """What limits a case: compute, memory, host, copy, or unclear; with the reason in words."""

    kind: str
    why: str


@dataclass(frozen=True)
class Shares:
    """How much of each peak a case uses; None where that is not known."""

    compute: float | None
    memory: float | None
    copy: float | None
    data: float | None


def shares(record: Record) -> Shares | None:
    """The shares of a record that succeeded; None where it has no time of a step."""
    estimate = step_time([record]) if record.status == "ok" and record.alone else None
    if estimate is None or estimate.value <= 0:
        return None
    step = estimate.value

    def rate(fact: str, peak: str) -> float | None:
        work, most = record.fact(fact), record.fact(peak)
        return work / step / most if work and most else None

    return Shares(
        compute=rate("flops_per_step", "peak_flops"),
        memory=rate("bytes_per_step", "peak_bandwidth"),
        copy=rate("copied_per_step", "peak_copy_bandwidth"),
        data=Outcome((record,)).waits_for_data(),
    )


def bound(record: Record) -> Bound | None:
    """What holds the case up; None where there is no time, or nothing is known of peaks."""
    of_peaks = shares(record)
    if of_peaks is None or of_peaks == Shares(None, None, None, None):
        return None
    return _waiting(of_peaks, record.case.loader_workers) or _working(of_peaks) or _issuing(record, of_peaks)


def _waiting(of_peaks: Shares, loader_workers: int) -> Bound | None:
    """Where most of a step is not the device's work."""
    if loader_workers:
        if of_peaks.data is not None and of_peaks.data >= LOADING_SHARE:
            return Bound("host", f"steps take {show_percent(of_peaks.data)} of what the loader's workers can load")
    elif of_peaks.data is not None and of_peaks.data >= WAITING_SHARE:
        return Bound("host", f"{show_percent(of_peaks.data)} of a step is getting its batch from disk")
    if of_peaks.copy is not None and of_peaks.copy >= WAITING_SHARE:
        return Bound("copy", f"{show_percent(of_peaks.copy)} of a step is copying between host and device")
    return None


def _working(of_peaks: Shares) -> Bound | None:
    """Where a peak is near, whatever the host does meanwhile."""
    compute, memory = of_peaks.compute or 0.0, of_peaks.memory or 0.0
    if max(compute, memory) < CLEAR_SHARE:
        return None
    return Bound("compute" if compute >= memory else "memory", _why(of_peaks))


def _issuing(record: Record, of_peaks: Shares) -> Bound:
    why, codes = _why(of_peaks), {warning.code for warning in record.warnings}
    if "host-bound" in codes:
        return Bound("host", "the device is done when its last kernel is issued: it waits for the host")
    if "step-waits" in codes:
        return Bound("host", f"{why}; each step waits for the device within itself, and the host can't run ahead")
    kernel = _kernel_time(record)
    if kernel is not None and kernel < SHORT_KERNEL:
        return Bound("host", f"{why}; a kernel takes {show_seconds(kernel)} on average: issuing them is the work")
    return Bound("unclear", f"{why}; neither is near its peak")


def _why(of_peaks: Shares) -> str:
    parts = [("arithmetic", of_peaks.compute, "matmuls"), ("memory traffic", of_peaks.memory, "copies")]
    return ", ".join(f"{what} at {show_percent(share)} of {peak}" for what, share, peak in parts if share is not None)


def _kernel_time(record: Record) -> float | None:
    """Time in s that a kernel takes on average, the host's work for it included."""
    kernels, step = record.fact("kernels_per_step"), step_time([record])
    return step.value / kernels if step is not None and kernels else None
