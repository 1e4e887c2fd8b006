"""The hosts of a run in words: how each ended, what each would run, and in what they differ."""

from __future__ import annotations

from collections.abc import Sequence

from mldyno.fleet.conductor import Member
from mldyno.printable import quoted
from mldyno.units import count, show_seconds
from mldyno.views.tables import aligned

MOST_SHOWN = 40  # hosts that ended well, in a table
COLUMNS = ("mldyno", "Python", "system", "processor", "cores", "memory", "niceness", "load")  # of every host


def summary(hosts: Sequence[Member], on: str) -> list[str]:
    """Return a line for each host, and what to do about those that are not done."""
    bad = [host for host in hosts if host.state != "done" or host.left_out]
    shown = list(hosts) if len(hosts) <= MOST_SHOWN else bad
    rows = []
    for host in shown:
        left_out = f"{count(host.left_out, 'case')} left out by the limit" if host.left_out else ""
        rows.append([host.name, host.state, count(host.records, "record"), host.reason or left_out])
    lines = aligned(["host", "ended", "sent", ""], rows, 2).splitlines() if rows else []
    done = len(hosts) - len(bad)
    if len(shown) < len(hosts):
        lines.append(f"{done:,} of {count(len(hosts), 'host')} are done")
    if bad:
        lines.append(f"{count(len(bad), 'host')} not done; resume with: mldyno run --resume --on {quoted(on)}")
    return lines


def planned(hosts: Sequence[Member]) -> list[str]:
    """Return what each host would run, and for how long."""
    rows = []
    for host in hosts:
        can = [each for each in host.expected if each.fits is not False]
        too_large = len(host.expected) - len(can)
        note = host.reason or (f"without {count(too_large, 'case')} that can't fit" if too_large else "")
        cases = ", ".join(each.case for each in can[:2]) + (f" and {len(can) - 2} more" if len(can) > 2 else "")
        time = show_seconds(sum(each.seconds for each in can)) if can else "-"
        rows.append([host.name, str(len(can)), time, note or cases])
    slowest = max((sum(each.seconds for each in host.expected) for host in hosts), default=0.0)
    return [
        *aligned(["host", "cases", "time", ""], rows, 1).splitlines(),
        f"{count(len(hosts), 'host')} at once, about {show_seconds(slowest)} in all. Nothing was run.",
    ]


def examined(hosts: Sequence[Member]) -> list[str]:
    """Return a table of hosts, what each can run on, and in what they differ."""
    answered = [host for host in hosts if host.facts]
    rows = [[host.name, host.state if not host.facts else "ready",
             *(host.facts.get(name, "-") for name in COLUMNS)] for host in hosts]  # fmt: skip
    lines = aligned(["host", "", *COLUMNS], rows, len(COLUMNS) + 2).splitlines()
    lines += [f"{host.name}: {host.state}: {host.reason}" for host in hosts if not host.facts]
    names = list(dict.fromkeys(name for host in answered for name in host.facts))
    for name in names:
        values: dict[str, list[str]] = {}
        for host in answered:
            values.setdefault(host.facts.get(name, "none"), []).append(host.name)
        if len(values) == 1 and name not in COLUMNS:
            lines.append(f"{name}: {next(iter(values))}")
        elif len(values) > 1 and name != "load":
            listed = "; ".join(f"{_names(of, len(answered))} {value}" for value, of in values.items())
            lines.append(f"differ in {name}: {listed}")
    return lines


def _names(names: Sequence[str], of_all: int) -> str:
    """Return the names of hosts, or how many they are."""
    return f"{', '.join(names)}:" if len(names) <= 3 else f"{len(names)} of {of_all} hosts:"
