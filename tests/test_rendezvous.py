"""Where nodes meet, as users write it; and which rank failed, from what ranks and their launcher said."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from mldyno import rendezvous
from mldyno.errors import UsageError
from mldyno.rendezvous import RankFailure, Refused, Rendezvous, end_line, enter, failure_in, failure_line, receive


def test_a_rank_that_a_signal_ended_is_named_and_not_those_that_only_lost_it() -> None:
    said = failure_line("0", "failed", "connection closed") + end_line(3, -9)
    assert failure_in(said.splitlines()) == RankFailure("3", signal=9)


def test_a_rank_that_said_why_is_believed_before_those_that_only_lost_it() -> None:
    said = failure_line("2", "failed", "connection closed") + failure_line("3", "oom", "no memory")
    assert failure_in((said + end_line(3, 1)).splitlines()) == RankFailure("3", None, "oom", "no memory")
    assert failure_in(said.splitlines()) == RankFailure("2", None, "failed", "connection closed")


def test_a_rank_that_ended_without_a_word_is_named_with_its_exit_code() -> None:
    said = failure_line("0", "failed", "connection closed") + end_line(1, 7)
    assert failure_in(said.splitlines()) == RankFailure("1", reason="it ended early with exit code 7")


@pytest.mark.parametrize(
    "said",
    [
        "",
        "hello",
        "mldyno-rank-failed ",
        'mldyno-rank-failed {"a": 1}',
        "mldyno-rank-failed [1",
        "mldyno-rank-ended []",
        "mldyno-rank-ended 1",
        'mldyno-rank-ended ["a", []]',
    ],
)
def test_nonsense_is_no_failure(said: str) -> None:
    assert failure_in([said]) is None


def test_the_first_node_makes_a_token_up_and_the_others_are_given_it() -> None:
    first = rendezvous.read("10.0.0.1:29400")
    assert first.first
    other = rendezvous.read("10.0.0.1:29400", first.token)
    assert (other.first, other.token, other.address) == (False, first.token, "10.0.0.1:29400")
    assert rendezvous.from_environment(first.environment) == first


@pytest.mark.parametrize("address", ["", "host", "host:", "host:0", "host:99999", ":1", "a b:1", "[::1]:1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="is no address"):
        rendezvous.read(address)


# -- nodes meet ------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def first() -> Iterator[Rendezvous]:
    """A first node that waits for one other, for a job of four ranks."""
    meeting = Rendezvous("127.0.0.1", free_port(), "0123456789abcdef", first=True)
    host = threading.Thread(target=receive, args=(meeting, 4, 2, 4711))
    host.start()
    listens = False
    while not listens:
        with suppress(ConnectionRefusedError), socket.create_connection((meeting.host, meeting.port)):
            listens = True
    yield meeting
    while host.is_alive() and enter(meeting, 4, 2, 10.0) is None:
        pass
    host.join()


def test_who_has_the_token_learns_its_number_and_where_the_store_is(first: Rendezvous) -> None:
    assert enter(first, 4, 2, 60.0) == {rendezvous.NODE: "1", rendezvous.STORE: "127.0.0.1:4711"}


def test_who_has_another_token_or_other_ranks_is_refused_and_the_next_one_is_let_in(first: Rendezvous) -> None:
    with pytest.raises(Refused, match="refuses this token"):
        enter(replace(first, token="fedcba9876543210"), 4, 2, 60.0)
    with pytest.raises(Refused, match="other --ranks/--nodes than 2/2"):
        enter(first, 2, 2, 60.0)
    assert enter(first, 4, 2, 60.0)


@pytest.mark.parametrize("words", [b"", b"x\n", b"\xff \xff \xff\n", b"a b c\n", b"a " * 999, b"0" * 10_000 + b"\n"])
def test_strangers_who_say_anything_or_nothing_hold_up_nobody(first: Rendezvous, words: bytes) -> None:
    strangers = [socket.create_connection((first.host, first.port)) for _ in range(20)]
    for stranger in strangers:
        stranger.sendall(words)
    assert enter(first, 4, 2, 60.0)
    for stranger in strangers:
        stranger.close()


def test_a_proof_can_not_be_used_again_nor_turned_back(first: Rendezvous) -> None:
    """What a guest has sent once proves nothing on the next connection, and a host's own number is no guest's proof."""
    said: list[bytes] = []
    for _ in range(2):
        with socket.create_connection((first.host, first.port)) as stranger:
            nonce = stranger.recv(100).decode().strip()
            said.append(said[0] if said else f"{nonce} 4/2 {first.proof('host', f'{nonce} {nonce} 4/2')}\n".encode())
            stranger.sendall(said[-1])
            assert stranger.recv(100) == b"refused token\n"
    assert enter(first, 4, 2, 60.0)


def test_a_host_without_the_token_is_not_believed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        meeting = Rendezvous("127.0.0.1", server.getsockname()[1], "0123456789abcdef", first=False)

        def impostor() -> None:
            connection = server.accept()[0]
            connection.sendall(b"00\n")
            _, _, proof = connection.recv(500).decode().split()
            connection.sendall(f"1 4711 {proof}\n".encode())
            connection.close()

        thread = threading.Thread(target=impostor)
        thread.start()
        with pytest.raises(Refused, match="does not have this token"):
            enter(meeting, 4, 2, 10.0)
        thread.join()


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(UsageError, match=r"can't listen at 192.0.2.1:29400: .*; name an address of this machine"):
        rendezvous.listen_at(rendezvous.read("192.0.2.1:29400"))
