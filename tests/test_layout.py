"""Each test stands where the path of what it tests says: tests/store/test_codec.py for src/mldyno/store/codec.py.

`test_codec_upgrades.py` is a part of `codec`'s; `test_store.py` and `test_every_store.py` are for a folder.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent
# What is not a module: what must be survived, strange records, a device, a browser, older versions, docs, this rule,
# how the tests themselves start workers and commands.
TOPIC_FOLDERS = ("faults", "fuzz", "simulated", "browser", "history")
TOPIC_FILES = ("test_docs.py", "test_layout.py", "test_warm_workers.py", "test_warm_commands.py")
FILES = [
    path
    for path in sorted(TESTS.rglob("test_*.py"))
    if path.relative_to(TESTS).parts[0] not in (*TOPIC_FOLDERS, *TOPIC_FILES)
]


def names(folder: Path) -> set[str]:
    """What tests may be named after: modules and folders that lie there, and the folder itself."""
    modules = {path.stem.lstrip("_") for path in folder.glob("*.py")}
    return {folder.name, "every", *modules, *(path.name for path in folder.iterdir() if path.is_dir())}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_a_test_stands_where_its_module_does(path: Path) -> None:
    place = path.relative_to(TESTS).parent
    folder = ROOT / place if place.parts[:1] == ("bench",) else ROOT / "src" / "mldyno" / place
    assert folder.is_dir(), f"there is no folder {folder.relative_to(ROOT)}"
    name = path.stem.removeprefix("test_")
    assert any(name == known or name.startswith(f"{known}_") for known in names(folder)), (
        f"{folder.relative_to(ROOT)} has no module of which this could be the test"
    )
