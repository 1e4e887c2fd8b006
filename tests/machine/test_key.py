"""The key of a machine: random, made once, kept where it can be; two machines of one name have two."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mldyno import machine
from mldyno.errors import UsageError
from mldyno.machine import _key
from mldyno.machine._key import own_key
from mldyno.records import MACHINE_KEY


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that is still to be made."""
    monkeypatch.delenv("MLDYNO_MACHINE_KEY")
    monkeypatch.setattr(_key, "key_path", lambda: tmp_path / "data" / "machine-key")
    return tmp_path / "data"


def test_a_key_is_made_once_and_is_in_what_a_machine_says_of_itself(home: Path) -> None:
    key = own_key()
    assert key is not None
    assert MACHINE_KEY.fullmatch(key)
    assert own_key() == key == machine.describe().key
    assert [file.name for file in home.iterdir()] == ["machine-key"]


def test_another_home_has_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = own_key()
    monkeypatch.setattr(_key, "key_path", lambda: tmp_path / "other" / "machine-key")
    assert own_key() != first


def test_all_who_make_it_at_once_use_the_same() -> None:
    together, keys = threading.Barrier(8), []

    def make() -> None:
        together.wait()
        keys.append(own_key())

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8
    assert len(set(keys)) == 1


def test_where_none_can_be_kept_there_is_none(home: Path) -> None:
    home.write_text("a file where the folder should be")
    assert own_key() is None
    assert machine.describe().key is None


def test_a_file_that_holds_no_key_gets_one(home: Path) -> None:
    home.mkdir()
    (home / "machine-key").write_bytes(b"\xff\x00 nonsense")
    key = own_key()
    assert key is not None
    assert (home / "machine-key").read_text() == f"{key}\n"


def test_the_user_may_give_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLDYNO_MACHINE_KEY", "ab" * 16)
    assert own_key() == "ab" * 16
    assert not home.exists()
    monkeypatch.setenv("MLDYNO_MACHINE_KEY", "my laptop")
    with pytest.raises(UsageError, match="must be 32 digits from 0 to 9 and a to f, and is 'my laptop'"):
        own_key()
