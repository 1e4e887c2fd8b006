"""Templates of pages and pictures, which make printable and escape whatever is put into them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from mldyno.printable import printable

DATA = Path(__file__).parent.parent / "data"


@cache
def templates(folder: str) -> Any:
    """Return the templates of a folder in `data/`; each is compiled once."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(DATA / folder), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, finalize=_shown,
    )  # fmt: skip


def _shown(value: Any) -> Any:
    """Make text printable in HTML and XML; markup is ours."""
    return printable(value) if type(value) is str else value
