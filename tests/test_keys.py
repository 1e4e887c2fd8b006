"""The key of a machine: a secret, made once, kept where it can be; records hold the fingerprint of its public half."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from mldyno import keys, machine
from mldyno.errors import MldynoError, UsageError
from mldyno.keys import own_key
from mldyno.records import MACHINE_KEY

FORMER = "ab" * 16


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that is still to be made."""
    monkeypatch.delenv("MLDYNO_MACHINE_KEY")
    monkeypatch.setattr(keys, "data_folder", lambda: tmp_path / "data")
    return tmp_path / "data"


def test_a_key_is_made_once_and_is_in_what_a_machine_says_of_itself(home: Path) -> None:
    key = own_key()
    assert key is not None
    assert MACHINE_KEY.fullmatch(key)
    assert own_key() == key == machine.describe().key
    assert [file.name for file in home.iterdir()] == ["machine-secret"]


def test_only_its_owner_can_read_the_secret_and_the_key_does_not_hold_it(home: Path) -> None:
    key = own_key()
    assert key is not None
    assert stat.S_IMODE((home / "machine-secret").stat().st_mode) == 0o600
    assert key not in (home / "machine-secret").read_text()


def test_another_home_has_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = own_key()
    monkeypatch.setattr(keys, "data_folder", lambda: tmp_path / "other")
    assert own_key() != first


def test_all_who_make_it_at_once_use_the_same() -> None:
    together, made = threading.Barrier(8), []

    def make() -> None:
        together.wait()
        made.append(own_key())

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len(set(made)) == 1


def test_where_none_can_be_kept_there_is_none_and_nothing_is_proven(home: Path) -> None:
    home.write_text("a file where the folder should be")
    assert own_key() is None
    assert machine.describe().key is None
    assert keys.authenticate("plan", "text") == ""
    assert not keys.is_authentic("", "plan", "text")
    with pytest.raises(MldynoError, match=r"no key can be kept in .*, and a submission is signed with it"):
        keys.sign(["a"])


@pytest.mark.parametrize("content", [b"\xff\x00 nonsense", b"", b"ab cd", b"ab" * 32, b"xy" * 32 + b" " + b"xy" * 32])
def test_a_file_that_holds_no_secret_gets_one(home: Path, content: bytes) -> None:
    home.mkdir()
    (home / "machine-secret").write_bytes(content)
    key = own_key()
    assert key is not None
    assert own_key() == key
    assert (home / "machine-secret").read_bytes() != content


def test_the_user_may_give_a_seed_which_is_a_secret_itself(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLDYNO_MACHINE_KEY", FORMER)
    key = own_key()
    assert key is not None
    assert key == own_key() != FORMER
    assert not home.exists()
    monkeypatch.setenv("MLDYNO_MACHINE_KEY", "my laptop")
    with pytest.raises(UsageError, match="must be 32 digits from 0 to 9 and a to f") as error:
        own_key()
    assert "my laptop" not in str(error.value)


def test_the_key_that_earlier_versions_wrote_into_records_is_still_this_machines(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / "machine-key").write_text(f"{FORMER}\n")
    key = own_key()
    assert key != FORMER
    assert keys.current_key(FORMER) == key
    assert keys.current_key("cd" * 16) == "cd" * 16
    assert keys.current_key("") == ""
    assert (home / "machine-key").read_text() == f"{FORMER}\n", "an earlier version still finds its own"
    monkeypatch.setenv("MLDYNO_MACHINE_KEY", "cd" * 16)
    assert keys.current_key("cd" * 16) == own_key()
    assert keys.current_key(FORMER) == FORMER


def test_a_signature_is_of_the_key_that_made_it_and_of_these_ids_in_any_order() -> None:
    public, signature = keys.sign(["a", "b"])
    assert keys.signer(["b", "a"], public, signature) == own_key()
    assert keys.signer(["a"], public, signature) is None
    assert keys.signer(["a", "c"], public, signature) is None
    assert keys.signer(["a", "b"], "00" * 32, signature) is None
    assert keys.signer(["a", "b"], public, "00" * 64) is None
    assert keys.signer(["a", "b"], "no digits", signature) is None


def test_what_this_machine_authenticates_no_other_can(monkeypatch: pytest.MonkeyPatch) -> None:
    code = keys.authenticate("plan", "r1", "text")
    assert keys.is_authentic(code, "plan", "r1", "text")
    assert not keys.is_authentic(code, "rescue", "r1", "text")
    assert not keys.is_authentic(code, "plan", "r1", "texts")
    assert not keys.is_authentic("", "plan", "r1", "text")
    monkeypatch.setenv("MLDYNO_MACHINE_KEY", FORMER)
    assert not keys.is_authentic(code, "plan", "r1", "text")
