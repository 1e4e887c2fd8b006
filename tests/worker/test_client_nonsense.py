"""A worker that answers nonsense of every kind: its case is failed, with a reason, and the run goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from mldyno import api, messages
from mldyno.messages import Malformed, ProbeFrameworks, TaskDone
from mldyno.plan import Plan
from mldyno.records import Case, Checks
from mldyno.sources import Source
from mldyno.store import Store
from mldyno.worker import client
from mldyno.worker.client import Ended, WorkerProcess

# A child that answers each command by a script: a list of lines for each kind, the last of them over and over.
CHILD = """
import json, sys, time
script = json.loads({script!r})
for line in sys.stdin:
    command = json.loads(line)
    answers = script.get(command["do"], [])
    for answer in answers.pop(0) if len(answers) > 1 else (answers[0] if answers else ()):
        if isinstance(answer, (int, float)):
            time.sleep(answer)
            continue
        print(answer.replace('"NUMBER"', str(command["number"])), flush=True)
"""
SERIES = {"metric": "step_time", "unit": "s", "values": [0.01] * 20}
OPENED: dict[str, Any] = {
    "is": "case_opened", "number": "NUMBER", "devices": [{"name": "cpu", "framework": "fake"}], "unsteady": "",
    "facts": {"block_steps": 1, "fake_time": False}, "series": [{**SERIES, "stage": "warmup"}],
    "software": {"python": "3", "framework": "fake", "versions": {}, "threads": 1, "env": {}},
}  # fmt: skip
MEASURED: dict[str, Any] = {"is": "measured", "number": "NUMBER", "series": [SERIES], "facts": {}}
CLOSED: dict[str, Any] = {"is": "case_closed", "number": "NUMBER", "series": [], "checks": {}, "facts": {}}
GOOD = {"open_case": [[json.dumps(OPENED)]], "measure_turn": [[json.dumps(MEASURED)]],
        "close_case": [[json.dumps(CLOSED)]]}  # fmt: skip
LeftBehind = Callable[[], set[psutil.Process]]
Scripted = Callable[..., None]


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Workers are such a child from now on; what is given stands in the place of a good answer."""

    def set_script(**answers: list[list[Any]]) -> None:
        child = tmp_path / "child.py"
        child.write_text(CHILD.format(script=json.dumps({**GOOD, **answers})))
        monkeypatch.setattr(client, "SCRIPT", str(child))

    return set_script


def plan(*batches: int, **settings: Any) -> Plan:
    return Plan(tuple(Case("mlp", framework="fake", batch=size) for size in batches or (8, 16)), repeats=1, **settings)


def test_a_child_that_answers_well_is_measured(scripted: Scripted, store: Store) -> None:
    scripted()
    assert [record.status for record in api.run_plan(plan(), store).records] == ["ok", "ok"]


def without(answer: dict[str, Any], key: str) -> str:
    return json.dumps({name: value for name, value in answer.items() if name != key})


def altered(answer: dict[str, Any], **changes: Any) -> str:
    return json.dumps({**answer, **changes})


NONSENSE = {
    "no JSON": "bl\\xff", "half an answer": '{"is": "turn_mea', "a list": "[1, 2]", "a number": "7", "null": "null",
    "an empty line": "", "an unknown kind": '{"is": "blocks", "number": "NUMBER"}', "no kind": '{"series": []}',
    "nested without end": "[" * 200_000, "a kind that is a list": '{"is": ["measured"]}',
    "a key that is missing": without(MEASURED, "series"), "facts that are missing": without(MEASURED, "facts"),
    "NaN among the values": altered(MEASURED, series=[{**SERIES, "values": [0.01, math.nan]}]),
    "infinity among the values": altered(MEASURED, series=[{**SERIES, "values": [0.01, math.inf]}]),
    "NaN as a fact": altered(MEASURED, facts={"peak": math.nan}),
    "a fact that is an object": altered(MEASURED, facts={"peak": {"a": 1}}),
    "facts that are a list": altered(MEASURED, facts=[1]),
    "text among the values": altered(MEASURED, series=[{**SERIES, "values": ["fast"]}]),
    "true among the values": altered(MEASURED, series=[{**SERIES, "values": [True]}]),
    "a number of 400 digits": altered(MEASURED, series=[{**SERIES, "values": [10**400]}]),
    "a number of 5000 digits": '{"is": "progress", "number": "NUMBER", "step": ' + "1" * 5000 + "}",
    "a unit that is none": altered(MEASURED, series=[{**SERIES, "unit": "parsec"}]),
    "a series that is text": altered(MEASURED, series=["step_time"]),
    "no step": altered(MEASURED, series=[]), "no values": altered(MEASURED, series=[{**SERIES, "values": []}]),
    "a step of no time": altered(MEASURED, series=[{**SERIES, "values": [0.0] * 20}]),
    "a step of less than no time": altered(MEASURED, series=[{**SERIES, "values": [-0.01] * 20}]),
    "a step of 1e308 s": altered(MEASURED, series=[{**SERIES, "values": [1e308] * 20}]),
    "blocks of no steps": altered(MEASURED, series=[{**SERIES, "block": 0}]),
    "an unknown status": '{"is": "failed", "number": "NUMBER", "status": "tired", "reason": "it is late"}',
    "the status ok for a failure": '{"is": "failed", "number": "NUMBER", "status": "ok", "reason": ""}',
    "a reason that is a number": '{"is": "failed", "number": "NUMBER", "status": "oom", "reason": 3}',
    "progress that is text": '{"is": "progress", "number": "NUMBER", "step": "slow"}',
    "an answer to another command": altered(MEASURED, number=99), "another command's answer": json.dumps(CLOSED),
}  # fmt: skip


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_makes_a_case_failed_with_a_reason_and_the_run_goes_on(
    answer: str, scripted: Scripted, store: Store, left_behind: LeftBehind
) -> None:
    scripted(measure_turn=[[answer]])
    records = api.run_plan(plan(), store).records
    assert [record.status for record in records] == ["failed", "failed"]
    assert all(record.reason.startswith("the worker's answer") for record in records), records[0].reason
    assert left_behind() == set()


