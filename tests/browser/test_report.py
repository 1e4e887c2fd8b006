"""The report in a real browser."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import Visit, visit, written
from tests.views.report import made_records
from tests.views.report.test_summary import of_the_set

from mldyno.records import Case, Software, Warning_, seal

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PHONE = 390
SECTIONS = ("summary", "speeds", "devices", "ways", "limits", "scaling", "sure", "cases", "method",
            "records-section")  # fmt: skip
HOSTILE = "<script>alert(1)</script>"
WORSE = "<img src=x onerror=alert(2)>'\"&amp;"
CODE = """'"\\"+alert(3)+"\\]].datum.x["{{7*7}}"""


def test_every_section_is_there(opened: Visit) -> None:
    assert tuple(section.get_attribute("id") for section in opened.page.locator("main > section").all()) == SECTIONS


def marks_of_charts(page: Page) -> dict[str, int]:
    """How much is drawn in each chart that is to be seen."""
    counts: dict[str, int] = page.locator("figure").evaluate_all(
        """(all) => Object.fromEntries(all.map((figure) => {
            const shown = [...figure.querySelectorAll("svg")].filter((svg) => svg.getBoundingClientRect().width > 0);
            return [figure.dataset.chart, shown.flatMap((svg) => [...svg.querySelectorAll("path, text")]).length];
        }))"""
    )
    return counts


def test_every_chart_is_drawn_once_at_any_width(opened: Visit, browser: Browser, report: Path) -> None:
    wide = marks_of_charts(opened.page)
    assert {name.partition("-")[0] for name in wide} == {
        "league", "speeds", "ratio", "peak", "copies", "crossover", "growth", "trace"
    }  # fmt: skip
    assert min(wide.values()) > 10
    phone = visit(browser, report, PHONE)
    narrow = marks_of_charts(phone.page)
    assert narrow.keys() == wide.keys()
    assert min(narrow.values()) > 10
    assert opened.page.locator("figure svg:visible").count() == len(wide)
    assert phone.page.locator("figure svg:visible").count() == len(wide)
    phone.page.context.close()


def test_scores_come_first_on_a_desk_and_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    scored = written(tmp_path, of_the_set())
    for width in (1280, PHONE):
        page = visit(browser, scored, width).page
        boxes = [page.locator(place).first.bounding_box() for place in ("h1", ".scores", "[data-chart=league]")]
        tops = [box["y"] for box in boxes if box is not None]
        assert tops[0] < tops[1] <= tops[2] < 800
        assert "Training, cpu 1" in page.locator(".scores").inner_text().replace("\n", " ")
        page.context.close()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (PHONE, 844)])
def test_machine_sentences_and_league_are_on_the_first_screen(
    browser: Browser, report: Path, width: int, height: int
) -> None:
    page = visit(browser, report, width).page
    for place in ("h1", ".caption", ".sentences li:last-child", "[data-chart=league] svg:visible"):
        box = page.locator(place).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= height, place
    page.context.close()


def test_the_navigation_fits_its_line_and_wraps_on_a_phone(opened: Visit, browser: Browser, report: Path) -> None:
    tops = opened.page.locator("nav li").evaluate_all("(all) => all.map((each) => each.getBoundingClientRect().top)")
    assert len(set(tops)) == 1
    phone = visit(browser, report, PHONE).page
    rights = phone.locator("nav li").evaluate_all("(all) => all.map((each) => each.getBoundingClientRect().right)")
    assert max(rights) <= PHONE
    for link in opened.page.locator("nav a").all():
        assert opened.page.locator(str(link.get_attribute("href"))).count() == 1
    phone.context.close()


def test_nothing_goes_wrong_and_nothing_is_fetched(opened: Visit, report: Path) -> None:
    assert opened.errors == []
    assert [request for request in opened.requests if not request.startswith("data:")] == [report.as_uri()]


