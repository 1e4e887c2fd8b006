"""Whatever stands behind a command, an option or a setting, the answer is a result or one line; never a fault inside.

Words are such as a shell can pass on: so no NUL is among them, but bytes that are no UTF-8 are.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from mldyno import cli
from mldyno.cli.output import new_bar
from mldyno.frameworks.fake import FRAMEWORK
from mldyno.records import Case
from mldyno.views.window import WIDEST, width_of

HISTORY = Path(__file__).parents[1] / "history" / "0.1" / "records.jsonl"
VALUES = {
    "nothing": "", "a space": " ", "a dash": "---", "a slash": "/", "a comma": ",", "an equals sign": "=",
    "percents": "%s%n{0}", "brackets": "[((*", "quotes": "'\"", "two lines": "a\nb", "an escape": "\x1b[2J\u202e",
    "bytes": os.fsdecode(b"\xff\xfe"), "a machine of bytes": os.fsdecode(b"machine=\xff"), "a digit elsewhere": "٣²",
    "5,000 digits": "9" * 5000, "a batch of 5,000 digits": f"mlp/b{'9' * 5000}", "minus one": "-1", "zero": "0",
    "an exponent": "1e400", "not a number": "nan", "300 letters": "x" * 300, "5,000 folders": "a/" * 5000,
    "no user": "~nouser/x", "half an address": "sqlite://[::1", "a folder": "/tmp", "below a file": "/etc/passwd/x",
    "an id": "abcdef", "a device": "cuda:99999999999999999999", "a suite without a name": ".toml",
}  # fmt: skip
FAKE = ("--framework", "fake", "--steps", "1", "--repeats", "1", "--mode", "infer", "--quiet")
AXES = ("--device", "--mode", "--precision", "--batch", "--seq", "--placement", "--ranks", "--compile", "--threads")
EFFORT = ("--steps", "--budget", "--target", "--repeats", "--timeout", "--limit", "--data", "--framework", "--by")
SWEEP = ("crossover", "mlp", "--device", "cpu,gpu", *FAKE, "--dry-run", "--over", "none")
TO_READ = [
    ("{}",), ("run", "{}"), ("table", "{}"), ("history", "{}"), ("show", "{}"), ("compare", "{}"), ("import", "{}"),
    ("list", "{}"), ("completion", "{}"), ("crossover", "{}"), ("max-batch", "{}"), ("compare", "mlp", "{}"),
    ("compare", "mlp", "--by", "{}"), ("export", "--only", "{}"), ("export", "{}"), ("export", "--private", "{}"),
    ("table", "--rows", "{}"), ("table", "--cols", "{}"), ("table", "--value", "{}"), ("table", "--by", "{}"),
    ("table", "--format", "{}"), ("history", "--most", "{}"), ("table", "--store", "{}"),
    ("import", "good.jsonl", "--store", "{}"), ("run", "--resume", "--store", "{}"),
    ("list", "machines", "--store", "{}"), (*SWEEP[:-2], "--over", "{}"), (*SWEEP, "--from", "{}"),
    (*SWEEP, "--to", "{}"), ("quick", "--framework", "{}"), ("doctor", "--quick", "--framework", "{}"),
    ("selftest", "--framework", "{}"), ("selftest", "--framework", "fake", "--device", "{}"),
    ("max-batch", "none", "--most", "{}"), ("run", "mlp", "--", "{}"),
    *(("run", "none", option, "{}") for option in (*AXES, *EFFORT)),
]  # fmt: skip


Answer = Callable[..., tuple[int, str]]


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Runs a command in this process, in the test's folder: its exit code, and all lines on standard error."""

    def call(*words: str) -> tuple[int, str]:
        out, err = io.StringIO(), io.StringIO()  # which take any character, as the standard streams will
        with redirect_stdout(out), redirect_stderr(err):
            return cli._run(words), err.getvalue()

    monkeypatch.chdir(tmp_path)
    with HISTORY.open(encoding="utf-8") as lines:
        Path("good.jsonl").write_text(lines.readline(), encoding="utf-8")
    assert call("import", "good.jsonl") == (0, "")
    return call


def is_clear(code: int, err: str) -> bool:
    """Whether it went well, or ended with one line of mldyno's, in which a word may stand that is two lines itself."""
    error = err[err.find("mldyno: ") :]
    return code == 0 or (code in (1, 2) and 0 < error.count("\n") <= 3 and "went wrong inside" not in error)


@pytest.mark.parametrize("command", TO_READ, ids=" ".join)
def test_no_word_makes_a_command_fail_inside(command: tuple[str, ...], answer: Answer) -> None:
    answers = {name: answer(*(value if word == "{}" else word for word in command)) for name, value in VALUES.items()}
    assert [(name, *given) for name, given in answers.items() if not is_clear(*given)] == []


LOADER = ("run", "mnist-cnn", "--placement", "loader", "--data", "real", "--steps", "1", "--quiet")


