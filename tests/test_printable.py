"""Whatever a text holds, what is shown of it is harmless."""

from __future__ import annotations

import shlex
import sys
from xml.etree import ElementTree

import pytest

from mldyno.printable import printable, quoted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Apple M2 Pro, 10 cores: 1.8 ± 0.1 µs, 東京 é 🜏", "Apple M2 Pro, 10 cores: 1.8 ± 0.1 µs, 東京 é 🜏"),
        ("", ""),
        ("two\nlines\r\nand\ttabs", "two lines  and tabs"),
        ("\x1b[31mred\x1b[0m\x07", "�[31mred�[0m�"),
        ("\x9b31m", "�31m"),
        ("nul\0del\x7f", "nul�del�"),
        ("line\u2028paragraph\u2029next\x85no\u00a0break", "line paragraph next no break"),
        ("\u202edrawkcab\u2066\u2069\u200f\u200b\ufeff", "�drawkcab�����"),
        ("half \ud83d, unassigned \U000e0fff, private \ue000, none \uffff", "half �, unassigned �, private �, none �"),
    ],
)
def test_what_can_not_be_shown_is_replaced(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_any_character_becomes_one_that_text_files_and_xml_can_hold() -> None:
    shown = printable("".join(map(chr, range(sys.maxunicode + 1))))
    assert len(shown) == sys.maxunicode + 1
    assert shown.isprintable()
    quoted = shown.encode().decode().replace("&", "").replace("<", "")
    assert ElementTree.fromstring(f"<text>{quoted}</text>").text == quoted


@pytest.mark.parametrize(
    ("word", "typed"),
    [
        ("mlp", "mlp"),
        ("AMD EPYC, 2 cores", "'AMD EPYC, 2 cores'"),
        ("Ada's M3 laptop (imported)", '"Ada\'s M3 laptop (imported)"'),
        ("Ada's $HOME", "'Ada'\"'\"'s $HOME'"),
    ],
)
def test_a_name_is_suggested_as_a_person_would_type_it(word: str, typed: str) -> None:
    assert quoted(word) == typed
    assert shlex.split(typed) == [word]
