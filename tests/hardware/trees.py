"""Recorded outputs, and trees of /proc and /sys made from them."""

from __future__ import annotations

from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    """What a tool prints."""
    return (RECORDED / name).read_text()


def grown(name: str, root: Path) -> Path:
    """The tree that a file describes, as files and links below `root`."""
    for line in recorded(name).splitlines():
        path, link, target = line.partition(" -> ")
        path, _, text = (path, "", "") if link else line.partition(" = ")
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if link:
            place.symlink_to(target)
        else:
            with place.open("a") as file:
                file.write(text + "\n")
    return root
