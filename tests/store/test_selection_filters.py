"""A filter means one thing: all terms hold, axis values keep their meaning, and an ambiguous word is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.store.test_sqlite import a_record

from mldyno import api
from mldyno.axes import COMMAND, TRACKED, Case, unstated
from mldyno.errors import MldynoError, UsageError
from mldyno.records import Record, Run, seal
from mldyno.store import Query, Store

# A loop may have any of these names, and an axis has it as a value.
COLLIDING = {
    "train": "mode=train", "inference": "mode=infer", "cpu": "device=cpu", "cuda": "device=cuda:0",
    "fp32": "precision=fp32", "host": "placement=host", "tracked": "framework=tracked", "torch": "framework=torch",
    "command": "framework=command", "b16": "batch=16", "t4": "threads=4", "compile": "compile=yes",
    "steady": "allocator=steady", "strong": "scaling=strong", "ddp": "parallel=ddp",
}  # fmt: skip


def of_case(case: Case, run: str = "r1", machine: str = "m") -> Record:
    return seal(replace(a_record(run=run, machine=machine), case=case))


def a_loop(name: str, **where: str) -> Record:
    return of_case(unstated(name, TRACKED), **where)


def a_command(name: str, **where: str) -> Record:
    return of_case(unstated(name, COMMAND), **where)


def ids(store: Store) -> list[str]:
    return [record.id for record in store.stream(Query(heads=False))]


def every_reader(store: Store, folder: Path) -> list[Callable[[str], Any]]:
    """All that takes a filter."""
    return [
        lambda text: api.table(text, store=store),
        lambda text: api.table(["mlp", text], store=store),
        lambda text: api.show(text, store),
        lambda text: api.compare(text, store=store),
        lambda text: api.compare("mlp", text, store=store),
        lambda text: api.compare(text, by="run", store=store),
        lambda text: api.history(text, store=store),
        lambda text: api.export(str(folder / "out.jsonl"), "jsonl", text, store),
        lambda text: api.submit(str(folder / "out.jsonl"), text, store),
        lambda text: api.report(str(folder / "out.html"), text, store=store),
        lambda text: api.remove(text, store=store),
    ]


@pytest.mark.parametrize("name", COLLIDING)
def test_a_loop_with_the_name_of_a_value_takes_no_word_over(name: str, store: Store) -> None:
    loop, own = a_loop(name), of_case(Case("mlp", batch=8))
    store.append([loop, own])
    with pytest.raises(UsageError) as refused:
        api.remove(name, store=store)
    assert str(refused.value) == f"'{name}' is ambiguous: write workload={name} or {COLLIDING[name]}."
    assert ids(store) == [loop.id, own.id]
    assert [record.id for record in api.show(f"workload={name}", store)] == [loop.id]
    assert [record.id for record in api.show(f"{name}/tracked/cpu", store)] == [loop.id], "as its id is shown"
    assert [record.id for record in api.show(f"{name}/tracked", store)] == [loop.id], "the beginning of an id"
    assert api.remove(f"workload={name}", store=store) == 1
    assert ids(store) == [own.id]


def test_remove_with_a_filter_takes_what_it_says_and_nothing_else(store: Store) -> None:
    mine = of_case(Case("mlp", batch=8))
    others = [a_loop("train"), a_loop("cpu"), of_case(Case("mlp", mode="infer", batch=8))]
    store.append([mine, *others])
    assert api.remove("mlp/train", store=store) == 1
    assert ids(store) == [record.id for record in others]


def test_explicit_terms_always_work(store: Store) -> None:
    loop, mine = a_loop("batch=16"), of_case(Case("mlp", batch=16))
    store.append([loop, mine])
    assert [record.id for record in api.history("batch=16", store=store)] == [mine.id]
    assert [record.id for record in api.history("workload=batch=16", store=store)] == [loop.id]


@pytest.mark.parametrize(
    ("text", "both"),
    [
        ("b16/b128/mlp", "batch=16 and batch=128"),
        ("batch=16/mlp/b128", "batch=16 and batch=128"),
        ("mlp/train/infer", "mode=train and mode=infer"),
        ("mlp/bert-base", "workload=mlp and workload=bert-base"),
        ("mlp/torch/framework=jax", "framework=torch and framework=jax"),
        ("cuda:0/cuda:1", "device=cuda:0 and device=cuda:1"),
        ("compile/no-compile", "compile=yes and compile=no"),
        ("status=ok/status=oom", "status=ok and status=oom"),
    ],
)
def test_a_filter_that_no_record_can_match_is_refused_by_every_command(
    text: str, both: str, store: Store, tmp_path: Path
) -> None:
    store.append([a_record(batch=16), a_record(batch=128)])
    for read in every_reader(store, tmp_path):
        with pytest.raises(UsageError) as refused:
            read(text)
        assert str(refused.value) == f"'{text}' matches nothing: no record has {both} at once; keep one of them."
    assert len(ids(store)) == 2


def test_an_ambiguous_word_is_refused_by_every_command(store: Store, tmp_path: Path) -> None:
    store.append([a_loop("train"), a_record()])
    for read in every_reader(store, tmp_path):
        with pytest.raises(UsageError, match="'train' is ambiguous: write workload=train or mode=train"):
            read("train")
    assert len(ids(store)) == 2
    assert not (tmp_path / "out.jsonl").exists()


def test_a_term_that_is_said_twice_or_more_precisely_holds(store: Store) -> None:
    older, newer = (of_case(Case(f"my.py@{digits}")) for digits in ("0" * 8, "1" * 8))
    store.append([older, newer])
    for text in ("my.py/my.py@00000000", "my.py@00000000/my.py", "my.py@00000000/train/training/cpu/device=cpu"):
        assert [record.id for record in api.history(text, store=store)] == [older.id]
    assert len(api.history("my.py", store=store)) == 2


@pytest.mark.parametrize(
    ("record", "choices"),
    [
        (a_loop("box", machine="Box"), "workload=box or machine=Box"),
        (a_loop("this-machine"), "workload=this-machine or machine='test bench'"),
        (a_loop("r7", run="r7"), "workload=r7 or ranks=7 or run=r7"),
        (a_command("python", run="python", machine="python"), "workload=python or run=python or machine=python"),
        (a_record(machine="cpu"), "device=cpu or machine=cpu"),
        (a_record(run="mlp"), "workload=mlp or run=mlp"),
    ],
)
def test_names_of_machines_and_runs_take_no_word_over_either(record: Record, choices: str, store: Store) -> None:
    store.append([record])
    word = choices.partition("=")[2].partition(" ")[0]
    with pytest.raises(UsageError) as refused:
        api.remove(word, store=store)
    assert str(refused.value).replace("'machine=test bench'", "machine='test bench'") == (
        f"'{word}' is ambiguous: write {choices}."
    )
    assert ids(store) == [record.id]


def test_part_of_a_machines_name_is_no_rival_of_a_value(store: Store) -> None:
    store.append([a_record(machine="my cpu box")])
    assert len(api.history("cpu", store=store)) == 1
    assert len(api.history("cpu box", store=store)) == 1


def test_a_file_here_takes_no_word_over(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record, other = a_record(), a_record(batch=9, machine="elsewhere")
    store.append([record])
    (tmp_path / "mlp").write_text(other.text + "\n")
    with pytest.raises(UsageError, match=r"'mlp' is ambiguous: write ./mlp or workload=mlp\."):
        api.remove("mlp", store=store)
    assert [each.id for each in api.show("./mlp", store)] == [other.id]
    assert api.remove("workload=mlp", store=store) == 1


def test_a_name_of_hexadecimal_digits_is_found_and_never_stands_for_an_id(store: Store) -> None:
    loop = a_loop("20261118")
    store.append([loop])
    assert [record.id for record in api.show("20261118", store)] == [loop.id]
    record = a_record()
    twin = a_loop(record.id[:6])
    store.append([record, twin])
    with pytest.raises(UsageError) as refused:
        api.remove(record.id[:6], store=store)
    assert str(refused.value) == (
        f"'{record.id[:6]}' is ambiguous: write {record.id[:10]} or workload={record.id[:6]}."
    )
    assert api.remove(record.id[:10], store=store) == 1


def test_the_start_of_two_ids_is_refused_with_both(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (replace(a_record(batch=batch), id=id_) for batch, id_ in
                     ((1, "abcdef1" + "0" * 25), (2, "abcdef2" + "0" * 25)))  # fmt: skip
    monkeypatch.setattr(Store, "select", lambda self, query: [first, second])
    for read in (api.show, api.table, api.compare, api.remove):
        with pytest.raises(UsageError, match=r"'abcdef' is ambiguous: write abcdef1000 or abcdef2000\."):
            read("abcdef", store=store)


def test_commands_are_found_as_they_were_typed_with_slashes_and_all(store: Store) -> None:
    names = {"ls /": "ls :", "ls": "ls", "/bin/sleep 0.2": ":bin:sleep 0.2", "hf:org/name": "hf:org:name@0a1b2c3d",
             "env A=1 python x.py": "env A=1 python x.py"}  # fmt: skip
    records = {typed: a_command(name) for typed, name in names.items()}
    store.append(records.values())
    for typed, record in records.items():
        for text in (typed, f"workload={typed}", f"{typed}/command/cpu", f"command/{typed}", record.case.id):
            assert [each.id for each in api.history(text, store=store)] == [record.id], text


def test_a_command_whose_words_read_as_a_filter_does_not_hide_what_the_filter_means(store: Store) -> None:
    mine, command = a_record(), a_command("mlp:train")
    store.append([mine, command])
    assert [record.id for record in api.history("mlp/train", store=store)] == [mine.id]
    assert [record.id for record in api.history("mlp:train", store=store)] == [command.id]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("status=okay", "unknown status 'okay'. Did you mean 'ok'?"),
        ("provenance=mine", "unknown provenance 'mine'."),
        ("colour=red", "unknown axis 'colour'."),
        ("mlp/trian", "unknown workload, case or axis value 'trian'. Did you mean 'train'?"),
        ("/", "'/' names nothing; write a filter such as mlp/train or device=cpu."),
    ],
)
def test_a_word_that_means_nothing_is_refused(text: str, says: str, store: Store) -> None:
    store.append([replace(a_record(), run=Run("r1"))])
    with pytest.raises(MldynoError) as refused:
        api.show(text, store)
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize("text", ["", " ", "/", "imported_from=", "mlp/imported_from= ", "run=", "machine=", "batch="])
def test_a_word_without_content_means_nothing_and_never_all_that_was_measured(text: str, store: Store) -> None:
    store.append([a_record()])
    with pytest.raises(UsageError, match=r"names nothing|lacks a value"):
        api.remove(text, store=store)
    assert ids(store) == [a_record().id]


@pytest.mark.parametrize("text", ["", " ", "imported_from=", "machine=", "run=", "mlp/imported_from="])
def test_an_empty_word_means_nothing_rather_than_all_that_was_measured_here(
    text: str, store: Store, tmp_path: Path
) -> None:
    store.append([a_record()])
    for read in every_reader(store, tmp_path):
        with pytest.raises(UsageError, match=r"names nothing; write a filter such as|lacks a value; write one"):
            read(text)
    assert len(ids(store)) == 1
