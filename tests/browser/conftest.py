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
WIDTH, HEIGHT = 1280, 800


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


def visit(browser: Browser, path: Path, width: int = WIDTH, dark: bool = False, scripts: bool = True) -> Visit:
    """Open a report."""
    return visited(browser, path.as_uri(), "html[data-ready]", width, dark, scripts)


def visited(
    browser: Browser, address: str, ready: str, width: int = WIDTH, dark: bool = False, scripts: bool = True
) -> Visit:
    """Open a page, which is ready when it has what a selector names."""
    page = browser.new_context(
        viewport={"width": width, "height": HEIGHT}, color_scheme="dark" if dark else "light", accept_downloads=True,
        java_script_enabled=scripts,
    ).new_page()  # fmt: skip
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
    page.goto(address)
    if scripts:
        page.wait_for_selector(ready, state="attached")
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
    """That report, open in a wide and light window."""
    found = visit(browser, report)
    yield found
    found.page.context.close()
