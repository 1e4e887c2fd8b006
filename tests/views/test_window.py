"""Lines as a window shows them: no word is broken, and what follows hangs below the start of its text."""

from __future__ import annotations

import io

import pytest

from mldyno.views.window import NO_WINDOW, fitted, plain, width_of


class Window(io.StringIO):
    """A terminal that does not tell its width."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("short enough", "short enough"),
        ("one two three four five six", "one two three four\n  five six"),
        ("- one two three four five", "- one two three four\n  five"),
        ("[1] one two three four five", "[1] one two three\n    four five"),
        ("  1. one two three four", "  1. one two three\n     four"),
        ("mlp   small kernels, where overheads show", "mlp   small kernels,\n      where\n      overheads show"),
        ("a name of words  and a text", "a name of words  and\n  a text"),
        ("    deep one two three", "    deep one two\n      three"),
    ],
)
def test_a_line_breaks_between_words_and_hangs_below_its_text(line: str, shown: str) -> None:
    assert fitted(line, 20) == shown


def test_a_word_that_is_too_long_breaks_behind_a_slash_or_stays_whole() -> None:
    assert fitted("  one/two/three four", 10) == "  one/two/\n    three\n    four"
    assert fitted("at 8 images/s or 9 images/s", 16) == "at 8 images/s or\n  9 images/s"
    assert fitted("a-word-that-is-too-long b", 10) == "a-word-that-is-too-long\n  b"


def test_a_number_keeps_its_percent_sign() -> None:
    assert fitted("it is known to ±0.01 %, at best", 20) == "it is known to\n  ±0.01 %, at best"


def test_nothing_is_lost_or_added_but_spaces() -> None:
    line = "  name  " + " ".join(f"word{number}, {number} %" for number in range(60))
    for width in range(1, 100):
        assert fitted(line, width).split() == line.split()


def test_a_pipe_has_no_width_and_a_window_has_that_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    assert width_of(io.StringIO()) == width_of(None) == NO_WINDOW
    monkeypatch.setenv("COLUMNS", "52")
    assert width_of(Window()) == 52
    assert width_of(io.StringIO()) == NO_WINDOW
    for untold in ("", "0", "wide"):
        monkeypatch.setenv("COLUMNS", untold)
        assert width_of(Window()) == 80


def test_plain_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not plain()
    monkeypatch.setenv("MLDYNO_PLAIN", "1")
    assert plain()
