"""What is printed can be shown anywhere: it steers no terminal, and the place it goes to may be full, gone or old."""

from __future__ import annotations

import ast
import io
import json
import os
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.views.report.made_records import BENCH, DEVICES, NOISY, record

import mldyno as package
from mldyno import api, cli
from mldyno.axes import NAMES
from mldyno.cli.output import Gate, new_bar
from mldyno.records import Case, Series, Software, Warning_, seal
from mldyno.store import Store
from mldyno.views.tables import FORMATS

Mldyno = Callable[..., tuple[int, str, str]]
STEERING = "\x1b]0;title\x07\x1b[2J\x9b31m\u202egnorw\u2066\r\x08\x7f\x00"
FAKED = "\nmldyno: all is well"
HOSTILE = f"{STEERING} end{FAKED}"


def hostile_lines(machine: str) -> str:
    """Records whose every text steers a terminal, where a reader takes such a text."""
    devices = tuple(replace(device, title=HOSTILE) for device in DEVICES)
    bench = replace(BENCH, name=machine, system=HOSTILE, cpu=HOSTILE, power=HOSTILE, devices=devices)
    software = Software(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, 8, {HOSTILE: HOSTILE})
    warning = Warning_(HOSTILE, HOSTILE, HOSTILE)
    facts: dict[str, Any] = {"item": HOSTILE, "note": HOSTILE, "products_in": HOSTILE, "peak_flops": 1e12}
    lines = []
    for device, step in (("cpu", 2e-3), ("cuda:0", None)):
        case = Case("mlp", device=device, mode="infer", batch=8)
        one = record(case, step, bench, warnings=(warning,), reason=HOSTILE, flops_per_step=1e9, **facts)
        series = (*one.series, Series(HOSTILE, "s", (1.0,)))
        lines.append(seal(replace(one, software=software, series=series)).text)
    return "\n".join(lines) + "\n"


class Screen(io.TextIOWrapper):
    """A terminal, and what was written to it."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="")

    def isatty(self) -> bool:
        return True

    def shown(self) -> str:
        """All of it."""
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)  # type: ignore[attr-defined,no-any-return]


def on_screen(*words: str, columns: int = 10_000, err: io.StringIO | None = None) -> tuple[int, str]:
    """Exit code of a command line, and what a terminal so wide shows; of what goes elsewhere, Click removes codes."""
    screen = Screen("utf-8")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(screen), redirect_stderr(err or screen):
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("MLDYNO_PLAIN", "")  # which --plain sets
        with pytest.raises(SystemExit) as end:
            cli.main(words)
    return int(end.value.code or 0), screen.shown()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with records of two machines, and the store with those of one."""
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "theirs"):
        (tmp_path / f"{name}.jsonl").write_text(hostile_lines(name))
    api.import_(["mine.jsonl"], Store())
    return tmp_path


READING = [
    ["show", "mlp"],
    ["show", "mlp", "--json"],
    ["history"],
    ["history", "--json"],
    ["list", "machines"],
    *(["table", "--format", form] for form in FORMATS),
    ["table", "--value", HOSTILE],
    ["table", HOSTILE],
    ["compare", "mine.jsonl", "theirs.jsonl"],
    ["compare", "mine.jsonl", "theirs.jsonl", "--json"],
    ["compare", HOSTILE, "--by", HOSTILE],
    ["export", "-"],
    ["export", "-", "--format", "csv"],
    ["import", HOSTILE[:-5]],
    [HOSTILE],
    [f"--{HOSTILE}"],
    ["run", "mlp", "--mode", HOSTILE],
]


def harmless(text: str) -> bool:
    return text.replace("\n", "").isprintable()


@pytest.mark.parametrize("words", READING, ids=lambda words: " ".join(words).encode("unicode_escape").decode()[:40])
def test_what_a_record_or_a_word_says_steers_no_terminal(words: list[str], files: Path) -> None:
    code, shown = on_screen(*words)
    assert shown
    assert harmless(shown)
    assert FAKED not in shown
    assert shown.count("\n") == 1 or not code, "an error is one line"


@pytest.fixture
def kept(store: Store) -> None:
    """A machine with a long name in the store, with warnings."""
    bench = replace(BENCH, name="a bench whose name has many words")
    cases = [Case("mlp", mode="infer", batch=128, device=device) for device in ("cpu", "cuda:0")]
    store.append([record(case, 2e-3, bench, warnings=(NOISY,), item="sample") for case in cases])


