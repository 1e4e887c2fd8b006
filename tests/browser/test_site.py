"""The site in a real browser, from files as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import Visit, visited
from tests.browser.test_report import CODE, HOSTILE, WORSE, violations
from tests.views.report import made_records
from tests.views.site import made_machines

from mldyno import api
from mldyno.analysis.comparisons import Comparison, compare, geometric_mean
from mldyno.analysis.outcomes import outcomes
from mldyno.records import Case, Record, Warning_
from mldyno.store import Store
from mldyno.store.figures import newest
from mldyno.views.claims import in_words, span, times
from mldyno.views.site.collection import stems

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PHONE = 390
MACHINES = 130
SAME = 1e-12  # relative: the last digits of two ways to add


def site_of(folder: Path, records: list[Record]) -> Path:
    """The site of records."""
    store = Store(folder / "records.sqlite")
    store.append(records)
    return Path(api.site(str(folder / "site"), store=store)).parent


@pytest.fixture(scope="session")
def records() -> list[Record]:
    """Machines with scores, two that are equal, one of which hardly anything is known, and many more."""
    made = list(made_machines.records(4, processes=2))
    for name, factor_, samples in (("plain", 1.0, 60), ("equal", 1.001, 60), ("hardly known", 1.3, 3)):
        machine = replace(made[0].machine, name=name, key=None)
        for place, case in enumerate(made_machines.cases(machine.devices)):
            made.append(made_records.record(case, 1e-3 * factor_ * (place + 1), machine, samples=samples))
    more = made_machines.records(MACHINES, samples=10, cases_each=3)
    return [*made, *(each for each in more if int(str(each.machine.key), 16) >= 4)]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, records: list[Record]) -> Path:
    """Their site, with the published machines."""
    return site_of(tmp_path_factory.mktemp("site"), records)


@pytest.fixture
def opened(browser: Browser, site: Path) -> Iterator[Visit]:
    """Its first page."""
    view = visited(browser, (site / "index.html").as_uri(), "html[data-ready]")
    yield view
    view.page.context.close()


def rows(page: Page) -> list[str]:
    return [str(text) for text in page.locator("table.sortable tbody tr").all_text_contents()]


def rows_in(site: Path) -> int:
    """How many rows there are in all."""
    return (site / "index-rows.js").read_text().count("<tr ")


def test_a_reader_gets_from_the_machines_to_one_of_them_to_a_work_and_back(opened: Visit) -> None:
    page = opened.page
    page.get_by_role("link", name="Sample M9 0, 4 cores").first.click()
    assert page.locator("h1").text_content() == "Sample M9 0, 4 cores"
    page.get_by_role("link", name="MLP, training, batch 128").first.click()
    assert page.locator("h1").text_content() == "MLP, training, batch 128"
    page.get_by_role("link", name="Workloads").click()
    page.get_by_role("link", name=re.compile("^ResNet-18, inference")).first.click()
    assert "ResNet-18, inference" in page.title()
    page.get_by_role("link", name="Machines", exact=True).click()
    assert page.locator("h1").text_content() == "Machines that train and run models"
    assert opened.errors == []
    assert all(url.startswith(("file:", "data:")) for url in opened.requests)


def test_all_rows_are_sorted_searched_and_unfolded_though_the_page_has_a_hundred(opened: Visit, site: Path) -> None:
    page = opened.page
    assert len(rows(page)) == 100
    assert not any("-rows.js" in url for url in opened.requests)
    page.locator("#machines thead button").nth(2).click()
    page.wait_for_selector("th[aria-sort=descending]")
    scores = [float(str(cell.get_attribute("data-sort"))) for cell in
              page.locator("#machines tbody td:nth-child(3)[data-sort]").all()]  # fmt: skip
    assert len(scores) > 5
    assert scores == sorted(scores, reverse=True)
    page.locator("[data-more]").click()
    assert len(rows(page)) == rows_in(site)
    page.locator("[data-search]").fill("xeon 30,")
    page.wait_for_function("() => document.querySelectorAll('#machines tbody tr').length === 1")
    assert "Example Xeon 30, 16 cores" in rows(page)[0]
    page.locator("[data-search]").fill("")
    page.locator("[data-kinds]").select_option("mps")
    page.wait_for_function("() => document.querySelectorAll('#machines tbody tr').length < 20")
    assert all("mps" in row for row in rows(page))
    assert "rows" in str(page.locator("#status").text_content())
    assert page.locator(".pager").is_hidden()
    assert opened.errors == []


def test_without_javascript_every_row_is_behind_a_link(browser: Browser, site: Path) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto((site / "index.html").as_uri())
    seen = set(rows(page))
    page.get_by_role("link", name="Page 2 of").click()
    seen |= set(rows(page))
    assert len(seen) == rows_in(site)
    assert page.locator(".filters").is_hidden() or not page.locator(".filters").is_visible()
    page.get_by_role("link", name="Compare", exact=True).click()
    assert "This page needs JavaScript" in str(page.locator("noscript").text_content())
    page.context.close()


def compared(browser: Browser, site: Path, first: str, second: str) -> Visit:
    return visited(browser, f"{(site / 'compare.html').as_uri()}#a={first}&b={second}", "#result section")


def stem_of(site: Path, start: str) -> str:
    return next(path.stem for path in sorted((site / "machines").glob(f"{start}-*.html")))


def expected(records: list[Record], first: str, second: str) -> dict[str, list[Comparison]]:
    """What Python says of two machines, by their devices."""
    sides = [[each for each in outcomes([*records, *newest()]) if each.machine == name] for name in (first, second)]
    known: dict[str, list[Comparison]] = {}
    for base in sides[0]:
        for other in sides[1]:
            if replace(base.case, device="") == replace(other.case, device=""):
                comparison = compare(base, other)
                if comparison is not None:
                    known.setdefault(f"{base.case.device} {other.case.device}", []).append(comparison)
    return known


def number(text: str | None) -> float | None:
    return float(text) if text else None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Example Ryzen 0, 4 cores", "Sample M9 0, 4 cores"),
        ("plain", "equal"),
        ("plain", "hardly known"),
        ("Example Xeon 0, 4 cores", "Example Xeon 1, 8 cores"),
        ("Example Ryzen 0, 4 cores", "NVIDIA V100 SXM2 16GB"),
    ],
)
def test_the_browser_reckons_as_python_does(
    browser: Browser, site: Path, records: list[Record], first: str, second: str
) -> None:
    files = {name: stem for (name, _), stem in stems([*records, *newest()]).items()}
    view = compared(browser, site, files[first], files[second])
    python = expected(records, first, second)
    sections = view.page.locator("section[data-devices]").all()
    assert {str(section.get_attribute("data-devices")) for section in sections} == python.keys()
    names = [name if name in files and "V100" not in name else f"{name} (published)" for name in (first, second)]
    for section in sections:
        comparisons = python[str(section.get_attribute("data-devices"))]
        mean = geometric_mean(comparisons)
        for ours, theirs in ((mean.ratio, "ratio"), (mean.low, "low"), (mean.high, "high")):
            assert number(section.get_attribute(f"data-{theirs}")) == (ours and pytest.approx(ours, rel=SAME))
        said = str(section.locator(".verdict").text_content())
        if mean.low is not None:
            assert in_words(mean, names[1], names[0]) in said
        by_work = {replace(each.base.case, device="").id: each for each in comparisons}
        drawn = section.locator("tr[data-work]").all()
        assert {str(row.get_attribute("data-work")) for row in drawn} == by_work.keys()
        for row in drawn:
            comparison = by_work[str(row.get_attribute("data-work"))]
            for ours, theirs in ((comparison.ratio, "ratio"), (comparison.low, "low"), (comparison.high, "high")):
                assert number(row.get_attribute(f"data-{theirs}")) == (ours and pytest.approx(ours, rel=SAME))
            assert row.get_attribute("data-verdict") == comparison.verdict
            if comparison.verdict != "equivalent":
                said = span(comparison.speedup) if comparison.verdict == "inconclusive" else times(comparison)
                assert said in str(row.text_content())
    assert view.errors == []
    view.page.context.close()


def test_two_machines_are_chosen_by_name_and_swapped(browser: Browser, site: Path) -> None:
    page = visited(browser, (site / "compare.html").as_uri(), "html[data-ready]").page
    assert page.locator("#result").text_content() == "Choose two machines."
    page.locator("#first").fill("Example Xeon 0, 4 cores")
    page.locator("#second").fill("Sample M9 0, 4 cores")
    page.locator("#second").blur()
    page.wait_for_selector("section[data-devices]")
    before = str(page.locator(".verdict").first.text_content())
    page.locator("#swap").click()
    page.wait_for_function("(text) => document.querySelector('.verdict').textContent !== text", arg=before)
    assert page.locator("#first").input_value() == "Sample M9 0, 4 cores"
    page.context.close()


@pytest.mark.parametrize("words", ["a=no-such&b=none", "a=../../x&b=y", "a=<b>&b=%22", "a=x"])
def test_a_machine_that_there_is_not_is_told(browser: Browser, site: Path, words: str) -> None:
    page = visited(browser, f"{(site / 'compare.html').as_uri()}#{words}", "#result p").page
    page.wait_for_function("() => /no such machine|Choose two/.test(document.querySelector('#result').textContent)")
    page.context.close()


def test_axe_finds_nothing_serious_on_any_kind_of_page(browser: Browser, site: Path) -> None:
    machine = stem_of(site, "example-ryzen-0")
    published = stem_of(site, "nvidia-v100")
    work = next((site / "work").glob("mlp-training-*.html")).name
    places = ["index.html", "workloads.html", f"machines/{machine}.html", f"machines/{published}.html", f"work/{work}",
              f"compare.html#a={machine}&b={stem_of(site, 'sample-m9-0')}"]  # fmt: skip
    for place in places:
        for dark in (False, True) if place.startswith(("index", "compare")) else (False,):
            view = visited(browser, f"{site.as_uri()}/{place}", "html[data-ready]", PHONE if dark else 1180, dark)
            if "#" in place:
                view.page.wait_for_selector("section[data-devices]")
            assert violations(view.page) == [], place
            assert view.page.evaluate("() => document.documentElement.scrollWidth") <= (PHONE if dark else 1180), place
            view.page.context.close()


def hostile_records() -> list[Record]:
    """Records whose every name and message is markup, or breaks out of an expression."""
    machines = [
        replace(made_records.BENCH, name=f"{HOSTILE} {WORSE} {letter}", cpu=HOSTILE, power=HOSTILE, key=letter * 32,
                devices=tuple(replace(each, title=f"{WORSE} {HOSTILE}") for each in made_records.DEVICES))
        for letter in "ab"
    ]  # fmt: skip
    warning = Warning_(f"drifting{HOSTILE}", f"{WORSE} message", f"{HOSTILE} hint")
    return [
        made_records.record(Case(f"{WORSE} work", device=f"cpu{CODE}", batch=batch), 1e-3, each, warnings=(warning,))
        for each in machines
        for batch in (1, 2)
    ]


def test_names_from_records_are_shown_as_text_on_every_page(browser: Browser, tmp_path: Path) -> None:
    site = site_of(tmp_path, hostile_records())
    first, second = (path.stem for path in sorted((site / "machines").glob("script-alert*.html")))
    work = next((site / "work").glob("img-src*.html")).name
    places = {"index.html": HOSTILE, "workloads.html": WORSE, f"machines/{first}.html": HOSTILE, f"work/{work}": WORSE,
              f"compare.html#a={first}&b={second}": HOSTILE}  # fmt: skip
    for place, text in places.items():
        view = visited(browser, f"{site.as_uri()}/{place}", "html[data-ready]")
        view.page.wait_for_function("(text) => document.querySelector('main').textContent.includes(text)", arg=text)
        assert view.errors == [], place
        assert view.page.locator("main img, main script").count() == 0
        view.page.context.close()


def test_light_and_dark_are_the_readers_choice_and_paper_is_white(opened: Visit) -> None:
    page = opened.page
    ground = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) == "rgb(18, 22, 28)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
