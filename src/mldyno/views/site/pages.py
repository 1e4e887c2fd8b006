"""The files of a site: nothing in them is fetched from elsewhere, and nothing from a record can become markup or code.

Text is escaped by the templates, and data for scripts is JSON. Every link is relative. A long table has its first rows
in its page, the others in further pages and, to be sorted and searched, all of them in a script.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mldyno import __version__
from mldyno.analysis import grouped
from mldyno.analysis.comparisons import DELTA
from mldyno.analysis.outcomes import Outcome
from mldyno.analysis.rerun import rerun_commands, their_commands
from mldyno.analysis.scores import Score, fewest_missing, reference
from mldyno.printable import printable_content
from mldyno.records import Record
from mldyno.store.figures import marks
from mldyno.units import LARGEST_LOG, Interval, count, digits, interval_parts, show_interval, show_percent
from mldyno.views.claims import NO_CLEAR_DIFFERENCE, WORK
from mldyno.views.drawing import DATA, Scale, templates
from mldyno.views.outcomes import show_estimate, trust
from mldyno.views.records import headline
from mldyno.views.report.details import machine_facts, warning_notes
from mldyno.views.site.collection import Collection, Entry, Ranking, Whose, collected, kind_of, shown_place
from mldyno.views.titles import case_name, case_title, place_title

FILES = DATA / "site"
ASSETS = ("style.css", "site.js", "compare.js")
MARK = "mldyno-site.txt"  # shows that a folder is a site of ours, and lists what mldyno wrote into it
TITLE = f"Made by mldyno {__version__}. This folder is replaced as a whole when the site is made again."
ROWS = 100  # of a long table in one page
MOST_SIBLINGS = 12  # works with the same model that a page names
DOT = 2.0  # half the width of a dot, in percent
LARGEST_RATIO = 25.0  # of the longest bar to the shortest: beyond it dots stand on a logarithmic scale
MARGIN = 1.3  # times the longest bar, up to which its interval is drawn
# Browsers differ in whether 'self' is a page's own folder where it is read from a disk; a server has no such files.
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
Page = tuple[str, str]  # the path of a file within the site, and its text


def write_site(
    records: Sequence[Record], files: Mapping[Whose, str], folder: str, progress: Callable[[int, int], None]
) -> None:
    """Write a site of records into an empty folder; `files` names each machine's files."""
    done, total = 0, 2 * len(files)  # each machine is analysed, and written

    def count_one() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    collection = collected(records, files, count_one)
    total += len(collection.rankings)
    for name in ("files", "machines", "work"):
        os.mkdir(os.path.join(folder, name))
    for path, text in pages(collection, __version__, count_one):
        with open(os.path.join(folder, path), "w", encoding="utf-8", newline="\n") as out:
            out.write(text)


def pages(collection: Collection, version: str, done: Callable[[], None] = lambda: None) -> Iterator[Page]:
    """Yield all files of a site; call `done` for each machine and each work."""
    yield from ((f"files/{name}", (FILES / name).read_text(encoding="utf-8")) for name in ASSETS)
    newest = max((entry.newest.created for entry in collection.entries if not entry.published), default="")[:10]
    shared = {"version": version, "policy": POLICY, "reference": reference(), "newest": newest}
    yield from _index(collection, shared)
    macros = templates("site").get_template("rows.html").module
    rows = [str(macros.ranking(ranking, entry, shown_place(outcome.case), show_estimate(step), step.value))
            for ranking in collection.rankings for entry, outcome, step in ranking.ranked[:1]]  # fmt: skip
    yield from _listed("workloads", rows, "workloads.html", shared, "")
    names = [[entry.stem, _full_name(entry)] for entry in collection.entries]
    yield "files/names.js", _script("mldynoNames", printable_content(names))
    words = {"unclear": NO_CLEAR_DIFFERENCE, "equivalent": f"equivalent (within {show_percent(DELTA)})"}
    yield "compare.html", _rendered("compare.html", shared, "", delta=DELTA, largest_log=LARGEST_LOG, words=words)
    for entry in collection.entries:
        yield f"machines/{entry.stem}.html", _machine(entry, collection, shared)
        yield f"machines/{entry.stem}.js", _script("mldynoMachine", entry.stem, printable_content(_data(entry)))
        done()
    siblings = grouped(collection.rankings, lambda ranking: ranking.workload)
    for ranking in collection.rankings:
        yield from _work(ranking, siblings[ranking.workload], shared)
        done()


