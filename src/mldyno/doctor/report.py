"""A check-up as text for the terminal, at most 80 columns wide, and as data."""

from __future__ import annotations

import platform
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from mldyno import __version__
from mldyno.doctor.findings import CALLED, CLEAR_SPEEDUP, Finding, best_setting, by_device, error_text, of
from mldyno.doctor.symptoms import Checkup, Facts, Installed, Noise, SensorSeen, Trial, Tried
from mldyno.units import count, digits, show_bytes, show_interval, show_percent, show_seconds
from mldyno.views.records import device_line
from mldyno.views.window import window_width

WIDTH = 80
OUTCOMES = {
    "works": "works", "wrong": "wrong numbers", "unsupported": "not supported", "fallback": "left to the CPU",
    "crashed": "crashed", "timeout": "timed out", "failed": "failed",
}  # fmt: skip
Rows = Iterator[tuple[str, str]]


def report(checkup: Checkup) -> str:
    """The whole check-up; what was found stands last, where it is seen first."""
    parts = [checkup.machine.name, _block("machine", _machine(checkup)), _block("frameworks", _frameworks(checkup))]
    parts += [_block(f"{name} on {device}", _features(tried))
              for (name, device), tried in by_device(checkup.tried).items()]  # fmt: skip
    for kind, trial in (("threads", checkup.threads), ("allocators", checkup.allocators)):
        if trial:
            parts.append(_block(kind, _trial(trial)))
    if checkup.noise:
        parts.append(_block("noise", _noise(checkup.noise)))
    parts.append(_block("energy", _energy(checkup.sensors)))
    return "\n\n".join([*parts, _findings(of(checkup))])


def _block(title: str, rows: Rows) -> str:
    """A title, and below it names with what there is to say, wrapped."""
    listed = list(rows)
    width = max((len(name) for name, _ in listed), default=0)
    lines = [title]
    for name, text in listed:
        lines.append(_wrapped(text, f"  {name.ljust(width)}  ", " " * (width + 4)))
    return "\n".join(lines)


def _wrapped(text: str, first: str, later: str) -> str:
    width = min(WIDTH, window_width())
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    ).rstrip()


