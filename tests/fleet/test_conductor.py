"""The conductor with hosts that are scripts: no time passes, no process is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.fleet.simulated import (
    CUT,
    FOREVER,
    HELLO,
    RUN,
    Contact,
    Cut,
    Fleet,
    QueueEngine,
    Script,
    Step,
    altered,
    varied,
)

from mldyno.errors import StoreError, StoreLocked
from mldyno.fleet import wire
from mldyno.fleet.wheel import wheel_line
from mldyno.records import Record
from mldyno.results import Results

DONE = wire.End("done")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A record to make others from."""
    from mldyno import api

    return api.run(
        "mlp", mode="infer", framework="fake", repeats=1, store=str(tmp_path_factory.mktemp("s") / "s.sqlite")
    ).records[0]


def measuring(*records: Record, each: float = 10.0) -> Script:
    """A host that measures these records, and ends; or ends early, and tidily, where its input ends."""

    def script(contact: Contact) -> Iterator[Step]:
        yield HELLO
        for number, record in enumerate(records):
            for _ in range(int(each / 5)):
                yield 5.0
                if contact.closed:
                    yield wire.End("interrupted", "the connection ended")
                    return
                yield wire.Alive()
            yield wire.Progress("mlp", number, len(records), each * (len(records) - number))
            if record.id not in contact.request.known[RUN]:
                yield wire.Measured(record.text)
        yield DONE

    return script


def saying(*steps: Step) -> Script:
    """A host that says hello, and then this."""

    def script(contact: Contact) -> Iterator[Step]:
        yield HELLO
        yield from steps

    return script


def test_all_hosts_are_asked_at_once_and_their_records_are_kept_as_they_come(record: Record) -> None:
    records = [varied(record, number) for number in range(6)]
    fleet = Fleet({"node1": measuring(*records[:3]), "node2": measuring(*records[3:], each=20.0)})
    hosts = fleet.run()
    assert {host.state for host in hosts.values()} == {"done"}
    assert fleet.kept_records == {"node1": records[:3], "node2": records[3:]}
    assert [record.text for record in fleet.kept_records["node1"]] == [record.text for record in records[:3]]
    assert fleet.pipes.clock == pytest.approx(60.0, abs=1.0)  # as the slower one alone


def test_each_host_gets_the_same_request_with_its_own_name_and_environment() -> None:
    fleet = Fleet({"node1": saying(DONE), "node2": saying(DONE)}, node1={"env": {"A": "1"}})
    fleet.run()
    first, second = (contact.request for contact in fleet.pipes.contacts)
    assert (first.run, first.targets, first.text) == (second.run, second.targets, second.text)
    assert (first.host, first.env, second.host, second.env) == ("node1", {"A": "1"}, "node2", {})


def test_the_price_of_a_host_is_part_of_its_request_and_of_no_other() -> None:
    fleet = Fleet({"node1": saying(DONE), "node2": saying(DONE)}, node1={"price": "0.80 EUR/h"})
    fleet.run()
    first, second = (contact.request for contact in fleet.pipes.contacts)
    assert (first.options.get("price"), second.options.get("price")) == ("0.80 EUR/h", None)


def test_both_sides_hear_beats_while_a_host_measures(record: Record) -> None:
    fleet = Fleet({"node1": measuring(varied(record, 1), each=100.0)})
    fleet.run()
    assert 18 <= fleet.pipes.beats <= 22


def test_a_pipe_that_ends_without_a_last_line_is_a_lost_host_whatever_the_exit_code(record: Record) -> None:
    fleet = Fleet({"node1": saying(wire.Measured(varied(record, 1).text), CUT, CUT)})
    node = fleet.run()["node1"]
    assert (node.state, node.reason, node.records) == ("lost", "the connection ended", 1)


def test_a_lost_host_is_asked_again_for_what_is_missing_and_the_others_go_on(record: Record) -> None:
    records = [varied(record, number) for number in range(4)]

    def flapping(contact: Contact) -> Iterator[Step]:
        yield HELLO
        if contact.number == 0:
            yield wire.Measured(records[0].text)
            yield FOREVER  # its cable is cut
        assert contact.request.run == RUN
        for each in records[1:3]:
            yield wire.Measured(each.text)
        yield DONE

    fleet = Fleet({"node1": flapping, "node2": measuring(records[3], each=100.0)})
    hosts = fleet.run()
    assert {host.state for host in hosts.values()} == {"done"}
    assert ("node1", "lost") in fleet.states
    assert fleet.kept_records == {"node1": records[:3], "node2": [records[3]]}
    assert fleet.pipes.killed == ["node1"]