def _rendered(template: str, shared: dict[str, Any], up: str, **content: Any) -> str:
    """Return a page; `up` leads from its folder to that of the site."""
    return str(templates("site").get_template(template).render(shared, up=up, **content))


def _script(name: str, *content: Any) -> str:
    """Return a script that calls a function of ours with data, in ASCII."""
    return f"{name}({', '.join(json.dumps(part, separators=(',', ':')) for part in content)});\n"


class Bar(NamedTuple):
    """Where a bar and its interval begin and end, in percent of the width."""

    start: float
    end: float
    ends: tuple[float, float] | None


def bar(scale: Scale, number: Interval) -> Bar:
    """Return the bar of a number with its interval; a dot on a logarithmic scale."""
    end = round(scale.at(number.value), 1)
    ends = number.ends and (round(scale.at(number.ends[0]), 1), round(scale.at(number.ends[1]), 1))
    if scale.linear:
        return Bar(0.0, end, ends)
    return Bar(round(max(0.0, end - DOT), 1), round(min(100.0, end + DOT), 1), ends)


def scale_for(numbers: Sequence[Interval]) -> Scale:
    """Return the scale in percent of numbers over 0, with most of their intervals on it."""
    shortest, longest = min(number.value for number in numbers), max(number.value for number in numbers)
    highest = max(longest, min(MARGIN * longest, max(number.high or number.value for number in numbers)))
    linear = longest <= LARGEST_RATIO * shortest
    return Scale(0.0 if linear else shortest / MARGIN, highest, 0.0, 100.0, linear)


