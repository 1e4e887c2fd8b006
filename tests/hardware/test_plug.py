"""Smart plugs, by a local server that answers as they do."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from mldyno.hardware import Surroundings, Unreadable, plug


class Answers(http.server.BaseHTTPRequestHandler):
    """A plug of one kind; what is asked otherwise is not found."""

    known: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        said = self.known.get(self.path)
        self.send_response(404 if said is None else 200)
        self.end_headers()
        self.wfile.write(b"" if said is None else json.dumps(said).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("MLDYNO_PLUG", f"http://127.0.0.1:{server.server_port}")
    yield server.server_address[0]  # type: ignore[misc]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Shelly", {"/rpc/Switch.GetStatus?id=0": {"apower": 83.5, "aenergy": {"total": 12.0}}}),
        ("Shelly of the first generation", {"/meter/0": {"power": 83.5, "total": 900}}),
        ("Tasmota", {"/cm?cmnd=Status%208": {"StatusSNS": {"ENERGY": {"Power": 83.5, "Total": 1.2}}}}),
    ],
)
def test_a_plug_tells_what_the_whole_machine_takes(address: str, name: str, known: dict[str, Any]) -> None:
    Answers.known = known
    (found,) = plug.find(Surroundings()).sensors
    assert (found.name, found.scope, found.method, found.read()) == (name, "system", "sample", 83.5)
    Answers.known = {}
    with pytest.raises(Unreadable, match="answer can't be used"):
        found.read()


@pytest.mark.parametrize(
    "answer", [{"apower": None}, {"apower": "much"}, {}, {"apower": float("nan")}, {"apower": "inf"}]
)
def test_an_answer_without_a_number_is_no_power(address: str, answer: dict[str, Any]) -> None:
    Answers.known = {"/rpc/Switch.GetStatus?id=0": answer}
    found = plug.find(Surroundings())
    assert not found.sensors
    assert "plug" in found.closed[0].name


def test_an_answer_that_is_nested_without_end_is_no_power(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nested(answers: Answers) -> None:
        answers.send_response(200)
        answers.end_headers()
        answers.wfile.write(b"[" * plug.LONGEST_ANSWER)

    monkeypatch.setattr(Answers, "do_GET", nested)
    (closed,) = plug.find(Surroundings()).closed
    assert closed.reason.startswith("the plug's answer can't be used")


@pytest.fixture
def elsewhere(address: str) -> Iterator[tuple[str, list[str]]]:
    """Another server that answers as a plug, and what it was asked."""
    asked: list[str] = []

    class Other(Answers):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"apower": 83.5}')

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(
    elsewhere: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    there, asked = elsewhere
    times = []

    def redirect(self: Answers) -> None:
        times.append(self.path)
        self.send_response(code)
        self.send_header("Location", f"{there}{self.path}")
        self.end_headers()

    monkeypatch.setattr(Answers, "do_GET", redirect)
    found = plug.find(Surroundings())
    assert not found.sensors
    assert "redirects to another address, which is not asked" in found.closed[0].reason
    assert asked == []
    assert len(times) == len(plug.KINDS), "each kind is asked for once"


def test_a_plug_that_redirects_later_costs_its_energy_only(
    elsewhere: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    Answers.known = {"/rpc/Switch.GetStatus?id=0": {"apower": 83.5}}
    (found,) = plug.find(Surroundings()).sensors

    def redirect(self: Answers) -> None:
        self.send_response(302)
        self.send_header("Location", elsewhere[0])
        self.end_headers()

    monkeypatch.setattr(Answers, "do_GET", redirect)
    with pytest.raises(Unreadable, match="redirects to another address"):
        found.read()
    assert elsewhere[1] == []


def test_a_plug_is_asked_itself_whatever_proxy_the_environment_names(
    elsewhere: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, elsewhere[0])
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    Answers.known = {"/rpc/Switch.GetStatus?id=0": {"apower": 12.5}}
    (found,) = plug.find(Surroundings()).sensors
    assert found.read() == 12.5
    assert elsewhere[1] == []


def test_a_plug_that_is_no_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLDYNO_PLUG", "192.168.1.20")
    assert "no address" in plug.find(Surroundings()).closed[0].reason
