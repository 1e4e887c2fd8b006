"""A check-up as text of at most 80 columns, and as data."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from mldyno import __version__
from mldyno.doctor.findings import CALLED, CLEAR_SPEEDUP, Finding, best_setting, by_device, error_text, of
from mldyno.doctor.noise import show_apart
from mldyno.doctor.symptoms import Checkup, Noise, SensorState, Trial, Tried
from mldyno.printable import shortened
from mldyno.units import Interval, count, digits, show_bytes, show_interval, show_percent, show_seconds
from mldyno.views.records import device_line
from mldyno.views.window import window_width

WIDTH = 80
OUTCOMES = {
    "works": "works", "wrong": "wrong numbers", "unsupported": "not supported", "fallback": "left to the CPU",
    "crashed": "crashed", "timeout": "timed out", "failed": "failed",
}  # fmt: skip
Rows = Iterator[tuple[str, str]]
T = TypeVar("T")


def report(checkup: Checkup) -> str:
    """Return the whole check-up as text, findings last."""
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
    """Return a title, and below it names with their texts, wrapped."""
    listed = list(rows)
    width = max((len(name) for name, _ in listed), default=0)
    lines = [_wrapped(text, f"  {name.ljust(width)}  ", " " * (width + 4)) for name, text in listed]
    return "\n".join([title, *lines])


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
    yield "cores", _listed(
        str(facts.cores or "unknown"), _fact("{} free when tried", checkup.free, partial(digits, most=2)),
        _fact("{} may be used", facts.quota, digits), _fact("load {}", facts.load, partial(digits, most=2)),
    )  # fmt: skip
    yield "memory", _listed(
        _fact("{}", facts.memory or None, show_bytes) or "unknown", _fact("{} of it left", facts.available, show_bytes),
        _fact("waited for in {} of the last minute", facts.memory_waits or None, show_percent),
        _fact("pressure {}", facts.memory_state or None, str),
        "no swap" if facts.swap_used == 0 else _fact("{} swapped", facts.swap_used, show_bytes),
    )  # fmt: skip
    saving = {True: "low-power mode", False: "full power", None: ""}[facts.low_power]
    yield "power", _listed(facts.power, _fact("battery at {}", facts.battery, show_percent), saving)
    clock = _listed(
        f"governor {facts.governor}{_fact(' ({})', facts.scaling or None, str)}" if facts.governor else "",
        _fact("prefers {}", facts.preference or None, str),
        _fact("the CPU may have {} of its speed", facts.speed_limit, show_percent),
        "" if facts.throttles is None else f"{'' if facts.throttles else 'not '}slowed down for heat",
    )
    yield "clock", clock or "unknown: the system reports neither governor nor heat"
    driver = [_fact("driver {}", facts.driver or None, str), _fact("takes CUDA {}", facts.driver_cuda or None, str)]
    yield "GPUs", _listed(*(gpu.name for gpu in facts.gpus), *driver) or "none that the system sees"
    yield "Python", f"{facts.python}, mldyno {__version__}"
    yield "packages", _listed(*(f"{name} {version}" for name, version in facts.packages.items())) or "no framework"
    if facts.env:
        yield "settings", _listed(*(f"{name}={value}" for name, value in facts.env.items()))
    yield "store", checkup.store.path


def _fact(words: str, value: T | None, form: Callable[[T], str]) -> str:
    """Return words with a value in them; an empty text if the value is unknown."""
    return "" if value is None else words.format(form(value))


def _frameworks(checkup: Checkup) -> Rows:
    for framework in checkup.frameworks:
        if framework.error:
            yield framework.name, framework.error
            continue
        versions = (
            version if name == framework.name else f"{name} {version}" for name, version in framework.versions.items()
        )
        threads = count(framework.threads, "thread") if framework.threads else ""
        names = [called for name, called in CALLED.items() if framework.support.get(name)]
        built_for = f"built for {' and '.join(names) or 'the CPU only'}" if framework.support else ""
        yield framework.name, _listed(*versions, threads, built_for)
        for device in framework.devices:
            yield f"  {device.name}", device_line(device)


def _features(tried: list[Tried]) -> Rows:
    """Yield what works in one row, and everything else in a row each."""
    works = [feature.feature for feature in tried if feature.outcome == "works"]
    if works:
        yield OUTCOMES["works"], ", ".join(works)
    for feature in tried:
        if feature.outcome != "works":
            reason = error_text(feature) if feature.outcome == "wrong" else short(feature.reason)
            yield OUTCOMES[feature.outcome], f"{feature.feature}: {reason}"


def short(reason: str) -> str:
    """Return the first sentence of a reason; frameworks add advice after it."""
    return shortened(reason.partition(". ")[0].rstrip("."), 200)


def _trial(trial: Trial) -> Rows:
    many = f"{count(trial.threads, 'thread')} of {trial.framework}" if trial.threads else trial.framework
    yield "as it is", f"{show_seconds(trial.step)} a training step of {trial.workload}, {many}"
    best = best_setting(trial)
    for setting in trial.settings:
        clear = _clear(setting.gain)
        most = ", the one to set" if setting is best and len(trial.settings) > 1 else ""
        yield setting.option or setting.name, f"{show_interval(setting.gain, 'x')} as fast: {clear}{most}"


def _clear(gain: Interval) -> str:
    low, high = gain.low, gain.high
    if low is None or high is None:
        return "not clear"
    if low > CLEAR_SPEEDUP or high < 1 / CLEAR_SPEEDUP:
        return "clearly faster" if low > CLEAR_SPEEDUP else "clearly slower"
    return "about the same" if low > 1 / CLEAR_SPEEDUP and high < CLEAR_SPEEDUP else "not clear"


def _noise(noise: Noise) -> Rows:
    way = "slower" if noise.drift > 0 else "faster"
    drift = f"became {show_percent(abs(noise.drift))} {way}" if noise.drift else "did not drift"
    counts = _listed(
        f"varied by {show_percent(noise.variation)}",
        _fact("waited for its core {} of the time", noise.waiting, show_percent), drift,
        _fact("had two speeds {} apart", noise.two_speeds, show_apart),
        _fact("the host took {}", noise.stolen or None, show_percent),
    )  # fmt: skip
    yield noise.verdict, f"for {show_seconds(noise.seconds)} one core did the same work: it {counts}"
    if noise.detectable_paired is not None and noise.detectable_separate is not None:
        turns, apart = show_percent(noise.detectable_paired), show_percent(noise.detectable_separate)
        yield "detects", f"smallest detectable difference: {turns} interleaved, {apart} between separate runs"


def _energy(sensors: Sequence[SensorState]) -> Rows:
    readable = [sensor for sensor in sensors if not sensor.reason]
    if not readable:
        why = "no sensor can be read, see below" if sensors else "this machine shows no sensor"
        yield "unknown", f"{why}; nothing is estimated"
    for sensor in readable:
        period = _fact("updated every {}", sensor.period or None, show_seconds)
        powers = [_fact("{} W at rest", sensor.rest, digits), _fact("{} W at work", sensor.work, digits)]
        words = _listed(f"{sensor.kind}: {sensor.scope}", sensor.method, period, *powers) or "nothing"
        yield sensor.name, words if any(powers) else f"{words}, no reading"


def _findings(findings: list[Finding]) -> str:
    if not findings:
        return "no findings"
    lines = [count(len(findings), "finding")]
    for number, finding in enumerate(findings, 1):
        stop = "" if finding.message.endswith((".", "!", "?")) else "."
        lines.append(_wrapped(f"{finding.message}{stop} [{finding.code}]", f"  {number}. ", "     "))
        lines.append(_wrapped(f"Cure: {finding.cure}.", "     ", "     "))
    return "\n".join(lines)


def as_json(checkup: Checkup) -> dict[str, Any]:
    """Return the check-up as data, in SI units; shares are fractions of 1."""
    content = msgspec.to_builtins(checkup)
    for trial in filter(None, (content["threads"], content["allocators"])):
        for setting in trial["settings"]:
            gain = setting.pop("gain")
            setting |= {"ratio": gain.pop("value"), **gain}
    frameworks = content["frameworks"]
    return {
        "mldyno": __version__, "python": checkup.facts.python, "machine": content["machine"],
        "facts": {**content["facts"], "free_cores": checkup.free},
        "frameworks": {framework["name"]: framework for framework in frameworks},
        "devices": [device for framework in frameworks for device in framework["devices"]],
        "features": content["tried"],
        **{name: content[name] for name in ("threads", "allocators", "noise", "sensors", "store")},
        "findings": msgspec.to_builtins(of(checkup)),
    }  # fmt: skip
