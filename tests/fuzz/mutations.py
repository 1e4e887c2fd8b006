"""Records that could come from anywhere: real ones, changed as someone could who knows what a record is made of.

Each change is one entry. Most keep the shape of a record, so that its content gets past the decoder and reaches the
readers; the id is made right afterwards. What comes of a seed is the same every time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from mldyno.axes import AXES
from mldyno.metrics import DEVICE_FACTS, FACTS, METRICS, Entry
from mldyno.records import SCHEMA, Pairing, Provenance, Status, Unit, canonical, content_id, seal
from mldyno.runner.warnings import WARNING_CODES
from mldyno.store.codec import decode

Content = dict[str, Any]
Change = Callable[[random.Random, Content], None]
HERE = "test bench"  # what the tests call this machine
KEPT = Path(__file__).parent.parent / "history" / "0.1" / "records.jsonl"

NUMBERS = (0, 1, -1, 2, 3, 10, 1000, 2**31, 2**53 - 1, 2**53, 0.0, -0.0, 1e-320, 1e-30, 9e-31, 1e-12, 1e-6, 0.5, 1.0,
           1.5, -0.5, 1e9, 1.1e9, 1e18, 1e30, 1.1e30, 1e300, 1e308)  # fmt: skip
TIMES = (1e-30, 1e-12, 1e-9, 3e-6, 1e-3, 0.0123, 1.0, 7.5, 3600.0, 1e9, 1e30)
TEXTS = ("", " ", "x", "ok", "cpu", "gpu", "8", "NaN", "-", "=1+1", "a\nb", "a\tb", "a\0b", "\x1b[31mred", "\x9b2J",
         "\x7f", "\u202edrawkcab", "\u2028", "\ue000", "\uffff", "é🜏東京", "x" * 299, "x" * 301, "y" * 10_000,
         "z" * 10_001, "2026", "a,b\"c'd\\e", "<script>alert(1)</script>", "]]>&lt;<b>", "{{x}}", "datum['x']",
         "[red]x[/red]", "| a | b |", "data, epoch", "prefill, decode, ", ", ,", "interrupted", "time:1steps",
         "throughput:data", "%s %d {0}", "../../x", "step_time", "loop_time", "published")  # fmt: skip
STAGES = ("first", "warmup", "steady", "paired", "window", "process", "", "strange")
NAMES_OF_METRICS = (*(metric.name for metric in METRICS), "data_time", "epoch_time", "prefill_time", "new", "")
NAMES_OF_FACTS = (*FACTS, "data_items", "prefill_items", "epoch_items", "policy_loss_first", "new", "")
CREATED = ("2026-01-31T12:00:00Z", "2026-01-31", "2026-01-31T12:00:00+23:59", "0001-01-01T00:00:00Z", "20260131",
           "9999-12-31T23:59:59.999Z", "2026-W05-6", "2026-01-31T12:00:00.12", "2026-01-31 12:00", "soon")  # fmt: skip


def seeds() -> list[Content]:
    """What the changes begin with: all that an earlier version wrote, in its schema and in today's."""
    texts = KEPT.read_text(encoding="utf-8").splitlines()
    today = [seal(replace(decode(text), schema=SCHEMA)).text for text in texts]
    return [json.loads(text) for text in (*texts[::6], *today)]


