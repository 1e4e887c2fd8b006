"""One headless Chromium for all tests, and reports that it opens."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.views.report import made_records

from mldyno import api
from mldyno.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run"]  # fmt: skip
WIDTH, HEIGHT = 1180, 900


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; where there is none, the test fails and says what to install."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("these tests need a browser: install Debian's package chromium, or run `make test-tools` as root")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield opened
        opened.close()


@dataclass
class Visit:
    """A page that is open, and all that went wrong or was asked for."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def draw_all(self) -> None:
        """Go through the page, as a reader does, until every chart is drawn."""
        self.page.wait_for_selector(".traces[data-ready]", state="attached")
        for place in self.page.locator(".chart").all():
            place.scroll_into_view_if_needed()
        self.page.wait_for_function("() => [...document.querySelectorAll('.chart')].every((one) => one.dataset.drawn)")


def visit(browser: Browser, path: Path, width: int = WIDTH, dark: bool = False) -> Visit:
    """Open a report."""
    page = browser.new_context(
        viewport={"width": width, "height": HEIGHT}, color_scheme="dark" if dark else "light", accept_downloads=True
    ).new_page()
    found = Visit(page)

    def heard(message: Any) -> None:
        if message.type in ("error", "warning"):
            found.errors.append(message.text)

    def refused(dialog: Any) -> None:
        found.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("console", heard)
    page.on("pageerror", lambda error: found.errors.append(str(error)))
    page.on("dialog", refused)
    page.on("request", lambda request: found.requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-charts]", state="attached")
    return found


def written(folder: Path, records: list[Any]) -> Path:
    """The report of records."""
    store = Store(folder / "records.sqlite")
    store.append(records)
    return Path(api.report(str(folder / "report.html"), store=store)[0])


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report in which every section has something to show."""
    return written(tmp_path_factory.mktemp("report"), made_records.of_every_section())


@pytest.fixture(scope="module")
def opened(browser: Browser, report: Path) -> Iterator[Visit]:
    """That report, open in a wide and light window, with every chart drawn."""
    found = visit(browser, report)
    found.draw_all()
    yield found
    found.page.context.close()
