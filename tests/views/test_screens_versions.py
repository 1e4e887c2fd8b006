"""What a change of the user's own code is called, and which of its versions is which."""

from __future__ import annotations

import re

from tests.analysis import made

from mldyno.sources import NOW, Source
from mldyno.views.screens import run_screen, version_titles

NOW_AND_HEAD = (
    Source("file", "/r/m.py", name="m.py@11111111", version=NOW),
    Source("file", "/tmp/r/m.py", name="m.py@22222222", version="HEAD"),
)


def test_versions_are_called_as_the_user_wrote_them_and_the_older_comes_first() -> None:
    titles = version_titles(NOW_AND_HEAD)
    assert list(titles.items()) == [("m.py@22222222", "m.py (HEAD)"), ("m.py@11111111", "m.py (now)")]
    outcomes = [made.outcome(step, workload=name) for step, name in ((1.0, "m.py@11111111"), (2.0, "m.py@22222222"))]
    screen = "\n".join(run_screen(outcomes, "workload", NOW_AND_HEAD, commands=True))
    assert "\nm.py (HEAD) is m.py@22222222; m.py (now) is m.py@11111111\n" in screen
    rows = re.findall(r"^ *(m\.py \(\w+\)) +([\d.]+) s", screen, re.MULTILINE)
    assert [(name, float(figure)) for name, figure in rows] == [("m.py (HEAD)", 2.0), ("m.py (now)", 1.0)]


def test_files_that_are_no_versions_of_each_other_keep_their_names() -> None:
    assert version_titles([Source("file", "/r/a.py", name="a.py@1"), Source("file", "/r/b.py", name="b.py@2")]) == {}


def test_another_file_is_called_by_its_own_name() -> None:
    assert Source("file", "/r/old.py", version="old.py").version_title == "old.py"
    assert Source("file", "/o/bench/m.py", version="../o/bench/m.py").version_title == "m.py (../o/bench/m.py)"
