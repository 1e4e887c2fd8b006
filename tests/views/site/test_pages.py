"""The files of a site: which there are, that they are light, lead somewhere and hold no markup of strangers."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import PurePosixPath

from tests.views.report import made_records
from tests.views.site import made_machines

from mldyno.analysis.scores import reference
from mldyno.records import Record
from mldyno.store.figures import newest
from mldyno.views.site.collection import collected, stems
from mldyno.views.site.pages import MARK, ROWS, pages

LARGEST_PAGE_B = 100_000
LARGEST_SCRIPT_B = 1_000_000  # of all rows of a table with a thousand machines
HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>{{7*7}}"


def site_of(*records: Record) -> dict[str, str]:
    return dict(pages(collected(records, stems(records)), "0.1.0"))


class Links(HTMLParser):
    """All that a page refers to, and the attributes that could run something."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.tags: list[str] = []
        self.risky: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.targets += [value for name, value in attrs if name in ("href", "src") and value]
        self.risky += [name for name, _ in attrs if name.startswith("on") or name == "style"]


def test_there_is_a_page_for_every_machine_and_every_work() -> None:
    records = [*made_machines.records(3), *newest()]
    collection = collected(records, stems(records))
    site = dict(pages(collection, "0.1.0"))
    assert {"index.html", "workloads.html", "compare.html", "files/style.css"} <= site.keys()
    for entry in collection.entries:
        assert entry.name in site["index.html"]
        assert f"machines/{entry.stem}.html" in site
        assert f"machines/{entry.stem}.js" in site
    assert all(f"work/{ranking.stem}.html" in site for ranking in collection.rankings)
    assert MARK not in site, "what lists them all is written last"


def test_every_link_is_relative_and_leads_to_a_file() -> None:
    site = site_of(*made_machines.records(120, cases_each=3, samples=10), *newest())
    for path in (path for path in site if path.endswith(".html")):
        links = Links()
        links.feed(site[path])
        for target in links.targets:
            place = target.partition("#")[0]
            if not place or target == "data:,":
                continue
            parts: list[str] = []
            for part in PurePosixPath(path).parent.joinpath(place).parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            assert "/".join(parts) in site, f"{path} leads to {target}"


def test_a_page_runs_nothing_of_its_own_and_fetches_nothing_from_elsewhere() -> None:
    for path, text in site_of(*made_machines.records(2)).items():
        if path.endswith(".html"):
            links = Links()
            links.feed(text)
            assert "default-src &#39;none&#39;" in text
            assert "unsafe" not in text
            assert links.risky == []
            assert re.findall(r"<script[^>]*>[^<]", text) == []


def test_whatever_a_record_says_is_text() -> None:
    site = site_of(*made_records.hostile(HOSTILE))
    plain = site_of(*made_records.of_every_section())
    known = {tag for text in plain.values() for tag in tags(text)}
    for path, text in site.items():
        if path.endswith(".html"):
            assert "<img" not in text
            assert "<script>" not in text
            assert set(tags(text)) <= known
        elif "/" in path and path.endswith(".js") and not path.startswith("files/site"):
            assert text.isascii()
    assert any("&lt;script&gt;" in text for text in site.values())


def tags(text: str) -> list[str]:
    links = Links()
    links.feed(text)
    return links.tags


def test_no_page_of_a_thousand_machines_is_heavy() -> None:
    site = site_of(*made_machines.records(1000, samples=10, cases_each=2))
    assert max(len(text) for path, text in site.items() if path.endswith(".html")) < LARGEST_PAGE_B
    assert max(len(text) for path, text in site.items() if path.endswith(".js")) < LARGEST_SCRIPT_B
    assert len(site["compare.html"]) < 10_000
    first, second = (site[f"index{end}.html"].count("<tr data-kind") for end in ("", "-2"))
    assert first == second == ROWS
    rows = json.loads(site["index-rows.js"].removeprefix("mldynoRows(").removesuffix(");\n"))
    listed = sum(text.count("<tr data-kind") for path, text in site.items() if re.fullmatch(r"index(-\d+)?.html", path))
    assert rows.count("<tr data-kind") == listed >= 1000


def test_the_same_records_make_the_same_site() -> None:
    records = list(made_machines.records(3))
    assert site_of(*records) == site_of(*records[::-1])


def test_a_machine_without_a_score_says_what_is_missing() -> None:
    site = site_of(*made_machines.records(1, cases_each=2))
    page = next(text for path, text in site.items() if path.startswith("machines/") and path.endswith(".html"))
    whole = sum(case.mode == "train" for case in reference().rates)
    assert f"No score for training on cpu: {whole - 2} of its {whole} cases missing." in page
    assert "mldyno quick" in page


def test_a_page_of_a_machine_has_every_case_with_its_trust_and_what_warnings_mean() -> None:
    site = site_of(*made_records.of_every_section())
    page = next(text for path, text in site.items() if path.startswith("machines/") and path.endswith(".html"))
    assert "out of memory" in page
    assert "not steady (drifting)" in page
    assert "drifting: the step got 8.0 % slower while it was measured; let it cool down." in page
    assert "BERT-base, training, batch 16, 128 tokens" in page