DRY_RUN = ["run", "mlp", "bert-base", "--framework", "fake", "--dry-run"]
LONG = [[], ["--help"], ["list"], ["list", "machines"], ["run", "--help"], ["show", "mlp"], ["history"], ["rnu"],
        ["compare", "M1 Max", "M3 Max"], ["compare", "this-machine", "xeon"], ["table", "bert-base/infer"],
        ["--plain", "table", "bert-base/infer"], DRY_RUN]  # fmt: skip


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize("words", LONG, ids=" ".join)
def test_in_a_window_no_word_is_broken(
    words: list[str], columns: int, kept: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    shown, whole = on_screen(*words, columns=columns)[1], on_screen(*words)[1]
    wide = [line for line in shown.splitlines() if len(line) > columns]
    assert all(len(line.split()) == 1 for line in wide), "only a word that is too long itself goes beyond"
    assert {*re.findall(r"\w{4,}", shown)} <= {*re.findall(r"\w{4,}", whole), *NAMES, "machine"}


FOR_PROGRAMS = [["list", "--json"], ["show", "mlp", "--json"], ["export", "-"], ["export", "--format", "csv"],
                ["completion", "zsh"], *(["table", "--format", form] for form in FORMATS[1:])]  # fmt: skip


@pytest.mark.parametrize("words", FOR_PROGRAMS, ids=" ".join)
def test_what_a_program_may_read_keeps_its_lines_in_a_window_too(words: list[str], kept: None) -> None:
    shown, whole = (on_screen(*words, columns=columns, err=io.StringIO()) for columns in (40, 10_000))
    assert shown == whole
    assert max(map(len, shown[1].splitlines())) > 40


def test_a_record_that_a_run_prints_is_one_line_in_a_window_too() -> None:
    words = ("run", "mlp", "--framework", "fake", "--repeats", "1", "--mode", "infer", "--json", "-q")
    assert json.loads(on_screen(*words, columns=40)[1])["status"] == "ok"


FAKE_RUN = ("--framework", "fake", "--repeats", "1", "--mode", "infer", "--device", "cpu,gpu")
DRAWN = re.compile("[\x1b\u2500-\u259f]")  # what steers a terminal, or is a part of a rule, a box or a bar


@pytest.mark.parametrize(
    "words",
    [["history"], ["table", "mlp"], ["list"], ["show", "mlp"], DRY_RUN, ["run", "mlp", *FAKE_RUN],
     ["crossover", "mlp", "--to", "2", *FAKE_RUN]],
    ids=" ".join,
)  # fmt: skip
def test_plain_text_has_no_rules_no_bars_and_nothing_that_is_drawn_again(
    words: list[str], kept: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    code, shown = on_screen("--plain", *words)
    assert (code, DRAWN.findall(shown)) == (0, [])


def test_in_plain_text_each_fact_has_a_line(mldyno: Mldyno) -> None:
    out = mldyno("--plain", "run", "mlp", *FAKE_RUN)[1]
    assert out.startswith("time of one step: mlp, infer, batch 128\ncpu: 1,280 µs ±0.01 %\ngpu: 129 µs ±0.01 %\n")
    lines = mldyno("--plain", *DRY_RUN)[1].splitlines()
    assert [line.partition(":")[0] for line in lines[:3]] == ["case", "time", "memory"]
    assert lines[4] == ""


def test_the_place_of_a_report_steers_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "\x1b[2J\u202e.html"
    path.touch()
    monkeypatch.setattr(api, "report", lambda *_, **__: [str(path)])
    assert on_screen("report") == (0, f"{tmp_path}/\ufffd[2J\ufffd.html (0.0 MB)\n")


SUITES = [
    '"{}" = 1',
    '[[cases]]\n"{}" = 1',
    '[[cases]]\nworkload = "{}"',
    '[[cases]]\nworkload = "mlp"\ndevice = "{}"',
    'include = ["{}"]',
    'budget = "{}"',
    'data = "{}"',
]


@pytest.mark.parametrize("text", SUITES)
def test_a_strangers_suite_steers_no_terminal(text: str, tmp_path: Path) -> None:
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in f"{STEERING}{FAKED}")
    suite = tmp_path / "strange.toml"
    suite.write_text(text.replace("{}", escaped))
    code, shown = on_screen("run", str(suite), "--framework", "fake", "--dry-run")
    assert code != 0
    assert harmless(shown)
    assert shown.count("\n") == 1


def test_a_bar_is_styled_by_us_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen("ascii")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr("sys.stderr", Gate(screen, needed=False))
    bar = new_bar()
    bar.start()
    bar.update(bar.add_task(HOSTILE, total=1.0, detail=f"±2 % {HOSTILE}"), completed=0.5)
    bar.say(f"line {HOSTILE}")
    bar.refresh()
    bar.stop()
    shown = screen.shown()
    styles = re.findall(r"\x1b\[[0-9;?]*[a-zA-Z]", shown)
    assert styles
    assert "\x1b[2J" not in styles
    assert harmless(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", shown))
    assert "+-2 %" in shown


@pytest.mark.parametrize(("encoding", "sign"), [("latin-1", "±"), ("ascii", "+-"), ("utf-8", "±")])
def test_an_output_shows_what_its_encoding_has(
    encoding: str, sign: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mldyno: Mldyno
) -> None:
    line = record(Case("mlp", batch=8), 2e-3, replace(BENCH, name="Bücherei 東京")).text
    (tmp_path / "their.jsonl").write_text(line + "\n")
    with (tmp_path / "out.txt").open("w", encoding=encoding) as out:
        monkeypatch.setattr("sys.stdout", out)
        assert mldyno("table", str(tmp_path / "their.jsonl"))[0] == 0
    shown = (tmp_path / "out.txt").read_text(encoding=encoding)
    assert f"ms {sign}" in shown
    assert {"latin-1": "Bücherei ??", "ascii": "B?cherei ??", "utf-8": "Bücherei 東京"}[encoding] in shown


COMMANDS = [["export", "-"], ["table"], ["history"], ["--help"], []]


def without_sharing(err: str) -> list[str]:
    """The lines of standard error but the one that `export` begins with."""
    return [line for line in err.splitlines() if not line.startswith("shares ")]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_behind_standard_output_is_one_line(
    words: list[str], files: Path, monkeypatch: pytest.MonkeyPatch, mldyno: Mldyno
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        code, _, err = mldyno(*words)
    assert code == 1
    assert without_sharing(err) == [
        "mldyno: standard output: No space left on device; not all of it was written. Send it elsewhere."
    ]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_reader_that_has_gone_is_no_error(
    words: list[str], files: Path, monkeypatch: pytest.MonkeyPatch, mldyno: Mldyno
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        monkeypatch.setattr("sys.stdout", gone)
        code, _, err = mldyno(*words)
    assert (code, without_sharing(err)) == (0, [])


def test_what_goes_to_standard_error_may_be_lost(monkeypatch: pytest.MonkeyPatch, mldyno: Mldyno) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stderr", full)
        code, out, _ = mldyno("run", "mlp", "--framework", "fake", "--repeats", "1", "--mode", "infer")
    assert code == 0
    assert "time of one step" in out


def test_a_command_without_standard_streams_does_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    with pytest.raises(SystemExit) as end:
        cli.main(["list"])
    assert end.value.code == 0


SRC = Path(str(package.__file__)).parent
IN_CHILDREN = ("worker", "frameworks", "workloads", "hardware", "datasets")
"""What runs in processes whose output the parent reads."""
FILES = [path for path in sorted(SRC.rglob("*.py")) if path.relative_to(SRC).parts[0] not in IN_CHILDREN]


def ways_around(path: Path) -> list[str]:
    """What in a file writes past the gate, or would."""
    names = {"__stdout__", "__stderr__", "ungated", "buffer"}
    calls = {"os.write", "os.fdopen", "os.dup2", "print", "Console", "rich.print"}
    text = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text))) if any(word in text for word in (*names, *calls)) else []
    reached = [ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute) and node.attr in names]
    return reached + [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)
                      and ast.unparse(node.func) in calls]  # fmt: skip


MAY = {
    "cli/output.py": {"ungated", "os.dup2"},
    "views/window.py": {"Console"},  # for texts, and for the bars of cli/output.py
    "engines/_ray_bridge.py": {"os.write", "os.dup2"},  # a pipe, in a process that does nothing else
    "fleet/boot.py": {"os.write"},  # as well
    "fleet/pipes.py": {"os.write"},
    "fleet/remote.py": {"os.write", "os.dup2"},
    "keys.py": {"os.fdopen"},  # a file
    "temporary.py": {"os.fdopen"},  # a file
    "store/transfer.py": {"buffer"},  # standard input
}


def test_no_file_writes_past_the_gate() -> None:
    for path in FILES:
        name = path.relative_to(SRC).as_posix()
        strange = [way for way in ways_around(path) if way.rpartition(".")[2] not in MAY.get(name, ())
                   and way not in MAY.get(name, ())]  # fmt: skip
        assert not strange, f"{name}: {strange}; click.echo, or a bar of cli/output.py, does it safely"
