"""Select the records that a word means: a file, an id, a run, a machine, a filter; and explain where there are none.

Rule: simulated records never appear among measured ones; `without_simulated` decides.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher, get_close_matches
from typing import Any, get_args

from mldyno import plugins, sources, suites
from mldyno.axes import AXES, AXIS, DEVICE_KINDS, FAKE, TRACKED, axis_named
from mldyno.errors import MldynoError, StoreError, UsageError, unknown
from mldyno.masking import masked_line
from mldyno.printable import quoted
from mldyno.records import Provenance, Record, Status
from mldyno.sources import family, is_target
from mldyno.store import Query, Store
from mldyno.store.query import COLUMNS, distinct_names, identity_of, is_meant, latest, with_names
from mldyno.units import count

THIS_MACHINE = "this-machine"
IDS_AT_ONCE = 200  # that one question to the store may name
DIGITS_SHOWN = 10  # of an id
MOST_CHOICES = 5  # of a word that is ambiguous
MOST_IDS = 10  # that a line names
LEAST_LIKENESS = 0.75  # of a misspelled word
CLOSED = {"status": get_args(Status), "provenance": get_args(Provenance)}  # columns with a closed list of values
LEFT_OUT = f"simulated records are hidden; filter by {FAKE} to show them: {FAKE}, or mlp/{FAKE}"
Tell = Callable[[str], None]  # hears a line, such as what is left out, or about to be shared
AnyStore = Store | str | None  # an open store, its path, or the default one
Pinned = dict[str, Any]  # the axes and columns that a word pins, with their values
Selected = tuple[list[Record], Pinned]  # the records that a word means, and what it pins


def opened(store: AnyStore) -> Store:
    """Open a store, unless it is open."""
    return store if isinstance(store, Store) else Store(store)


def _name_of_this_machine(store: Store) -> str:
    from mldyno import machine  # asks the system, which few questions need

    return store.name_of(machine.describe())


def _in_file(path: str) -> Iterator[Record]:
    from mldyno.store import transfer  # needed for files only

    return transfer.read(path)


def silent(line: str) -> None:
    """Report nothing."""


class Ambiguous(UsageError):
    """A word with several meanings; `choices` are the words for each of them."""

    def __init__(self, word: str, choices: Mapping[str, Any]) -> None:
        typed = [quoted(choice) for choice in choices]
        more = f", and {len(typed) - MOST_CHOICES} more" if len(typed) > MOST_CHOICES else ""
        super().__init__(f"'{word}' is ambiguous: write {' or '.join(typed[:MOST_CHOICES])}{more}.")
        self.choices = choices


def meant_by(text: str, store: Store) -> Pinned:
    """Return what a word means: a `file` of records, the `id` of one, or what `pinned_by` says."""
    if os.path.isfile(text) and not is_target(text):  # a file of the user's own code means what was measured of it
        is_path = os.path.splitext(text)[1] or text.startswith((".", "~", os.sep))
        choices = {} if is_path else _choices(text, store)
        return _only(text, {f".{os.sep}{text}": {"file": text}, **choices})
    if len(text) >= 6 and all(letter in "0123456789abcdef" for letter in text):
        ids = [record.id for record in store.select(Query(ids=(text,), heads=False))]
        alike = len({id_[:DIGITS_SHOWN] for id_ in ids}) < len(ids)
        choices = {id_ if alike else id_[:DIGITS_SHOWN]: {"id": id_} for id_ in ids}
        if text not in ids:
            choices |= _choices(text, store)
        return _only(text, choices) if choices else {"id": text}
    return pinned_by(text, store)


def _only(text: str, choices: Mapping[str, Pinned]) -> Pinned:
    """Return the only choice; raise Ambiguous if there are more."""
    if len(choices) > 1:
        raise Ambiguous(text, choices)
    return next(iter(choices.values()))


def _choices(text: str, store: Store) -> dict[str, Pinned]:
    """Return what a word names that is neither a file nor an id, by the filters that say so."""
    try:
        pinned = pinned_by(text, store)
    except Ambiguous as error:
        return dict(error.choices)
    except (UsageError, StoreError):
        return {}
    part_of_name = pinned.keys() == {"machine"} and pinned["machine"].casefold() != text.casefold()
    return {} if part_of_name or "imported_from" in pinned else {filter_text(pinned): pinned}


def pinned_by(text: str, store: Store) -> Pinned:
    """Return the axes and columns that a filter, a machine's name, a run or an imported file's name pins."""
    if not text.strip():  # a variable of a script that is not set; what was not imported came from no file
        raise nothing_named(text)
    if not text.isprintable():
        raise UsageError(f"'{text}' can't be the name of anything; `mldyno history` lists what there is.")
    stored = [name for known in store.workloads() for name in (known, family(known))]
    known = {"workloads": list(dict.fromkeys([*plugins.names("workloads"), *stored])),
             "frameworks": [*plugins.names("frameworks"), TRACKED]}  # fmt: skip
    joined = _with_names_joined(text, known["workloads"])
    all_terms = all(part and part == part.strip() for part in text.split("/"))
    if not is_explicit(joined) and "/" not in (text if all_terms else joined):
        return _meaning_of_word(joined, known, store)
    pinned: Pinned = {}
    if joined != text and all_terms:  # else a command or model with slashes in its name is one of the terms
        with contextlib.suppress(UsageError):
            pinned = parse_filter(text, known)
    try:
        pinned = pinned or parse_filter(joined, known)
    except UsageError as error:
        if pinned := _of_id(joined, known, store):
            return pinned
        return _meaning_of_word(text, known, store, error)
    if "machine" in pinned:
        pinned["machine"] = machine_meant(pinned["machine"], store.machines()) or pinned["machine"]
    fits = any(Query(pinned).fits_case(case) for case in store.cases())
    return pinned if fits else _of_id(joined, known, store) or pinned


def _of_id(text: str, known: Mapping[str, Sequence[str]], store: Store) -> Pinned:
    """Return what the id of a stored case, or the beginning of one, pins: its workload comes first."""
    if not any(f"{case.id}/".startswith(f"{text}/") for case in store.cases()):
        return {}
    return parse_filter(f"workload={text}", known)


def _with_names_joined(text: str, workloads: Collection[str]) -> str:
    """Return a text in which workloads that were typed with slashes have the colons of their names in the store."""
    command = text
    with contextlib.suppress(ValueError):  # a quote that is not closed
        command = sources.name_of(masked_line(shlex.split(text)))  # as it was typed, slashes, secrets and all
    for name in (text, command, *([os.path.basename(text)] if is_target(text) else [])):
        if name in workloads:
            return name
    names = sorted((name for name in workloads if ":" in name), key=len, reverse=True)
    if not names or "/" not in text:
        return text
    any_name = "|".join(re.escape(name).replace(":", "[:/]") for name in names)
    pattern = rf"(?:(?<=^)|(?<=/)|(?<=workload=))(?:{any_name})(?=/|$)"
    return re.sub(pattern, lambda match: match[0].replace("/", ":"), text)


def _meaning_of_word(
    word: str, known: Mapping[str, Sequence[str]], store: Store, error: UsageError | None = None
) -> Pinned:
    """Return what a bare word pins; raise where it means several things, or nothing: what is like it, or the error."""
    workload, names = workload_named(word, known), store.machines()
    meanings: list[Pinned] = [] if workload is None else [{"workload": workload}]
    if error is None and (value := axis_value(word, known)):
        meanings.append(value)
    meanings += [{column: word} for column in ("run", "imported_from") if store.holds(column, word)]
    meanings += [{"machine": name} for name in names if name.casefold() == word.casefold()]
    meanings += [{"machine": _name_of_this_machine(store)}] if word == THIS_MACHINE else []
    if meanings:
        return _only(word, {filter_text(pinned): pinned for pinned in meanings})
    machine = machine_meant(word, names)
    if machine is not None:
        return {"machine": machine}
    if error is None and "=" in word:
        return parse_filter(word, known)  # which knows what is wrong with it
    possible = dict.fromkeys([*plugins.names("workloads"), *store.workloads_as_typed(), THIS_MACHINE, *names])
    raise _nothing_like(word, store) or error or unknown("workload, machine, case or file", word, possible)


def _nothing_like(text: str, store: Store) -> UsageError | None:
    """Return the error for several words, which may be a command or a machine that is called much like it."""
    if " " not in text:
        return None
    own = [name for name in store.workloads_as_typed() if name not in plugins.names("workloads")]
    near = nearest(text, own) or next(iter(get_close_matches(text, own, n=1)), None)
    if near is not None:
        return UsageError(f"nothing is called '{text}'. Did you mean '{near}'? `mldyno history` lists what there is.")
    near = nearest(text, store.machines())
    if near is None or "/" in text:
        return None
    return UsageError(f"no machine is called '{text}'. Did you mean '{near}'? `mldyno list machines` lists all.")


def without_simulated(query: Query, read: Callable[[Query], list[Record]], tell: Tell | None) -> list[Record]:
    """Read a query without simulated records, unless they are named or nothing else was measured."""
    if query.ids or "framework" in query.equal:
        return read(query)
    real = read(replace(query, simulated=False))
    if all(record.provenance == "published" for record in real):
        return read(query)
    if tell is not None and read(replace(query, equal={**query.equal, "framework": FAKE})):
        tell(LEFT_OUT)
    return real


def tell_future(query: Query, store: Store, tell: Tell | None) -> None:
    """Report which records are omitted since their date is in the future, and how to remove them."""
    if tell is not None and (late := store.of_the_future(query)):
        ids = " ".join(id_[:10] for id_, _ in late[:MOST_IDS])
        tell(f"left out: {count(len(late), 'record')} with a date in the future ({late[0][1]}): the clock was wrong; "
             f"remove with: mldyno remove {ids}")  # fmt: skip


def select(text: str | None, store: Store, since: str = "", tell: Tell | None = None) -> Selected:
    """Return the records that a word means (a file, an id, a machine, a filter; all, without one), and its filter."""
    meaning = {} if text is None else meant_by(text, store)
    if "file" in meaning:
        records = list(_in_file(meaning["file"]))
        named = list(with_names(records, distinct_names({*map(identity_of, records)})))
        return without_simulated(Query(since=since), lambda query: [*filter(query.fits, named)], tell), meaning
    if "id" not in meaning:
        return _select_stored(Query(meaning, since=since), store, tell), meaning
    records = store.select(Query(ids=(meaning["id"],), heads=False, since=since))
    if not records:
        raise MldynoError(f"no record's id begins with {text}; `mldyno history` lists ids.")
    return records, meaning


def _select_stored(query: Query, store: Store, tell: Tell | None) -> list[Record]:
    tell_future(replace(query, until=""), store, tell)
    return without_simulated(query, store.select, tell)


def select_each(texts: Sequence[str | None], store: Store, since: str, tell: Tell | None) -> list[Selected]:
    """Select for each word; report what is omitted once."""
    lines: list[str] = []
    selected = [select(text, store, since, lines.append) for text in texts]
    if tell is not None:
        for line in dict.fromkeys(lines):
            tell(line)
    return selected


def runs_of(text: str, store: Store, since: str = "", tell: Tell | None = None) -> list[Record]:
    """Return all runs of what a word means: those of this machine, unless the word names another."""
    pinned = meant_by(text, store)
    if "file" in pinned or "id" in pinned:
        return select(text, store, since, tell)[0]
    if "imported_from" not in pinned:
        pinned = {"machine": _name_of_this_machine(store), **pinned}
    return _select_stored(Query(pinned, heads=False, since=since, until=latest()), store, tell)


def stored(text: str, store: Store) -> list[Record]:
    """Return all stored records that a word means, however old; for a file, those of its records that are stored."""
    meaning = meant_by(text, store)
    if "file" in meaning:
        ids = [record.id for record in _in_file(text)]
        parts = [tuple(ids[place : place + IDS_AT_ONCE]) for place in range(0, len(ids), IDS_AT_ONCE)]
        return [record for part in parts for record in store.stream(Query(ids=part, heads=False))]
    query = Query(ids=(meaning["id"],), heads=False) if "id" in meaning else Query(meaning, heads=False)
    return list(store.stream(query))


def of_several(selected: Sequence[Selected]) -> list[Record]:
    """Merge the records of targets, each once; add the file's name where two files use the same machine name."""
    files: dict[str, set[str]] = {}
    for records, pinned in selected:
        for record in records:
            files.setdefault(record.shown_machine, set()).add(str(pinned.get("file", "")))
    alike = {name for name, where in files.items() if len(where) > 1}
    unique: dict[tuple[str, str], Record] = {}
    for side in selected:
        for record in _with_file_name(side, alike):
            unique.setdefault((record.id, record.shown_machine), record)
    return list(unique.values())