@pytest.mark.parametrize("command", ["open_case", "close_case"])
def test_nonsense_at_any_time_is_the_same(command: str, scripted: Scripted, store: Store) -> None:
    for key in (key for key in (OPENED if command == "open_case" else CLOSED) if key not in ("is", "number")):
        whole = OPENED if command == "open_case" else CLOSED
        scripted(**{command: [[without(whole, key)]]})
        (first, _) = api.run_plan(plan(), store).records
        assert (first.status, first.reason.startswith("the worker's answer")) == ("failed", True), key


def test_two_answers_to_one_command_are_noticed(scripted: Scripted, store: Store) -> None:
    scripted(measure_turn=[[json.dumps(MEASURED), json.dumps(MEASURED)]])
    (first, _) = api.run_plan(plan(target=1e-9, budget=1.0), store).records
    assert first.status == "failed"
    assert "it belongs to command 2, not to 3" in first.reason


def test_no_answer_at_all_is_a_timeout(scripted: Scripted, store: Store) -> None:
    scripted(open_case=[[]])
    records = api.run_plan(plan(timeout=0.5), store).records
    assert [record.status for record in records] == ["timeout", "timeout"]


def test_absurd_facts_of_the_right_type_end_no_run(scripted: Scripted, store: Store) -> None:
    scripted(close_case=[[altered(CLOSED, facts={"recompiles": "often", "drained_share": "x", "block_steps": "y"})]])
    for record in api.run_plan(plan(), store).records:
        assert record.status == "ok"
        assert [warning.code for warning in record.warnings].count("left-out") == 1
        assert record.facts.keys().isdisjoint({"recompiles", "drained_share", "block_steps"})


def test_every_message_comes_back_as_it_was_sent() -> None:
    command = messages.OpenCase(3, Case("mlp"), 1.5, messages.DataSource("mnist", "real", "/x"), ("a", "b"))
    assert messages.decode_command(messages.encode(command, 7)) == (command, 7)
    answer = messages.decode(json.dumps(OPENED).replace('"NUMBER"', "4"))[0]
    assert messages.decode(messages.encode(answer, 5)) == (answer, 5)


def test_the_texts_of_an_answer_are_printable_and_those_of_a_command_stay() -> None:
    line = json.dumps(
        {"is": "failed", "number": 1, "status": "oom", "reason": "\x1b[31mno\nmemory\udcff" + "x" * 20_000}
    )
    answer, _ = messages.decode(line)
    assert isinstance(answer, messages.Failed)
    assert answer.reason.startswith("�[31mno memory�xxx")
    assert (len(answer.reason), answer.reason[-1]) == (10_000, "…")
    words = ("sh", "-c", "true\n\x1b\udcff")
    command, _ = messages.decode_command(messages.encode(messages.OpenCase(0, Case("x"), 1.0, None, words), 1))
    assert isinstance(command, messages.OpenCase)
    assert command.command == words


def test_a_case_of_the_users_model_brings_its_source_along() -> None:
    source = Source("file", "/home/me/gpt.py", "build", "/home/me", name="gpt.py@01234567", batch=8, modes=("infer",),
                    loss=("loss", 0), version="now")  # fmt: skip
    for command in (
        messages.OpenCase(0, Case(source.name), 1.0, source=source),
        messages.ForecastCase(Case(source.name), source),
        messages.TrySteps(Case(source.name), 2, None, source),
    ):
        assert messages.decode_command(messages.encode(command, 1)) == (command, 1)


