"""push, pull, pushed, withdraw and serve, as a user types them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Mldyno
from tests.submitted import good
from tests.team.conftest import Running, records_of, running

from mldyno.records import seal
from mldyno.store import Store
from mldyno.team.table import File
from mldyno.team.tokens import Tokens


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server, whose token the environment has."""
    with File(tmp_path / "team.sqlite") as table, running(table, tmp_path) as made:
        monkeypatch.setenv("MLDYNO_TOKEN", made.token)
        yield made


def test_records_are_pushed_and_pulled_by_one_line_each(mldyno: Mldyno, server: Running, store: Store) -> None:
    store.append(records_of(2))
    assert mldyno("push", server.url)[:2] == (0, "2 records pushed, 0 there already\n")
    assert mldyno("push", server.url)[:2] == (0, "0 records pushed, 2 there already\n")
    server.table.judge(2, [])
    assert mldyno("pull", server.url, "--store", "b.sqlite")[:2] == (0, "2 records pulled, 0 here already\n")
    code, out, _ = mldyno("pull", server.url, "--json", "--store", "b.sqlite")
    assert (code, json.loads(out)["total"]) == (0, 0)
    os.unlink("b.sqlite")


def test_a_refused_record_is_named_and_makes_the_exit_code_3(mldyno: Mldyno, server: Running, store: Store) -> None:
    bad = seal(replace(good(), facts={**good().facts, "flops_per_step": 1.0}))
    store.append([*records_of(2)[1:], bad])
    code, out, err = mldyno("push", server.url)
    assert (code, out) == (3, "1 record pushed, 0 there already, 1 refused\n")
    assert err.startswith(f"refused: record {bad.id[:10]} ({bad.case.id}): its flops per step is 1, ")


def test_who_pushed_what_is_a_line_each_and_ones_own_can_be_withdrawn(
    mldyno: Mldyno, server: Running, store: Store
) -> None:
    (record,) = records_of(1)
    store.append([record])
    mldyno("push", server.url)
    code, out, _ = mldyno("pushed", server.url)
    assert (code, out[20:]) == (0, f"  {record.id[:10]}  ada  pending  test bench  {record.case.id}\n")
    assert mldyno("pushed", server.url, "--who", "bob") == (0, "", "nothing was pushed\n")
    assert json.loads(mldyno("pushed", server.url, "--json")[1])[0]["id"] == record.id
    assert mldyno("withdraw", server.url, record.id[:10])[:2] == (0, "1 record withdrawn\n")
    assert mldyno("withdraw", server.url, record.id[:10])[0] == 1
    assert mldyno("withdraw", server.url, "xyz") == (
        2, "", "mldyno: 'xyz' is no id of a record; `mldyno pushed URL` lists them.\n",
    )  # fmt: skip


def test_a_token_comes_from_a_file_or_the_environment_and_is_never_shown(
    mldyno: Mldyno, server: Running, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(records_of(1))
    monkeypatch.delenv("MLDYNO_TOKEN")
    code, _, err = mldyno("push", server.url)
    assert (code, "the token is missing: set MLDYNO_TOKEN, or --token-file FILE" in err) == (1, True)
    (tmp_path / "token").write_text(server.token + "\n")
    assert mldyno("push", server.url, "--token-file", str(tmp_path / "token"))[0] == 0
    server.tokens.withdraw("ada")
    code, out, err = mldyno("push", server.url, "--token-file", str(tmp_path / "token"))
    assert code == 1
    assert server.token not in out + err
    for name, words in (("none", "No such file"), ("empty", "it holds no token")):
        (tmp_path / "empty").touch()
        code, _, err = mldyno("push", server.url, "--token-file", str(tmp_path / name))
        assert (code, words in err) == (1, True)


def test_a_token_is_made_shown_once_and_withdrawn(mldyno: Mldyno, tmp_path: Path) -> None:
    place = str(tmp_path / "team.sqlite")
    code, token, err = mldyno("serve", "--store", place, "--add-token", "ada")
    assert (code, token.strip() in err) == (0, False)
    known = Tokens(tmp_path / "team.tokens")
    assert known.who(token.strip()) == ("ada", False)
    assert mldyno("serve", "--store", place, "--withdraw-token", "ada")[0] == 0
    assert known.who(token.strip()) is None
    assert mldyno("serve", "--admin")[0] == mldyno("serve", "--add-token", "a", "--withdraw-token", "b")[0] == 2


@pytest.mark.parametrize("address", ["8080", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_one_line(mldyno: Mldyno, tmp_path: Path, address: str) -> None:
    code, _, err = mldyno("serve", "--store", str(tmp_path / "team.sqlite"), "--listen", address)
    assert (code, "is no address; write HOST:PORT" in err) == (2, True)


def test_a_port_that_is_taken_is_one_line(mldyno: Mldyno, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, _, err = mldyno("serve", "--store", str(tmp_path / "team.sqlite"), "--listen", address)
    assert (code, err.splitlines()[-1]) == (
        1, f"mldyno: {address}: Address already in use; name another address with --listen",
    )  # fmt: skip


def test_without_starlette_it_is_said_what_to_install(mldyno: Mldyno, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mldyno.team.server", raising=False)
    monkeypatch.delattr("mldyno.team.server", raising=False)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    code, _, err = mldyno("serve")
    assert (code, "pip install 'mldyno[server]'" in err) == (1, True)


def test_it_listens_on_this_machine_and_ends_tidily(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mldyno", "serve", "--store", str(tmp_path / "team.sqlite"), "--listen", ":0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr
        assert "make a token" in served.stderr.readline()
        assert served.stderr.readline().startswith("listening on http://127.0.0.1:")
        served.send_signal(signal.SIGTERM)
        _, said = served.communicate()
    assert (served.returncode, said) == (0, "ended\n")


def test_a_password_in_a_url_is_in_no_error(mldyno: Mldyno) -> None:
    for words in (("push",), ("pull",), ("pushed",)):
        code, out, err = mldyno(*words, "postgresql://ada:s3cret@127.0.0.1:9/x")
        assert (code, "s3cret" in out + err) == (1, False)
