"""What a run shows while it goes on: bars on a terminal of any width, plain lines elsewhere, less or more if asked."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest

from mldyno import api
from mldyno.cli import progress
from mldyno.runner.forecast import TimeLeft, forecast
from mldyno.store import Query, Store

Mldyno = Callable[..., tuple[int, str, str]]
Script = Callable[..., None]
RUN = ("run", "mlp", "--framework", "fake", "--repeats", "1", "--mode", "infer", "--device", "cpu,gpu")
COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7])[0-9;]*m")


class Screen(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def watched(
    monkeypatch: pytest.MonkeyPatch, store: Store, columns: int, verbosity: str | None = None, **settings: str
) -> str:
    """All that a run writes to a terminal so wide."""
    screen = Screen()
    for name, value in {"TERM": "xterm-256color", "COLUMNS": str(columns), **settings}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "REDRAW_INTERVAL_S", 0.0)
    plan = api.make_plan(["mlp"], {"framework": "fake", "mode": "infer", "device": ["cpu", "gpu"]}, {"repeats": 2})
    api.run_plan(plan, store, progress.listener_for(verbosity))
    return screen.getvalue()


def frames(written: str) -> list[str]:
    """What stood on the screen, line by line, without the codes that moved the cursor."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    return [line for line in re.split(r"[\r\n]+", plain) if line.strip()]


def test_a_terminal_has_one_line_that_changes(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    written = watched(monkeypatch, store, 120)
    shown = frames(written)
    assert any(re.match(r"0 of 2: MLP, inference, batch 128, cpu .* ms.*, about .* left", line) for line in shown)
    second = r"1 of 2, repeat 2 of 2: MLP, inference, batch 128, gpu .* ±0.01 %, about .* left"
    assert any(re.match(second, line) for line in shown)
    assert any(": 2 head-to-head: MLP, inference" in line for line in shown)
    assert "b128/device: 1.28 ms a step" not in written
    assert COLOUR.search(written)


def test_what_fails_stays_above_the_line(monkeypatch: pytest.MonkeyPatch, store: Store, script: Script) -> None:
    script({"match": "*/gpu/*", "fail": "exception"}, {"match": "*", "step": 0.001})
    assert any(
        "mlp/infer/fake/gpu/fp32/b128/device: failed" in line for line in frames(watched(monkeypatch, store, 120))
    )


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    assert not COLOUR.search(watched(monkeypatch, store, 120, NO_COLOR="1"))


def test_a_narrow_window_keeps_estimate_and_time_left(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    shown = frames(watched(monkeypatch, store, 40))
    bars = [line for line in shown if "━" in line]
    assert bars
    assert max(map(len, bars)) <= 40
    assert any("of 2" in line and line.rstrip().endswith("left") for line in bars)


def test_quiet_says_nothing_and_verbose_says_more(mldyno: Mldyno) -> None:
    code, out, err = mldyno(*RUN, "-q")
    assert (code, err) == (0, "")
    assert "time of one step" in out
    usual, more = mldyno(*RUN)[2], mldyno(*RUN, "--verbose")[2]
    assert "first step: " not in usual
    assert more.count("  first step: ") == 2
    assert more.count("  trust: steady") == 2


def test_without_a_terminal_there_are_plain_lines_and_no_codes(mldyno: Mldyno) -> None:
    err = mldyno(*RUN)[2]
    assert "\x1b" not in err
    assert err.splitlines()[0].startswith("mlp/infer/fake/cpu/fp32/b128/device: 1.28 ms a step ±0.01 %  (about ")
    assert err.splitlines()[1] == "mlp/infer/fake/gpu/fp32/b128/device: 129 µs a step ±0.01 %  (about 1.00 s left)"


def test_what_can_not_work_is_said_once_and_without_a_time_left(mldyno: Mldyno, store: Store) -> None:
    code, out, err = mldyno("run", "mlp", "--framework", "fake", "--device", "xpu")
    (line,) = err.splitlines()
    assert line.startswith("mlp/train/fake/xpu/fp32/b128/device: unsupported: no device 'xpu' here")
    assert "left" not in line
    assert code == 3
    assert out.count("unsupported [1]") == 2, "the table names both cases"
    assert len(list(store.stream(Query()))) == 2, "and each has one record"


def test_json_goes_to_standard_output_and_quiet_leaves_only_that(mldyno: Mldyno) -> None:
    code, out, err = mldyno(*RUN, "--json", "-q")
    assert (code, err, len(out.splitlines())) == (0, "", 4)


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    assert "\x1b" not in watched(monkeypatch, store, 80, TERM="dumb")


def test_a_listener_with_nothing_to_do_is_at_its_end(store: Store) -> None:
    plan = api.make_plan(["mlp"], {"framework": "fake"}, {"repeats": 1})
    left = TimeLeft(plan, [])
    left.begin([])
    assert left.seconds == 0.0


@pytest.mark.parametrize(("repeats", "last"), [(("--repeats", "3"), "  (repeat 3 of 3)"), ((), "  (repeat 3)")])
def test_a_case_that_is_measured_again_says_which_repeat_it_was_and_cases_are_counted_once(
    repeats: tuple[str, ...], last: str, mldyno: Mldyno
) -> None:
    words = ("run", "mlp", "--framework", "fake", *repeats)
    err = mldyno(*words)[2]
    assert err.splitlines()[-1].endswith(f" a step ±0.01 %{last}")
    assert "repeat" not in err.splitlines()[0]
    assert mldyno(*words, "--dry-run")[1].splitlines()[-1].startswith("2 cases, 3 repeats")
    assert "6 cases" not in err


def test_while_a_paired_comparison_is_to_come_there_is_time_left(mldyno: Mldyno) -> None:
    err = mldyno(*RUN)[2].splitlines()
    assert [line.partition("  (")[2] for line in err] == ["about 1.00 s left)", "about 1.00 s left)", ""]
    assert err[2].startswith("2 cases head-to-head, in one process: ")


def test_as_json_too_the_time_left_is_learnt(store: Store) -> None:
    plan = api.command_plan(["sleep", "1"], {})
    listener = progress.PlainLines(as_json=True)
    listener.begin(plan, [(plan.cases[0], 0)], forecast(plan, store))
    listener.progress(plan.cases[0], 1000.0, None, 0.0)
    assert listener.left.seconds > 2000.0


def test_a_counted_bar_shows_what_is_done_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.stderr", screen)
    ticks = iter(range(0, 1000, 10))
    monkeypatch.setattr("mldyno.cli.progress.time.monotonic", lambda: float(next(ticks)))
    with progress.CountedBar("making the site") as bar:
        bar.say("shares 3 records")
        bar(250, 1000)
        bar(1000, 1000)
    shown = frames(screen.getvalue())
    assert any(line.startswith("shares 3 records") for line in shown)
    assert any(re.match(r"making the site .*250 of 1,000, about 30.0 s left", line) for line in shown)
    assert any(line.rstrip().endswith("1,000 of 1,000") for line in shown)


def test_a_counted_bar_is_nothing_but_its_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.CountedBar("making the site") as bar:
        bar.say("shares 3 records")
        bar(250, 1000)
    assert capsys.readouterr().err == "shares 3 records\n"