def test_a_host_that_stays_silent_is_given_up_after_a_second_try() -> None:
    fleet = Fleet({"node1": saying(FOREVER)})
    node = fleet.run()["node1"]
    assert (node.state, node.reason, node.tries) == ("lost", "nothing was heard for 25 s", 2)
    assert fleet.engine.cleared == ["node1", "node1"]  # type: ignore[attr-defined]


def test_a_host_that_crashes_after_each_record_is_asked_again_as_long_as_it_brings_some(record: Record) -> None:
    records = [varied(record, number) for number in range(4)]

    def crashing(contact: Contact) -> Iterator[Step]:
        yield HELLO
        for each in records[contact.number : contact.number + 1]:
            yield wire.Measured(each.text)

    node = Fleet({"node1": crashing}).run()["node1"]
    assert (node.state, node.records, node.tries) == ("lost", 4, 5)


def test_a_host_that_something_else_has_interrupted_goes_on(record: Record) -> None:
    def woken(contact: Contact) -> Iterator[Step]:
        yield HELLO
        yield wire.End("interrupted", "nothing was heard for 25 s") if contact.number == 0 else DONE

    assert Fleet({"node1": woken}).run()["node1"].state == "done"


def test_a_host_that_can_t_be_reached_is_refused_with_the_last_line_of_its_engine() -> None:
    def unreachable(contact: Contact) -> Iterator[Step]:
        yield Cut("ssh: Could not resolve hostname node1")

    fleet = Fleet({"node1": unreachable, "node2": saying(DONE)})
    hosts = fleet.run()
    assert (hosts["node1"].state, hosts["node2"].state) == ("refused", "done")
    assert hosts["node1"].reason == "ssh: Could not resolve hostname node1"
    assert len(fleet.pipes.contacts) == 2


def test_a_host_that_does_not_say_hello_is_not_waited_for_for_ever() -> None:
    def hangs(contact: Contact) -> Iterator[Step]:
        yield FOREVER

    node = Fleet({"node1": hangs}).run()["node1"]
    assert node.state == "lost"
    assert "60 s" in node.reason


def test_a_host_of_a_queue_may_wait_for_hours(record: Record) -> None:
    def queued(contact: Contact) -> Iterator[Step]:
        yield 10_000.0
        yield from measuring(varied(record, 1))(contact)

    fleet = Fleet({"node1": queued}, QueueEngine())
    assert fleet.run()["node1"].state == "done"
    assert fleet.states[0] == ("node1", "queued")


def test_a_busy_host_is_asked_again_while_others_measure(record: Record) -> None:
    def busy_at_first(contact: Contact) -> Iterator[Step]:
        yield HELLO
        yield wire.End("busy", "by process 42") if contact.number < 2 else DONE

    fleet = Fleet({"node1": busy_at_first, "node2": measuring(varied(record, 1), each=200.0)})
    assert {host.state for host in fleet.run().values()} == {"done"}


def test_a_host_that_stays_busy_is_not_waited_for_when_the_others_are_done(record: Record) -> None:
    fleet = Fleet({"node1": saying(wire.End("busy", "by process 42")), "node2": measuring(varied(record, 1))})
    hosts = fleet.run()
    assert (hosts["node1"].state, hosts["node1"].reason) == ("busy", "by process 42")
    assert fleet.pipes.clock < 60.0


def test_when_the_user_ends_the_run_all_hosts_are_asked_to_end_tidily(record: Record) -> None:
    records = [varied(record, number) for number in range(4)]
    scripts = {"node1": measuring(*records[:2], each=20.0), "node2": measuring(*records[2:], each=20.0)}
    fleet = Fleet(scripts, ended=lambda clock: clock > 25.0)
    hosts = fleet.run()
    assert {host.state for host in hosts.values()} == {"interrupted"}
    assert [len(records) for records in fleet.kept_records.values()] == [1, 1]
    assert all(contact.closed for contact in fleet.pipes.contacts)
    assert fleet.pipes.killed == []


def test_a_host_that_still_waits_in_a_queue_is_taken_out_of_it_at_once() -> None:
    def queued(contact: Contact) -> Iterator[Step]:
        yield FOREVER

    fleet = Fleet({"node1": queued}, QueueEngine(), ended=lambda clock: clock > 9.0)
    assert fleet.run()["node1"].state == "interrupted"
    assert fleet.pipes.killed == ["node1"]
    assert fleet.pipes.clock < 12.0


