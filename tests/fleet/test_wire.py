"""What crosses a pipe: typed, strict, one line each."""

from __future__ import annotations

import pytest

from mldyno.fleet import wire
from mldyno.messages import Malformed

MESSAGES = [
    wire.Hello(1, "0.2.0", "3.11.2", 42), wire.WantsWheel(), wire.Alive(), wire.Note("a line"),
    wire.Progress("mlp/train/torch/cpu/fp32/b128/device", 1, 3, 12.5, 0.002), wire.Measured("{}"),
    wire.Expected("mlp", 3.0, None, True, ""), wire.Examined({"python": "3.11"}), wire.End("busy", "by 42", 2),
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_one_line_and_comes_back_as_it_was(message: wire.Said) -> None:
    line = wire.line_of(message)
    assert line.startswith(wire.FIRST)
    assert line.count(b"\n") == 1
    assert wire.said(line) == message


def test_every_message_is_tested() -> None:
    assert {type(message) for message in MESSAGES} == {*wire.SAID.values()}


def test_a_request_comes_back_as_it_was() -> None:
    request = wire.Request(
        "measure", "20260101T000000-abcdef", "node1", ("my_model.py",), {"device": ["gpu"], "budget": 3.0},
        files={"my_model.py": "def build(): ...\n"}, env={"A": "1"}, known={"a": ("b", "c")},
    )  # fmt: skip
    assert wire.request(wire.line_of(request)) == request


def test_the_text_of_a_request_is_the_same_for_all_hosts_and_contacts() -> None:
    first = wire.Request("measure", "a", "node1", ("mlp",), {"framework": ["fake"]}, env={"SECRET": "x"})
    again = wire.Request("measure", "b", "node2", ("mlp",), {"framework": ["fake"]}, known={"b": ("c",)})
    assert first.text == again.text
    assert "SECRET" not in first.text


@pytest.mark.parametrize(
    "line",
    [
        b"", b"garbage\n", b"{}\n", b"[]\n", b'{"is":3}\n', b'{"is":"unknown"}\n', b'{"is":"hello"}\n',
        b'{"is":"hello","wire":"1","mldyno":"","python":"","pid":1}\n', b'{"is":"end","status":"splendid"}\n',
        b'{"is":"progress","case":"a","done":1,"cases":2,"left":NaN}\n', b'{"is":"measured","record":{}}\n',
        b"\xff\xfe\n", b'{"is":"note","line":' + b"[" * 100_000, b'{"do":"request","purpose":"measure"}\n',
    ],
    ids=lambda line: line[:30],
)  # fmt: skip
def test_anything_else_is_malformed(line: bytes) -> None:
    with pytest.raises(Malformed):
        wire.said(line)
