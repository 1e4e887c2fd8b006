"""The pictures of the docs, from real records: measures a small set on this machine, then draws.

    make docs-pictures

The records go into a store of their own, `.venv/docs-pictures.sqlite`; where it is there already, only the
pictures are made. Delete it to measure anew. Screenshots need Chromium, as the tests do.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mldyno import api

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
STORE = ROOT / ".venv" / "docs-pictures.sqlite"
NOT_ALL_OK = 3  # exit code of a run with a case that never settled, say
MEASURED = (
    "quick -q",
    "run mlp --mode infer --batch 128 --precision fp32,bf16 --placement device,roundtrip --repeats 2 --budget 3s",
    "run bert-tiny --batch 1,4,16 --seq 32,128,512 --repeats 1 --budget 2s",
    "run resnet18-cifar --batch 8,32 --repeats 1 --budget 3s",
    "crossover mlp --threads 1,2 --mode infer --from 1 --to 16 --repeats 1 --budget 1s",
)
CHARTS = ("league", "ratio-precision", "growth-0", "crossover-0", "peak")
VIEWS = {  # name: width, height, light, dark or paper, and the section to look at
    "report": (1280, 800, "light", None),
    "report-dark": (1280, 800, "dark", "speeds"),
    "report-phone": (390, 844, "light", None),
    "report-traces": (1280, 800, "light", "sure"),
    "report-print": (794, 1123, "paper", None),
}


def main() -> None:
    """Measure where nothing was measured yet, then draw."""
    if not STORE.exists():
        for words in MEASURED:
            command = [sys.executable, "-m", "mldyno", *words.split(), "--store", str(STORE)]
            code = subprocess.run(command, check=False).returncode
            if code not in (0, NOT_ALL_OK):
                sys.exit(code)
    PICTURES.mkdir(exist_ok=True)
    api.card(str(PICTURES / "card.png"), store=str(STORE))
    with tempfile.TemporaryDirectory() as folder:
        for path in map(Path, api.report(f"{folder}/charts", form="svg", store=str(STORE))):
            if path.stem in CHARTS:
                shutil.copyfile(path, PICTURES / path.name)
        report = Path(api.report(f"{folder}/report.html", store=str(STORE))[0])
        api.site(f"{folder}/site", store=str(STORE))
        screenshots(report, Path(folder, "site", "index.html"))


def screenshots(report: Path, site: Path) -> None:
    """The pages as a browser shows them."""
    from playwright.sync_api import sync_playwright

    browsers = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=next(filter(None, browsers)), args=["--no-sandbox"])
        for name, (width, height, look, section) in {**VIEWS, "site": (1280, 800, "light", None)}.items():
            scheme = "dark" if look == "dark" else "light"
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.emulate_media(media="print" if look == "paper" else "screen")
            page.goto((site if name == "site" else report).as_uri())
            page.wait_for_load_state("networkidle")
            if section:
                page.evaluate("(id) => document.getElementById(id).scrollIntoView({behavior: 'instant'})", section)
            page.screenshot(path=PICTURES / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