def mutated(seed: int, originals: list[Content], kinds: int = 10) -> str:
    """The text of a changed record; those of neighbouring seeds are of a few originals, and so belong together."""
    source = random.Random(seed)
    originals_here = random.Random(seed // 100).sample(originals, kinds)
    content: Content = json.loads(json.dumps(source.choice(originals_here)))
    if source.random() < 0.3:
        content["machine"]["name"] = HERE
    for _ in range(source.choice((1, 1, 2, 3, 5))):
        with suppress(KeyError, TypeError, AttributeError):  # where another change has taken away what it needs
            source.choice(CHANGES)(source, content)
    content["id"] = content_id(content)
    return canonical(content)


# -- changes ---------------------------------------------------------------------------------------


def number(source: random.Random) -> float:
    """A number, often at an edge."""
    kind = source.random()
    if kind < 0.6:
        return source.choice(NUMBERS)
    return source.randint(0, 10_000) if kind < 0.8 else source.choice((1, -1)) * 10 ** source.uniform(-31, 31)


def text(source: random.Random) -> str:
    """A text, often a hostile one."""
    if source.random() < 0.8:
        return source.choice(TEXTS)
    return "".join(chr(source.choice((source.randrange(32), source.randrange(0xD800)))) for _ in range(5))


def anything(source: random.Random) -> Any:
    """A value of any type that JSON has."""
    return source.choice((number(source), text(source), None, True, False, [], {}, [1], {"x": 1}))


def like(source: random.Random, old: Any) -> Any:
    """Another value of the same type."""
    if isinstance(old, bool) or old is None:
        return source.choice((True, False, None))
    if isinstance(old, int):
        return round(min(abs(number(source)), 2**53))
    return number(source) if isinstance(old, float) else text(source) if isinstance(old, str) else old


def fact_value(source: random.Random, entry: Entry | None) -> Any:
    """A value that fits an entry, mostly."""
    if entry is None or source.random() < 0.2:
        return source.choice((number(source), text(source), None, True, False))
    if entry.kind == "flag":
        return source.choice((True, False, None))
    if entry.kind == "text":
        return text(source)
    value = source.choice((entry.least, entry.most, number(source), 10 ** source.uniform(-6, 6)))
    return value if entry.kind == "number" else round(min(abs(value), 2**53))


def any_place(source: random.Random, content: Content) -> None:
    """Change or drop one value, wherever it is."""
    *way, last = source.choice(list(_places(content)))
    part: Any = content
    for key in way:
        part = part[key]
    if source.random() < 0.1:
        del part[last]
    else:
        part[last] = like(source, part[last]) if source.random() < 0.8 else anything(source)


def _places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(content, dict | list):
        parts = content.items() if isinstance(content, dict) else list(enumerate(content))[:3]
        for key, value in parts:
            yield from _places(value, (*path, key))


def a_fact(source: random.Random, content: Content) -> None:
    """Set a fact of the record."""
    name = source.choice(NAMES_OF_FACTS)
    content.setdefault("facts", {})[name] = fact_value(source, FACTS.get(name))


def facts_gone(source: random.Random, content: Content) -> None:
    """Drop some facts."""
    facts = content.get("facts", {})
    for name in source.sample(sorted(facts), source.randint(0, len(facts))):
        del facts[name]


def a_device_fact(source: random.Random, content: Content) -> None:
    """Set a fact of a device."""
    for device in content["machine"].get("devices", [])[:1]:
        name = source.choice((*DEVICE_FACTS, "new"))
        device.setdefault("facts", {})[name] = fact_value(source, DEVICE_FACTS.get(name))


def a_phase(source: random.Random, content: Content) -> None:
    """Something that was timed apart, with its items."""
    name = source.choice(("data", "epoch", "prefill", "policy", "x y", ""))
    content.setdefault("facts", {})["phases"] = source.choice((name, f"{name}, {name}", text(source)))
    content["facts"][f"{name}_items"] = fact_value(source, Entry("count"))
    series_of(content).append({"metric": f"{name}_time", "unit": "s", "values": values(source)})


def values(source: random.Random) -> list[float]:
    """Samples: none, one, some or many; all alike, in two modes, drifting, or at the edges."""
    size, level = source.choice((0, 1, 2, 3, 9, 10, 20, 70, 700)), source.choice(TIMES)
    kind = source.randrange(5)
    if kind == 0:
        return [level] * size
    if kind == 1:
        return [source.choice((level, source.choice(TIMES))) for _ in range(size)]
    if kind == 2:
        return [level * (1 + index / 10) for index in range(size)]
    if kind == 3:
        return [number(source) for _ in range(min(size, 3))]
    return [level * source.uniform(0.9, 1.1) for _ in range(size)]


def series_of(content: Content) -> list[Content]:
    series: list[Content] = content.setdefault("series", [])
    return series


def a_series(source: random.Random, content: Content) -> None:
    """Drop, repeat, add or change a series."""
    series = series_of(content)
    how = source.randrange(6)
    if how == 0 or not series:
        series.append({"metric": source.choice(NAMES_OF_METRICS), "unit": source.choice(get_args(Unit)),
                       "values": values(source), "stage": source.choice(STAGES)})  # fmt: skip
        if content["schema"] == 1:
            series[-1]["phase"] = series[-1].pop("stage")
        return
    place = source.randrange(len(series))
    if how == 1:
        del series[place]
    elif how == 2:
        series.append(dict(series[place]))
    elif how == 3:
        series[place]["values"] = values(source)
    elif how == 4:
        key = source.choice(("metric", "unit", "block", "turn"))
        series[place][key] = {
            "metric": source.choice((*NAMES_OF_METRICS, text(source))), "unit": source.choice(get_args(Unit)),
            "block": like(source, 1), "turn": source.choice((None, like(source, 1), -1)),
        }[key]  # fmt: skip
    else:
        series[place]["phase" if content["schema"] == 1 else "stage"] = source.choice(STAGES)


def no_series(source: random.Random, content: Content) -> None:
    """Nothing was measured."""
    content["series"] = []


def a_status(source: random.Random, content: Content) -> None:
    """Another end of the case."""
    content |= {"status": source.choice(get_args(Status)), "reason": text(source)}


def an_axis(source: random.Random, content: Content) -> None:
    """Another case."""
    axis = source.choice(AXES)
    name = {"ranks": "workers"}.get(axis.name, axis.name) if content["schema"] == 1 else axis.name
    chosen: Any = source.choice(axis.values) if axis.values else text(source)
    if axis.number:
        chosen = like(source, 1)
    elif axis.name == "device":
        chosen = source.choice(("cpu", "gpu", "mps", "cuda:0", "cuda:1", "xpu", "cpu:0", "tpu", text(source)))
    elif axis.name == "compile":
        chosen = source.choice((True, False))
    content["case"][name] = None if axis.optional and source.random() < 0.2 else chosen


def the_run(source: random.Random, content: Content) -> None:
    """Another run, repeat or pairing."""
    run = content["run"]
    old = content["schema"] == 1
    run[source.choice(("id", "suite"))] = source.choice((text(source), "r", "quick"))
    run["round" if old else "repeat"] = like(source, 1)
    run["group"], run["process"] = like(source, 1), like(source, 1)
    if not old:
        run["pairing"] = source.choice(get_args(Pairing))


def the_origin(source: random.Random, content: Content) -> None:
    """Another time and provenance."""
    content |= {"created": source.choice(CREATED), "provenance": source.choice(get_args(Provenance))}


def the_machine(source: random.Random, content: Content) -> None:
    """Another machine."""
    machine = content["machine"]
    machine[source.choice(("name", "system", "release", "arch", "cpu", "power"))] = text(source)
    machine[source.choice(("cores", "memory"))] = source.choice((None, like(source, 1), -1))
    machine["devices"] = source.choice((
        [], machine.get("devices", []),
        [{"name": text(source), "framework": text(source), "title": text(source), "memory": like(source, 1)}],
    ))  # fmt: skip


def the_software(source: random.Random, content: Content) -> None:
    """Other versions and settings."""
    software = content.setdefault("software", {})
    software["versions"] = {source.choice(("torch", "python", text(source))): text(source)}
    software["env"] = {source.choice(("OMP_NUM_THREADS", text(source))): text(source)}
    software["threads"] = source.choice((None, like(source, 1), -1))


def the_warnings(source: random.Random, content: Content) -> None:
    """Other warnings and checks."""
    codes = [*WARNING_CODES, "superseded", "suspect", "note", text(source)]
    content["warnings"] = [
        {"code": source.choice(codes), "message": text(source), "hint": text(source)}
        for _ in range(source.randrange(3))
    ]
    content["checks"] = {"learned": like(source, None), "agrees": like(source, None),
                         "error": source.choice((None, number(source)))}  # fmt: skip


CHANGES: tuple[Change, ...] = (
    any_place, any_place, a_fact, a_fact, a_fact, facts_gone, a_device_fact, a_phase, a_series, a_series, a_series,
    no_series, a_status, an_axis, an_axis, the_run, the_origin, the_machine, the_software, the_warnings,
)  # fmt: skip
