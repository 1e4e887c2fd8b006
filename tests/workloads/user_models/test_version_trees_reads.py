"""What code reads besides what it imports is a part of its version, and must be of its own tree."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from tests.workloads.user_models import test_version_trees
from tests.workloads.user_models.test_version_trees import both, committed

from mldyno import sources
from mldyno.plugins import start_framework
from mldyno.sources import Source
from mldyno.workloads.user_models import code, describe, version_trees
from mldyno.workloads.user_models.recipes import NotUnderstood

fresh_process, repository = test_version_trees.fresh_process, test_version_trees.repository
BUILD = "def build(): return torch.nn.Linear(4, WIDTH), torch.randn(2, 4)\n"
HERE = "import torch, json, runpy, importlib.util, pathlib\nhere = pathlib.Path(__file__).parent.parent\n"
BY_PATH = """
spec = importlib.util.spec_from_file_location("settings", {folder} "more/settings.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
WIDTH = module.WIDTH
"""
# How a program finds its width, with the folder before the file's name.
READERS = {
    "run": ("settings.py", 'WIDTH = runpy.run_path(str({folder} "more/settings.py"))["WIDTH"]\n'),
    "loaded": ("settings.py", BY_PATH),
    "executed": ("settings.txt", 'exec(pathlib.Path({folder} "more/settings.txt").read_text())\n'),
    "read": ("settings.json", 'WIDTH = json.loads(pathlib.Path({folder} "more/settings.json").read_text())["WIDTH"]\n'),
}


def written(top: Path, width: int) -> None:
    (top / "more").mkdir(exist_ok=True)
    (top / "more" / "settings.py").write_text(f"WIDTH = {width}\n" + "# as it is" * width)
    (top / "more" / "settings.txt").write_text(f"WIDTH = {width}\n")
    (top / "more" / "settings.json").write_text(f'{{"WIDTH": {width}}}\n')


def program(top: Path, reader: str, folder: str) -> Path:
    """A program that finds its width so, as it was committed; then the width is changed."""
    file = top / "bench" / "gpt.py"
    file.write_text(HERE + READERS[reader][1].format(folder=folder) + BUILD)
    written(top, 3)
    committed(top)
    written(top, 5)
    return file


def forget() -> None:
    """Be a fresh process that describes code for the first time."""
    for loaded in code._LOADED.values():
        if loaded.active:
            loaded.deactivate()
    code._LOADED.clear()


def described(path: Path) -> Source:
    forget()
    return describe(sources.read(str(path)), start_framework)


@pytest.mark.parametrize("reader", READERS)
def test_code_and_settings_that_are_read_are_a_part_of_the_version(reader: str, repository: Path) -> None:
    old, now = both(program(repository, reader, "here /"))
    assert old.name != now.name
    assert old.read == now.read == (f"more/{READERS[reader][0]}",)
    for source in (old, now):
        code.check_unchanged(source, lambda source=source: code.digest_of(source))  # type: ignore[misc]
    written(repository, 7)
    assert code.digest_of(now) not in (now.built, now.digest)
    (repository / "more" / READERS[reader][0]).unlink()
    assert code.digest_of(now) not in (now.built, now.digest)


@pytest.mark.parametrize("reader", READERS)
def test_what_is_read_from_where_the_user_stands_is_refused_where_it_differs(
    reader: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = program(repository, reader, "''+")
    monkeypatch.chdir(repository)
    said = rf"^gpt\.py \(HEAD\): more/{READERS[reader][0]} was read from the other version's tree, where it differs"
    with pytest.raises(NotUnderstood, match=said):
        both(file)
    written(repository, 3)
    forget()
    old, now = both(file)
    assert old.name == now.name, "the same is read by both"


def test_data_caches_and_what_the_code_writes_are_no_part_of_the_version(repository: Path) -> None:
    names = ("data.bin", ".cache.json", "log.txt", "large.txt")
    write = "(here / 'log.txt').write_text('x')\n"
    read = "".join(f"(here / {name!r}).read_bytes()\n" for name in names)
    file = repository / "bench" / "gpt.py"
    file.write_text(HERE + write + read + "WIDTH = 3\n" + BUILD)
    first = ""
    for content in (b"1", b"2"):
        for name in names:
            (repository / name).write_bytes(content * (2 << 20 if name == "large.txt" else 1))
        source = described(file)
        assert source.read == ()
        assert source.name == (first := first or source.name)


def test_a_data_set_of_small_files_does_not_swell_a_source(repository: Path) -> None:
    for number in range(300):
        (repository / f"{number:03}.txt").write_text("a")
    file = repository / "bench" / "gpt.py"
    file.write_text(HERE + "[each.read_text() for each in sorted(here.glob('*.txt'))]\nWIDTH = 3\n" + BUILD)
    assert described(file).read == tuple(f"{number:03}.txt" for number in range(version_trees.MOST_FILES))


def test_nothing_is_watched_when_the_look_is_over(repository: Path) -> None:
    with (watch := version_trees.Watch()):
        (repository / "more.txt").write_text("a")
    (repository / "bench" / "gpt.py").read_text()
    assert not watch.read
    assert watch.written == {str(repository / "more.txt")}


def test_a_package_in_an_archive_is_a_part_of_the_version(repository: Path) -> None:
    file = repository / "bench" / "gpt.py"
    file.write_text(
        "import sys\n" + HERE + "sys.path.insert(0, str(here / 'own.zip'))\nfrom own_gpt.width import WIDTH\n" + BUILD
    )
    names = []
    for width in (3, 5):
        with zipfile.ZipFile(repository / "own.zip", "w") as archive:
            archive.writestr("own_gpt/__init__.py", "")
            archive.writestr("own_gpt/width.py", f"WIDTH = {width}\n")
        names.append(described(file).name)
    assert names[0] != names[1]
