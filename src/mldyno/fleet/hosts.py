"""Read which hosts a user means: a file with hosts and clusters, or words such as `ssh:mini,ssh:box`.

Reading starts nothing. Only `found` asks an engine which nodes there are, when a run begins.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mldyno import plugins
from mldyno.engines import NAME, Engine, Host
from mldyno.errors import UsageError, unknown
from mldyno.files import check_regular, expanded
from mldyno.units import parse_price

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LONGEST_FILE_B = 1 << 20
MOST_HOSTS = 10_000
LONGEST_VALUE = 1000  # characters
KEYS: dict[str, type] = {  # of every host and cluster
    "python": str, "price": str, "measure": bool, "env": dict, "options": dict,
}  # fmt: skip
LAYOUT = 'a hosts file has tables such as [hosts.mini] with ssh = "mini"'


@dataclass(frozen=True)
class Entry:
    """One host, or all hosts that an engine finds for a text; what is given holds for all of them."""

    engine: str
    wanted: str
    name: str = ""  # of the only host
    login: str = ""  # the ssh address of a cluster's login node
    given: Mapping[str, Any] = field(default_factory=dict)


Member = tuple[Host, Engine]


def read(on: str) -> list[Entry]:
    """Return what the user named; start nothing."""
    entries = _in_file(on) if on.endswith(".toml") else _in_words(on)
    if len(entries) > MOST_HOSTS:
        raise UsageError(f"{on}: {len(entries):,} hosts are over {MOST_HOSTS:,}.")
    return entries


def _in_words(on: str) -> list[Entry]:
    """Return the entries of words; a word without an engine belongs to the one before it."""
    known, groups = plugins.names("engines"), list[tuple[str, list[str]]]()
    for word in on.split(","):
        engine, _, wanted = word.strip().partition(":")
        if engine in known:
            groups.append((engine, [wanted] if wanted else []))
        elif groups and engine:
            groups[-1][1].append(word.strip())
        else:
            raise unknown("engine", engine, known)
    return [Entry(engine, ",".join(wanted)) for engine, wanted in groups]


def _in_file(path: str) -> list[Entry]:
    place = expanded(path)
    try:
        check_regular(place)
        with open(place, "rb") as file:
            text = file.read(LONGEST_FILE_B + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; name a hosts file, or hosts such as ssh:mini.") from None
    if len(text) > LONGEST_FILE_B:
        raise UsageError(f"{path} is over {LONGEST_FILE_B >> 20} MiB long; {LAYOUT}.")
    try:
        content = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}.") from None
    entries = []
    for kind, tables in content.items():
        if kind not in ("hosts", "clusters") or not isinstance(tables, dict):
            raise UsageError(f"{path}: unknown key '{kind}'; {LAYOUT}.")
        entries += [_entry(f"{path}: [{kind}.{name}]", kind, name, table) for name, table in tables.items()]
    if not entries:
        raise UsageError(f"{path} names no hosts; {LAYOUT}.")
    return entries


def _entry(place: str, kind: str, name: str, table: Any) -> Entry:
    """Return the entry of one table: its engine is the key that is an engine's name."""
    engines = plugins.names("engines")
    if not NAME.fullmatch(name):
        raise UsageError(f"{place}: a host's name has letters, digits, dots and dashes only.")
    if not isinstance(table, dict):
        raise UsageError(f"{place} must be a table; {LAYOUT}.")
    for key, value in table.items():
        if key not in (*engines, *KEYS):
            raise unknown(f"key in {place}", key, [*engines, *KEYS])
        _check_value(f"{place}.{key}", value, KEYS.get(key, str))
    if "price" in table:
        try:
            parse_price(table["price"])
        except UsageError as error:
            raise UsageError(f"{place}.price: {error}") from None
    named = [key for key in table if key in engines]
    login = str(table["ssh"]) if kind == "clusters" and len(named) == 2 and "ssh" in named else ""
    named = [key for key in named if not (login and key == "ssh")]
    if len(named) != 1:
        raise UsageError(f"{place} needs one of {', '.join(engines)}; {LAYOUT}.")
    given = {key: value for key, value in table.items() if key in KEYS}
    return Entry(named[0], str(table[named[0]]), name if kind == "hosts" else "", login, given)


def _check_value(place: str, value: Any, kind: type) -> None:
    """Raise unless a value is true or false, or text, or a table of texts: printable, and of a sane length."""
    if kind is bool:
        if not isinstance(value, bool):
            raise UsageError(f"{place} must be true or false.")
        return
    texts = [value] if kind is str else [*value, *value.values()] if isinstance(value, dict) else [None]
    for text in texts:
        if not isinstance(text, str) or len(text) > LONGEST_VALUE or not text.isprintable():
            raise UsageError(f"{place} must be {'printable text' if kind is str else 'a table of texts'}.")


def found(entries: list[Entry], run: str = "", seconds: float | None = None) -> list[Member]:
    """Return the hosts of entries, each with its engine; an engine may ask its cluster which nodes there are."""
    members = list[Member]()
    for entry in entries:
        engine = plugins.engine(entry.engine)(run, seconds, options=entry.given.get("options", {}))
        if entry.login:
            ssh = plugins.engine("ssh")()
            engine = replace(engine, reach=partial(ssh.command, ssh.hosts(entry.login)[0]))
        hosts = engine.hosts(entry.wanted)
        if entry.name and len(hosts) != 1:
            raise UsageError(f"[hosts.{entry.name}] is one host; name several under [clusters.{entry.name}].")
        for host in hosts:
            options = {**host.options, **entry.given.get("options", {})}
            named = replace(host, name=entry.name or host.name)
            members.append((replace(named, **{**entry.given, "options": options}), engine))
    for name, times in Counter(host.name for host, _ in members).items():
        if times > 1:
            raise UsageError(f"{times} hosts are called {name}; give them names in a hosts file.")
    if len(members) > MOST_HOSTS:
        raise UsageError(f"{len(members):,} hosts are over {MOST_HOSTS:,}.")
    return members