@pytest.mark.parametrize(
    "text",
    [
        "{", "5", "[5]", "[{}]", "{}", '{"kind": "file"}', '"x"', "[" * 20_000,
        '{"kind": "evil", "place": "x", "modes": []}', '{"kind": "file", "place": 5, "modes": []}',
        '{"kind": "file", "place": "x", "modes": [5]}', '{"kind": "file", "place": "x", "batch": "8"}',
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_a_source_that_is_none_is_refused(text: str) -> None:
    case = json.dumps(vars(Case("gpt.py@01234567")))
    with pytest.raises(Malformed):
        messages.decode_command(f'{{"do": "forecast_case", "number": 1, "case": {case}, "source": {text}}}')


def test_every_command_has_an_answer_and_every_kind_its_own_name() -> None:
    assert len(messages.COMMANDS) == len(messages.Command.__subclasses__())
    assert len(messages.ANSWERS) == len(messages.Answer.__subclasses__())
    assert messages.answer_to(ProbeFrameworks(("fake",))) is messages.FrameworksProbed
    with pytest.raises(Malformed, match=r"probe_frameworks lacks 'frameworks'"):
        messages.decode_command('{"do": "probe_frameworks"}')


def test_a_worker_that_is_gone_is_no_error_of_ours(scripted: Scripted) -> None:
    scripted()
    with WorkerProcess() as worker:
        worker.kill()
        with pytest.raises(Ended, match="not there any more"):
            worker.request(ProbeFrameworks(("fake",)), 1.0)


# -- time ------------------------------------------------------------------------------------------


def test_a_case_whose_time_is_nearly_over_is_closed_with_what_it_has(scripted: Scripted, store: Store) -> None:
    slow = altered(MEASURED, series=[{**SERIES, "values": [0.5]}])
    scripted(measure_turn=[[0.5, slow]])
    (record,) = api.run_plan(plan(8, timeout=5.0, budget=60.0), store).records
    assert (record.status, record.checks) == ("ok", Checks())
    assert 1 <= len(record.values("step_time")) < 9
    assert [warning.code for warning in record.warnings if warning.code == "target-not-reached"] != []
    assert "measured until its timeout of 5.00 s was over" in {warning.message for warning in record.warnings}


def test_what_was_measured_before_a_timeout_counts_where_the_worker_was_still_at_work(
    scripted: Scripted, store: Store
) -> None:
    scripted(measure_turn=[[json.dumps(MEASURED)], [30.0]])
    (record,) = api.run_plan(plan(8, timeout=3.0, target=1e-9), store).records
    assert (record.status, record.reason) == ("ok", "")
    assert record.values("step_time") == [0.01] * 20
    said = {warning.message for warning in record.warnings}
    assert "measured until its timeout of 3.00 s was over, and its work was not checked" in said


def test_a_worker_that_was_silent_for_far_longer_than_a_block_hung(
    scripted: Scripted, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mldyno.runner.remote_case.SHORTEST_SILENCE_S", 0.3)
    scripted(measure_turn=[[json.dumps(MEASURED)], [30.0]])
    (record,) = api.run_plan(plan(8, timeout=3.0, target=1e-9), store).records
    assert record.status == "timeout"
    assert record.reason == "no end after 3.00 s; give it more with --timeout"
    assert record.values("step_time") == [0.01] * 20


# -- the whole tree --------------------------------------------------------------------------------

HUNGRY = """
import subprocess, sys, time
GREEDY = "import time; held = bytearray({size}); held[::4096] = b'x' * len(held[::4096]); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", GREEDY], start_new_session=True)
sys.stdin.readline()
time.sleep(60)
"""


def hungry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    (tmp_path / "hungry.py").write_text(HUNGRY.replace("{size}", str(size)))
    monkeypatch.setattr(client, "SCRIPT", str(tmp_path / "hungry.py"))


def test_memory_of_what_a_worker_started_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_behind: LeftBehind
) -> None:
    monkeypatch.setenv("MLDYNO_MEMORY_LIMIT", "150MiB")
    hungry(tmp_path, monkeypatch, 200 << 20)
    with WorkerProcess() as worker, pytest.raises(Ended) as ended:
        worker.request(ProbeFrameworks(("fake",)), 30.0)
    assert ended.value.status == "oom"
    assert "over MLDYNO_MEMORY_LIMIT" in ended.value.reason
    assert left_behind() == set()


def test_all_that_a_worker_started_is_ended_with_it_in_whatever_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_behind: LeftBehind
) -> None:
    hungry(tmp_path, monkeypatch, 1)
    with WorkerProcess() as worker:
        with pytest.raises(Ended, match="no end after"):
            worker.request(ProbeFrameworks(("fake",)), 1.5)
        assert left_behind() == set()


def test_a_task_may_talk_for_as_long_as_it_likes_but_not_be_silent(scripted: Scripted) -> None:
    row, done = '{"is": "task_row", "number": "NUMBER", "row": {"a": 1}}', '{"is": "task_done", "number": "NUMBER"}'
    rows: list[dict[str, Any]] = []
    scripted(run_task=[[row, 0.8, row, 0.8, row, 0.8, row, done], [row, 30.0]])
    task = messages.RunTask("module", "task", "fake")
    with WorkerProcess() as worker:
        assert worker.request(task, 2.0, rows.append, reset_timeout=True) == TaskDone()
        assert rows == [{"a": 1}] * 4
        with pytest.raises(Ended, match=r"no end after 2.00 s"):
            worker.request(task, 2.0, rows.append, reset_timeout=True)
