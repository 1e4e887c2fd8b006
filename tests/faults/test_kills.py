"""Wherever a process that writes is killed, every command that reads works, with all of before or all of after."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.conftest import OWN_KEY
from tests.store.test_layout import OLD
from tests.views.report.made_records import BENCH, record

from mldyno import keys
from mldyno.cli import main
from mldyno.plan import Plan
from mldyno.records import Case, Machine, Record, Run, seal
from mldyno.runner.run import PLAN
from mldyno.store import Query, Store

READERS = (
    ("history",), ("export", "out.jsonl"), ("show", "mlp"), ("table", "mlp"), ("list", "machines"),
    ("compare", "mlp", "--by", "device"),
)  # fmt: skip
REPORT = ("report", "mlp/b8", "--out", "out.html")  # which takes longer than all others, and reads as they do


def made(run: str, machine: Machine, batches: range) -> list[Record]:
    """Records of two devices, large enough that a transaction takes many pages."""
    cases = [Case("mlp", batch=batch, mode="infer", device=device) for batch in batches for device in ("cpu", "cuda:0")]
    return [seal(replace(record(case, 0.001, machine), run=Run(run))) for case in cases]


MINE = made("r1", replace(BENCH, name="test bench", key=OWN_KEY), range(1, 9))
THEIRS = made("r2", BENCH, range(1, 17))
LATER = Plan((Case("mlp", batch=8, mode="infer", framework="fake"),), repeats=1)
BEFORE = frozenset(each.id for each in MINE)
OF_OLD = frozenset(json.loads(line)["id"] for line in OLD.with_name("records.jsonl").read_text().splitlines())


@dataclass(frozen=True)
class Kill:
    """A command, which of its transactions it is killed in and where; what its store holds before and after that."""

    words: tuple[str, ...]
    transaction: int
    place: str
    after: frozenset[str] = BEFORE
    new: int = 0
    """Records that were measured before."""
    old: bool = False
    """Whether its store is of the first layout."""

    def __str__(self) -> str:
        return f"{self.words[0]}, transaction {self.transaction}, {self.place}"


QUICKLY = ("--framework", "fake", "--repeats", "1")
RUN = ("run", "mlp", "--mode", "infer", *QUICKLY)
GROWING, SHRINKING = ("begun", "60", "400", "filled", "committing", "committed"), ("begun", "60", "filled", "committed")
STORING = [
    *(Kill(("import", "theirs.jsonl"), 1, place, BEFORE | {each.id for each in THEIRS}) for place in GROWING),
    *(Kill(("remove", "run=r1", "--yes"), 1, place, frozenset()) for place in SHRINKING),
    *(Kill(("history",), number, place, old=True) for number, place in ((1, "400"), (1, "committed"), (2, "filled"))),
]
MEASURING = [
    *(Kill(RUN, number, "filled") for number in (1, 2, 3)),  # to see that it can write, to note the run, to save
    Kill(RUN, 3, "committed", new=1),
    Kill(RUN, 4, "filled", new=1),  # to mark it as finished
    Kill(("run", "--resume"), 3, "filled"),
    Kill(("quick", "--framework", "fake"), 3, "filled"),
    Kill(("crossover", "mlp", "--device", "cpu,gpu", "--mode", "infer", *QUICKLY), 3, "filled"),
]


def killed(kills: Sequence[Kill], base: Path) -> dict[Kill, Path]:
    """The folder of each command that was killed: its store, with what it left beside it."""
    stores = {False: base / "records.sqlite", True: OLD}
    store = Store(stores[False])
    store.append(MINE)
    store.begin_run("later", "2026-01-01", "1 0.00", LATER.text(), keys.authenticate(PLAN, "later", LATER.text()))
    store.close()
    folders = {kill: base / str(number) for number, kill in enumerate(kills)}
    for kill, folder in folders.items():
        folder.mkdir()
        shutil.copy(stores[kill.old], folder / "records.sqlite")
        (folder / "theirs.jsonl").write_text("".join(each.text + "\n" for each in THEIRS))
    jobs = [(str(folder), kill.words, kill.transaction, kill.place) for kill, folder in folders.items()]
    (base / "jobs.json").write_text(json.dumps(jobs))
    script = [sys.executable, str(Path(__file__).parent / "killed.py"), str(base / "jobs.json")]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    for (kill, folder), ended in zip(folders.items(), json.loads(done.stdout), strict=True):
        expected = signal.SIGXFSZ if kill.place == "committing" else signal.SIGKILL
        assert ended == expected, f"{kill}: {(folder / 'said.txt').read_text()}"
    return folders


@pytest.mark.parametrize("kills", [STORING, MEASURING], ids=["storing", "measuring"])
def test_every_command_that_reads_works_after_a_kill(
    kills: Sequence[Kill], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "killed").mkdir()
    monkeypatch.chdir(tmp_path)
    for kill, folder in killed(kills, tmp_path / "killed").items():
        left = sorted(folder.glob("records.sqlite*"))
        within = kill.place in ("400", "filled", "committing")
        assert len(left) == 2 or not within, f"{kill}: no journal says that it was killed within its transaction"
        readers = READERS if len(left) == 2 else READERS[:2]  # without a journal there is nothing to undo
        for words in (*readers, REPORT) if kill.place == "committing" else readers:
            for file in left:  # as it was left, for each of them
                shutil.copy(file, tmp_path / file.name)
            with pytest.raises(SystemExit) as end:
                main(words)
            assert end.value.code == 0, (kill, words, capsys.readouterr().err)
        ids = frozenset(each.id for each in Store(tmp_path / "records.sqlite").stream(Query(heads=False)))
        before = OF_OLD if kill.old else BEFORE
        if kill.new:
            assert len(ids - before) == kill.new, kill
            assert before < ids, kill
        else:
            assert ids == (kill.after if kill.place == "committed" and not kill.old else before), kill
