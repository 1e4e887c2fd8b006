"""Write a static site of records: machines with their scores, rankings of work, and pages to compare machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from mldyno.records import Record

Whose = tuple[str, bool]  # a machine as tables name it, and whether it is a published one


def write_site(
    records: Sequence[Record], files: Mapping[Whose, str], folder: str, progress: Callable[[int, int], None]
) -> None:
    """Write a site of records, published ones among them, into an empty folder; `files` names each machine's files.

    `progress` is called with how many of how many steps are done.
    """
    from mldyno import __version__
    from mldyno.views.site.collection import collected
    from mldyno.views.site.pages import pages

    done, total = 0, 2 * len(files)  # each machine is worked out, and written

    def count_one() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    collection = collected(records, files, count_one)
    total += len(collection.rankings)
    for name in ("files", "machines", "work"):
        os.mkdir(os.path.join(folder, name))
    for path, text in pages(collection, __version__, count_one):
        with open(os.path.join(folder, path), "w", encoding="utf-8", newline="\n") as out:
            out.write(text)