def test_what_a_host_sends_while_it_ends_is_kept(record: Record) -> None:
    def tidy(contact: Contact) -> Iterator[Step]:
        yield HELLO
        while not contact.closed:
            yield 5.0
            yield wire.Alive()
        yield wire.Measured(varied(record, 1).text)
        yield wire.End("interrupted", "the connection ended")

    fleet = Fleet({"node1": tidy}, ended=lambda clock: clock > 9.0)
    assert fleet.run()["node1"].state == "interrupted"
    assert len(fleet.kept_records["node1"]) == 1


def test_a_host_that_does_not_end_when_asked_to_is_ended_by_force(record: Record) -> None:
    def deaf(contact: Contact) -> Iterator[Step]:
        yield HELLO
        while True:
            yield 5.0
            yield wire.Alive()

    fleet = Fleet({"node1": deaf}, ended=lambda clock: clock > 9.0)
    node = fleet.run()["node1"]
    assert (node.state, fleet.pipes.killed) == ("interrupted", ["node1"])
    assert fleet.pipes.clock == pytest.approx(40.0, abs=2.0)


def test_what_a_shell_prints_before_mldyno_begins_is_no_message() -> None:
    def chatty(contact: Contact) -> Iterator[Step]:
        yield b"Welcome to node1!"
        yield b'{"news": []}'
        yield from saying(DONE)(contact)

    assert Fleet({"node1": chatty}).run()["node1"].state == "done"


def test_a_shell_that_prints_without_end_is_refused() -> None:
    def endless(contact: Contact) -> Iterator[Step]:
        while True:
            yield b"y" * 100_000

    node = Fleet({"node1": endless}).run()["node1"]
    assert (node.state, "without end" in node.reason) == ("refused", True)