@pytest.mark.parametrize(
    ("setting", "value", "command", "words"),
    [
        ("MLDYNO_STORE", "~nouser/x", ("table",), "'~nouser/x': that user has no home folder here"),
        ("MLDYNO_STORE", "x" * 300, ("table",), "File name too long"),
        ("MLDYNO_STORE", "http://x", ("table",), "only SQLite files can be stores"),
        ("MLDYNO_DATA", "~nouser/x", LOADER, "'~nouser/x': that user has no home folder here"),
        ("MLDYNO_MIRROR", "http://[::1", LOADER, "MLDYNO_MIRROR is 'http://[::1'; write it as https://HOST/PATH"),
        ("MLDYNO_MIRROR", "https://", LOADER, "MLDYNO_MIRROR is 'https://'; write it as"),
        ("MLDYNO_MIRROR", "ftp://host", LOADER, "MLDYNO_MIRROR is 'ftp://host'; write it as"),
        ("MLDYNO_MEMORY_LIMIT", "9" * 5000, ("run", "mlp", *FAKE), "is not a size"),
    ],
)
def test_a_setting_that_makes_no_sense_is_told_in_one_line(
    setting: str, value: str, command: tuple[str, ...], words: str, answer: Answer,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setenv("MLDYNO_DATA", str(tmp_path))
    monkeypatch.setenv(setting, value)
    code, err = answer(*command)
    assert code in (1, 2)
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('include = ["a\\u0000.toml"]\n', "a path can't hold a NUL"),
        (f"budget = {'[' * 20_000}{']' * 20_000}\n", "its values are nested too deeply"),
        (f"repeats = {'9' * 5000}\n", "a number in it has too many digits"),
        (f"[[cases]]\nworkload = 'mlp'\nbatch = 0x{'f' * 5000}\n", "batch has a whole number beyond 2^53"),
        (f"budget = 0x{'f' * 5000}\n[[cases]]\nworkload = 'mlp'\n", "budget has a whole number beyond 2^53"),
        (f"repeats = 0x{'f' * 5000}\n[[cases]]\nworkload = 'mlp'\n", "--repeats must be between 1 and 1,000"),
        (f"steps = 0x{'f' * 5000}\n[[cases]]\nworkload = 'mlp'\n", "--steps must be between 1 and "),
        ("budget = inf\n[[cases]]\nworkload = 'mlp'\n", "'inf' is not a duration"),
        ("budget = 1979-05-27\n[[cases]]\nworkload = 'mlp'\n", "budget must be a number, or text"),
        (f'include = ["{"x" * 300}.toml"]\n', "File name too long"),
        ('include = ["loop.toml"]\n', "Too many levels of symbolic links"),
    ],
    ids=lambda value: value[:20].strip(),
)
def test_a_suite_that_python_can_not_read_is_told_in_one_line(text: str, words: str, answer: Answer) -> None:
    os.symlink("loop.toml", "loop.toml")
    Path("own.toml").write_text(text)
    code, err = answer("run", "own.toml", "--framework", "fake", "--quiet")
    assert code in (1, 2)
    assert err.count("\n") == 1
    assert words in err


def test_a_folder_that_was_deleted_is_told_in_one_line(answer: Answer, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for words in (("run", "x.py"), ("run", "x:build"), ("run", "x.toml"), ("run", "hf:./x"), ("import", "x.jsonl"),
                  ("table", "--store", "x.sqlite"), ("import", HISTORY.name, "--store", "x.sqlite")):  # fmt: skip
        assert is_clear(*answer(*words)), words
    assert answer("run", "x.py")[1] == "mldyno: the folder that you are in was deleted; change into another one.\n"


@pytest.mark.parametrize("columns", ["99999999999", "9" * 5000, "0", "-1", "x", "٣"])
def test_a_window_of_any_width_has_its_bars_and_its_lines(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Window(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stderr", Window())
    assert 0 < width_of(Window()) <= WIDEST
    bar = new_bar()
    with bar:
        bar.add_task("working", total=1.0, detail="")
    assert len(bar.console.file.ungated.getvalue()) < 20 * WIDEST


@pytest.mark.parametrize("step", ["0", "-1", "1e-300", "1e300", "NaN"])
def test_a_fake_step_that_takes_no_time_or_for_ever_is_refused(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for rule in (f'[{{"step": {step}}}]', f'[{{"times": [1, {step}]}}]'):
        monkeypatch.setenv("MLDYNO_FAKE", rule)
        with pytest.raises(ValueError, match="MLDYNO_FAKE: a step takes 1e-09 to 1e\\+09 s, not"):
            FRAMEWORK.build_program(Case("mlp", framework="fake"), None, None)


def test_a_byte_order_mark_before_json_lines_is_passed_over(answer: Answer) -> None:
    Path("marked.jsonl").write_bytes(b"\xef\xbb\xbf" + Path("good.jsonl").read_bytes())
    assert answer("import", "marked.jsonl") == (0, "")
