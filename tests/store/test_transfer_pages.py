"""Records within a page: what goes in comes out, and a stranger's page does no harm."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path

import pytest
from tests.views.report.made_records import many

from mldyno.errors import ImportFileError
from mldyno.store import transfer


def page_of(path: Path, packed: str) -> str:
    path.write_text(f"<!doctype html><p>text</p>\n{transfer.TAG}{packed}{transfer.END}\n", encoding="utf-8")
    return str(path)


def packed_lines(lines: bytes) -> str:
    return base64.b64encode(gzip.compress(lines)).decode()


def test_what_was_packed_is_read_back_as_it_was(tmp_path: Path) -> None:
    records = list(many(30))
    packed = transfer.pack([record.text for record in records])
    assert packed.records == 30
    assert set(packed.text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
    assert list(transfer.read(page_of(tmp_path / "a.html", packed.text))) == records


def test_packing_ends_where_there_is_no_more_room() -> None:
    texts = [record.text for record in many(300)]
    packed = transfer.pack(texts, room=20_000)
    assert 0 < packed.records < 300
    assert len(packed.text) < 45_000  # the packer holds some back, of which nothing is known yet
    lines = gzip.decompress(base64.b64decode(packed.text)).decode().splitlines()
    assert lines == texts[: packed.records]


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("<!doctype html><p>just a page</p>", "holds no records"),
        (f"<!doctype html>{transfer.TAG}H4sI", "cut off"),
        (f"<!doctype html>{transfer.TAG}§§§{transfer.END}", "not base64"),
        (f"<!doctype html>{transfer.TAG}AAAA{transfer.END}", "damaged"),
        (f"<!doctype html>{transfer.TAG}{packed_lines(b'{}')[:-8]}{transfer.END}", "damaged"),
        (f"<!doctype html>{transfer.TAG}{packed_lines(b'{}')}{transfer.END}", "line 1"),
        (f"<!doctype html>{transfer.TAG}{packed_lines(b'')}{transfer.END}", "no records"),
    ],
    ids=["no records", "cut off", "no base64", "no gzip", "half a gzip", "no record", "empty"],
)
def test_a_page_that_is_no_report_is_refused_in_one_line(tmp_path: Path, page: str, reason: str) -> None:
    (tmp_path / "a.html").write_text(page, encoding="utf-8")
    with pytest.raises(ImportFileError, match=reason) as error:
        list(transfer.read(str(tmp_path / "a.html")))
    assert "\n" not in str(error.value)


def test_a_page_that_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "LONGEST_RECORDS_B", 1000)
    with pytest.raises(ImportFileError, match="long"):
        list(transfer.read(page_of(tmp_path / "a.html", packed_lines(b" " * 100_000))))


def test_a_page_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "LONGEST_PAGE_B", 100)
    with pytest.raises(ImportFileError, match="not a report"):
        list(transfer.read(page_of(tmp_path / "a.html", "A" * 200)))
