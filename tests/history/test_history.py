"""What earlier versions wrote is read for ever: the same ids, the same tables, the same comparisons."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.history import keep

from mldyno.cli import main

VERSIONS = sorted(path.parent for path in Path(__file__).parent.glob("*/answers.json"))
Asked = Callable[..., Any]

pytestmark = pytest.mark.parametrize("kept", VERSIONS, ids=lambda path: path.name)


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
def store(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(kept / "store.sqlite", tmp_path / "store.sqlite"))


def said(kept: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((kept / "answers.json").read_text(encoding="utf-8"))
    return content


def ids(kept: Path) -> list[str]:
    return sorted(record["id"] for record in said(kept)["history"])


def done(*arguments: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0


def figures(table: Any) -> list[Any]:
    return [[cell.get(name) for name in ("workload", "mode", "batch", "seq", "machine", "device", "precision", "value",
             "low", "high", "unit", "steps", "status", "reason", "provenance")] for cell in table["cells"]]  # fmt: skip


def verdicts(content: Any) -> list[Any]:
    return [[one[name] for name in ("case", "base", "other", "base_machine", "other_machine", "ratio", "low", "high",
             "verdict")] for one in content["comparisons"]]  # fmt: skip


def test_a_store_gives_the_same_tables_comparisons_and_history(kept: Path, store: Path, asked: Asked) -> None:
    before, now = said(kept), keep.answers(store)
    for name, table in before["tables"].items():
        assert figures(now["tables"][name]) == figures(table), name
    for name, comparisons in before["comparisons"].items():
        assert verdicts(now["comparisons"][name]) == verdicts(comparisons), name
    assert [one["id"] for one in now["history"]] == [one["id"] for one in before["history"]]
    assert [one["case"] for one in now["history"]] == [one["case"].replace("/w2", "/r2") for one in before["history"]]


@pytest.mark.parametrize("name", ["records.jsonl", "report.html"])
def test_a_file_of_records_is_imported_and_passed_on_as_it_was_written(kept: Path, name: str, tmp_path: Path) -> None:
    store = str(tmp_path / "new.sqlite")
    done("import", str(kept / name), "--store", store)
    done("export", str(tmp_path / "out.jsonl"), "--store", store)
    written = (kept / "records.jsonl").read_text(encoding="utf-8").splitlines()
    passed_on = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(passed_on) == sorted(line for line in written if line in passed_on)
    assert len(passed_on) == len(written) if name == "records.jsonl" else len(passed_on) > 0


def test_a_report_of_an_old_store_can_be_imported(kept: Path, store: Path, tmp_path: Path, asked: Asked) -> None:
    done("report", "--out", str(tmp_path / "again.html"), "--store", str(store))
    done("import", str(tmp_path / "again.html"), "--store", str(tmp_path / "new.sqlite"))
    found = [one["id"] for one in asked(tmp_path / "new.sqlite", "history", "--most", "1000")["records"]]
    assert found
    assert set(found) <= set(ids(kept))


def test_a_csv_of_figures_is_imported(kept: Path, tmp_path: Path, asked: Asked) -> None:
    new = tmp_path / "new.sqlite"
    done("import", str(kept / "figures.csv"), "--store", str(new))
    with (kept / "figures.csv").open(encoding="utf-8", newline="") as lines:
        rows = [row | ({} if row["value"] else {"quantity": "", "unit": ""}) for row in csv.DictReader(lines)]
    assert len(asked(new, "history", "--most", "10000")["records"]) == len({tuple(row.values()) for row in rows})


def test_a_suite_means_the_same_cases(kept: Path, store: Path, asked: Asked) -> None:
    plan = asked(store, "run", str(kept / "suite.toml"), "--dry-run")
    assert [case["id"] for case in plan["cases"]] == said(kept)["plan"]
