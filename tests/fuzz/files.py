"""`make fuzz-files`: 10,000 strange files through every reading command; nothing starts, nothing fails inside.

Run as a program, since it hears by an audit hook what its own process does. Hostile files that are known come first.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.fuzz.strange_files import RAN, UNTOUCHED, Surroundings, hostile, prepare, strange

from mldyno.views.tables import FORMATS

Words = tuple[str, ...]
USUAL = 10_000
COMPLETED = {"_MLDYNO_COMPLETE": "bash_complete", "COMP_WORDS": "mldyno show ", "COMP_CWORD": "2"}
ENDINGS = {"records": ".jsonl", "figures": ".csv", "page": ".html", "suite": ".toml", "store": ".sqlite", "site": ""}
NOTHING: Mapping[str, str] = {}
MINE = ("mine.txt", "index-mine.html", "machine.html", ".hidden")


def of_records(file: str) -> list[Words]:
    """The commands that read a file of records, figures or a page."""
    return [
        ("import", file), ("selftest", "--replay", file),
        *(("table", file, "--format", form) for form in FORMATS),
        ("table", file, "--rows", "workload,python", "--cols", "machine", "--value", "throughput"),
        ("table", file, "sound.jsonl"), ("show", file), ("show", file, "--json"),
        ("compare", file), ("compare", file, "--by", "machine", "--json"),
        ("compare", file, "sound.jsonl", "--anyway"), ("compare", "sound.jsonl", file, "--anyway", "--json"),
        ("report", file, "--out", "page.html"), ("report", file, "--private", "--out", "page.html", "--json"),
        ("report", file, "--format", "svg", "--out", "pictures"),
        ("report", file, "--format", "png", "--out", "pictures"),
        ("report", file, "--card", "card.png"), ("report", file, "--site", "new-site"),
        ("submit", "--check", file), ("submit", "--check", "sound.jsonl", file),
        ("history", file), ("export", "-", "--only", file), ("run", file, "--dry-run"),
    ]  # fmt: skip


def of_store(store: str) -> list[Words]:
    """The commands that read a store; those that write into it come last."""
    commands: list[Words] = [
        ("history",), ("history", "--json", "--most", "1000"), ("list",), ("list", "machines"),
        ("list", "machines", "--json"), ("list", "workloads"), ("table",), ("table", "--format", "json"),
        ("table", "this-machine"), ("table", "--value", "score"), ("show", "mlp"), ("show", "mlp", "--json"),
        ("compare", "mlp"), ("compare", "mlp", "--by", "run"), ("compare", "this-machine", "M1 Max"),
        ("report", "--out", "page.html"), ("report", "--format", "svg", "--out", "pictures"),
        ("report", "--card", "card.png"), ("report", "--site", "new-site"),
        ("export", "out.jsonl"), ("export", "out.csv", "--format", "csv"), ("export", "-", "--private"),
        ("submit", "--out", "submitted.jsonl"), ("run", "mlp", "--framework", "fake", "--dry-run"),
        ("run", "--resume", "--dry-run"), ("remove", "mlp", "--yes"), ("import", "sound.jsonl"),
    ]  # fmt: skip
    return [(*words, "--store", store) for words in commands]


def of_suite(file: str) -> list[Words]:
    """The commands that read a suite."""
    return [("run", file, "--dry-run"), ("run", file, "--dry-run", "--json", "--framework", "fake"),
            ("table", file), ("import", file), ("submit", "--check", file)]  # fmt: skip


def of_site(folder: str, source: random.Random) -> list[Words]:
    """The commands that read or replace a site."""
    files = sorted(str(path) for path in Path(folder).rglob("*") if path.is_file())
    read = [(verb, file) for file in source.sample(files, min(6, len(files))) for verb in ("table", "import")]
    return [*read, ("report", "sound.jsonl", "--site", folder)]


def in_turn(commands: list[Words], turn: int) -> Iterator[Words]:
    """Yield each command in one of its ways, another one at each turn."""
    ways: dict[str, list[Words]] = {}
    for words in commands:
        ways.setdefault(words[0] if words else "", []).append(words)
    for known in ways.values():
        yield known[turn % len(known)]


class Reader:
    """Reads files by every command, and counts what it did."""

    def __init__(self, around: Surroundings) -> None:
        self.around, self.workers = around, True
        self.turn: int | None = None
        """Which of its ways each command has its turn with; None for all of them."""
        self.commands: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.slowest = (0.0, "")
        self.faults: list[str] = []

    def read(self, path: Path, kind: str) -> None:
        """Read a file in every way that its kind has."""
        name, folder = path.name, self.around.folder
        mine = {file for file in path.rglob("*") if file.name in MINE} if kind == "site" else set()
        with self._clean():
            if kind == "suite":
                self._run(of_suite(name), allow_files=True)
            elif kind == "store":
                self._run(of_store(name))
                self._complete(name)
            elif kind == "site":
                self._run(of_site(str(path), random.Random(name)))
                if lost := [file for file in mine if not file.exists()]:
                    self.faults.append(f"{name}: {lost} is lost")
            else:
                self._run(of_records(name))
                if (folder / "own.sqlite").exists():
                    self._run(of_store("own.sqlite"))
                    self._complete("own.sqlite")
                    self._run([("import", name, "--store", "own.sqlite"), ("remove", name, "--yes")])

    def _complete(self, store: str) -> None:
        self._run([()], environment={"MLDYNO_STORE": store, **COMPLETED})

    def _run(self, commands: list[Words], allow_files: bool = False, environment: Mapping[str, str] = NOTHING) -> None:
        from tests.fuzz.watched import run

        folder = self.around.folder
        settings = {"MLDYNO_STORE": str(folder / "own.sqlite"), **environment}
        untouched = "" if allow_files else UNTOUCHED
        for words in commands if self.turn is None else in_turn(commands, self.turn):
            outcome = run(words, folder, self.workers, untouched, **settings)
            self.commands[words[0] if words else "completion"] += 1
            self.refused[words[0] if words else "completion"] += outcome.code != 0
            self.slowest = max(self.slowest, (outcome.seconds, " ".join(words)))
            faults = list(outcome.faults)
            if (folder / RAN).exists():
                faults.append("runs a stranger's program")
                (folder / RAN).unlink()
            self.faults += [f"mldyno {' '.join(words)}: {fault}" for fault in faults]

    @contextlib.contextmanager
    def _clean(self) -> Iterator[None]:
        """Remove what the commands wrote."""
        before = set(self.around.folder.iterdir())
        yield
        for path in set(self.around.folder.iterdir()) - before:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _kind(name: str) -> str:
    return next((kind for kind, ending in ENDINGS.items() if ending and name.endswith(ending)), "figures")


def read_all(count: int, seed: int, known: bool, keep: Path | None) -> Reader:
    """Read the hostile files that are known, if asked to, and so many of a seed."""
    from tests.fuzz.watched import run

    with tempfile.TemporaryDirectory() as place:
        folder = Path(os.path.realpath(place))
        around = prepare(folder, lambda words: run(words, folder, MLDYNO_STORE=str(folder / "own.sqlite")))
        reader = Reader(around)
        if known:
            for name, text in hostile(folder).items():
                (folder / name).write_text(text, encoding="utf-8")
            for name in hostile(folder):
                reader.read(folder / name, _kind(name))
        reader.workers = False
        for number in range(count):
            path = folder / f"strange-{seed + number}"
            kind = strange(seed + number, around, path)
            named = path.rename(path.with_name(path.name + ENDINGS[kind]))
            before, reader.turn = len(reader.faults), seed + number
            reader.read(named, kind)
            if keep is not None and len(reader.faults) > before:
                keep.mkdir(exist_ok=True)
                (shutil.copytree if named.is_dir() else shutil.copy)(named, keep / named.name)
            shutil.rmtree(named) if named.is_dir() else named.unlink(missing_ok=True)
            if (number + 1) % 500 == 0:
                print(
                    f"{number + 1:,} files, {reader.commands.total():,} commands, {len(reader.faults)} faults",
                    flush=True,
                )
        return reader


def main() -> int:
    """Read strange files; the exit code is 1 where a command started something, failed inside or took too long."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=USUAL)
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    options.add_argument("--known", action="store_true", help="read the hostile files that are known, too")
    options.add_argument("--keep", type=Path, help="a folder for the files that made a command fail")
    chosen = options.parse_args()
    print(f"seed {chosen.seed}; again with: make fuzz-files SEED={chosen.seed}", flush=True)
    for name in ("MLDYNO_DEBUG", "MLDYNO_PLAIN", "MLDYNO_FAKE"):
        os.environ.pop(name, None)
    os.environ |= {"MLDYNO_MACHINE": "test bench", "MLDYNO_MACHINE_KEY": "0123456789abcdef" * 2}
    reader = read_all(chosen.files, chosen.seed, chosen.known, chosen.keep)
    for fault in reader.faults:
        print(fault)
    by_command = ", ".join(f"{name} {count:,}" for name, count in sorted(reader.commands.items()))
    print(f"{reader.commands.total():,} commands ({by_command}); {reader.refused.total():,} refused")
    print(f"slowest: {reader.slowest[0]:.2f} s of CPU time, mldyno {reader.slowest[1]}")
    print(f"{chosen.files:,} strange files, {len(reader.faults)} faults")
    return 1 if reader.faults else 0


if __name__ == "__main__":
    sys.exit(main())
