"""A folder is written whole or not at all, and nothing is replaced that is not ours; names of files are safe."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mldyno import temporary
from mldyno.errors import MldynoError
from mldyno.files import file_stem

MARK = "mark.txt"


def write(path: Path, text: str = "new") -> None:
    with temporary.atomic_folder(str(path), MARK, "ours") as part:
        Path(part, "page.html").write_text(text)
        Path(part, "more").mkdir()
        Path(part, "more", "page.html").write_text(text)


def write_half(path: Path, end: BaseException) -> None:
    with temporary.atomic_folder(str(path), MARK, "ours") as part:
        Path(part, "half").touch()
        raise end


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_folder_takes_its_place_when_it_is_complete_and_an_old_one_goes(tmp_path: Path) -> None:
    place = tmp_path / "site"
    write(place, "old")
    (place / "page-of-before.html").touch()
    (place / "page-of-before.html").unlink()
    write(place, "new")
    assert (place / "page.html").read_text() == "new"
    assert left_in(tmp_path) == {"site"}


def test_an_empty_folder_is_filled_and_a_link_to_one_stays(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "link").symlink_to("site")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert left_in(tmp_path / "site") == {MARK, "page.html", "more"}


def test_whatever_goes_wrong_the_old_one_stays_and_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "site"
    write(place, "old")
    with pytest.raises(KeyboardInterrupt):
        write_half(place, KeyboardInterrupt())
    with pytest.raises(MldynoError, match=r"site: No space left; nothing was written\."):
        write_half(place, OSError(28, "No space left"))
    assert (place / "page.html").read_text() == "old"
    assert left_in(tmp_path) == {"site"}


@pytest.mark.parametrize("names", [("CNAME",), (MARK, ".git"), ("page.html",)])
def test_a_folder_of_others_or_with_something_of_others_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    place = tmp_path / "site"
    place.mkdir()
    for name in names:
        (place / name).write_text("theirs")
    with pytest.raises(MldynoError, match=r"site holds .*, which mldyno did not put there; name another folder\."):
        write(place)
    assert left_in(place) == set(names)
    assert left_in(tmp_path) == {"site"}


@pytest.mark.parametrize("name", ["mine.txt", "more/mine.txt", "more/mark.txt", "more/.hidden", "index-mine.html"])
def test_a_file_of_the_users_own_at_any_depth_keeps_a_folder_from_being_replaced(tmp_path: Path, name: str) -> None:
    place = tmp_path / "site"
    write(place, "old")
    (place / name).write_text("mine")
    with pytest.raises(MldynoError, match=rf"site holds {name}, which mldyno did not put there; name another folder\."):
        write(place)
    assert (place / name).read_text() == "mine"
    assert (place / "page.html").read_text() == "old"
    assert left_in(tmp_path) == {"site"}


def test_a_page_that_was_changed_by_hand_a_link_and_an_empty_folder_are_not_replaced(tmp_path: Path) -> None:
    changes: dict[str, Callable[[Path], object]] = {
        "more/page.html": lambda path: path.write_text("mine"), "more/link": lambda path: path.symlink_to("/"),
        "page.html": lambda path: os.replace(shutil.copy("/etc/passwd", tmp_path), path),
        "empty": lambda path: path.mkdir(), "more/pipe": os.mkfifo,
    }  # fmt: skip
    for number, (name, change) in enumerate(changes.items()):
        place = tmp_path / f"site{number}"
        write(place, "old")
        change(place / name)
        with pytest.raises(MldynoError, match=rf"holds {name}, which (mldyno did not put there|was changed since)"):
            write(place)
        assert os.path.lexists(place / name)


def test_what_the_file_browser_of_a_mac_adds_does_not_count(tmp_path: Path) -> None:
    place = tmp_path / "site"
    write(place, "old")
    (place / "more" / ".DS_Store").touch()
    write(place, "new")
    assert (place / "more" / "page.html").read_text() == "new"


def test_what_a_killed_process_left_is_removed_and_what_others_work_on_is_not(tmp_path: Path) -> None:
    host, number, started = temporary.own_name().split("-")
    ended, alive = f".mldyno-{host}-{number}-{int(started) - 1}-0.part", f".mldyno-{host}-{number}-{started}-0.part"
    elsewhere = f".mldyno-{'0' * 8}-{number}-1-0.part"
    for name in (ended, alive, elsewhere, "my.part"):
        (tmp_path / name).touch()
    (tmp_path / ended.replace("-0.part", "-1.part")).mkdir()
    write(tmp_path / "site")
    assert left_in(tmp_path) == {"site", "my.part", alive, elsewhere}, "others may work on these"


def test_a_place_that_can_not_be_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "missing" / "site"):
        with pytest.raises(MldynoError, match="nothing was written"):
            write(place)
    assert left_in(tmp_path) == {"file"}


def test_a_files_name_has_letters_of_a_name_and_a_hash_of_all_that_tells_it_apart() -> None:
    assert file_stem("Apple M2, 8 cores").startswith("apple-m2-8-cores-")
    stems = {file_stem(*parts) for parts in (("a", "b"), ("a", "c"), ("a",), ("A", "b"), ("/",), ("\ud800",))}
    assert len(stems) == 6
    assert all(set(stem) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for stem in stems)
    assert file_stem("a", "b") == file_stem("a", "b")