def of_two(left: Selected, right: Selected) -> tuple[list[Record], list[Record]]:
    """Return the records of two sides; add the file's name where machines of one name have different keys."""
    keys: list[dict[str, set[str | None]]] = [{}, {}]
    for known, (records, _) in zip(keys, (left, right), strict=True):
        for record in records:
            known.setdefault(record.shown_machine, set()).add(record.machine.key)
    alike = {name for name in keys[0].keys() & keys[1].keys() if not keys[0][name] & keys[1][name]}
    return _with_file_name(left, alike), _with_file_name(right, alike)


def _with_file_name(selected: Selected, names: Collection[str]) -> list[Record]:
    """Return the records of a target; if it is a file, machines of these names get the file's name."""
    records, pinned = selected
    if "file" not in pinned:
        return records
    file = os.path.basename(pinned["file"])
    return [replace(record, machine=replace(record.machine, name=f"{record.machine.name} ({file})"))
            if record.shown_machine in names else record for record in records]  # fmt: skip


def nothing_for(targets: Sequence[str], since: str = "") -> MldynoError:
    """Return the error for nothing to show, with what to run: only workloads and suites can be run by name."""
    runnable = [*plugins.names("workloads"), *suites.names()]
    named = [target for target in targets if target in runnable]
    how = f"mldyno run {' '.join(named)}" if named else "mldyno run"
    what = f" for '{' '.join(targets)}'" if targets else ""
    what += f" since {since.replace('T', ' ')} UTC" if since else " yet"
    return MldynoError(f"nothing recorded{what}; measure it with `{how}`, or look what there is: mldyno history")


