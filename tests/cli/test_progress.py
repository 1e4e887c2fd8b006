"""What a run shows while it goes on: bars on a terminal of any width, plain lines elsewhere, less or more if asked."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest

from mldyno import api
from mldyno.cli import progress
from mldyno.runner.forecast import TimeLeft
from mldyno.store import Store

Mldyno = Callable[..., tuple[int, str, str]]
RUN = ("run", "mlp", "--framework", "fake", "--repeats", "1", "--mode", "infer", "--device", "cpu,gpu")
COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7])[0-9;]*m")


class Screen(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def watched(
    monkeypatch: pytest.MonkeyPatch, store: Store, columns: int, loudness: str = "usual", **settings: str
) -> str:
    """All that a run writes to a terminal so wide."""
    screen = Screen()
    for name, value in {"TERM": "xterm-256color", "COLUMNS": str(columns), **settings}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "REDRAW_INTERVAL", 0.0)
    plan = api.make_plan(["mlp"], {"framework": "fake", "mode": "infer", "device": ["cpu", "gpu"]}, {"repeats": 2})
    api.run_plan(plan, store, progress.listener_for(plan, api.forecast(plan, store), False, loudness))
    return screen.getvalue()


def frames(written: str) -> list[str]:
    """What stood on the screen, line by line, without the codes that moved the cursor."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    return [line for line in re.split(r"[\r\n]+", plain) if line.strip()]


def test_a_terminal_has_a_bar_for_the_run_and_one_for_the_case(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    written = watched(monkeypatch, store, 120)
    shown = frames(written)
    assert any(re.match(r"0 of 2 cases .*about .* left", line) for line in shown)
    assert any(re.match(r"1 of 2 cases .*about .* left", line) for line in shown)
    assert any(re.match(r"mlp/infer/fake/cpu/fp32/b128/device .* a step, ±0.01 % so far", line) for line in shown)
    assert any(line.startswith("2 head-to-head: mlp/infer") for line in shown)
    assert "mlp/infer/fake/cpu/fp32/b128/device: 1.28 ms a step ±0.01 %" in written
    assert COLOUR.search(written)


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    assert not COLOUR.search(watched(monkeypatch, store, 120, NO_COLOR="1"))


def test_a_narrow_window_keeps_estimate_and_time_left(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    shown = frames(watched(monkeypatch, store, 40))
    bars = [line for line in shown if "━" in line]
    assert bars
    assert max(map(len, bars)) <= 40
    assert any("of 2" in line and line.rstrip().endswith("left") for line in bars)
    assert any(line.rstrip().endswith(" ms") for line in bars)


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
    assert err.splitlines()[1] == "mlp/infer/fake/gpu/fp32/b128/device: 129 µs a step ±0.01 %"


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
