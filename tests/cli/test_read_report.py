"""`mldyno report`: what it writes, and what it says where it can't."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.views.report import made_records

from mldyno.records import Case
from mldyno.results import Results
from mldyno.store import Query, Store
from mldyno.views.report import page as pages

Mldyno = Callable[..., tuple[int, str, str]]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def filled(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with a few cases, and a folder of one's own."""
    monkeypatch.chdir(tmp_path)
    store.append([one for one in made_records.of_every_section() if one.case.workload == "mlp"])
    return store


def test_a_report_goes_round_through_import(filled: Store, mldyno: Mldyno, tmp_path: Path) -> None:
    code, out, _ = mldyno("report")
    assert code == 0
    assert out.startswith("report.html (")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    other = str(tmp_path / "other.sqlite")
    there = len(list(filled.texts(Query(heads=False, provenances=("measured",)))))
    code, out, _ = mldyno("import", "report.html", "--store", other)
    assert (code, out) == (0, f"{there} new records taken, 0 there already\n")
    assert mldyno("import", "report.html", "--store", other)[1] == f"0 new records taken, {there} there already\n"
    code, out, _ = mldyno("compare", "report.html", "--by", "precision", "--store", other)
    assert "bf16" in out


def test_a_fake_run_says_that_it_is_one(fake_run: Callable[..., Results], tmp_path: Path) -> None:
    path = fake_run("mlp", device=["cpu", "gpu"], mode="infer").report(str(tmp_path / "own.html"))
    text = Path(path).read_text(encoding="utf-8")
    assert "This was the fake framework" in text
    assert "gpu is ahead in 1 of 1 case" in text


@pytest.mark.parametrize("form", ["svg", "png"])
def test_every_chart_becomes_a_picture(filled: Store, mldyno: Mldyno, tmp_path: Path, form: str) -> None:
    code, out, _ = mldyno("report", "mlp/device=cpu/precision=fp32", "--format", form, "--out", "pictures", "--json")
    assert code == 0
    written = json.loads(out)["written"]
    assert {os.path.basename(path) for path in written} >= {f"speeds.{form}", f"copies.{form}", f"trace-0.{form}"}
    for path in written:
        start = Path(path).read_bytes()[:8]
        assert start == PNG if form == "png" else start.startswith(b"<svg")


def test_a_card_is_1200_by_630(filled: Store, mldyno: Mldyno, tmp_path: Path) -> None:
    code, _, _ = mldyno("report", "--card", "card.png")
    assert code == 0
    content = (tmp_path / "card.png").read_bytes()
    assert content.startswith(PNG)
    assert (int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")) == (1200, 630)
    assert not (tmp_path / "report.html").exists()


def test_of_many_machines_it_names_some_and_counts_the_others(filled: Store, mldyno: Mldyno, tmp_path: Path) -> None:
    bench = made_records.BENCH
    filled.append(made_records.record(Case("mlp", batch=8), 2e-3, replace(bench, name=f"m{n:04}")) for n in range(1200))
    err = mldyno("report", "--out", str(tmp_path / "page.html"))[2]
    assert " more; `mldyno report" in err
    assert len(err) < 500


def test_without_measurements_it_says_where_to_begin(mldyno: Mldyno, tmp_path: Path) -> None:
    code, _, err = mldyno("report", "--out", str(tmp_path / "r.html"))
    assert (code, err) == (1, "mldyno: nothing was measured yet; `mldyno quick` is a good beginning.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_filter_that_means_nothing_is_told_in_one_line(filled: Store, mldyno: Mldyno) -> None:
    assert mldyno("report", "resnet50")[0] == 1
    code, _, err = mldyno("report", "M1 Mac mini")
    assert code == 1
    assert "only published figures" in err
    assert mldyno("report", "no-such-thing")[0] == 2


@pytest.mark.parametrize("options", [("--out", "missing/r.html"), ("--card", "missing/c.png"),
                                     ("--format", "svg", "--out", "missing/pictures")])  # fmt: skip
def test_a_place_that_can_not_be_written_is_told_in_one_line(
    filled: Store, mldyno: Mldyno, options: tuple[str, ...]
) -> None:
    code, _, err = mldyno("report", "mlp/device=cpu/precision=fp32/placement=device", *options)
    assert code == 1
    shared, error = err.splitlines()
    assert shared.startswith("shares ")
    assert "No such file" in error


def test_ctrl_c_leaves_no_half_of_a_file(
    filled: Store, mldyno: Mldyno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.html").write_text("the one before")

    class Interrupting(str):
        def encode(self, *_: object) -> bytes:
            raise KeyboardInterrupt

    monkeypatch.setattr(pages, "page", lambda *_: Interrupting("x"))
    code, _, err = mldyno("report")
    assert (code, err.splitlines()[-1]) == (3, "mldyno: ended by Ctrl-C.")
    assert (tmp_path / "report.html").read_text() == "the one before"
    assert not list(tmp_path.glob(".*part"))
