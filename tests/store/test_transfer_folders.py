"""A folder is written whole or not at all, and nothing is replaced that is not ours; names of files are safe."""

from __future__ import annotations

from pathlib import Path

import pytest

from mldyno.errors import MldynoError
from mldyno.store import transfer

MARK = "mark.txt"


def write(path: Path, text: str = "new") -> None:
    with transfer.atomic_folder(str(path), MARK, lambda name: name in (MARK, "page.html")) as part:
        Path(part, MARK).write_text("ours")
        Path(part, "page.html").write_text(text)


def write_half(path: Path, end: BaseException) -> None:
    with transfer.atomic_folder(str(path), MARK, lambda name: True) as part:
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
    assert left_in(tmp_path / "site") == {MARK, "page.html"}


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


def test_a_place_that_can_not_be_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "missing" / "site"):
        with pytest.raises(MldynoError, match="nothing was written"):
            write(place)
    assert left_in(tmp_path) == {"file"}


def test_a_files_name_has_letters_of_a_name_and_a_hash_of_all_that_tells_it_apart() -> None:
    assert transfer.file_stem("Apple M2, 8 cores").startswith("apple-m2-8-cores-")
    stems = {transfer.file_stem(*parts) for parts in (("a", "b"), ("a", "c"), ("a",), ("A", "b"), ("/",), ("\ud800",))}
    assert len(stems) == 6
    assert all(set(stem) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for stem in stems)
    assert transfer.file_stem("a", "b") == transfer.file_stem("a", "b")