def _listed(
    place: str, rows: Sequence[str], template: str, shared: dict[str, Any], up: str, **content: Any
) -> Iterator[Page]:
    """Yield the pages of a long table, whose rows are markup, and a script with all rows."""
    name = place.rpartition("/")[2]
    last = max(1, -(-len(rows) // ROWS))
    links = [f"{name}.html", *(f"{name}-{number}.html" for number in range(2, last + 1))]
    rest = f"{name}-rows.js" if last > 1 else ""
    for number, link in enumerate(links, 1):
        part = "".join(rows[(number - 1) * ROWS : number * ROWS])
        listing = {"rows": part, "links": links, "number": number, "rest": rest, "step": ROWS}
        text = _rendered(template, shared, up, total=len(rows), listing=listing, **content)
        yield f"{place.removesuffix(name)}{link}", text
    if rest:
        yield f"{place}-rows.js", _script("mldynoRows", "".join(rows))


def _full_name(entry: Entry) -> str:
    return f"{entry.name} (published)" if entry.published else entry.name


def _index(collection: Collection, shared: dict[str, Any]) -> Iterator[Page]:
    """Yield the table of machines, with a row for each device on which something was measured."""
    scored = grouped((score for entry in collection.entries for score in entry.scores), lambda score: score.case.mode)
    scales = {mode: scale_for(numbers) for mode, numbers in scored.items()}
    macros = templates("site").get_template("rows.html").module
    rows = []
    for entry, name in collection.in_order:
        known = [entry.best(name, mode) for mode in WORK]
        figures = [score and _score_cell(score, scales[score.case.mode]) for score in known]
        title = next((device.title for device in entry.newest.machine.devices if device.name == name), "")
        rows.append(str(macros.machine(entry, name, title, kind_of(name), figures, len(entry.on(name)))))
    machines = sum(not entry.published for entry in collection.entries)
    yield from _listed(
        "index", rows, "index.html", shared, "", machines=machines, published=len(collection.entries) - machines,
        kinds=sorted({kind_of(device) for _, device in collection.in_order}),
        works=len(collection.rankings), logarithmic=not all(scale.linear for scale in scales.values()),
    )  # fmt: skip


def _score_cell(score: Score, scale: Scale) -> dict[str, Any]:
    framework = place_title(score.case).removeprefix(score.case.device)
    return {"text": show_interval(score, decimals=0) + framework, "sort": score.value, "bar": bar(scale, score)}


def _score_in_words(score: Score) -> dict[str, Any]:
    number, interval = interval_parts(score, decimals=0)
    source = f"{count(len(score.outcomes), 'case')} of set {reference().version}; 100 is {reference().machine}"
    about = f"{WORK[str(score.case.mode)].capitalize()} on {place_title(score.case)}"
    return {"about": about, "number": number, "interval": interval, "source": source}


def _machine(entry: Entry, collection: Collection, shared: dict[str, Any]) -> str:
    outcomes = entry.outcomes
    facts = machine_facts(entry.newest.machine)[2 if entry.published else 0 :]
    facts += [("software", text) for text in _software(outcomes)]
    sources = dict.fromkeys(str(outcome.records[0].run.suite) for outcome in outcomes)
    facts += [("published in", ", ".join(sources))] if entry.published else []
    return _rendered(
        "machine.html", shared, "../", entry=entry, facts=facts, scored=list(map(_score_in_words, entry.scores)),
        unscored=list(_unscored(entry)), cases=[_case(outcome, collection) for outcome in outcomes],
        notes=warning_notes(outcomes), commands=rerun_commands(outcomes), theirs=their_commands(outcomes),
    )  # fmt: skip


def _software(outcomes: Sequence[Outcome]) -> list[str]:
    texts = []
    for software in (outcome.records[-1].software for outcome in outcomes):
        versions = ", ".join(f"{name} {version}" for name, version in software.versions.items())
        texts += [f"{versions}, Python {software.python}, mldyno {software.mldyno}"] if versions else []
    return list(dict.fromkeys(texts))


def _unscored(entry: Entry) -> Iterator[str]:
    """Say which scores a device lacks though it has some of their cases, and how many cases are missing."""
    if entry.published:
        return
    for device in entry.devices:
        frameworks = grouped(entry.on(device), lambda outcome: outcome.case.framework)
        for mode, word in WORK.items():
            left = fewest_missing(frameworks.values(), mode)
            if left and entry.best(device, mode) is None:
                whole = sum(case.mode == mode for case in reference().rates)
                yield f"No score for {word} on {device}: {len(left)} of its {count(whole, 'case')} missing."


def _case(outcome: Outcome, collection: Collection) -> dict[str, Any]:
    step, rate, ranking = outcome.step, outcome.figure("throughput"), collection.ranking(outcome)
    doubts = [f"{code}: {reason}" for code, reason in marks(outcome.records[0])] if outcome.published else []
    return {
        "title": case_title(outcome.case), "id": case_name(outcome.case), "device": place_title(outcome.case),
        "time": show_estimate(step) if step is not None else headline(outcome.records[-1]),
        "sort": None if step is None else step.value,
        "rate": "" if rate is None else digits(rate.value, rate.half_width),
        "per_second": None if rate is None else rate.value,
        "trust": "; ".join([trust(outcome), *doubts]), "when": outcome.records[-1].created[:10],
        "ranking": "" if ranking is None else ranking.stem,
    }  # fmt: skip


def _data(entry: Entry) -> dict[str, Any]:
    """Return what the comparison of two machines reads: scores in words, and the times of all cases in s."""
    scored = [[WORK[str(each.case.mode)], place_title(each.case), show_interval(each, decimals=0)]
              for each in entry.scores]  # fmt: skip
    timed = [(outcome.case, outcome.step) for outcome in entry.outcomes]
    cases = [
        {"work": replace(case, device="").id, "title": case_title(case, ("device",)), "device": case.device,
         "step": step.value, "half": step.half_width, "time": show_estimate(step), "published": entry.published}
        for case, step in timed if step is not None and step.value > 0 and not case.own_work
    ]  # fmt: skip
    return {"name": _full_name(entry), "published": entry.published, "scores": scored, "cases": cases}


def _work(ranking: Ranking, siblings: Sequence[Ranking], shared: dict[str, Any]) -> Iterator[Page]:
    """Yield the ranking of one work; bars are speeds in percent of the fastest."""
    fastest = ranking.ranked[0][2].value
    speeds = [step.per(100 * fastest, "1") for _, _, step in ranking.ranked]
    scale = scale_for(speeds)
    macros = templates("site").get_template("rows.html").module
    rows = []
    for number, ((entry, outcome, step), speed) in enumerate(zip(ranking.ranked, speeds, strict=True), 1):
        rate = outcome.figure("throughput")
        shown_rate = "" if rate is None else digits(rate.value, rate.half_width)
        time, where, drawn = show_estimate(step), shown_place(outcome.case), bar(scale, speed)
        rows.append(str(macros.ranked(number, entry, where, time, step.value, shown_rate, rate, speed.value, drawn)))
    items = (outcome.records[0].fact("item") for _, outcome, _ in ranking.ranked)
    others = [each for each in siblings if each is not ranking][:MOST_SIBLINGS]
    yield from _listed(
        f"work/{ranking.stem}", rows, "work.html", shared, "../", ranking=ranking, scale=scale,
        item=next(filter(None, items), "item"), others=others,
    )  # fmt: skip
