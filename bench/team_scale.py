"""How many records and machines one place for a team carries: `python bench/team_scale.py PART...`, figures on stdout.

postgres N   N records in PostgreSQL: push and pull rates, size, queries
server N     pushes to `mldyno serve` by one and by eight clients
site N       a site of N machines: time, memory, size
Records are made, not measured; nothing here is a speed of a machine.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.labs import postgres
from tests.submitted import HERE, good

from mldyno.axes import Case
from mldyno.records import Machine, Record, seal
from mldyno.store import Store
from mldyno.team import Item, exchange
from mldyno.team.client import Server
from mldyno.team.postgres import Database
from mldyno.team.tokens import Tokens

LEAST_FREE_B = 20 << 30  # that the disk keeps
CASES = [Case(name, mode=mode, batch=batch, device=device)
         for name, batch in (("mlp", 128), ("resnet18", 32), ("resnet50", 32), ("bert-base", 8), ("lstm", 64))
         for mode in ("train", "infer") for device in ("cpu", "cuda:0")]  # fmt: skip


def machine(number: int) -> Machine:
    """One of many machines, each with a key."""
    devices = tuple(replace(device, title=f"{device.title} {number % 50}") for device in HERE.devices)
    return replace(HERE, name=f"node {number:05}", key=f"{number:032x}", devices=devices)


def made(count: int, per_machine: int = 20, cases: Sequence[Case] = CASES) -> Iterator[Record]:
    """Records of many machines, whose samples differ; as long as real ones."""
    for number in range(count):
        case = cases[number % len(cases)]
        dice = random.Random(number)
        whole = _shape(case)
        step = 0.01 * (1 + 0.3 * dice.random())
        series = tuple(
            replace(each, values=tuple(float(f"{step * (1 + dice.gauss(0, 0.01)):.6g}") for _ in each.values))
            if each.turn == 0 and each.metric == "step_time" else each for each in whole.series
        )  # fmt: skip
        run = replace(whole.run, id=f"20260101T000000-{number:06x}")
        yield seal(replace(whole, series=series, run=run, machine=machine(number // per_machine)))


_SHAPES: dict[Case, Record] = {}


def _shape(case: Case) -> Record:
    if case not in _SHAPES:
        _SHAPES[case] = good(case, 0.01)
    return _SHAPES[case]


def timed(what: str, act: Callable[[], Any]) -> Any:
    """Run, and print how long it took."""
    began = time.perf_counter()
    result = act()
    print(f"  {what}: {time.perf_counter() - began:.4g} s", flush=True)
    return result


def in_postgres(count: int) -> None:
    """Push, pull and query so many records."""
    with postgres.postgres() as server, Database(server.url(), make=True) as place:
        free = shutil.disk_usage(tempfile.gettempdir()).free
        if free - count * 20_000 < LEAST_FREE_B:
            sys.exit(f"{count:,} records may not fit: {free >> 30} GiB are free")
        batch: list[Item] = []
        pushing, done, length = 0.0, 0, 0
        for record in made(count):
            batch.append(Item(record.id, record.text))
            length += len(record.text)
            if len(batch) == exchange.BATCH:
                began = time.perf_counter()
                place.add(batch)
                pushing += time.perf_counter() - began
                done += len(batch)
                batch = []
                if done % (count // 10) == 0:
                    print(f"  {done:,}: {done / pushing:.0f} records/s in adding alone", flush=True)
        print(f"  added {done:,} records of {length / done:.0f} B: {done / pushing:.0f}/s")
        with place._reading() as cursor:
            size, indexes = place._rows(
                cursor, "SELECT pg_table_size('mldyno.records'), pg_indexes_size('mldyno.records')"
            )[0]
            print(f"  table {size / 1e6:.0f} MB, indexes {indexes / 1e6:.0f} MB")
        queries = {
            "by id": ("SELECT body FROM {records} WHERE id = ?", made_id(count // 2)),
            "a machine's": ("SELECT id, case_id FROM {records} WHERE key = ?", f"{count // 40:032x}"),
            "a case of a machine": ("SELECT body FROM {records} WHERE case_id = ? AND machine = ?", CASES[0].id,
                                    f"node {count // 40:05}"),
            "a case of all machines, count": ("SELECT count(*) FROM {records} WHERE case_id = ?", CASES[0].id),
        }  # fmt: skip
        for name, (sql, *values) in queries.items():
            ask = partial(query, place, sql, values)
            print(f"  {name}: {len(ask())} rows")
            timed("again", ask)
        timed("missing: 1,000 known ids", lambda: place.missing([item.id for item in place.page(0).items] * 2))
        timed("tip and judged", lambda: (place.tip(), place.judged()))
        some = min(count, 20_000)
        with tempfile.TemporaryDirectory() as folder:
            store = Store(f"{folder}/records.sqlite")
            began, pulled, after = time.perf_counter(), 0, 0
            while pulled < some:
                page = place.page(after)
                moved = exchange.Moved()
                records = [each for item in page.items if (each := exchange._taken(item, "bench", moved))]
                pulled += store.append(records)
                after = page.items[-1].number
            print(f"  pulled {pulled:,}: {pulled / (time.perf_counter() - began):.0f}/s into a store")


def query(place: Database, sql: str, values: list[Any]) -> list[Any]:
    """Return the rows of a question."""
    with place._reading() as cursor:
        return place._rows(cursor, sql, *values)


def made_id(number: int) -> str:
    """Return the id of one of the records, by its place among them."""
    for place, record in enumerate(made(number + 1)):
        if place == number:
            return record.id
    raise AssertionError


def in_server(count: int) -> None:
    """Push to a server, one client and eight."""
    with tempfile.TemporaryDirectory() as folder:
        token = Tokens(Path(folder) / "tokens").add("bench")
        words = ["serve", "--store", f"{folder}/team.sqlite", "--tokens", f"{folder}/tokens", "--listen", "127.0.0.1:0"]
        with subprocess.Popen([sys.executable, "-m", "mldyno", *words], stderr=subprocess.PIPE, text=True) as served:
            assert served.stderr
            url = served.stderr.readline().split("listening on ")[1].split(",")[0]
            time.sleep(15)  # the first site is built
            plausible = [case for case in CASES if case.workload == "mlp"]  # in the time that records are made with
            items = [Item(record.id, record.text) for record in made(count, cases=plausible)]
            half = len(items) // 2
            for clients, size, some in ((1, 1, items[:200]), (1, 200, items[200:half]), (8, 50, items[half:])):
                began = time.perf_counter()
                _push(url, token, some, clients, size)
                rate = len(some) / (time.perf_counter() - began)
                print(f"  {clients} clients, {size} records a request: {rate:.0f}/s", flush=True)
            memory = Path(f"/proc/{served.pid}/status").read_text().split("VmHWM:")[1].split("kB")[0]
            print(f"  memory of the server at most {int(memory) / 1024:.0f} MiB")
            served.terminate()


def _push(url: str, token: str, items: list[Item], clients: int, size: int) -> None:
    batches = iter([items[start : start + size] for start in range(0, len(items), size)])
    lock = threading.Lock()

    def work() -> None:
        with Server(url, token) as place:
            while True:
                with lock:
                    batch = next(batches, None)
                if batch is None:
                    return
                assert place.add(batch) == len(batch)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def of_site(count: int) -> None:
    """Write a site of so many machines, each with the cases above."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"{folder}/records.sqlite")
        total = count * len(CASES)
        timed(f"{total:,} records made and stored", lambda: store.append(made(total, len(CASES))))
        print(f"  store {os.path.getsize(f'{folder}/records.sqlite') / 1e6:.0f} MB")
        store.close()
        words = ["report", "--site", f"{folder}/site", "--store", f"{folder}/records.sqlite", "--private"]
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "mldyno", *words], check=True, stdout=subprocess.DEVNULL)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        sizes = [path.stat().st_size for path in Path(folder, "site").rglob("*") if path.is_file()]
        largest = max(path.stat().st_size for path in Path(folder, "site").rglob("*") if path.is_file())
        print(f"  {time.perf_counter() - began:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU time, "
              f"{used.ru_maxrss / 1024:.0f} MiB at most, {len(sizes):,} files, {sum(sizes) / 1e6:.0f} MB, "
              f"the largest {largest / 1e6:.2f} MB")  # fmt: skip


PARTS = {"postgres": in_postgres, "server": in_server, "site": of_site}


def main() -> None:
    """Measure the named parts, each with its number."""
    words = sys.argv[1:]
    for name, count in zip(words[::2], words[1::2], strict=True):
        print(f"{name}, {int(count):,}:", flush=True)
        PARTS[name](int(count))


if __name__ == "__main__":
    main()
