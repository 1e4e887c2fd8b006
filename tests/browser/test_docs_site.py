"""The pages as a site: built strictly, searched in a browser, with no request to another host."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import TimeoutError
from tests.browser.conftest import visited

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SLOW_MS, MOST_TRIES = 30_000, 4  # until a result shows; a busy browser may never start the search of a page
MAKER = Path(__file__).parents[2] / "docs" / "make_site.py"


class Silent(SimpleHTTPRequestHandler):
    """A server that writes no log."""

    def log_message(self, format: str, *words: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The site, as `make docs` builds it, served on loopback."""
    spec = importlib.util.spec_from_file_location("make_site", MAKER)
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    first: Path = maker.build(tmp_path_factory.mktemp("site"))  # which fails where a link leads nowhere
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(first.parent))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_the_site_of_the_docs_finds_a_word_and_asks_no_other_host(browser: Browser, address: str) -> None:
    visit = visited(browser, f"{address}index.html", "input.md-search__input")
    page = visit.page.locator(".md-search-result__list", has_text="Where the files are, and how to uninstall")
    for _ in range(MOST_TRIES):
        visit.page.fill("input.md-search__input", "uninstall")
        with contextlib.suppress(TimeoutError):
            page.wait_for(timeout=SLOW_MS)
            break
        visit.page.reload()
    assert page.is_visible()
    visit.page.goto(f"{address}docs/reference.html")
    assert visit.page.inner_text("h1").startswith("Reference")
    assert not visit.errors
    elsewhere = [each for each in visit.requests if not each.startswith((address, "data:", "blob:"))]
    assert not elsewhere
