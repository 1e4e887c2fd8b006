"""What every engine promises, whichever it is."""

from __future__ import annotations

import inspect

import pytest

from mldyno import plugins
from mldyno.engines import Engine, Host
from mldyno.errors import MldynoError

ENGINES = plugins.names("engines")
HOSTILE = ("-oProxyCommand=touch x", "a;touch x", "$(touch x)", "a b", "a\nb", "`x`", "a|b", "--", "é", "a'b", "")


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_has_a_title_and_its_two_methods(name: str) -> None:
    engine = plugins.engine(name)
    assert issubclass(engine, Engine)
    assert plugins.about("engines", name)[0]
    assert engine.hosts is not Engine.hosts
    assert engine.command is not Engine.command
    assert [*inspect.signature(engine.command).parameters] == ["self", "host", "words"]


@pytest.mark.parametrize("name", ENGINES)
def test_the_words_for_a_host_are_passed_as_words(name: str) -> None:
    """Never as text that a shell of this machine would read."""
    command = plugins.engine(name)("20260101T000000-abcdef", 60.0).command(Host("node1", name, "node1"), ["true"])
    assert command[-1].split()[-1] == "true"
    assert all(isinstance(word, str) for word in command)
    assert command[:2] != ["sh", "-c"]


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "local"])
@pytest.mark.parametrize("hostile", HOSTILE[:-1])
def test_no_engine_takes_a_name_that_a_shell_could_read(name: str, hostile: str) -> None:
    with pytest.raises(MldynoError):
        plugins.engine(name)().hosts(hostile)


@pytest.mark.parametrize("name", ENGINES)
def test_nothing_left_in_a_queue_is_no_error(name: str) -> None:
    plugins.engine(name)("20260101T000000-abcdef").clear(Host("node1", name, "node1"))