def _listed(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _machine(checkup: Checkup) -> Rows:
    facts = checkup.facts
    virtual = {True: "a virtual machine", False: "real hardware", None: ""}[facts.virtualised]
    inside = f"in a container ({facts.container})" if facts.container else ""
    translated = "translated by Rosetta" if facts.translated else ""
    yield "system", _listed(f"{facts.system} {facts.version}".strip(), facts.arch, translated, virtual, inside)
    yield "CPU", checkup.machine.cpu
    yield "cores", _cores(checkup)
    yield "memory", _memory(facts)
    yield "power", _power(facts)
    yield "clock", _clock(facts) or "unknown: the system tells neither governor nor heat"
    yield "GPUs", _gpus(facts)
    yield "Python", f"{platform.python_version()}, mldyno {__version__}"
    yield "packages", _listed(*(f"{name} {version}" for name, version in facts.packages.items())) or "no framework"
    if facts.env:
        yield "settings", _listed(*(f"{name}={value}" for name, value in facts.env.items()))
    yield "store", checkup.store.path


def _cores(checkup: Checkup) -> str:
    facts = checkup.facts
    free = f"{digits(checkup.free, most=2)} free when tried" if checkup.free is not None else ""
    quota = f"{digits(facts.quota)} may be used" if facts.quota is not None else ""
    load = f"load {digits(facts.load, most=2)}" if facts.load is not None else ""
    return _listed(str(facts.cores or "unknown"), free, quota, load)


def _memory(facts: Facts) -> str:
    left = f"{show_bytes(facts.available)} of it left" if facts.available is not None else ""
    waits = f"waited for in {show_percent(facts.memory_waits)} of the last minute" if facts.memory_waits else ""
    state = f"pressure {facts.memory_state}" if facts.memory_state else ""
    swap = "" if facts.swap_used is None else f"{show_bytes(facts.swap_used)} swapped" if facts.swap_used else "no swap"
    return _listed(show_bytes(facts.memory) if facts.memory else "unknown", left, waits, state, swap)


def _power(facts: Facts) -> str:
    """Where the power comes from, and whether it is saved."""
    battery = f"battery at {show_percent(facts.battery)}" if facts.battery is not None else ""
    saving = {True: "low-power mode", False: "full power", None: ""}[facts.low_power]
    return _listed(facts.power, battery, saving)


def _clock(facts: Facts) -> str:
    """What sets the CPU's clock, and whether heat holds it down."""
    driver = f" ({facts.scaling})" if facts.scaling else ""
    governor = f"governor {facts.governor}{driver}" if facts.governor else ""
    limit = f"the CPU may have {show_percent(facts.speed_limit)} of its speed" if facts.speed_limit is not None else ""
    heat = "" if facts.throttles is None else f"{'' if facts.throttles else 'not '}slowed down for heat"
    return _listed(governor, f"prefers {facts.preference}" if facts.preference else "", limit, heat)


def _gpus(facts: Facts) -> str:
    driver = f"driver {facts.driver}" if facts.driver else ""
    cuda = f"takes CUDA {facts.driver_cuda}" if facts.driver_cuda else ""
    return _listed(*(gpu.name for gpu in facts.gpus), driver, cuda) or "none that the system sees"


def _frameworks(checkup: Checkup) -> Rows:
    for framework in checkup.frameworks:
        if framework.error:
            yield framework.name, framework.error
            continue
        versions = (
            version if name == framework.name else f"{name} {version}" for name, version in framework.versions.items()
        )
        threads = count(framework.threads, "thread") if framework.threads else ""
        yield framework.name, _listed(*versions, threads, _built_for(framework))
        for device in framework.devices:
            yield f"  {device.name}", device_line(device)


def _built_for(framework: Installed) -> str:
    if not framework.support:
        return ""
    names = [called for name, called in CALLED.items() if framework.support.get(name)]
    return f"built for {' and '.join(names)}" if names else "built for the CPU only"


def _features(tried: list[Tried]) -> Rows:
    """What works in one row, what does not in a row each."""
    works = [feature.feature for feature in tried if feature.outcome == "works"]
    if works:
        yield OUTCOMES["works"], ", ".join(works)
    for feature in tried:
        if feature.outcome != "works":
            reason = error_text(feature) if feature.outcome == "wrong" else short(feature.reason)
            yield OUTCOMES[feature.outcome], f"{feature.feature}: {reason}"


def short(reason: str) -> str:
    """The first sentence of a reason; frameworks give advice behind it."""
    first = reason.partition(". ")[0].rstrip(".")
    return first if len(first) <= 200 else f"{first[:199]}…"


def _trial(trial: Trial) -> Rows:
    many = f"{count(trial.threads, 'thread')} of {trial.framework}" if trial.threads else trial.framework
    yield "as it is", f"{show_seconds(trial.step)} a training step of {trial.workload}, {many}"
    best = best_setting(trial)
    for setting in trial.settings:
        clear = _clear(setting.low, setting.high)
        most = ", the one to set" if setting is best and len(trial.settings) > 1 else ""
        yield setting.option or setting.name, f"{show_interval(setting.gain, 'x')} as fast: {clear}{most}"


def _clear(low: float, high: float) -> str:
    """What an interval of a ratio says."""
    if low > CLEAR_SPEEDUP or high < 1 / CLEAR_SPEEDUP:
        return "clearly faster" if low > CLEAR_SPEEDUP else "clearly slower"
    return "about the same" if low > 1 / CLEAR_SPEEDUP and high < CLEAR_SPEEDUP else "not clear"


def _noise(noise: Noise) -> Rows:
    waited = f"waited for its core {show_percent(noise.waiting)} of the time" if noise.waiting is not None else ""
    stolen = f"the host took {show_percent(noise.stolen)}" if noise.stolen else ""
    way = "slower" if noise.drift > 0 else "faster"
    drift = f"became {show_percent(abs(noise.drift))} {way}" if noise.drift else "did not drift"
    two = f"had two speeds {show_percent(noise.two_speeds)} apart" if noise.two_speeds is not None else ""
    counts = _listed(f"varied by {show_percent(noise.variation)}", waited, drift, two, stolen)
    yield noise.verdict, f"for {show_seconds(noise.seconds)} one core did the same work: it {counts}"
    if noise.detectable_paired is not None and noise.detectable_separate is not None:
        turns, apart = show_percent(noise.detectable_paired), show_percent(noise.detectable_separate)
        yield "detects", f"smallest detectable difference: {turns} interleaved, {apart} between separate runs"


def _energy(sensors: Sequence[SensorSeen]) -> Rows:
    """What each sensor tells; where none can be read, one line."""
    read = [sensor for sensor in sensors if not sensor.reason]
    if not read:
        why = "those there are can't be read, see below" if sensors else "there is no sensor that this machine shows"
        yield "unknown", f"{why}; nothing is estimated"
    for sensor in read:
        period = f"renewed every {show_seconds(sensor.period)}" if sensor.period else ""
        powers = [f"{digits(watts)} W {when}" for watts, when in ((sensor.rest, "at rest"), (sensor.work, "at work"))
                  if watts is not None]  # fmt: skip
        words = _listed(f"{sensor.kind}: {sensor.scope}", sensor.method, period, *powers) or "nothing"
        yield sensor.name, words if powers else f"{words}, told nothing"


def _findings(findings: list[Finding]) -> str:
    if not findings:
        return "no findings: nothing stands in the way"
    lines = [count(len(findings), "finding")]
    for number, finding in enumerate(findings, 1):
        lines.append(_wrapped(f"{_sentence(finding.message)} [{finding.code}]", f"  {number}. ", "     "))
        lines.append(_wrapped(f"Cure: {finding.cure}.", "     ", "     "))
    return "\n".join(lines)


def _sentence(text: str) -> str:
    """A message that ends with a full stop; its first letter is left alone: names are written as they are."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def as_json(checkup: Checkup) -> dict[str, Any]:
    """The check-up as one document, in SI units; shares are fractions of 1."""
    facts = asdict(checkup.facts)
    return {
        "mldyno": __version__,
        "python": platform.python_version(),
        "machine": asdict(checkup.machine),
        "facts": {**facts, "free_cores": checkup.free},
        "frameworks": {framework.name: asdict(framework) for framework in checkup.frameworks},
        "devices": [asdict(device) for framework in checkup.frameworks for device in framework.devices],
        "features": [asdict(tried) for tried in checkup.tried],
        "threads": asdict(checkup.threads) if checkup.threads else None,
        "allocators": asdict(checkup.allocators) if checkup.allocators else None,
        "noise": asdict(checkup.noise) if checkup.noise else None,
        "sensors": [asdict(sensor) for sensor in checkup.sensors],
        "store": asdict(checkup.store),
        "findings": [asdict(finding) for finding in of(checkup)],
    }