def parse_filter(text: str, plugin_names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return what a filter pins: `axis=value` terms and bare values, all of which must hold, between slashes."""
    pinned: dict[str, Any] = {}
    for term in filter(None, map(str.strip, text.split("/"))):
        name, value = _read_explicit(term, plugin_names) or _read_bare(term, plugin_names)
        if name in pinned and not is_meant(name, value, pinned[name]):
            if not is_meant(name, pinned[name], value):
                both = " and ".join(filter_text({name: each}) for each in (pinned[name], value))
                raise UsageError(f"'{text}' matches nothing: no record has {both} at once; keep one of them.")
            value = pinned[name]
        pinned[name] = value
    if not pinned:
        raise nothing_named(text)
    return pinned


def nothing_named(text: str) -> UsageError:
    """Return the error for a filter without a value, which would else mean all records, or those that lack one."""
    return UsageError(f"'{text}' names nothing; write a filter such as mlp/train or device=cpu.")


def filter_text(pinned: Mapping[str, Any]) -> str:
    """Return the filter that pins these values, every term with its axis."""
    return "/".join(f"{name}={AXIS[name].show(value) if name in AXIS else value}" for name, value in pinned.items())


def is_explicit(term: str) -> bool:
    """Return whether a term names its axis, or one of COLUMNS."""
    name, equals, _ = term.partition("=")
    return bool(equals) and name.strip() in (*AXIS, *COLUMNS)


def axis_value(word: str, plugin_names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the axis that has this word among its values, with the value; workloads do not count."""
    for axis in AXES[1:]:
        try:
            value = axis.bare(word, plugin_names.get(axis.plugins, ()))
        except UsageError:  # it begins like a value of this axis, such as cpu:loop
            if workload_named(word, plugin_names) is None:
                raise
            continue
        if value is not None:
            return {axis.name: value}
    return {}


def workload_named(word: str, plugin_names: Mapping[str, Sequence[str]]) -> str | None:
    """Return the workload of this name; the version behind an @ need not be known."""
    names = plugin_names.get("workloads", ())
    return next((each for each in (word, word.partition("@")[0]) if each in names), None)


def _read_explicit(term: str, plugin_names: Mapping[str, Sequence[str]]) -> tuple[str, Any] | None:
    """Read an `axis=value` term; a workload may have an equals sign in its name."""
    if "=" not in term or (not is_explicit(term) and workload_named(term, plugin_names) is not None):
        return None
    word, _, value = term.partition("=")
    name, value = axis_named(word.strip(), COLUMNS), value.strip()
    if not value:
        raise UsageError(f"'{term}' lacks a value; write one behind the equals sign.")
    if name == "workload":
        return name, workload_named(value, plugin_names) or value
    if name in CLOSED and value not in CLOSED[name]:
        raise unknown(name, value, CLOSED[name])
    return name, AXIS[name].parse(value) if name in AXIS else value


def _read_bare(term: str, plugin_names: Mapping[str, Sequence[str]]) -> tuple[str, Any]:
    """Read a bare word: the value of an axis, else a workload."""
    for item in axis_value(term, plugin_names).items():
        return item
    workload = workload_named(term, plugin_names)
    if workload is not None:
        return "workload", workload
    words = [word for axis in AXES for word in (*axis.values, *plugin_names.get(axis.plugins, ()))]
    raise unknown("workload, case or axis value", term, [*words, *DEVICE_KINDS, *(f"{axis.name}=…" for axis in AXES)])


def machine_meant(text: str, names: Sequence[str]) -> str | None:
    """Return the name that a text means, None where there is none; raise where two or more fit."""
    matches = meant(text, names)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"'{text}' could be any of these machines: {'; '.join(matches)}.")
    return None


