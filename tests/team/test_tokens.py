from __future__ import annotations

import stat
from pathlib import Path

import pytest

from mldyno.errors import MldynoError, UsageError
from mldyno.masking import masked
from mldyno.team.tokens import Tokens, Who


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "new" / "tokens")


def test_a_token_names_who_has_it_and_the_file_does_not_hold_it(tokens: Tokens) -> None:
    ada, boss = tokens.add("ada"), tokens.add("boss", admin=True)
    assert (tokens.who(ada), tokens.who(boss)) == (Who("ada", False), Who("boss", True))
    assert ada not in tokens.path.read_text()
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    assert [tokens.who(each) for each in ("", "x", ada[:-1], ada + "x", "\ud800")] == [None] * 5


def test_a_withdrawn_token_is_refused_by_a_server_that_runs(tokens: Tokens) -> None:
    ada, bob = tokens.add("ada"), tokens.add("bob")
    assert tokens.who(ada)
    Tokens(tokens.path).withdraw("ada")
    assert (tokens.who(ada), tokens.who(bob)) == (None, Who("bob", False))
    tokens.path.unlink()
    assert tokens.who(bob) is None


def test_a_name_has_one_token(tokens: Tokens) -> None:
    tokens.add("ada")
    with pytest.raises(MldynoError, match="ada has a token; withdraw it first"):
        tokens.add("ada")
    with pytest.raises(MldynoError, match="no token has the name bob; there are: ada"):
        tokens.withdraw("bob")


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "-x", "../x", "x" * 41, "(judge)"])
def test_a_strange_name_is_refused(tokens: Tokens, name: str) -> None:
    with pytest.raises(UsageError, match="can't be the name of a token"):
        tokens.add(name)


def test_a_damaged_file_lets_nobody_in(tokens: Tokens) -> None:
    ada = tokens.add("ada")
    tokens.path.write_text(tokens.path.read_text() + "something else\n")
    with pytest.raises(MldynoError, match="line 2 is not a token's"):
        tokens.who(ada)


def test_a_token_is_masked_wherever_it_is_recorded(tokens: Tokens) -> None:
    token = tokens.add("ada")
    assert token not in masked(f"MLDYNO_TOKEN={token} python train.py")
    assert token not in masked(f"curl -H 'Authorization: Bearer {token}'")