HOSTILE: dict[str, Callable[[Record], Step]] = {
    "garbage": lambda record: b"\x00\xff garbage",
    "an unknown message": lambda record: b'{"is":"shutdown"}',
    "a line that is too long": lambda record: b'{"is":"note","line":"' + b"y" * (33 << 20),
    "another type": lambda record: b'{"is":"progress","case":1,"done":"a","cases":2,"left":3}',
    "a wrong hash": lambda record: wire.Measured(altered(record)),
    "another spelling": lambda record: wire.Measured(record.text.replace(":", ": ", 1)),
    "a record of another run": lambda record: wire.Measured(varied(record, 9, "20250101T000000-abcdef").text),
    "a published record": lambda record: wire.Measured(varied(record, 9, provenance="published").text),
    "a record of the future": lambda record: wire.Measured(varied(record, 9, created="2999-01-01T00:00:00Z").text),
    "no record": lambda record: wire.Measured("{}"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_host_that_sends_anything_else_is_cut_off_and_nothing_of_it_is_kept(what: str, record: Record) -> None:
    records = [varied(record, number) for number in range(2)]
    after = wire.Measured(varied(record, 3).text)
    fleet = Fleet({
        "node1": saying(wire.Measured(records[0].text), HOSTILE[what](record), after, DONE),
        "node2": measuring(records[1]),
    })  # fmt: skip
    hosts = fleet.run()
    assert (hosts["node1"].state, hosts["node2"].state) == ("failed", "done")
    assert hosts["node1"].reason.startswith("what it sent is not of mldyno: ")
    assert len(hosts["node1"].reason) <= 300
    assert hosts["node1"].reason.isprintable()
    assert fleet.kept_records == {"node1": [records[0]], "node2": [records[1]]}
    assert len(fleet.pipes.contacts) == 2


@pytest.mark.parametrize(
    "hello", [wire.Hello(99, HELLO.mldyno, "3.11", 1), wire.Hello(wire.VERSION, "0.0.1", "3.11", 1)]
)
def test_a_host_with_another_version_is_refused_before_it_is_asked(hello: wire.Hello) -> None:
    def other(contact: Contact) -> Iterator[Step]:
        yield hello
        yield DONE

    fleet = Fleet({"node1": other})
    node = fleet.run()["node1"]
    assert (node.state, HELLO.mldyno in node.reason) == ("refused", True)
    assert not any(line.startswith(b'{"do"') for line in fleet.pipes.contacts[0].lines)


def test_a_host_without_mldyno_gets_it() -> None:
    def without(contact: Contact) -> Iterator[Step]:
        yield wire.WantsWheel()
        yield 1.0
        assert wheel_line() in contact.lines
        yield from saying(DONE)(contact)

    assert Fleet({"node1": without}).run()["node1"].state == "done"


def test_a_host_is_told_which_records_are_here_and_none_is_kept_twice(record: Record) -> None:
    records = [varied(record, number) for number in range(3)]
    earlier = varied(record, 4, "20251231T000000-abcdef")
    known = {"node1": {RUN: [records[0].id], earlier.run.id: []}}
    fleet = Fleet({"node1": saying(*(wire.Measured(each.text) for each in (*records, records[1], earlier)), DONE)},
                  known=known)  # fmt: skip
    node = fleet.run()["node1"]
    assert fleet.pipes.contacts[0].request.known == {RUN: (records[0].id,), earlier.run.id: ()}
    assert (node.state, fleet.kept_records["node1"]) == ("done", [*records[1:], earlier])


def test_a_store_that_is_locked_for_a_while_loses_nothing(record: Record) -> None:
    records = [varied(record, number) for number in range(3)]
    fleet = Fleet({"node1": measuring(*records, each=5.0)})
    fleet.refusals = [StoreLocked("locked")] * 5
    fleet.run()
    assert fleet.kept_records["node1"] == records


def test_a_store_that_is_locked_when_the_last_host_ends_is_waited_for(record: Record) -> None:
    fleet = Fleet({"node1": saying(wire.Measured(varied(record, 1).text), DONE, CUT)})
    fleet.refusals = [StoreLocked("locked")] * 20
    assert fleet.run()["node1"].state == "done"
    assert len(fleet.kept_records["node1"]) == 1


def test_a_full_disk_here_ends_all_hosts_tidily_and_says_where_the_records_are(record: Record) -> None:
    records = [varied(record, number) for number in range(4)]
    fleet = Fleet({"node1": measuring(*records[:2]), "node2": measuring(*records[2:])})
    fleet.refusals = [StoreError("the disk is full.")] * 100
    with pytest.raises(StoreError, match=r"the disk is full\. .* stores of the hosts, and --resume"):
        fleet.run()
    assert all(contact.closed for contact in fleet.pipes.contacts)
    assert fleet.pipes.killed == []


def test_a_limit_that_left_cases_out_is_known() -> None:
    node = Fleet({"node1": saying(wire.End("done", "", 3))}).run()["node1"]
    assert (node.state, node.left_out) == ("done", 3)


def test_what_a_host_tells_its_user_is_passed_on_but_not_without_end() -> None:
    fleet = Fleet({"node1": saying(*[wire.Note("a\x1b[2Jb" * 500)] * 5000, DONE)})
    fleet.run()
    assert len(fleet.notes) == 1000
    assert max(map(len, fleet.notes)) <= 300


def test_an_engine_that_is_not_installed_refuses_its_hosts_only() -> None:
    fleet = Fleet({"node1": saying(DONE), "node2": saying(DONE)})

    def missing(host: str, words: list[str]) -> None:
        if host == "node1":
            raise FileNotFoundError(2, "No such file or directory", "srun")
        opened(host, words)

    opened, fleet.pipes.open = fleet.pipes.open, missing  # type: ignore[assignment, method-assign]
    hosts = fleet.run()
    assert (hosts["node1"].state, hosts["node2"].state) == ("refused", "done")
    assert hosts["node1"].reason == "srun: No such file or directory"


def test_many_hosts_lose_no_line_and_do_not_start_all_at_once(record: Record) -> None:
    records = [varied(record, number) for number in range(3)]

    def script(contact: Contact) -> Iterator[Step]:
        yield 2.0  # a slow login
        yield from measuring(*records)(contact)

    fleet = Fleet({f"node{number}": script for number in range(250)})
    hosts = fleet.run()
    assert {host.state for host in hosts.values()} == {"done"}
    assert {len(records) for records in fleet.kept_records.values()} == {3}
    assert fleet.pipes.clock < 2.0 * 3 + 60.0  # a hundred at a time


def test_the_states_of_a_host_are_told_in_order(record: Record) -> None:
    fleet = Fleet({"node1": measuring(varied(record, 1))})
    fleet.run()
    assert list(dict.fromkeys(state for _, state in fleet.states)) == ["starting", "running", "done"]


def test_results_of_a_run_are_whole_only_if_every_host_is_done(fake_run: Callable[..., Results]) -> None:
    from mldyno.results import FleetResults

    done, lost = (Fleet({"node1": script}).run()["node1"] for script in (saying(DONE), saying(CUT)))
    results = fake_run("mlp")
    assert FleetResults(results.run, results.everything, hosts=[done], on="x").all_ok
    assert not FleetResults(results.run, results.everything, hosts=[done, lost], on="x").all_ok
    text = str(FleetResults(results.run, results.everything, hosts=[done, lost], on="lab.toml"))
    assert "1 host not done; resume with: mldyno run --resume --on lab.toml" in text