def meant(text: str, names: Sequence[str]) -> list[str]:
    """Return the names that fit in the closest way in which any of them does."""
    words = text.casefold().split()
    for fits in _FITS if words else ():
        matches = [name for name in names if fits(words, name.casefold())]
        if matches:
            return matches
    return []


def nearest(text: str, names: Sequence[str]) -> str | None:
    """Return the name that has most of the words, and is most alike; None where none has half of them."""
    folded = text.casefold()

    def score(name: str) -> tuple[int, float]:
        words = sum(_has_nearly([word], name.casefold()) for word in folded.split())
        return words, SequenceMatcher(None, folded, name.casefold()).ratio()

    best = max(names, key=score, default=None)
    return best if best is not None and 2 * score(best)[0] >= len(folded.split()) else None


def _has_nearly(words: list[str], name: str) -> bool:
    """Return whether each word, or one much like it, is there; numbers must be exact."""
    parts = name.split()
    return all(
        any(word in part for part in parts)
        or (word.isalpha() and bool(get_close_matches(word, parts, n=1, cutoff=LEAST_LIKENESS)))
        for word in words
    )


_FITS: tuple[Callable[[list[str], str], bool], ...] = (
    lambda words, name: " ".join(words) == " ".join(name.split()),
    lambda words, name: " ".join(words) in name,
    lambda words, name: all(any(word in part for part in name.split()) for word in words),
    _has_nearly,
)
"""Ways in which words fit a name, the closest first."""