def test_the_policy_lets_nothing_run_but_the_pages_own_script(opened: Visit) -> None:
    policy = str(opened.page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content"))
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_without_a_script_charts_tables_and_sentences_are_all_there(browser: Browser, report: Path) -> None:
    plain = visit(browser, report, scripts=False)
    assert plain.page.locator("figure svg:visible").count() == plain.page.locator("figure").count()
    assert plain.page.locator("#all-cases tbody tr").count() == 20
    assert plain.page.locator(".sentences li").count() == 3
    assert plain.page.locator("button:visible, input:visible").count() == plain.page.locator("thead button").count()
    plain.page.context.close()


def times(page: Page) -> list[float]:
    cells = page.locator("#all-cases tbody tr td:nth-child(2)").all()
    return [float(text) for cell in cells if (text := cell.get_attribute("data-sort")) is not None]


def test_tables_are_sorted_by_mouse_and_by_keyboard(browser: Browser, report: Path) -> None:
    page = visit(browser, report).page
    head = page.locator("#all-cases thead th").nth(1)
    head.locator("button").click()
    page.wait_for_selector("#all-cases th[aria-sort=ascending]")
    up = times(page)
    assert len(up) > 50  # those that were folded up are sorted too
    assert up == sorted(up)
    head.locator("button").press("Enter")
    page.wait_for_selector("#all-cases th[aria-sort=descending]")
    assert times(page) == up[::-1]
    assert "descending" in str(page.locator("#status").text_content())
    assert page.locator("#all-cases tbody tr").last.text_content() != ""
    page.context.close()


def test_what_is_folded_up_unfolds_and_can_be_searched(browser: Browser, report: Path) -> None:
    page = visit(browser, report).page
    button = page.locator("[data-more=way-lines]")
    before = page.locator("#way-lines li").count()
    button.click()
    page.wait_for_function(f"() => document.querySelectorAll('#way-lines li').length > {before}")
    assert page.locator("[data-more=way-lines]").count() == 0
    page.locator("[data-search=all-cases]").fill("roundtrip fp16")
    page.wait_for_function(
        "() => [...document.querySelectorAll('#all-cases tbody tr')].filter((r) => !r.hidden).length === 2"
    )
    page.context.close()


def colours(page: Page) -> tuple[str, str, str]:
    """The ground, the text in a chart, and its marks of this machine."""
    ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    texts = page.locator("[data-chart=league] svg:visible text")
    dots = page.locator("[data-chart=league] svg:visible circle")
    fills = [str(mark.evaluate("(each) => getComputedStyle(each).fill")) for mark in (texts.first, *dots.all())]
    return ground, fills[0], next(fill for fill in fills[1:] if fill != ground)


def test_light_and_dark_are_the_readers_choice_in_charts_too(opened: Visit) -> None:
    page = opened.page
    light = colours(page)
    assert light == ("rgb(255, 255, 255)", "rgb(28, 33, 40)", "rgb(192, 74, 0)")
    page.emulate_media(color_scheme="dark")
    assert colours(page) == ("rgb(18, 22, 28)", "rgb(232, 235, 239)", "rgb(255, 154, 85)")
    page.emulate_media(media="print", color_scheme="dark")
    assert colours(page) == light
    page.emulate_media(media="screen", color_scheme="light")


def test_paper_has_every_chart_at_its_full_width(browser: Browser, report: Path, tmp_path: Path) -> None:
    seen = visit(browser, report, dark=True)
    seen.page.pdf(path=str(tmp_path / "report.pdf"))
    seen.page.emulate_media(media="print")
    seen.page.set_viewport_size({"width": 718, "height": 1000})  # A4 with margins
    assert seen.page.locator("figure svg:visible").count() == seen.page.locator("figure").count()
    assert seen.page.locator(".narrow:visible, nav:visible, button[data-more]:visible").count() == 0
    assert seen.page.evaluate("() => document.documentElement.scrollWidth") <= 718
    assert seen.errors == []
    seen.page.context.close()


def test_a_phone_never_scrolls_sideways(browser: Browser, report: Path) -> None:
    seen = visit(browser, report, PHONE)
    assert seen.page.evaluate("() => document.documentElement.scrollWidth") <= PHONE
    wide = seen.page.evaluate(
        "() => Math.max(...[...document.querySelectorAll('.chart svg')].map((s) => s.getBoundingClientRect().right))"
    )
    assert wide <= PHONE
    seen.page.context.close()


def test_letters_of_charts_are_as_large_as_text_on_a_desk_and_on_a_phone(browser: Browser, report: Path) -> None:
    for width in (1280, 1000, 800, PHONE):
        page = visit(browser, report, width).page
        shown = page.locator(".chart svg:visible").evaluate_all(
            "(all) => all.map((svg) => 13 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)"
        )
        assert 11 <= min(shown) <= max(shown) <= 19, width
        page.context.close()


def violations(page: Page) -> list[str]:
    """What axe finds serious or critical."""
    import axe_playwright_python

    page.evaluate((Path(str(axe_playwright_python.__file__)).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def test_axe_finds_nothing_serious_in_light_and_dark(opened: Visit, browser: Browser, report: Path) -> None:
    assert violations(opened.page) == []
    dark = visit(browser, report, PHONE, dark=True).page
    assert violations(dark) == []
    dark.context.close()


def test_a_keyboard_gets_everywhere(browser: Browser, report: Path) -> None:
    page = visit(browser, report).page
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    reached = set()
    for _ in range(100):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "() => document.activeElement.tagName + ' ' + (document.activeElement.closest('section')?.id ?? '')"
            )
        )
    assert {"A ", "BUTTON ways", "BUTTON scaling", "DIV scaling", "BUTTON cases", "INPUT cases"} <= reached
    page.context.close()


def test_a_screen_reader_is_told_what_there_is(opened: Visit) -> None:
    page = opened.page
    assert page.locator("html[lang=en]").count() == 1
    for landmark in ("header", "nav[aria-label]", "main", "footer"):
        assert page.locator(landmark).count() == 1
    levels = page.evaluate("() => [...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    labels = page.evaluate(
        "() => [...document.querySelectorAll('.chart svg[role=img]')].map((svg) => svg.getAttribute('aria-label'))"
    )
    assert all(len(one) > 30 for one in labels)
    assert page.locator("table:not(:has(caption))").count() == 0


def hostile_records() -> list[Any]:
    """Records whose every name and message is markup, or breaks out of an expression."""
    machine = replace(made_records.BENCH, name=f"{HOSTILE} {WORSE}", cpu=HOSTILE, power=HOSTILE, devices=tuple(
        replace(one, title=f"{WORSE} {HOSTILE}") for one in made_records.DEVICES))  # fmt: skip
    found = []
    for number, workload in enumerate((f"{HOSTILE} a", f"{WORSE} b")):
        for device, batch in product((f"cpu{CODE}", f"cuda:0{CODE}"), (8, 32)):
            case = Case(workload, device=device, mode="infer", batch=batch)
            warning = Warning_(f"drifting{HOSTILE}", f"{WORSE} message", f"{HOSTILE} hint")
            step = 1e-3 * (number + 1) * (1 if device.startswith("cpu") else 0.3)
            one = made_records.record(case, step, machine, warnings=(warning,))
            software = Software(HOSTILE, WORSE, HOSTILE, {HOSTILE: WORSE}, 8, {HOSTILE: WORSE})
            found.append(seal(replace(one, software=software)))
    found.append(made_records.record(Case(f"c {WORSE}", batch=8), None, machine, reason=f"{WORSE} {HOSTILE}"))
    return found


def test_names_from_records_are_shown_as_text_everywhere(browser: Browser, tmp_path: Path) -> None:
    seen = visit(browser, written(tmp_path, hostile_records()))
    page = seen.page
    assert seen.errors == []
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 3
    assert HOSTILE in str(page.locator("h1").text_content())
    assert HOSTILE in page.title()
    for place in ("#summary", "#speeds", "#sure", "#cases", "#method"):
        assert HOSTILE in str(page.locator(place).first.text_content()), place
        assert WORSE in str(page.locator(place).first.text_content()), place
    drawn = " ".join(page.locator("svg text").all_text_contents())
    assert HOSTILE[:20] in drawn
    for chart, text in (
        ("speeds", HOSTILE),
        ("speeds", CODE),
        ("crossover-0", f"cuda:0{CODE} against cpu{CODE}, batch 8: "),
    ):
        assert text in " ".join(page.locator(f"[data-chart={chart}] svg title").all_text_contents())
    for button in page.locator("[data-more]").all():
        button.click()
    assert seen.errors == []
    page.context.close()


def test_the_records_can_be_saved_from_the_page(opened: Visit, tmp_path: Path) -> None:
    with opened.page.expect_download() as waiting:
        opened.page.locator("#save-records").click()
    waiting.value.save_as(tmp_path / "records.jsonl")
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    assert {json.loads(line)["id"] for line in lines} == {one.id for one in made_records.of_every_section()}


def work_to_open(browser: Browser, path: Path) -> float:
    """CPU time in s of the page's thread until it is ready."""
    page = browser.new_page(viewport={"width": 1180, "height": 900})
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    metrics = {metric["name"]: metric["value"] for metric in tools.send("Performance.getMetrics")["metrics"]}
    page.close()
    assert metrics["TaskDuration"] > 0
    return float(metrics["TaskDuration"])


def test_ten_thousand_records_open_fast_and_stay_under_10_mb(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    few = written(tmp_path_factory.mktemp("few"), list(made_records.many(100)))
    many = written(tmp_path_factory.mktemp("many"), list(made_records.many(10_000)))
    assert many.stat().st_size < 10_000_000
    little, much = list[float](), list[float]()  # the least of each counts: a busy machine only adds to it
    while len(much) < 2 or (len(much) < 6 and min(much) >= 3 * min(little)):
        little.append(work_to_open(browser, few))
        much.append(work_to_open(browser, many))
    assert min(much) < 3 * min(little)  # measured 2.5: the parsing of the tables
    text = many.read_text(encoding="utf-8")
    assert "10,000 records" in text
