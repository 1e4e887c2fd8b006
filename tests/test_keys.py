"""The key of a machine: a secret, made once, kept where it can be; records hold the fingerprint of its public half."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable
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
    monkeypatch.setattr(keys, "host", lambda: "a" * 16)
    return tmp_path / "data"


def test_a_key_is_made_once_and_is_in_what_a_machine_says_of_itself(home: Path) -> None:
    key = own_key()
    assert key is not None
    assert MACHINE_KEY.fullmatch(key)
    assert own_key() == key == machine.describe().key
    assert sorted(file.name for file in home.iterdir()) == ["machine-host", "machine-secret"]


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


# -- machines that share a home folder -------------------------------------------------------------
@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Be another machine with the same home folder; return its key."""

    def be(letter: str) -> str:
        monkeypatch.setattr(keys, "host", lambda: letter * 16)
        return own_key() or ""

    return be


def test_two_machines_with_one_home_folder_have_two_keys_and_each_keeps_its_own(on: Callable[[str], str]) -> None:
    first, second, third = on("a"), on("b"), on("c")
    assert len({first, second, third}) == 3
    assert (on("a"), on("b"), on("c")) == (first, second, third)


def test_the_first_machine_keeps_the_key_that_it_had_before_keys_were_of_hosts(
    home: Path, on: Callable[[str], str]
) -> None:
    private, public = keys.of_seed("ab" * 16)
    home.mkdir()
    (home / "machine-secret").write_text(f"{private.hex()} {public.hex()}\n")
    assert on("b") == keys.fingerprint(public)
    assert on("a") != keys.fingerprint(public)
    assert (home / "machine-secret").read_text().split()[1] == public.hex()


def test_a_container_has_the_key_of_its_home_folder_whatever_it_is_called(on: Callable[[str], str]) -> None:
    anonymous = on("")
    assert anonymous == on("")
    assert on("a") == anonymous, "the machine around it was not known yet"
    assert on("b") != anonymous
    assert on("") == anonymous


def test_a_home_folder_that_can_not_be_written_has_the_key_that_is_in_it(
    home: Path, on: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = on("a")
    (home / "machine-host").unlink()

    def fail(*arguments: object, **options: object) -> None:
        raise PermissionError

    monkeypatch.setattr("tempfile.mkstemp", fail)
    assert on("b") == first


def test_a_file_that_names_no_machine_is_replaced(home: Path, on: Callable[[str], str]) -> None:
    first = on("a")
    (home / "machine-host").write_text("nonsense\n")
    assert on("a") == first
    assert on("b") != first


def test_former_keys_are_those_of_the_first_machine_only(home: Path, on: Callable[[str], str]) -> None:
    first = on("a")
    (home / "machine-key").write_text(f"{FORMER}\n")
    assert keys.current_key(FORMER) == first
    on("b")
    assert keys.current_key(FORMER) == FORMER


@pytest.fixture
def own_host(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return the identifier of a Linux host with this name, system's id and files."""
    monkeypatch.undo()  # the identifier of the other fixture

    def identifier(name: str, of_system: str = "1f" * 16, *files: str, **variables: str) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.platform", "linux")
            patch.setattr("socket.gethostname", lambda: name)
            patch.setattr(keys, "read", lambda path: of_system)
            patch.setattr("os.path.exists", lambda path: path in files)
            patch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
            for variable, value in variables.items():
                patch.setenv(variable, value)
            return keys.host.__wrapped__()

    return identifier


def test_a_host_is_known_by_its_name_and_the_id_of_its_system(own_host: Callable[..., str]) -> None:
    assert own_host("node1") == own_host("NODE1.cluster.org")
    assert len({own_host("node1"), own_host("node2"), own_host("node1", "2e" * 16)}) == 3
    assert keys.HOST.fullmatch(own_host("node1"))
    assert own_host("localhost") == own_host("")
    assert own_host("localhost", "") == "", "nothing identifies it"


def test_the_id_of_a_system_that_is_new_at_each_boot_does_not_count(own_host: Callable[..., str]) -> None:
    assert own_host("node1", "1f" * 16, "/run/machine-id") == own_host("node1", "2e" * 16, "/run/machine-id")


def test_the_made_up_name_of_a_container_does_not_count_and_one_that_the_user_gave_does(
    own_host: Callable[..., str],
) -> None:
    assert own_host("3f2a9c01d4e5", "", "/.dockerenv") == ""
    assert own_host("3f2a9c01d4e5", "1f" * 16, "/run/.containerenv") == ""
    assert own_host("pod-7", KUBERNETES_SERVICE_HOST="10.0.0.1") == ""
    assert len({own_host(name, "1f" * 16, "/.dockerenv") for name in ("node1", "node2", "")}) == 3
    assert own_host("node1", "1f" * 16, "/.dockerenv") == own_host("node1", "2e" * 16, "/.dockerenv"), "of the image"


def test_a_mac_is_known_by_its_hardware_since_its_name_changes_with_the_network(
    own_host: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = '    "IOPlatformUUID" = "564D7F3A-1111-2222-3333-444455556666"'
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(keys, "ask", lambda *words: said)
    monkeypatch.setattr("socket.gethostname", lambda: "mac.home")
    first = keys.host.__wrapped__()
    monkeypatch.setattr("socket.gethostname", lambda: "mac.office")
    assert keys.HOST.fullmatch(first)
    assert keys.host.__wrapped__() == first
    monkeypatch.setattr(keys, "ask", lambda *words: "")
    assert keys.host.__wrapped__() == ""
