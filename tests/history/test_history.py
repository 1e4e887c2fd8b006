"""What earlier versions wrote is read for ever: the same ids, the same tables, the same comparisons."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.history import keep

from mldyno import api
from mldyno.cli import main
from mldyno.errors import MldynoError, UsageError
from mldyno.records import SCHEMA, Case, canonical
from mldyno.runner.events import Listener
from mldyno.store import Query, Store, transfer

VERSIONS = sorted(path.parent for path in Path(__file__).parent.glob("*/answers.json"))
Asked = Callable[..., Any]


class Started(Listener):
    """Notes the cases that are started."""

    def __init__(self) -> None:
        self.cases: list[str] = []

    def case_started(self, case: Case, *more: Any) -> None:
        """Note it."""
        self.cases.append(case.id)


pytestmark = pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Asked:
    """A command's answer as data, from this process."""

    def ask(store: Path, *arguments: str) -> Any:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([*arguments, "--store", str(store), "--json"])
        out, err = capsys.readouterr()
        assert end.value.code == 0, err
        return json.loads(out)

    monkeypatch.setattr(keep, "asked", ask)
    return ask


@pytest.fixture
def store(version: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(version / "store.sqlite", tmp_path / "store.sqlite"))


def said(version: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((version / "answers.json").read_text(encoding="utf-8"))
    return content


def ids(version: Path) -> list[str]:
    return [record["id"] for record in said(version)["history"]]


def done(*arguments: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0


def digits(value: Any) -> Any:
    """A number to twelve digits: sums in another order differ in the sixteenth."""
    return float(f"{value:.12g}") if isinstance(value, float) else value


FIGURES = ("workload", "mode", "batch", "seq", "machine", "device", "precision", "value", "low", "high", "unit",
           "steps", "status", "reason", "provenance")  # fmt: skip
VERDICTS = ("case", "base", "other", "base_machine", "other_machine", "ratio", "low", "high", "verdict")


def figures(cells: list[Any]) -> list[Any]:
    return [[digits(cell.get(name)) for name in FIGURES] for cell in cells]


def verdicts(comparisons: list[Any]) -> list[Any]:
    return [[digits(comparison[name]) for name in VERDICTS] for comparison in comparisons]


def real(rows: list[Any]) -> list[Any]:
    """Cells, comparisons or records without rehearsals, which later versions show only where they are named."""
    cases = [f"{row.get('framework')}/{row.get('case')}/{row.get('base_case')}" for row in rows]
    return [row for row, case in zip(rows, cases, strict=True) if "fake" not in case.split("/")]


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_a_store_gives_the_same_tables_comparisons_and_history(version: Path, store: Path, asked: Asked) -> None:
    before, now = said(version), keep.answers(store)
    for name, table in before["tables"].items():
        assert figures(now["tables"][name]["cells"]) == figures(real(table["cells"])), name
    for name, content in before["comparisons"].items():
        assert verdicts(now["comparisons"][name]["comparisons"]) == verdicts(real(content["comparisons"])), name
    rehearsed = asked(store, "history", "fake", "--most", "1000")["records"]
    history = sorted([*now["history"], *rehearsed], key=lambda record: ids(version).index(record["id"]))
    assert real(now["history"]) == now["history"]
    for name in ("id", "created", "run", "machine", "status", "reason", "provenance", "step"):
        assert [record.get(name) for record in history] == [record.get(name) for record in before["history"]]
    assert [record["case"] for record in history] == [
        record["case"].replace("/w2", "/r2") for record in before["history"]
    ]


def test_every_text_of_a_store_goes_out_as_it_was_written(version: Path, store: Path, tmp_path: Path) -> None:
    done("export", str(tmp_path / "out.jsonl"), "--store", str(store))
    assert (tmp_path / "out.jsonl").read_bytes() == (version / "records.jsonl").read_bytes()


def test_a_record_is_shown_as_it_was_written(version: Path, store: Path, asked: Asked) -> None:
    for text in lines(version / "records.jsonl")[::20]:
        (shown,) = asked(store, "show", json.loads(text)["id"])["records"]
        assert canonical(shown) == text


@pytest.mark.parametrize("name", ["records.jsonl", "report.html"])
def test_a_file_of_records_is_imported_and_passed_on_as_it_was_written(
    version: Path, name: str, tmp_path: Path
) -> None:
    store = str(tmp_path / "new.sqlite")
    done("import", str(version / name), "--store", store)
    done("export", str(tmp_path / "out.jsonl"), "--store", store)
    written, passed_on = lines(version / "records.jsonl"), lines(tmp_path / "out.jsonl")
    if name == "records.jsonl":
        assert passed_on == written
    else:
        assert passed_on == transfer.unpack_page(io.BytesIO((version / name).read_bytes())).read().decode().splitlines()
        assert set(passed_on) < set(written), "a report leaves out older runs"


@pytest.mark.parametrize("name", ["records.jsonl", "report.html"])
def test_a_file_gives_the_same_tables_as_the_store(version: Path, name: str, tmp_path: Path, asked: Asked) -> None:
    new = tmp_path / "new.sqlite"
    done("import", str(version / name), "--store", str(new))
    before = said(version)["tables"]
    for title, words in keep.TABLES.items():
        assert figures(asked(new, "table", *words)["cells"]) == figures(real(before[title]["cells"])), title


def test_a_report_of_an_old_store_can_be_imported(version: Path, store: Path, tmp_path: Path, asked: Asked) -> None:
    done("report", "--out", str(tmp_path / "again.html"), "--store", str(store))
    done("import", str(tmp_path / "again.html"), "--store", str(tmp_path / "new.sqlite"))
    done("import", str(version / "report.html"), "--store", str(tmp_path / "before.sqlite"))
    now, before = (
        {record["id"] for record in asked(tmp_path / name, "history", "--most", "1000")["records"]}
        for name in ("new.sqlite", "before.sqlite")
    )
    assert now == before
    assert now < set(ids(version))


def test_what_was_not_finished_is_found_and_only_what_is_missing_is_run(version: Path, store: Path) -> None:
    opened = Store(store)
    begun = opened.unfinished_runs()
    assert len(begun) == 2
    before = {record.id for record in opened.stream(Query(heads=False))}
    for _ in begun:
        with pytest.raises(UsageError, match="allow it with --trust"):
            api.unfinished(opened, None)  # no version before 0.2 could prove who had made a plan
        run, plan = api.unfinished(opened, None, trust=True)
        assert api.unfinished(opened, plan) == (run, plan), "found by its cases too"
        stored = [record for record in opened.stream(Query({"run": run}, heads=False)) if not record.interrupted]
        missing = {case.id for case in plan.cases} - {record.case.id for record in stored if record.alone}
        assert missing
        listener = Started()
        results = api.run_plan(plan, opened, listener, run)
        assert set(listener.cases) == missing
        assert {record.case.id for record in results.records if record.alone} == {case.id for case in plan.cases}
        assert {record.schema for record in results.records} == {SCHEMA}
    with pytest.raises(MldynoError, match="no unfinished run"):
        api.unfinished(opened, None)
    assert before < {record.id for record in opened.stream(Query(heads=False))}


def test_a_csv_of_figures_is_imported(version: Path, tmp_path: Path, asked: Asked) -> None:
    new = tmp_path / "new.sqlite"
    done("import", str(version / "figures.csv"), "--store", str(new))
    with (version / "figures.csv").open(encoding="utf-8", newline="") as lines:
        rows = [row | ({} if row["value"] else {"quantity": "", "unit": ""}) for row in csv.DictReader(lines)]
    for named, there in (((), real(rows)), (("fake",), [row for row in rows if row not in real(rows)])):
        listed = asked(new, "history", *named, "--most", "10000")["records"]
        assert len(listed) == len({tuple(row.values()) for row in there}) > 0


def test_a_suite_means_the_same_cases(version: Path, store: Path, asked: Asked) -> None:
    plan = asked(store, "run", str(version / "suite.toml"), "--dry-run")
    assert [case["id"] for case in plan["cases"]] == said(version)["plan"]
